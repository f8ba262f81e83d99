// SPDX-License-Identifier: Apache-2.0
// verbena counters: what the devices of other programs counted, once or again and again.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "tools/child.h"
#include "tools/command.h"
#include "tools/json_output.h"
#include "tools/number_flags.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "verbena/device/environment.h"

namespace verbena::tools {

namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMaxCounterFileBytes = 64 << 10;
constexpr std::size_t kMaxFiles = 4096;

struct CountersOptions {
  std::string folder;
  bool watch = false, json = false, zeros = false;
  double interval = 1;  // seconds
  std::vector<std::string> words;
};

// One file that a device keeps.
struct CounterReading {
  std::uint64_t pid = 0, number = 0;  // the number tells apart the devices of a process
  std::string program, device, address;
  bool open = false, ended = false;  // ended: its process, without closing the device
  std::vector<std::pair<std::string, std::uint64_t>> counters;

  bool operator==(const CounterReading&) const = default;
};

// What a folder holds, and why some or all of it cannot be read, if so.
struct CounterReadings {
  std::vector<CounterReading> all;
  std::error_code obstacle;
};

// "device-4711-2". The file's contents come from whoever may write there, so that every word is looked at.
std::optional<CounterReading> read_one(const fs::path& path, std::error_code& obstacle) {
  CounterReading reading;
  const std::string name = path.filename().string();
  constexpr std::string_view kPrefix = "device-";
  const std::size_t dash = name.find('-', kPrefix.size());
  if (name.rfind(kPrefix, 0) != 0 || dash == std::string::npos) return std::nullopt;
  const auto pid = parse_whole(name.substr(kPrefix.size(), dash - kPrefix.size()), 1, 1u << 30);
  const auto number = parse_whole(name.substr(dash + 1), 1, 1u << 30);
  if (!pid || !number) return std::nullopt;
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (error && error != std::errc::no_such_file_or_directory) obstacle = error;
  if (!fs::is_regular_file(status) || fs::file_size(path, error) > kMaxCounterFileBytes) return std::nullopt;
  reading.pid = *pid;
  reading.number = *number;
  errno = 0;
  std::ifstream file(path);
  if (!file && errno != ENOENT) obstacle.assign(errno, std::generic_category());
  for (std::string key, value; file >> key >> value;) {
    if (key == "program") reading.program = printable(value);
    else if (key == "device") reading.device = printable(value);
    else if (key == "address") reading.address = printable(value);
    else if (key == "open") reading.open = value == "yes";
    else if (const auto count = parse_whole(value, 0, ~std::uint64_t{0}))
      reading.counters.emplace_back(printable(key), *count);
  }
  if (reading.device.empty()) return std::nullopt;  // not read, not written yet, or nothing that a device writes
  // A process that ended without closing its device has left the file as it was.
  reading.ended = reading.open && !fs::exists("/proc/" + std::to_string(reading.pid), error);
  if (reading.ended) reading.open = false;
  return reading;
}

CounterReadings read_all(const std::string& folder) {
  CounterReadings found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end && found.all.size() < kMaxFiles;
       at.increment(error))
    if (auto one = read_one(at->path(), found.obstacle)) found.all.push_back(std::move(*one));
  if (error && error != std::errc::no_such_file_or_directory) found.obstacle = error;
  std::ranges::sort(found.all, {}, [](const CounterReading& one) { return std::pair(one.pid, one.number); });
  return found;
}

using Values = std::map<std::string, std::uint64_t>;
std::string key_of(const CounterReading& reading, const std::string& name) {
  return fmt::format("{}-{}-{}", reading.pid, reading.number, name);
}

// With what was read `seconds` ago, if anything, rates too.
void print_table(const CountersOptions& options, const std::vector<CounterReading>& all, const Values& before,
                 double seconds, std::FILE* out) {
  for (const CounterReading& reading : all) {
    const char* state = reading.open ? "" : reading.ended ? ", ended without closing it" : ", closed";
    say(out, "{} ({}), {} at {}{}\n", reading.pid, reading.program, reading.device, reading.address, state);
    for (const auto& [name, value] : reading.counters) {
      if (value == 0 && !options.zeros) continue;
      const auto old = before.find(key_of(reading, name));
      if (old == before.end() || seconds <= 0) say(out, "  {:<28} {:>16}\n", name, value);
      else
        say(out, "  {:<28} {:>16} {:>14.1f}/s\n", name, value,
            static_cast<double>(value - std::min(value, old->second)) / seconds);
    }
  }
  std::fflush(out);
}

void print_json(const std::vector<CounterReading>& all) {
  nlohmann::json list = nlohmann::json::array();
  for (const CounterReading& reading : all) {
    nlohmann::json counters = nlohmann::json::object();
    for (const auto& [name, value] : reading.counters) counters[name] = value;
    list.push_back({{"pid", reading.pid},
                    {"number", reading.number},
                    {"program", reading.program},
                    {"device", reading.device},
                    {"address", reading.address},
                    {"open", reading.open},
                    {"counters", counters}});
  }
  say_json(list);
  std::fflush(stdout);
}

// Shows all again and again; a terminal is cleared in between.
class Watch {
 public:
  Watch(const CountersOptions& options, std::string folder, std::FILE* out)
      : options_(options), folder_(std::move(folder)), out_(out), clears_(::isatty(::fileno(out)) == 1) {}

  void glance() {
    const double now = monotonic_seconds();
    if (now - shown_at_ < options_.interval) return;
    auto all = read_all(folder_).all;
    if (options_.json) {
      print_json(all);
    } else {
      if (clears_) say(out_, "\x1b[H\x1b[2J");
      print_table(options_, all, before_, shown_at_ == 0 ? 0 : now - shown_at_, out_);
    }
    before_.clear();
    for (const CounterReading& reading : all)
      for (const auto& [name, value] : reading.counters) before_[key_of(reading, name)] = value;
    shown_at_ = now;
    shown_ = std::move(all);
  }
  // Whether the last glance showed just that.
  bool has_shown(const std::vector<CounterReading>& all) const { return shown_at_ != 0 && shown_ == all; }

 private:
  const CountersOptions& options_;
  const std::string folder_;
  std::FILE* out_;
  const bool clears_;
  double shown_at_ = 0;
  Values before_;
  std::vector<CounterReading> shown_;
};

int run_program(const CountersOptions& options) {
  const SignalsLeftToChild signals;  // until the folder is gone
  std::error_code wrong;
  fs::path place = fs::temp_directory_path(wrong);
  if (!wrong) place = fs::absolute(place, wrong);  // the program may change its folder
  if (wrong)
    return report_failure("counters", "there is no folder for temporary files: " + wrong.message(),
                          "Set TMPDIR to a folder that is there.");
  std::string folder = (place / "verbena-counters-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return report_error("counters", Error::from_errno(errno, "make " + folder));
  Watch watch(options, folder, stderr);
  const auto status = run_child(signals, options.words, "VERBENA_COUNTERS", folder, [&] {
    if (options.watch) watch.glance();
  });
  const auto all = read_all(folder).all;
  std::error_code ignored;
  fs::remove_all(folder, ignored);
  if (!status) return report_error("counters", status.error(), "Check the spelling of the program after `--`.");
  if (all.empty()) {
    const int none = report_failure("counters", options.words.front() + " opened no device of Verbena's",
                                    "A set-user-ID program ignores VERBENA_COUNTERS.");
    return *status != 0 ? *status : none;
  }
  if (watch.has_shown(all)) return *status;
  if (options.json) print_json(all);
  else print_table(options, all, {}, 0, stderr);
  return *status;
}

int look_at(const CountersOptions& options, const std::string& folder) {
  Watch watch(options, folder, stdout);
  const auto [all, obstacle] = read_all(folder);
  if (obstacle && all.empty())
    return report_error("counters", Error::from_errno(obstacle.value(), "read the counters in " + folder));
  if (obstacle) say(stderr, "verbena counters: some in {} cannot be read: {}\n", folder, obstacle.message());
  if (options.watch && all.empty())
    say(stderr, "verbena counters: waiting for programs with VERBENA_COUNTERS={}\n", folder);
  while (options.watch) {
    watch.glance();
    if (std::ferror(stdout) != 0) return kExitOk;
    ::usleep(50'000);
  }
  if (options.json) print_json(all);
  else print_table(options, all, {}, 0, stdout);
  if (!all.empty()) return kExitOk;
  return report_failure("counters", "no program has left counters in " + folder,
                        "Start programs with VERBENA_COUNTERS=" + folder + ", or run `verbena counters -- CMD`.");
}

int run_counters(const CountersOptions& options, bool has_interval) {
  if (has_interval && !options.watch) return report_usage("counters", "--interval is for --watch");
  if (!options.words.empty()) {
    if (!options.folder.empty())
      return report_usage("counters", "--folder is for programs that run already; CMD gets one of its own");
    return run_program(options);
  }
  if (!options.folder.empty()) return look_at(options, options.folder);
  for (const EnvironmentVariable& one : environment())
    if (one.name == "VERBENA_COUNTERS" && one.value) return look_at(options, *one.value);
  return report_usage("counters", "whose counters? Give CMD after `--`, --folder, or set VERBENA_COUNTERS");
}

}  // namespace

void add_counters_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "counters", "Show what the devices of other programs counted; names as in the kernel's hw_counters.\n"
                  "  verbena counters --watch -- ./a.out                         runs it; counters on standard error\n"
                  "  VERBENA_COUNTERS=$XDG_RUNTIME_DIR/verbena ./a.out           a program that is to be looked at\n"
                  "  verbena counters --watch --folder $XDG_RUNTIME_DIR/verbena  while it runs\n"
                  "  verbena counters --json -- sh -c './a.out >&2' >counters.json  its output is not in the JSON\n"
                  "With CMD the exit status is the program's; 1 when it ended well and opened no device. SIGTERM and\n"
                  "SIGHUP are passed on to it, and its counters are shown once it has ended.");
  auto options = std::make_shared<CountersOptions>();
  command->add_flag("-w,--watch", options->watch, "Again and again, with rates");
  auto* interval = command->add_option("--interval", options->interval, "Seconds between two looks with --watch");
  require_seconds(interval->capture_default_str(), 0.1, 86400);
  command->add_flag("-z,--zeros", options->zeros, "Counters that are zero too");
  command->add_flag("--json", options->json,
                    "A JSON array with an object per device, on standard output, below what CMD prints there");
  auto* folder =
      command->add_option("--folder", options->folder, "Where programs keep their counters ($VERBENA_COUNTERS)");
  require_word(folder->type_name("FOLDER"));
  command->add_option("CMD", options->words, "A program to run and its arguments, after `--`");
  command->callback([options, interval, &status] { status = run_counters(*options, interval->count() != 0); });
}

}  // namespace verbena::tools
