// SPDX-License-Identifier: Apache-2.0
// verbena capture: what a program's devices put on the wire, into a file for Wireshark.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <set>

#include "tools/child.h"
#include "tools/command.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"

namespace verbena::tools {

namespace {

namespace fs = std::filesystem;

struct CaptureOptions {
  std::string file;
  std::vector<std::string> words;
};

// Files of devices stand beside `file`: its name with -PID-NUMBER before the extension.
std::set<fs::path> device_files(const fs::path& file) {
  std::set<fs::path> found;
  const std::string stem = file.stem().string() + "-", extension = file.extension().string();
  std::error_code error;
  for (fs::directory_iterator at(file.parent_path(), error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() <= stem.size() + extension.size() || name.substr(0, stem.size()) != stem ||
        name.substr(name.size() - extension.size()) != extension)
      continue;
    const std::string middle = name.substr(stem.size(), name.size() - stem.size() - extension.size());
    if (middle.find_first_not_of("0123456789-") == std::string::npos) found.insert(at->path());
  }
  return found;
}

// A disk that is full, or a limit of file sizes, cuts a block of pcapng, which has its length at both ends.
bool ends_with_whole_block(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const auto length_at = [&file](std::int64_t before_end) {
    std::uint32_t length = 0;
    file.seekg(-before_end, std::ios::end).read(reinterpret_cast<char*>(&length), sizeof length);
    return length;
  };
  if (!file) return true;  // not ours to judge
  const std::uint32_t length = length_at(4);
  return length_at(std::int64_t{length} - 4) == length && file.good();
}

int tell(const CaptureOptions& options, const fs::path& file, const std::set<fs::path>& before, int status) {
  std::vector<fs::path> made;
  for (const fs::path& one : device_files(file))
    if (!before.contains(one)) made.push_back(one);
  if (made.empty()) {
    const int none =
        report_failure("capture", options.words.front() + " opened no device of Verbena's, so nothing was captured",
                       "A set-user-ID program ignores VERBENA_PCAP; a program with --pcap has its own file.");
    return status != 0 ? status : none;
  }
  if (made.size() == 1) {
    std::error_code error;
    fs::rename(made.front(), file, error);
    if (!error) made.front() = file;
  }
  for (const fs::path& one : made) {
    std::error_code error;
    say(stderr, "verbena capture: {}, {} bytes\n", printable(one.string()), fs::file_size(one, error));
    if (ends_with_whole_block(one)) continue;
    const int incomplete =
        report_failure("capture", one.string() + " is incomplete: it ends within a packet",
                       "The disk is full, or the program was killed or still runs: make room, or wait for it.");
    if (status == 0) status = incomplete;
  }
  return status;
}

int run_capture(const CaptureOptions& options) {
  if (options.words.empty()) return report_usage("capture", "CMD is missing: verbena capture -w FILE -- CMD");
  std::error_code error;
  const fs::path file = fs::absolute(options.file, error);  // the program may change its folder
  if (!fs::is_directory(file.parent_path(), error) || fs::is_directory(file, error))
    return report_failure("capture", options.file + " cannot be a file: the folder must be there, and it none itself",
                          "Name a file for -w in a folder that is there and that this user may write to.");
  const auto there = fs::symlink_status(file, error);
  if (fs::exists(there) && !fs::is_regular_file(there))
    return report_failure("capture", options.file + " is no plain file, and would be replaced",
                          "Name another file for -w.");
  const auto before = device_files(file);
  const SignalsLeftToChild signals;  // until the file has its name
  const auto status = run_child(signals, options.words, "VERBENA_PCAP", file.string(), [] {});
  if (!status) return report_error("capture", status.error(), "Check the spelling of the program after `--`.");
  return tell(options, file, before, *status);
}

}  // namespace

void add_capture_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "capture", "Run a program and write every packet of its devices to a file, for Wireshark.\n"
                 "  verbena capture -w wire.pcapng -- ./a.out\n"
                 "Each device has a file of its own, FILE with -PID-NUMBER before its extension; when there is\n"
                 "one alone, it is FILE. SIGTERM and SIGHUP are passed on to the program, and its end is waited for.\n"
                 "The exit status is the program's; 1 when it ended well and opened no device, or left an incomplete\n"
                 "file.");
  auto options = std::make_shared<CaptureOptions>();
  add_file(*command, "-w,--write", options->file, "The capture file, in pcapng")->required();
  command->add_option("CMD", options->words, "The program and its arguments, after `--`");
  command->callback([options, &status] { status = run_capture(*options); });
}

}  // namespace verbena::tools
