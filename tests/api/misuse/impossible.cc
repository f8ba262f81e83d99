// SPDX-License-Identifier: Apache-2.0
// What templates and braces refuse, with a word of why.
#include <array>
#include <string>

#include "verbena/verbena.h"

using namespace verbena;

struct Level {
  explicit Level(int value);
};
Result<int> counted();

#ifndef VERBENA_RIGHT_USE

// An error would become a success, and any number a level, with no word of it.
Result<bool> is_any() { return counted(); }  // refused: conver
Result<Level> level() { return 7; }          // refused: conver

void use(Operation& operation, const std::array<char, 64>& much) {
  operation.on_done([much](Operation&) { (void)much; });  // refused: capture less, by pointer
  operation.on_done([] {});                               // refused: is_invocable
  using Reference = Task<int&>;
  (void)sizeof(Reference);             // refused: return a pointer
  (void)ListenOptions{.port = 70000};  // refused: narrow
  (void)Duration{0.5};                 // refused: narrow
}

#else

Result<bool> is_any() {
  return counted().and_then([](int count) -> Result<bool> { return count > 0; });
}
Result<Level> level() { return Level(7); }
Result<std::string> name() { return "by itself"; }
// Members that are left out draw no warning.
QueuePairAttributes ready() { return {.state = QueuePairState::Init}; }
bool post(QueuePair& pair, std::span<const std::byte> bytes) {
  return pair.post_send({.id = 1}) && pair.post_receive({.id = 2}) && pair.try_write_now({.bytes = bytes});
}

void use(Operation& operation, const std::array<char, 64>& much) {
  operation.on_done([&much](Operation&) { (void)much; });
  using Pointer = Task<int*>;
  (void)sizeof(Pointer);
  (void)ListenOptions{.port = 7000};
  (void)Duration::milliseconds(500);
}

#endif
