// SPDX-License-Identifier: Apache-2.0
// verbena bench protocols: all message protocols, one beside the other.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/message_command.h"
#include "tools/message_matrix.h"
#include "tools/number_flags.h"

namespace verbena::tools {

void add_protocols_command(CLI::App& bench, int& status) {
  auto flags = std::make_shared<MatrixFlags>();
  CLI::App* command = bench.add_subcommand(
      "protocols",
      "Measure all message protocols and say which to take: by size, over each path, many senders, many threads.\n"
      "  verbena bench protocols             on this machine\n"
      "  verbena bench protocols HOST        with a `verbena bench message` there\n"
      "What does best in one run is measured again before it is recommended, and what those runs do not tell apart is\n"
      "named.");
  add_message_client_flags(*command, flags->client);
  add_kinds_flag(*command, "--kinds,--protocol", flags->kinds);
  command->add_option("--path", flags->path, "By shared memory (local), packets (roce), or what comes by itself (auto) "
                                             "alone; otherwise local and roce, as far as they are there")
      ->type_name("PATH")
      ->check(CLI::IsMember({"auto", "roce", "local"}));
  require_whole(command->add_option("-n,--iters", flags->iterations,
                                    "Messages of a latency; ten times as many of a rate, fewer of large ones")
                    ->capture_default_str(),
                1, kMaxMatrixIterations);
  add_file(*command, "--report", flags->report, "Write a page with plots there")->capture_default_str();
  command->callback([flags, &status] { status = run_matrix("bench protocols", *flags); });
}

}  // namespace verbena::tools
