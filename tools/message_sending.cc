// SPDX-License-Identifier: Apache-2.0
#include "tools/message_sending.h"

#include <limits>

namespace verbena::tools {

namespace {

constexpr std::uint64_t kWarmUp = 100;  // times there and back of each sender before those that count
// Turns of senders between two looks at the clock, where a time is given.
constexpr std::uint32_t kTurnsPerLook = 16;

}  // namespace

Result<void> SendingEnd::run() {
  auto outcome = work();
  // In their thread, and whatever came of it: the other end learns.
  streams_.clear();
  answers_.reset();
  engine_.reset();
  return outcome;
}

Result<void> SendingEnd::work() {
  limit_ = test_.duration == 0 ? test_.iterations : std::numeric_limits<std::uint64_t>::max();
  if (auto open = open_engine(device_); !open) return open;
  if (auto connected = connect(); !connected) return connected;
  // What is measured shall not begin by the one path and go on by the other.
  path_ = wait_path(*engine_, device_);
  crew_.report_ready();
  const auto called = [this] {
    engine_->run_once();
    return crew_.may_proceed();
  };
  if (auto waited = until(called, true); !waited) return waited;
  if (auto turn = take_turn(); !turn) return turn;
  collect();
  return close();
}

Result<void> SendingEnd::connect() {
  messaging::Options options = message_options(test_);
  options.connection.connect_timeout = options_.patience;
  streams_.reserve(test_.senders);
  for (std::uint32_t i = 0; i < test_.senders; ++i) {
    if (auto on = go_on(); !on) return on;
    auto sender = messaging::Sender::connect(*engine_, there_.receiver, options);
    if (!sender) return std::move(sender).error();
    auto source = MessageSource::create(device_, std::move(*sender), test_.size, test_.batch);
    if (!source) return std::move(source).error();
    streams_.push_back({std::move(*source)});
  }
  messaging::Options back = answer_options(test_);
  back.connection.connect_timeout = options_.patience;
  auto answers = messaging::Receiver::create(*engine_, back);
  if (!answers) return std::move(answers).error();
  answers_.emplace(std::move(*answers));
  auto peer = answers_->connect(there_.answers);
  return peer ? Result<void>() : Result<void>(std::move(peer).error());
}

Result<void> SendingEnd::take_turn() {
  if (!test_.is_latency()) return stream();
  if (auto warm = ask(std::min(kWarmUp, limit_)); !warm) return warm;
  times_ = {};
  return ask(limit_);
}

// One message there and one back at a time, of one sender after the other.
Result<void> SendingEnd::ask(std::uint64_t rounds) {
  begun_ = engine_->now();
  const Instant end = test_.duration == 0 ? Instant::never() : begun_ + Duration::seconds(test_.duration);
  Instant now = begun_;
  std::uint64_t messages = 0;
  for (std::uint64_t round = 0; round < rounds && now < end; ++round)
    for (Stream& stream : streams_) {
      if (auto on = go_on(); !on) return on;
      if (auto sent = send_one(stream.source); !sent) return sent;
      if (auto heard = hear_answer(test_.size); !heard) return heard;
      const Instant then = std::exchange(now, engine_->now());
      times_.add((now - then).ns);
      messages_.store(++messages, std::memory_order_relaxed);
    }
  ended_ = now;
  return {};
}

Result<void> SendingEnd::hear_answer(std::uint32_t bytes) {
  std::optional<messaging::Message> answer;
  const auto came = [&] { return (answer = answers_->try_receive()).has_value(); };
  if (auto waited = until(came); !waited) return waited;
  return check_size(*answer, bytes);
}

Result<bool> SendingEnd::feed(Stream& stream, bool time_is_up) {
  if (stream.ended) return false;
  const std::uint64_t left = limit_ - stream.source.sent();
  const bool last = time_is_up || left == 1;
  auto sent = last ? stream.source.send_last() : stream.source.send(left - 1);
  if (!sent) return std::move(sent).error();
  stream.ended = last && *sent == 1;
  return *sent != 0;
}

// False: nothing goes.
Result<bool> SendingEnd::feed_all(bool time_is_up) {
  bool any = false;
  std::uint64_t sum = 0;
  for (Stream& stream : streams_) {
    auto moved = feed(stream, time_is_up);
    if (!moved) return moved;
    any |= *moved;
    sum += stream.source.sent();
  }
  messages_.store(sum, std::memory_order_relaxed);
  return any;
}

// Until the other end has taken the last of all.
Result<void> SendingEnd::stream() {
  begun_ = engine_->now();
  const Instant end = test_.duration == 0 ? Instant::never() : begun_ + Duration::seconds(test_.duration);
  bool time_is_up = false;
  const auto all_sent = [this] { return std::ranges::all_of(streams_, &Stream::ended); };
  for (std::uint32_t turns = 1; !all_sent(); ++turns) {
    if (auto on = go_on(); !on) return on;
    auto moved = feed_all(time_is_up);
    if (!moved) return std::move(moved).error();
    if (*moved) {
      note_progress();
    } else {
      engine_->run_once();
      if (auto waits = idle(); !waits) return waits;
    }
    if (!end.is_never() && !time_is_up && turns % kTurnsPerLook == 0) time_is_up = engine_->now() >= end;
  }
  if (auto heard = hear_answer(kAnswerBytes); !heard) return heard;
  ended_ = engine_->now();
  return {};
}

void SendingEnd::collect() {
  kind_ = streams_.front().source.sender().kind();
  for (Stream& stream : streams_) {
    timed_ns_ += stream.source.timed_ns();
    timed_ += stream.source.timed();
    memory_bytes_ += stream.source.sender().memory_bytes();
  }
}

Result<void> SendingEnd::close() {
  for (Stream& stream : streams_)
    if (auto closed = stream.source.sender().close(options_.patience); !closed) return closed;
  return {};
}

}  // namespace verbena::tools
