// SPDX-License-Identifier: Apache-2.0
// A thread of the client of `verbena bench message`: it sends, and takes the time.
#pragma once

#include <atomic>
#include <string>

#include "tools/histogram.h"
#include "tools/message_end.h"

namespace verbena::tools {

// Where the thread's other end listens: "127.0.0.1:4712".
struct MessageAddresses {
  std::string receiver;  // for senders
  std::string answers;   // for a receiver
};

class SendingEnd : private MessageEnd {
 public:
  SendingEnd(MessageCrew& crew, const MessageTest& test, const MessageEndOptions& options, Device& device,
             MessageAddresses there)
      : MessageEnd(crew, test, options), device_(device), there_(std::move(there)) {}

  // In the thread.
  Result<void> run();
  // Messages so far; any thread.
  std::uint64_t messages() const { return messages_.load(std::memory_order_relaxed); }

  // ---- When the thread is ready.
  const PathTaken& path() const { return path_; }

  // ---- When the thread has left well.
  const messaging::Kind& kind() const { return kind_; }
  Instant begun() const { return begun_; }
  Instant ended() const { return ended_; }
  const Histogram& times() const { return times_; }  // there and back, ns
  double timed_ns() const { return timed_ns_; }      // see MessageSource
  std::uint64_t timed() const { return timed_; }
  std::uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  struct Stream {
    MessageSource source;
    bool ended = false;  // its last message has gone
  };

  Result<void> work();
  Result<void> connect();
  Result<void> take_turn();
  Result<void> ask(std::uint64_t rounds);
  Result<void> stream();
  Result<bool> feed(Stream& stream, bool time_is_up);
  Result<bool> feed_all(bool time_is_up);
  Result<void> hear_answer(std::uint32_t bytes);
  void collect();
  Result<void> close();

  Device& device_;
  const MessageAddresses there_;
  std::optional<messaging::Receiver> answers_;
  std::vector<Stream> streams_;
  std::uint64_t limit_ = 0;  // messages of each sender
  std::atomic<std::uint64_t> messages_{0};
  PathTaken path_;
  messaging::Kind kind_{};
  Instant begun_, ended_;
  Histogram times_;
  double timed_ns_ = 0;
  std::uint64_t timed_ = 0, memory_bytes_ = 0;
};

}  // namespace verbena::tools
