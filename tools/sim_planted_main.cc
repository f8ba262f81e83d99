// SPDX-License-Identifier: Apache-2.0
// `verbena sim --plant BUG`: the same command, linked with the copy of the device in which bugs can be switched on.
#include <CLI/CLI.hpp>

#include "tools/command.h"
#include "tools/say.h"

int main(int argc, char** argv) {
  CLI::App program("The simulated device with a bug planted; run as `verbena sim --plant BUG`.", "verbena");
  program.require_subcommand(1);
  int status = 0;
  verbena::tools::add_sim_command(program, status);
  CLI11_PARSE(program, argc, argv);
  return verbena::tools::finish_output(status);
}
