// SPDX-License-Identifier: Apache-2.0
// The other side of the echo_* servers: many clients at once, each a coroutine with a connection of its own.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "or_exit.h"
#include "verbena/verbena.h"

namespace echo {

using verbena::Connection;
using verbena::Device;
using verbena::MemoryRegion;
using verbena::Operation;
using verbena::OperationOutcome;
using verbena::ProgressEngine;
using verbena::Task;

inline constexpr int kClients = 20;
inline constexpr int kWords = 50;
inline constexpr std::size_t kMessageBytes = 64;

// How many words came back as they were sent.
inline Task<int> call(Device& device, ProgressEngine& engine, std::string address, int number) {
  const MemoryRegion inbox = or_exit(device.allocate_memory(kMessageBytes));
  Connection server = or_exit(co_await Connection::async_connect(engine, address));
  int same = 0;
  for (int i = 0; i < kWords; ++i) {
    const std::string word = "word " + std::to_string(i) + " of client " + std::to_string(number);
    Operation answer = server.receive(inbox.local());
    or_exit(co_await server.send_inline(std::as_bytes(std::span{word})));
    const OperationOutcome got = or_exit(co_await answer);
    if (got.bytes == word.size() && std::memcmp(inbox.data(), word.data(), word.size()) == 0) ++same;
  }
  or_exit(co_await server.async_close());
  co_return same;
}

inline void call_many(Device& device, ProgressEngine& engine, const char* address) {
  std::vector<Task<int>> clients;
  for (int number = 0; number < kClients; ++number) clients.push_back(call(device, engine, address, number));
  int same = 0;
  for (const int words : engine.run(verbena::when_all(std::move(clients)))) same += words;
  std::printf("%d clients, %d words came back\n", kClients, same);
}

}  // namespace echo
