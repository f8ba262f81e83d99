// SPDX-License-Identifier: Apache-2.0
// The receiving end of a message protocol.
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

class ReceiverEnd;
class ReceiverPeer;

// A sender, as its receiver numbers them: 0, 1, 2 ... None is used twice.
using PeerId = std::uint32_t;

// A message where it arrived. Destroying it gives the memory back, and with it the sender's credit.
//
// Lifetime: the receiver outlives it; its sender need not. Threads: the engine's.
class Message {
 public:
  Message() = default;  // empty
  // For the library: `from` counts it as outstanding.
  Message(ReceiverPeer& from, PeerId peer, std::span<const std::byte> bytes, std::uint64_t token)
      : from_(&from),
        data_(bytes.data()),
        size_(static_cast<std::uint32_t>(bytes.size())),
        peer_(peer),
        token_(token) {}
  Message(Message&& other) noexcept
      : from_(std::exchange(other.from_, nullptr)),
        data_(other.data_),
        size_(other.size_),
        peer_(other.peer_),
        token_(other.token_) {}
  Message& operator=(Message&& other) noexcept {
    std::swap(from_, other.from_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(peer_, other.peer_);
    std::swap(token_, other.token_);
    return *this;
  }
  ~Message() {
    if (from_ != nullptr) give_back();
  }

  bool empty() const { return from_ == nullptr; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  PeerId peer() const { return peer_; }
  // Now. It is empty then.
  void give_back();

 private:
  friend class Receiving;
  ReceiverPeer* from_ = nullptr;
  const std::byte* data_ = nullptr;
  std::uint32_t size_ = 0;
  PeerId peer_ = 0;
  std::uint64_t token_ = 0;  // the protocol's
};

// A wait for a message: co_await receiver.async_receive(). Nothing is allocated. Those who wait are served in
// line. Who gives up after a while says so by the timeout: with a timer beside it in when_any(), a message that comes
// in the turn of the engine in which the timer ends is destroyed with the wait.
//
// Lifetime: the receiver outlives it. Threads: the engine's.
class [[nodiscard]] Receiving : private detail::Resumption {
 public:
  Receiving(ReceiverEnd& end, Instant deadline) : end_(&end), deadline_(deadline) {}
  ~Receiving();
  bool await_ready();
  void await_suspend(std::coroutine_handle<> who);
  // Errors as Receiver::receive().
  Result<Message> await_resume();

 private:
  friend class ReceiverEnd;
  ReceiverEnd* end_;
  std::shared_ptr<ReceiverEnd> held_;  // while it waits, and is about to resume
  Instant deadline_;
  bool cancelled_ = false;
  bool over_ = false;  // when it was woken; a new sender may have come since
  Message message_;
};

// Receives messages of one or many senders, by the protocol its options name: those of each in order.
//
//   auto receiver = messaging::Receiver::create(engine, {.kind = {messaging::Protocol::SendReceive}});
//   listener.on_request([&] { static_cast<void>(receiver->accept(*listener.poll_request())); });
//   while (auto message = receiver->receive()) use(message->bytes());
//
// Back-pressure: a message that is not given back keeps its memory, and its sender waits; memory_bytes() does
// not grow with what senders have to say. Messages may be given back in any order. Waiting:
// traits_of(kind).interrupts says whether a message wakes who waits. Where it does not, waits look at the
// memory every few microseconds while there is a sender, whatever the engine's WaitMode, and try_receive() is the
// better way.
// Errors: one sender's end is not another's affair; see on_peer_end().
// Lifetime: the engine and the device outlive it. Threads: the engine's.
class Receiver {
 public:
  // Errors: InvalidArgument (options that do not go together, sizes), NotSupported (with exact_kind: the device does
  // not promise the order inside a WRITE that the kind needs), ResourceExhausted.
  static Result<Receiver> create(ProgressEngine& engine, const Options& options = {});
  explicit Receiver(std::shared_ptr<ReceiverEnd> end);  // for the library
  Receiver(Receiver&& other) noexcept;
  Receiver& operator=(Receiver&& other) noexcept;
  ~Receiver();

  // ---- Senders.
  // Answers one that connects; it may send at once. Errors: InvalidArgument (its options do not go together
  // with ours; it is told), ProtocolError (no sender), ResourceExhausted (max_senders are there),
  // ConnectionLost.
  Result<PeerId> accept(ConnectionRequest request);
  // Connects to a sender that listens. Errors as Sender::connect(), and Cancelled (a callback or a task destroyed the
  // receiver meanwhile, as it may). A task that is destroyed before it is done leaves no sender behind.
  Result<PeerId> connect(std::string_view address);
  Task<Result<PeerId>> async_connect(std::string_view address);
  // Ends with that sender: it is told that its receiver closed. What has arrived can be received. False: no
  // such sender is there.
  bool disconnect(PeerId peer);
  std::size_t peers() const;
  // Runs f(peer, how) from the engine once for each sender: no error when it closed and all it sent has
  // arrived, else why it was lost. Messages of it may still wait. f may run the engine, which calls it inside, up to 32
  // calls deep: the next then comes when one of them has returned.
  void on_peer_end(std::function<void(PeerId, const Result<void>&)> f);

  // ---- Messages. Looks at the memory first; finding nothing, drives the engine once and looks again.
  [[nodiscard]] std::optional<Message> try_receive();
  // Up to out.size() of them; how many.
  [[nodiscard]] std::size_t try_receive(std::span<Message> out);
  // Drives the engine until there is one. Errors: DeadlineExceeded, Cancelled; and when no sender is left,
  // and there has been one: Disconnected, or what broke the last.
  Result<Message> receive(Duration timeout = Duration::forever());
  Receiving async_receive(Duration timeout = Duration::forever());
  // Those that wait end as Cancelled, in receive() too.
  void cancel_waiting();
  // Runs f(message) from the engine for each. An empty f takes it back. f may run the engine; messages that come
  // meanwhile are handed to it inside, up to 32 calls deep: what comes there waits until one of them returns.
  void on_message(std::function<void(Message)> f);

  // DirectRead and DirectWrite: f says where a message of up to that many bytes goes; nothing, or memory that
  // is shorter: to the receiver's own. Asked before a message is fetched, or may be sent; so set it before
  // there are senders. The memory is the receiver's until the message is taken, then the program's; it is
  // registered in the connection's protection domain, for DirectWrite with RemoteWrite, where the sender may write to
  // all of the region: lend it to no other. Called from the engine alone, also before the connect() of that sender has
  // returned, and when it throws once more in the next run. It may give messages back; it may not call this receiver
  // otherwise, nor destroy it, nor run the engine.
  void on_place(std::function<std::optional<LentMemory>(PeerId, std::uint32_t bytes)> f);

  // ---- What it is.
  // As asked for; or, where the device promises no order inside a WRITE and that kind needs it, the nearest without:
  // see Options::exact_kind.
  const Kind& kind() const;
  // That kind, and why it is this one, in words for people.
  std::string explain() const;
  std::uint32_t max_message_bytes() const;
  std::uint64_t memory_bytes() const;  // registered, for all senders
  const ReceiverCounters& counters() const;

 private:
  verbena::detail::Inner<std::shared_ptr<ReceiverEnd>, "Receiver"> end_;  // also of those who connect it
};

}  // namespace verbena::messaging
