// SPDX-License-Identifier: Apache-2.0
// What one test of `verbena bench message` is, and what came of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/path_taken.h"
#include "verbena/base/device_info.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/messaging/options.h"

namespace verbena::tools {

enum class MessageMeasure : std::uint8_t {
  Latency,    // a message there and one back, one at a time in each thread; of several senders in turn
  Bandwidth,  // as many bytes as go, from every sender
  Rate,       // as many messages as go
};
inline constexpr std::string_view kMessageMeasureNames[] = {"lat", "bw", "rate"};
constexpr std::string_view to_string(MessageMeasure measure) {
  return kMessageMeasureNames[static_cast<std::size_t>(measure)];
}
std::optional<MessageMeasure> parse_message_measure(std::string_view text);

// The most that a test may ask of either end.
inline constexpr std::uint32_t kMaxMessageSize = 1u << 26;
inline constexpr std::uint32_t kMaxMessageSenders = 1024;
inline constexpr std::uint32_t kMaxMessageThreads = 64;
inline constexpr std::uint32_t kMaxMessageBatch = 1024;
inline constexpr std::uint32_t kMaxMessageWindow = 1u << 16;
inline constexpr std::uint64_t kMaxMessageRing = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kMaxMessageIterations = std::uint64_t{1} << 31;
inline constexpr std::uint32_t kMaxMessageDuration = 1'000'000;

inline constexpr std::uint64_t kUsualRing = 1u << 20;  // bytes

struct MessageTest {
  messaging::Kind kind{};
  PathChoice path = PathChoice::Auto;  // of both ends' devices
  MessageMeasure measure = MessageMeasure::Latency;
  std::uint32_t size = 8;          // bytes of a message
  std::uint32_t senders = 1;       // connections to one receiver
  std::uint32_t threads = 1;       // pairs of a sending and a receiving thread, each with devices of its own (N:N)
  std::uint32_t batch = 1;         // messages handed over at once
  std::uint32_t window = 64;       // messages in flight: messaging::Options::depth
  std::uint64_t ring_bytes = kUsualRing;
  std::uint32_t inline_bytes = messaging::Options{}.inline_bytes;  // messages up to that long go in the request
  std::uint64_t iterations = 1000;  // messages of each sender; there and back is one
  std::uint32_t duration = 0;       // seconds; 0: `iterations` counts

  bool is_latency() const { return measure == MessageMeasure::Latency; }
  bool is_alone() const { return senders == 1 && threads == 1; }
  // "buffered-write/reversed lat, 8 bytes"
  std::string name() const;
};

// Times in microseconds. Of a latency: half of there and back.
struct MessageRow {
  MessageTest test{};
  messaging::Kind kind{};  // as settled: a commit may be another than asked for
  PathTaken path{};
  std::uint64_t messages = 0;
  Duration elapsed{};
  double minimum = 0, typical = 0, average = 0, deviation = 0, p99 = 0, p999 = 0, maximum = 0;
  double overhead = 0;  // of the sender's thread for a message: what try_send() took, on average
  std::uint64_t sender_bytes = 0, receiver_bytes = 0;  // registered memory
  std::vector<double> merits{};  // of a test that was run several times, all its runs; see message_runs.h

  double messages_per_second() const {
    return elapsed.ns == 0 ? 0 : static_cast<double>(messages) * 1e9 / static_cast<double>(elapsed.ns);
  }
  double bytes_per_second() const { return messages_per_second() * test.size; }
};

// Errors: InvalidArgument: no end can run that.
Result<void> check_message_test(const MessageTest& test);
nlohmann::json to_json(const MessageTest& test);
nlohmann::json to_json(const MessageRow& row);
// Errors: ProtocolError, naming the member.
Result<MessageTest> message_test_of(const nlohmann::json& json);

}  // namespace verbena::tools
