// SPDX-License-Identifier: Apache-2.0
// The command line of short programs that serve when they have no argument, and else visit the one that serves.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

// What the server printed, or null in the server. Asked for help, or given something else, the program ends here.
inline const char* peer_argument(int argc, char** argv, const char* peer = "HOST:PORT") {
  if (argc == 1) return nullptr;
  const std::string_view first = argv[1];
  const bool help = first == "--help" || first == "-h";
  if (argc == 2 && !help && !first.starts_with('-')) return argv[1];
  std::fprintf(help ? stdout : stderr, "usage: %s [%s]  without: the server, which prints %s; with: its visitor\n",
               argv[0], peer, peer);
  std::exit(help ? 0 : 2);
}
