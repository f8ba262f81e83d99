// SPDX-License-Identifier: Apache-2.0
// The flags of `verbena bench message`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench_settings.h"
#include "tools/command.h"
#include "tools/message_end.h"
#include "tools/message_matrix.h"

namespace verbena::tools {

inline constexpr std::uint32_t kMaxSizeOfAll = 1u << 20;  // of -a; -s takes more

struct MessageFlags {
  std::string protocol, measure, host;  // empty: not given
  DeviceFlags device;
  std::uint16_t port = kBenchPort;
  bool port_given = false;
  bool here = false;       // --here
  bool all_sizes = false;  // -a
  std::optional<std::uint32_t> size, duration, senders, threads, batch, window, inline_size;
  std::optional<std::uint64_t> ring, iterations;
  bool events = false;  // -e
  double timeout = 10;  // seconds
  bool quiet_frequency = false;
  std::string json;
  std::string report;              // of matrix(), as the next
  std::vector<std::string> kinds;  // --kinds

  bool client() const { return here || !host.empty(); }
  // -a without a MEASURE: all tests, of all protocols or of one.
  bool matrix() const { return all_sizes && measure.empty(); }
  MessageEndOptions end() const { return {Duration{static_cast<std::int64_t>(timeout * 1e9)}, events}; }
};

void add_message_flags(CLI::App& command, MessageFlags& flags);
// Before they are looked at: -a may leave out MEASURE, and PROTOCOL too; then HOST stands where they would. What is
// wrong with that HOST; empty when nothing is.
std::string place_words(MessageFlags& flags);
// What is wrong with the flags, together or on this end; empty when nothing is.
std::string check_message_flags(const MessageFlags& flags);

// Of flags that are right, and of matrix(): what that runs with.
MatrixFlags matrix_flags(const MessageFlags& flags);

// Of flags that are right, and not of matrix(). All tests of a client, one for each size.
std::vector<MessageTest> message_tests(const MessageFlags& flags);
// As the two ends compare them: all that a client's tests are made of; of a server those it was given.
nlohmann::json message_agreement(const MessageFlags& flags);

}  // namespace verbena::tools
