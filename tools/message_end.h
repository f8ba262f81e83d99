// SPDX-License-Identifier: Apache-2.0
// What the threads of either end of a test of messages have in common.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tools/message_crew.h"
#include "tools/message_results.h"
#include "verbena/async/progress_engine.h"
#include "verbena/messaging/receiver.h"
#include "verbena/messaging/sender.h"

namespace verbena::tools {

struct MessageEndOptions {
  Duration patience = Duration::seconds(10);  // of every wait for the other end
  bool events = false;                        // sleep until something comes (otherwise poll)
};

// Of the connections that are measured, and of those on which the answers go.
messaging::Options message_options(const MessageTest& test);
messaging::Options answer_options(const MessageTest& test);

inline constexpr std::uint32_t kAnswerBytes = 8;  // where it is no latency

// The first byte of every message of a bandwidth or a rate: there is one kLastMessage of each sender.
inline constexpr std::byte kOneMessage{0x5a};
inline constexpr std::byte kLastMessage{0xa5};

// A sender and the message that it sends again and again; where the protocol copies nothing, lent.
class MessageSource {
 public:
  // `bytes` of each message, up to `batch` at once. Errors: those of Device::allocate_memory().
  static Result<MessageSource> create(Device& device, messaging::Sender sender, std::uint32_t bytes,
                                      std::uint32_t batch);

  // As many of `count`, which the batch limits, as go now. Errors: why nothing will.
  Result<std::size_t> send(std::size_t count) { return hand_over(std::min(count, copies_.size()), false); }
  Result<std::size_t> send_last() { return hand_over(1, true); }
  messaging::Sender& sender() { return sender_; }
  std::uint64_t sent() const { return sent_; }
  // Nanoseconds of the sender's thread in handing over messages, and of how many; not all are timed.
  double timed_ns() const { return timed_ns_; }
  std::uint64_t timed() const { return timed_; }

 private:
  MessageSource(MemoryRegion memory, messaging::Sender sender)
      : memory_(std::move(memory)), sender_(std::move(sender)) {}
  Result<std::size_t> hand_over(std::size_t count, bool last);
  messaging::SendResult offer(std::size_t count, bool last);

  MemoryRegion memory_;  // one message, and the last; the sender's until that is gone
  messaging::Sender sender_;
  bool lends_ = false;
  std::vector<std::span<const std::byte>> copies_;
  std::vector<messaging::LentMemory> lent_;
  std::span<const std::byte> last_copy_;
  messaging::LentMemory last_lent_;
  std::uint64_t sent_ = 0;
  std::uint32_t calls_ = 0;
  double clock_ns_ = 0;  // that asking for the time takes
  double timed_ns_ = 0;
  std::uint64_t timed_ = 0;
};

// An engine and waits on it. Everything is its thread's.
class MessageEnd {
 protected:
  MessageEnd(MessageCrew& crew, const MessageTest& test, const MessageEndOptions& options)
      : crew_(crew), test_(test), options_(options) {}

  Result<void> open_engine(Device& device);
  // Asks until reached() holds, which drives the engine; patient: however long it takes. Errors: Cancelled (the crew
  // is stopped), TimedOut, and error_.
  template <class F>
  Result<void> until(F&& reached, bool patient = false) {
    while (!reached()) {
      if (error_) return *error_;
      if (auto waits = idle(patient); !waits) return waits;
    }
    note_progress();
    return {};
  }
  // This turn found nothing. Errors as until().
  Result<void> idle(bool patient = false);
  // One that found something: it looks, too, whether it shall end.
  void note_progress() { deadline_ = Instant::never(); }
  Result<void> go_on() const {
    return crew_.is_stopped() ? Result<void>(Error(ErrorCode::Cancelled, "interrupted")) : Result<void>();
  }
  // Hands one message over.
  Result<void> send_one(MessageSource& source);
  Result<void> check_size(const messaging::Message& message, std::uint32_t bytes) const;

  MessageCrew& crew_;
  const MessageTest& test_;
  const MessageEndOptions& options_;
  std::optional<ProgressEngine> engine_;
  std::optional<Error> error_;  // of a callback

 private:
  Instant deadline_ = Instant::never();
  std::uint32_t turns_ = 0;
};

}  // namespace verbena::tools
