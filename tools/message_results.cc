// SPDX-License-Identifier: Apache-2.0
#include "tools/message_results.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "tools/message_runs.h"
#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr std::string_view kPathNames[] = {"auto", "roce", "local"};

Error wrong(const char* key, const std::string& why) {
  return Error(ErrorCode::ProtocolError, fmt::format("a test of messages whose \"{}\" is {}", key, why));
}

// Reads the members of a test; remembers the first that is wrong.
class MemberReader {
 public:
  explicit MemberReader(const nlohmann::json& json) : json_(json) {}

  template <class N>
  void number(const char* key, std::uint64_t min, std::uint64_t max, N& to) {
    const auto found = json_.find(key);
    const bool is_number = found != json_.end() && found->is_number_unsigned();
    const std::uint64_t value = is_number ? found->get<std::uint64_t>() : 0;
    if (is_number && value >= min && value <= max) to = static_cast<N>(value);
    else fail(wrong(key, fmt::format("no whole number from {} to {}", min, max)));
  }
  std::string text(const char* key) {
    const auto found = json_.find(key);
    if (found != json_.end() && found->is_string()) return found->get<std::string>();
    fail(wrong(key, "no text"));
    return "";
  }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const nlohmann::json& json_;
  std::optional<Error> error_;
};

}  // namespace

std::string MessageTest::name() const {
  return fmt::format("{} {}, {} bytes", messaging::to_string(kind), to_string(measure), size);
}

std::optional<MessageMeasure> parse_message_measure(std::string_view text) {
  for (const MessageMeasure one : {MessageMeasure::Latency, MessageMeasure::Bandwidth, MessageMeasure::Rate})
    if (to_string(one) == text) return one;
  return std::nullopt;
}

Result<void> check_message_test(const MessageTest& test) {
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::InvalidArgument, test.name() + ": " + why);
  };
  if (test.iterations == 0 && test.duration == 0) return refuse("neither a number of messages nor a time is given");
  if (!test.is_latency()) {
    if (test.size == 0) return refuse("messages of no bytes have a latency alone");
    return {};
  }
  if (test.batch != 1) return refuse("a latency is that of one message at a time, and no batch");
  return {};
}

nlohmann::json to_json(const MessageTest& test) {
  return {{"protocol", messaging::to_string(test.kind)},
          {"path", std::string(kPathNames[static_cast<std::size_t>(test.path)])},
          {"measure", std::string(to_string(test.measure))},
          {"size", test.size},
          {"senders", test.senders},
          {"threads", test.threads},
          {"batch", test.batch},
          {"window", test.window},
          {"ring_bytes", test.ring_bytes},
          {"inline_bytes", test.inline_bytes},
          {"iterations", test.iterations},
          {"duration_s", test.duration}};
}

nlohmann::json to_json(const MessageRow& row) {
  nlohmann::json all{{"test", to_json(row.test)},
                     {"settled", messaging::to_string(row.kind)},
                     {"path", std::string(row.path.name())},
                     {"path_reason", row.path.reason},
                     {"messages", row.messages},
                     {"seconds", static_cast<double>(row.elapsed.ns) * 1e-9},
                     {"messages_per_s", row.messages_per_second()},
                     {"bytes_per_s", row.bytes_per_second()},
                     {"overhead_us", row.overhead},
                     {"sender_bytes", row.sender_bytes},
                     {"receiver_bytes", row.receiver_bytes},
                     {"runs", run_count(row)}};
  if (is_repeated(row)) all["spread"] = spread_of(row);
  if (row.test.is_latency())
    all["time_us"] = {{"min", row.minimum}, {"typical", row.typical}, {"avg", row.average},  {"stdev", row.deviation},
                      {"p99", row.p99},     {"p99.9", row.p999},      {"max", row.maximum}};
  return all;
}

Result<MessageTest> message_test_of(const nlohmann::json& json) {
  if (!json.is_object()) return Error(ErrorCode::ProtocolError, "a test of messages that is no object");
  MessageTest test;
  MemberReader reader(json);
  if (auto kind = messaging::parse_kind(reader.text("protocol")); kind) test.kind = *kind;
  else reader.fail(wrong("protocol", "none that this side knows: " + printable(kind.error().context())));
  if (const auto path = parse_path_choice(reader.text("path"))) test.path = *path;
  else reader.fail(wrong("path", "neither auto, roce nor local"));
  if (const auto measure = parse_message_measure(reader.text("measure"))) test.measure = *measure;
  else reader.fail(wrong("measure", "neither lat, bw nor rate"));
  reader.number("size", 0, kMaxMessageSize, test.size);
  reader.number("senders", 1, kMaxMessageSenders, test.senders);
  reader.number("threads", 1, kMaxMessageThreads, test.threads);
  reader.number("batch", 1, kMaxMessageBatch, test.batch);
  reader.number("window", 1, kMaxMessageWindow, test.window);
  reader.number("ring_bytes", 1, kMaxMessageRing, test.ring_bytes);
  reader.number("inline_bytes", 0, kMaxMessageSize, test.inline_bytes);
  reader.number("iterations", 0, kMaxMessageIterations, test.iterations);
  reader.number("duration_s", 0, kMaxMessageDuration, test.duration);
  if (reader.error()) return *reader.error();
  return test;
}

}  // namespace verbena::tools
