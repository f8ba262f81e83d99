// SPDX-License-Identifier: Apache-2.0
// The `verbena` command.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/nearest_word.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"

#ifndef VERBENA_VERSION
#error "VERBENA_VERSION comes from the build"
#endif

namespace {

// A command below is told by the first line of what it says of itself; the rest stands in its own --help.
class Brief final : public CLI::Formatter {
 public:
  std::string make_subcommand(const CLI::App* command) const override {
    const std::string text = command->get_description();
    std::ostringstream line;
    CLI::detail::format_help(line, command->get_display_name(true), text.substr(0, text.find('\n')),
                             get_column_width());
    return line.str();
  }
};

// Which command the words were meant for.
const CLI::App* chosen_of(const CLI::App& program) {
  const CLI::App* chosen = &program;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return chosen;
}

std::string name_of(const CLI::App& chosen) {
  return chosen.get_parent() == nullptr ? chosen.get_name() : name_of(*chosen.get_parent()) + " " + chosen.get_name();
}

std::vector<std::string> commands_below(const CLI::App& chosen) {
  std::vector<std::string> names;
  for (const CLI::App* one : chosen.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& chosen) {
  std::vector<std::string> names;
  for (const CLI::Option* one : chosen.get_options())
    for (const std::string& name : one->get_lnames()) names.push_back("--" + name);
  return names;
}

// A word nobody knows is named, whatever else it was mistaken for or displaced.
std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error) {
  using namespace verbena::tools;
  const CLI::App& chosen = *chosen_of(program);
  const bool wants_command = chosen.get_require_subcommand_min() > 0;
  std::vector<std::string> unknown = program.remaining(true);
  std::erase(unknown, "--");
  if (unknown.empty())
    return wants_command ? "give one of its commands: " + list_words(commands_below(chosen)) : error.what();
  const std::string word = "'" + unknown.front() + "'";
  if (unknown.front().size() > 1 && unknown.front().front() == '-')
    return "there is no option " + word + did_you_mean(unknown.front(), options_of(chosen));
  if (!wants_command) return "there is no use for the word " + word;
  const std::vector<std::string> commands = commands_below(chosen);
  return "there is no command " + word + did_you_mean(unknown.front(), commands) + "; there are " +
         list_words(commands);
}

int explain_usage(const CLI::App& program, const CLI::ParseError& error) {
  using namespace verbena::tools;
  if (error.get_exit_code() == 0) return finish_output(program.exit(error));
  const std::string command = name_of(*chosen_of(program));
  const std::string wrong = printable(what_is_wrong(program, error));
  say(stderr, "{}: {}\n  `{} --help` shows how it is used.\n", command, wrong, command);
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace verbena::tools;
  for (const int one : {SIGPIPE, SIGXFSZ}) std::signal(one, SIG_IGN);  // who writes is told by the call
  CLI::App program("RDMA on any machine: look at devices, try connections, move files.", "verbena");
  program.set_version_flag("--version", "verbena " VERBENA_VERSION);
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  program.formatter(std::make_shared<Brief>());
  int status = kExitOk;
  add_devices_command(program, status);
  add_ping_command(program, status);
  add_pingpong_command(program, status);
  add_rping_command(program, status);
  add_bench_command(program, status);
  add_tune_command(program, status);
  add_serve_command(program, status);
  add_get_command(program, status);
  add_put_command(program, status);
  add_broker_command(program, status);
  add_sim_command(program, status);
  add_counters_command(program, status);
  add_capture_command(program, status);
  add_config_command(program, status);
  add_doctor_command(program, status);
  add_completion_commands(program, status, VERBENA_VERSION);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain_usage(program, error);
  }
  return finish_output(status);
}
