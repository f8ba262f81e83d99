// SPDX-License-Identifier: Apache-2.0
// The `verbena` command.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "tools/command.h"
#include "tools/report.h"
#include "tools/say.h"

#ifndef VERBENA_VERSION
#error "VERBENA_VERSION comes from the build"
#endif

namespace {

// Which command the words were meant for.
std::string command_of(const CLI::App& program) {
  for (const CLI::App* chosen : program.get_subcommands()) return "verbena " + chosen->get_name();
  return "verbena";
}

int explain_usage(const CLI::App& program, const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return verbena::tools::finish_output(program.exit(error));
  const std::string command = command_of(program);
  verbena::tools::say(stderr, "{}: {}\n  `{} --help` shows how it is used.\n", command, error.what(), command);
  return verbena::tools::kExitUsage;
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
  add_serve_command(program, status);
  add_get_command(program, status);
  add_put_command(program, status);
  add_sim_command(program, status);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return explain_usage(program, error);
  }
  return finish_output(status);
}
