// SPDX-License-Identifier: Apache-2.0
// The sending end of a message protocol.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "verbena/async/progress_engine.h"
#include "verbena/async/resumption.h"
#include "verbena/async/task.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/connection/listener.h"
#include "verbena/messaging/options.h"

namespace verbena::messaging {

class SenderEnd;

// Registered memory for one message, to be filled and committed. Destroyed uncommitted, it goes back unsent.
//
// Lifetime: the sender outlives it. Threads: the engine's.
class Reservation {
 public:
  Reservation() = default;  // empty
  Reservation(Reservation&& other) noexcept
      : end_(std::exchange(other.end_, nullptr)), bytes_(std::exchange(other.bytes_, {})), slot_(other.slot_) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(end_, other.end_);
    std::swap(bytes_, other.bytes_);
    std::swap(slot_, other.slot_);
    return *this;
  }
  ~Reservation();

  bool empty() const { return end_ == nullptr; }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class SenderEnd;
  Reservation(SenderEnd& end, std::span<std::byte> bytes, std::uint64_t slot)
      : end_(&end), bytes_(bytes), slot_(slot) {}

  SenderEnd* end_ = nullptr;
  std::span<std::byte> bytes_;
  std::uint64_t slot_ = 0;
};

// One message as it is handed to a protocol: bytes to copy, or the user's registered memory to send from.
struct Outgoing {
  const std::byte* data = nullptr;
  std::uint32_t size = 0;
  bool lent = false;
  LKey lkey{};  // of lent memory
  RKey rkey{};

  static Outgoing copy(std::span<const std::byte> bytes) {
    constexpr std::size_t kMost = 0xffffffff;
    return {bytes.data(), static_cast<std::uint32_t>(bytes.size() < kMost ? bytes.size() : kMost)};
  }
  static Outgoing lend(const LentMemory& memory) {
    return {reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(memory.address)), memory.bytes,
            true, memory.lkey, memory.rkey};
  }
};

// A message that waits for room: co_await sender.async_send(...). Nothing is allocated. It waits in line behind those
// that began before and have not given up. Destroyed meanwhile, it was not sent, unless it went in that very turn of
// the engine, which nobody is told: who gives up after a while says so by the timeout, not by a timer in when_any().
//
// Lifetime: the sender outlives it. Threads: the engine's.
class [[nodiscard]] Sending : private detail::Resumption {
 public:
  Sending(SenderEnd& end, const Outgoing& message, Instant deadline)
      : end_(&end), message_(message), deadline_(deadline) {}
  ~Sending() { leave_line(); }
  bool await_ready();
  void await_suspend(std::coroutine_handle<> who);
  // Errors: InvalidArgument (too long), DeadlineExceeded, Cancelled, and why the sender is closed.
  Result<MessageId> await_resume();

 private:
  friend class SenderEnd;
  void leave_line();

  SenderEnd* end_;
  std::shared_ptr<SenderEnd> held_;  // while it waits, and is about to resume
  Outgoing message_;
  Instant deadline_;
  bool in_line_ = false;  // from when it waits until it is told how that ended
  bool cancelled_ = false;
  SendResult result_{SendStatus::NoCredit, 0, 0};
};

// A wait for buffers to come back: co_await sender.async_freed(id).
//
// Lifetime: the sender outlives it. Threads: the engine's.
class [[nodiscard]] Freeing : private detail::Resumption {
 public:
  Freeing(SenderEnd& end, MessageId message, Instant deadline)
      : end_(&end), message_(message), deadline_(deadline) {}
  bool await_ready() const;
  void await_suspend(std::coroutine_handle<> who);
  // Errors: DeadlineExceeded, Cancelled, and why the sender is closed.
  Result<void> await_resume() const;

 private:
  friend class SenderEnd;
  SenderEnd* end_;
  std::shared_ptr<SenderEnd> held_;  // while it waits, and is about to resume
  MessageId message_;
  Instant deadline_;
  bool cancelled_ = false;
};

// Sends messages to one receiver, by the protocol its options name. Messages arrive once, whole and in order.
//
//   auto sender = messaging::Sender::connect(engine, "127.0.0.1:7471", {.kind = {messaging::Protocol::SendReceive}});
//   if (auto sent = sender->send(bytes, Duration::seconds(1)); !sent) ...  // waits for room so long
//   sender->close();
//
// Memory: what try_send() and send() are given is the caller's again when they return. Lent memory is the
// protocol's until freed() has reached the message. It is registered in the connection's protection domain,
// with RemoteRead for DirectRead. Back-pressure: the try_ functions take what goes now and say why the rest
// does not; the others wait, in line. Deadlines and cancellation end a wait, and then nothing was sent; what
// was taken goes. Errors: those named below, and status() once the sender is closed: Flushed (closed here),
// Disconnected (the receiver closed), ConnectionLost and its kin, ProtocolError (the peer sent what no receiver sends).
// Lifetime: the engine and the device outlive it. Destroyed without close(), the receiver learns of a lost
// sender. Threads: the engine's.
class Sender {
 public:
  // Connects to a receiver that listens. Errors: those of Connection::connect(), ResourceExhausted also when it takes
  // no more senders now; Rejected when the peer's options are others, with its reason; ProtocolError when what
  // answers is no receiver of this library.
  static Result<Sender> connect(ProgressEngine& engine, std::string_view address,
                                const Options& options = {});
  static Task<Result<Sender>> async_connect(ProgressEngine& engine, std::string_view address,
                                            const Options& options = {});
  // Answers a receiver that connects. Errors: InvalidArgument (the options do not go together with the
  // peer's; it is told), NotSupported (the receiver chose a commit that needs an order which its device does not
  // promise; it is told), ProtocolError (no receiver), ResourceExhausted, ConnectionLost.
  static Result<Sender> accept(ProgressEngine& engine, ConnectionRequest request,
                               const Options& options = {});

  explicit Sender(std::shared_ptr<SenderEnd> end);  // for the library
  Sender(Sender&& other) noexcept;
  Sender& operator=(Sender&& other) noexcept;
  ~Sender();

  // ---- As much as goes now. Neither waits nor drives the engine.
  SendResult try_send(std::span<const std::byte> message);
  SendResult try_send_batch(std::span<const std::span<const std::byte>> messages);
  SendResult try_lend(const LentMemory& message);
  SendResult try_lend_batch(std::span<const LentMemory> messages);
  // Memory of that many bytes, for a message of up to so many; nothing when there is none now (counters() say why), or
  // ever (too long, closed). Reservations may be committed in any order: messages go in the order of commits. They
  // have their buffers, and pass those that wait for one.
  [[nodiscard]] std::optional<Reservation> try_reserve(std::uint32_t bytes);
  // The first `bytes` of it, as a message. Refused, it stays as it was.
  SendResult try_commit(Reservation& reservation, std::uint32_t bytes);

  // ---- Until it is taken, driving the engine. Errors: InvalidArgument (too long), DeadlineExceeded, see
  // above.
  Result<MessageId> send(std::span<const std::byte> message, Duration timeout = Duration::forever());
  Result<MessageId> lend(const LentMemory& message, Duration timeout = Duration::forever());

  // ---- To be awaited. What `message` names stays valid until then.
  Sending async_send(std::span<const std::byte> message, Duration timeout = Duration::forever());
  Sending async_lend(const LentMemory& message, Duration timeout = Duration::forever());
  // Those that wait end as Cancelled: for room and for memory, here and in send(), lend() and wait_freed().
  void cancel_waiting();

  // ---- Memory comes back.
  // Messages up to this one do not need their memory any more.
  MessageId freed() const;
  Result<void> wait_freed(MessageId message, Duration timeout = Duration::forever());
  Freeing async_freed(MessageId message, Duration timeout = Duration::forever());
  // Runs f(freed()) from the engine whenever that has grown. f may run the engine, and is run inside when it grows
  // meanwhile, up to 32 calls deep: then when one of them has returned.
  void on_freed(std::function<void(MessageId)> f);
  // Runs f() from the engine once, when something may go that was refused, or when nothing goes any more: closed() says
  // so. f may run the engine, and one that asks again is run inside, up to 32 calls deep.
  void on_room(std::function<void()> f);

  // ---- Ending. Those that wait for room, or for the memory of a message that was never sent, end as Cancelled; what
  // was taken is received; then the connection is closed. What a receiver has room for it has soon when its engine
  // runs, whatever its program takes; of DirectRead that is `depth` messages.
  // Errors: TimedOut (the receiver has not said that it has all of it; it is closed here all the same, and the
  // connection with it: what was to be fetched, of DirectRead and BufferedRead, does not arrive any more), Cancelled (a
  // callback or a task destroyed the sender meanwhile, as it may), and what broke it before. May be repeated: who does
  // so joins those that close it, and finishes what a task that was destroyed, or a callback that threw, broke off.
  Result<void> close(Duration timeout = Duration::seconds(5));
  Task<Result<void>> async_close(Duration timeout = Duration::seconds(5));
  // Why nothing goes any more: Flushed from when close() has begun.
  Result<void> status() const;
  bool closed() const;

  // ---- What it is.
  // As settled with the peer: a commit may be another than asked for.
  const Kind& kind() const;
  // That kind, and why it is another, in words for people.
  std::string explain() const;
  std::uint32_t max_message_bytes() const;
  // Messages that go now, as far as the receiver was seen last; of rings, of max_message_bytes(). Where a sender looks
  // for its ring's room itself, try_send() and on_room() look anew, and this does not.
  std::uint64_t credits() const;
  std::uint64_t memory_bytes() const;  // registered by this end
  const SenderCounters& counters() const;
  // Address of the receiver.
  Endpoint peer() const;

 private:
  verbena::detail::Inner<std::shared_ptr<SenderEnd>, "Sender"> end_;  // also of those who close it
};

}  // namespace verbena::messaging
