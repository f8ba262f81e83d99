// SPDX-License-Identifier: Apache-2.0
// verbena completion and verbena manual: what shells and man know of this program, from what parses its words.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "tools/command.h"
#include "tools/command_tree.h"
#include "tools/number_flags.h"
#include "tools/report.h"
#include "tools/say.h"

namespace verbena::tools {

namespace {

int write_pages(const CLI::App& program, const std::string& folder, const std::string& version) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return report_error("manual", Error::from_errno(error.value(), "make " + folder));
  for (const CommandEntry& one : command_tree(program)) {
    const std::string path = folder + "/" + page_name(one) + ".1";
    errno = 0;
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << manual_page(one, version);
    file.close();
    if (!file) return report_error("manual", Error::from_errno(errno == 0 ? EIO : errno, "write " + path));
  }
  return kExitOk;
}

}  // namespace

void add_completion_commands(CLI::App& program, int& status, const std::string& version) {
  CLI::App* completion = program.add_subcommand(
      "completion", "Print a script that completes commands and flags.\n  source <(verbena completion bash)");
  auto shell = std::make_shared<std::string>();
  completion->add_option("SHELL", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  completion->callback([&program, &status, shell] {
    say(stdout, "{}", bash_completion(command_tree(program)));
    status = kExitOk;
  });
  CLI::App* manual = program.add_subcommand(
      "manual", "Write the manual pages, one per command.\n"
                "  verbena manual share/man/man1 && man -M share/man verbena");
  auto folder = std::make_shared<std::string>();
  require_word(manual->add_option("FOLDER", *folder, "Where to; it is made when it is missing")->required());
  manual->callback([&program, &status, folder, version] { status = write_pages(program, *folder, version); });
}

}  // namespace verbena::tools
