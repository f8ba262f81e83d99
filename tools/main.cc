// SPDX-License-Identifier: Apache-2.0
// The `verbena` command.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/command.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"

#ifndef VERBENA_VERSION
#error "VERBENA_VERSION comes from the build"
#endif

namespace {

// Which command the words were meant for.
std::string command_of(const CLI::App& program) {
  std::string words = program.get_name();
  const CLI::App* chosen = &program;
  while (!chosen->get_subcommands().empty()) {
    chosen = chosen->get_subcommands().front();
    words += " " + chosen->get_name();
  }
  return words;
}

// A word nobody knows is named, whatever else it was mistaken for or displaced.
std::string what_is_wrong(const CLI::App& program, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = program.remaining(true);
  if (unknown.empty()) return error.what();
  const std::string word = "'" + unknown.front() + "'";
  if (unknown.front().size() > 1 && unknown.front().front() == '-') return "there is no option " + word;
  return program.get_subcommands().empty() ? "there is no command " + word : "there is no use for the word " + word;
}

int explain_usage(const CLI::App& program, const CLI::ParseError& error) {
  using namespace verbena::tools;
  if (error.get_exit_code() == 0) return finish_output(program.exit(error));
  const std::string command = command_of(program);
  const std::string wrong = printable(what_is_wrong(program, error));
  say(stderr, "{}: {}\n  `{} --help` shows how it is used.\n", command, wrong, command);
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace verbena::tools;
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App program("RDMA on any machine: look at devices, try connections, move files.", "verbena");
  program.set_version_flag("--version", "verbena " VERBENA_VERSION);
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::simple);
  int status = kExitOk;
  add_devices_command(program, status);
  add_ping_command(program, status);
  add_pingpong_command(program, status);
  add_rping_command(program, status);
  add_bench_command(program, status);
  add_serve_command(program, status);
  add_get_command(program, status);
  add_put_command(program, status);
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
