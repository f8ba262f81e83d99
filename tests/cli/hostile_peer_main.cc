// SPDX-License-Identifier: Apache-2.0
// hostile_peer list client|server; hostile_peer client CASE ADDRESS; hostile_peer server CASE;
// hostile_peer deaf; hostile_peer mute ADDRESS.
#include <unistd.h>

#include <cstdio>

#include "tests/cli/hostile_peer.h"

namespace {

using namespace verbena::tools;

int run(const HostileCase& chosen, const std::string& address) {
  auto peer = HostilePeer::create();
  if (!peer) return std::fprintf(stderr, "%s\n", peer.error().to_string().c_str()), 1;
  const auto ready = address.empty() ? (*peer)->serve() : (*peer)->connect(address);
  if (!ready) return std::fprintf(stderr, "%s\n", ready.error().to_string().c_str()), 1;
  chosen.act(**peer);
  return 0;
}

// Listens, and looks at nothing that comes.
int be_deaf() {
  auto peer = HostilePeer::create();
  auto listener = peer ? (*peer)->open_listener() : verbena::Result<verbena::Listener>(peer.error());
  if (!listener) return std::fprintf(stderr, "%s\n", listener.error().to_string().c_str()), 1;
  for (;;) ::pause();
}

// Connects, and says nothing.
int be_mute(const std::string& address) {
  auto peer = HostilePeer::create();
  const auto connected = peer ? (*peer)->connect(address) : verbena::Result<void>(peer.error());
  if (!connected) return std::fprintf(stderr, "%s\n", connected.error().to_string().c_str()), 1;
  for (;;) ::pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words == std::vector<std::string>{"deaf"}) return be_deaf();
  if (words.size() < 2) return 2;
  if (words[0] == "mute") return be_mute(words[1]);
  const bool lists = words[0] == "list";
  const std::string& side = lists ? words[1] : words[0];
  for (const HostileCase& one : side == "server" ? server_cases() : client_cases()) {
    if (lists) std::printf("%s\n", std::string(one.name).c_str());
    else if (one.name == words[1]) return run(one, words.size() > 2 ? words[2] : "");
  }
  return lists ? 0 : 2;
}
