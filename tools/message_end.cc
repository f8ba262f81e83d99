// SPDX-License-Identifier: Apache-2.0
#include "tools/message_end.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "tools/bench_common.h"

namespace verbena::tools {

namespace {

using Clock = std::chrono::steady_clock;

// Turns that found nothing between two looks at the clock and at the wish to stop.
constexpr std::uint32_t kTurnsPerGlance = 256;
// The time of the first batches is taken, and then of one in so many.
constexpr std::uint32_t kBatchesTimed = 64;
constexpr std::uint32_t kBatchesPerTime = 16;
constexpr std::uint32_t kAnswers = 4;
// A busy machine may let a thread of the peer's wait for its turn for seconds; that a peer died is told by the control
// link.
constexpr std::uint8_t kTimeoutCode = 18;

double ns_between(Clock::time_point begun, Clock::time_point ended) {
  return std::chrono::duration<double, std::nano>(ended - begun).count();
}

double clock_cost() {
  double least = 1e9;
  for (int i = 0; i < 100; ++i) {
    const auto begun = Clock::now();
    least = std::min(least, ns_between(begun, Clock::now()));
  }
  return least;
}

}  // namespace

messaging::Options message_options(const MessageTest& test) {
  messaging::Options options;
  options.kind = test.kind;
  options.max_message_bytes = std::max<std::uint32_t>(test.size, 1);
  options.depth = test.window;
  options.ring_bytes = test.ring_bytes;
  options.max_senders = test.senders;
  options.inline_bytes = test.inline_bytes;
  options.connection.reliability.timeout = kTimeoutCode;
  return options;
}

messaging::Options answer_options(const MessageTest& test) {
  messaging::Options options = message_options(test);
  if (test.is_latency()) return options;
  options.kind = {};
  options.max_message_bytes = kAnswerBytes;
  options.depth = kAnswers;
  options.max_senders = 1;
  return options;
}

Result<MessageSource> MessageSource::create(Device& device, messaging::Sender sender, std::uint32_t bytes,
                                            std::uint32_t batch) {
  const std::size_t stride = (std::size_t{std::max(bytes, 1u)} + 63) / 64 * 64;
  auto memory = device.allocate_memory(2 * stride);
  if (!memory) return std::move(memory).error();
  MessageSource source(std::move(*memory), std::move(sender));
  std::ranges::fill(source.memory_.bytes(), kOneMessage);
  source.memory_.data()[stride] = kLastMessage;
  source.lends_ = messaging::traits_of(source.sender_.kind()).zero_copy;
  source.copies_.assign(batch, source.memory_.bytes().first(bytes));
  source.lent_.assign(batch, messaging::LentMemory::of(source.memory_, 0, bytes));
  source.last_copy_ = source.memory_.bytes().subspan(stride, bytes);
  source.last_lent_ = messaging::LentMemory::of(source.memory_, stride, bytes);
  source.clock_ns_ = clock_cost();
  return source;
}

messaging::SendResult MessageSource::offer(std::size_t count, bool last) {
  if (last) return lends_ ? sender_.try_lend(last_lent_) : sender_.try_send(last_copy_);
  return lends_ ? sender_.try_lend_batch(std::span(lent_).first(count))
                : sender_.try_send_batch(std::span(copies_).first(count));
}

Result<std::size_t> MessageSource::hand_over(std::size_t count, bool last) {
  const bool timed = calls_ < kBatchesTimed || calls_ % kBatchesPerTime == 0;
  const auto begun = timed ? Clock::now() : Clock::time_point();
  const messaging::SendResult result = offer(count, last);
  if (result.taken != 0) {
    ++calls_;
    sent_ += result.taken;
    if (timed) {
      timed_ns_ += std::max(0.0, ns_between(begun, Clock::now()) - clock_ns_);
      timed_ += result.taken;
    }
  }
  switch (result.status) {
    case messaging::SendStatus::Closed: {
      auto status = sender_.status();
      return status ? Error(ErrorCode::Disconnected, "the receiver has gone") : status.error();
    }
    case messaging::SendStatus::TooLong:
      return Error(ErrorCode::InvalidArgument, fmt::format("the receiver takes messages of at most {} bytes",
                                                           sender_.max_message_bytes()));
    default: return result.taken;
  }
}

Result<void> MessageEnd::open_engine(Device& device) {
  EngineOptions options;
  if (options_.events) options.wait = WaitMode::Event;
  auto engine = ProgressEngine::create(device, options);
  if (!engine) return std::move(engine).error();
  engine_.emplace(std::move(*engine));
  return {};
}

Result<void> MessageEnd::idle(bool patient) {
  if (++turns_ % kTurnsPerGlance != 0 && !options_.events) return {};
  if (auto on = go_on(); !on) return on;
  const Instant now = engine_->now();
  if (deadline_.is_never()) deadline_ = now + options_.patience;
  if (!patient && now >= deadline_)
    return Error(ErrorCode::TimedOut, fmt::format("nothing came for {} s", options_.patience.ns / 1'000'000'000));
  if (options_.events) engine_->wait(now + kBenchGlance);
  // The other end may be waiting for this very processor.
  else std::this_thread::yield();
  return {};
}

Result<void> MessageEnd::send_one(MessageSource& source) {
  return until([&] {
    auto sent = source.send(1);
    if (!sent) error_ = sent.error();
    else if (*sent == 1) return true;
    engine_->run_once();
    return false;
  });
}

Result<void> MessageEnd::check_size(const messaging::Message& message, std::uint32_t bytes) const {
  if (message.bytes().size() == bytes) return {};
  return Error(ErrorCode::ProtocolError,
               fmt::format("a message of {} bytes came, and {} were due", message.bytes().size(), bytes));
}

}  // namespace verbena::tools
