// SPDX-License-Identifier: Apache-2.0
// What all sending ends have in common: connecting, waiting, closing. A protocol derives from it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "async/changes.h"
#include "messaging/calling.h"
#include "messaging/control.h"
#include "messaging/message_buffers.h"
#include "messaging/offer.h"
#include "messaging/rate_limiter.h"
#include "verbena/messaging/sender.h"

namespace verbena::messaging {

// The seam: what a protocol fills in stands under "A protocol". The base calls it, and it calls what stands
// under "For the protocol". One virtual call a batch on the way of a message.
//
// Order of calls: open(), offer(), start(), then put(), commit(), handle_*() in any order; none
// after the connection was lost or closed. Destruction: the protocol's destructor calls drop_connection()
// first, so that its memory outlives what the device does with it. The sender does so before, when it goes: who
// closes it still holds this then, and no protocol is called any more.
class SenderEnd : public std::enable_shared_from_this<SenderEnd> {
 public:
  // The protocol that options.kind names, opened and not connected.
  static Result<std::unique_ptr<SenderEnd>> create(ProgressEngine& engine, const Options& options);
  virtual ~SenderEnd();
  // The sender is being destroyed. May be repeated.
  void drop_connection();
  SenderEnd(const SenderEnd&) = delete;
  SenderEnd& operator=(const SenderEnd&) = delete;

  // ---- For Sender.
  Task<Result<void>> connect(std::string address);
  Result<void> accept(ConnectionRequest request);
  SendResult send(std::span<const Outgoing> messages);
  std::optional<Reservation> try_reserve(std::uint32_t bytes);
  SendResult try_commit(Reservation& reservation, std::uint32_t bytes);
  void return_reservation(std::uint64_t slot) {
    if (!is_open()) return;
    buffers_.give_back(static_cast<std::uint32_t>(slot));
    touch();
  }
  Result<MessageId> send_blocking(const Outgoing& message, Duration timeout);
  Result<void> wait_freed(MessageId message, Duration timeout);
  void wait_for_room(Sending& sending, std::coroutine_handle<> who);
  void wait_for_freed(Freeing& freeing, std::coroutine_handle<> who);
  // One that waited for room is gone without having been served: who stands behind it may go.
  void handle_left_line() { touch(); }
  void cancel_waiting();
  void cancel_freeing();
  // Those that wait for messages behind that one.
  void cancel_freeing_behind(MessageId message);
  void on_freed(std::function<void(MessageId)> f);
  void on_room(std::function<void()> f);
  // `self` is this, which lives as long as the task. Cancelled: the sender was destroyed meanwhile.
  Task<Result<void>> close(std::shared_ptr<SenderEnd> self, Duration timeout);
  Result<void> status() const;
  // In a forked child the memory that messages lie in is not there.
  bool is_open() const { return state_ == State::Open && !engine_.is_inherited(); }
  // Nothing that was sent comes back any more. One that is being closed has not ended.
  bool has_ended() const { return error_.has_value() || engine_.is_inherited(); }
  // Why a message was refused, as an error.
  Error refusal(SendStatus status, std::uint32_t bytes) const;
  static Error cancelled_send();
  Instant deadline_of(Duration timeout) const { return engine_.now() + timeout; }
  EngineState& engine() const { return engine_; }
  MessageId freed() const { return freed_; }
  const Options& options() const { return options_; }
  const Kind& kind() const { return settled_.kind; }
  std::string explain() const;
  std::uint32_t max_message_bytes() const { return settled_.max_message_bytes; }
  const SenderCounters& counters() const { return counters_; }
  const Endpoint& peer() const { return peer_; }

  // ---- A protocol.
  // Room for messages of max_message_bytes() that the receiver has left.
  virtual std::uint64_t credits() const = 0;
  // Whether it has room for one of so many.
  virtual bool has_room_for(std::uint32_t /*bytes*/) const { return credits() != 0; }
  // Whether a message more may be under way, as far as this end is concerned. touch() follows when it may.
  virtual bool has_buffer() const { return true; }
  virtual std::uint64_t memory_bytes() const = 0;

 protected:
  SenderEnd(ProgressEngine& engine, const Options& options);

  // ---- A protocol.
  // Checks the options and allocates what needs no peer.
  virtual Result<void> open() = 0;
  // Requests the protocol has in flight at once, beside the base's: those of controls.
  virtual QueuePairCapabilities queues() const = 0;
  // Receives for controls that may come, beside the base's own.
  virtual std::uint32_t control_receives() const = 0;
  // The protocol's own receives take controls, too: as many as queues() says, posted by prepare(). The base
  // has none.
  virtual bool has_own_receives() const { return false; }
  // Before the connection is.
  virtual Result<void> prepare(Connection& /*connection*/) { return {}; }
  // Memory of this end that the peer shall know.
  virtual void offer(Offer& /*ours*/) const {}
  // Whether what the receiver offers suits this end. Errors: InvalidArgument; the receiver is told where it asked.
  virtual Result<void> check_offer(const Offer& /*theirs*/, const Settled& /*settled*/) const { return {}; }
  // The peer is known, and may be posted to. What came from it before is handled after. Errors: ProtocolError
  // (what it offers is not sound).
  virtual Result<void> start(const Offer& theirs) = 0;
  // Sends as many as go, in order; each is at most max_message_bytes(). `last` is the base's to fill in.
  virtual SendResult put(std::span<const Outgoing> messages) = 0;
  // What is in that slot of buffers_, which is the protocol's from then on.
  virtual SendResult commit(std::uint32_t slot, std::uint32_t bytes) = 0;
  // A request of the protocol's own is done, well or not. Its id was below kFirstBaseId.
  virtual void handle_sent(const Completion& completion) = 0;
  // Errors: ProtocolError (no honest receiver says that): the connection ends.
  virtual Result<void> handle_given_back(std::uint32_t number) = 0;
  // A receive of the protocol's own has a message, or was taken by a control: post it again.
  virtual Result<void> handle_received(const Completion& completion);
  virtual void handle_control_in(const Completion& /*completion*/) {}
  // Looks at memory that the peer writes or that READs filled; called when somebody waits and looks() holds.
  virtual void look() {}
  virtual bool looks() const { return false; }
  // No completion follows when there is room again.
  virtual bool has_silent_room() const { return false; }
  // Somebody waits for room, and there is none: look for it, refused or not.
  virtual void want_room() {}
  // Everything taken has been handed to the device: the end may be said. Otherwise touch() follows when it
  // may.
  virtual bool all_posted() const { return true; }

  // ---- For the protocol.
  static constexpr std::uint64_t kFirstBaseId = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
  PostResult post(std::span<const SendRequest> requests);
  // Of what cannot be taken back any more. False: refused, and if the connection has not ended, it does now.
  bool must_post(std::span<const SendRequest> requests);
  PostResult post_receive(const ReceiveRequest& request);
  void say(Control control);
  // See Connection::try_write_now().
  bool write_now(const ShortWrite& write) { return connection_ && connection_->try_write_now(write); }
  // Until its end, what is posted one by one leaves together.
  class [[nodiscard]] Together {
   public:
    Together(SenderEnd& end, std::size_t messages) {
      if (messages > 1) gathered_.emplace(end.engine_of_program());
    }

   private:
    std::optional<ProgressEngine::Gathered> gathered_;
  };
  ProgressEngine& engine_of_program() const;
  Device& device() const;
  ProtectionDomain& domain() const;
  const Settled& settled() const { return settled_; }
  MessageId sent() const { return counters_.messages; }
  // Buffers of the first `message` messages are free.
  void set_freed(MessageId message) {
    if (message <= freed_) return;
    freed_ = message;
    touch();
  }
  bool is_room_awaited() const { return !waiting_.empty() || on_room_; }
  // Who was refused tries again when the engine wakes up.
  bool is_try_awaited() const { return awaited_bytes_ != kNoneRefused; }
  // Something may go, or be said, that could not before: those who wait are served in this turn of the
  // engine.
  void touch() {
    if (has_interest()) tick_.make_ready();
  }
  // The peer breaks the protocol: the connection ends with that error.
  void fail(Error error);
  static constexpr std::uint32_t kNoSlot = MessageBuffers::kNoSlot;
  // Of buffers_, which the first allocates if open() did not. kNoSlot: none is free, or there is no memory for them and
  // the connection has ended.
  std::uint32_t take_buffer();
  MessageBuffers buffers_;  // planned by open(), or by start() with what is settled
  SenderCounters counters_;

 private:
  enum class State : std::uint8_t { New, Connecting, Open, Closing, Closed };
  struct Tick : detail::Resumption {
    SenderEnd* end = nullptr;
  };

  Result<void> open_connection();
  Result<void> begin(const Offer& theirs);
  Offer our_offer() const;
  void post_control_receive();
  SendResult try_now(std::span<const Outgoing> messages);
  SendResult pass(std::span<const Outgoing> messages);
  SendResult pass_one(const Outgoing& message);
  std::size_t count_allowed(Instant now, std::span<const Outgoing> messages) const;
  void count_refusal(SendStatus status, std::uint32_t bytes);
  void handle(const Completion& completion);
  void handle_control(const Completion& completion);
  void connection_closed();
  void lose(Error error);
  bool has_interest() const {
    return !waiting_.empty() || !freeing_.empty() || on_room_ || on_freed_ || is_try_awaited() ||
           state_ == State::Closing;
  }
  void await_another_try(std::uint32_t bytes);
  bool first_wants_buffer();
  void serve();
  void serve_waiting();
  void stand_in_line(Sending& sending);
  static void end_wait(Sending& sending);
  void serve_freeing();
  void call_back(const Calling& calling);
  bool has_room_for_refused();
  Duration try_interval() const;
  void look_again();

  EngineState& engine_;
  const Options options_;
  AttachedDevice* const attached_;  // null: the program named another, which is told when it is used
  Settled settled_;
  RateLimiter limiter_;
  std::optional<Connection> connection_;
  Endpoint peer_;
  State state_ = State::New;
  std::optional<Error> error_;
  bool said_finish_ = false;
  bool finished_ = false;    // the receiver has it all
  bool doomed_ = false;      // the connection is to go with the next tick
  bool was_closed_ = false;  // by its user
  bool started_ = false;
  std::vector<Completion> early_;  // what came before: it may speak before its connection is known here
  static constexpr std::uint32_t kNoneRefused = 0xffffffff;
  // The shortest that may go later, of what was refused since on_room was told: when there is room, and when one of
  // buffers_ is free as well. Who waits for a buffer is passed by what has one.
  std::uint32_t refused_bytes_ = kNoneRefused, refused_buffer_bytes_ = kNoneRefused;
  bool refused_commit_ = false;
  std::uint32_t awaited_bytes_ = kNoneRefused;  // of who tries, and sleeps in between, until there may be room
  std::uint64_t sent_when_refused_ = 0;
  Instant refused_at_, tried_at_;  // first, with so many sent; and last
  // How often those were cancelled that wait for memory: who drives the engine meanwhile stands in no list.
  std::uint32_t freeings_cancelled_ = 0;
  MessageId freed_ = 0, told_freed_ = 0;
  Changes changed_;
  Tick tick_;
  detail::ResumptionList waiting_, freeing_;
  std::function<void()> on_room_;
  std::shared_ptr<const std::function<void(MessageId)>> on_freed_;
  bool* destroyed_ = nullptr;  // set while users are called
  bool room_held_by_rate_ = false;        // on_room_ is told when that lets it
  int freed_depth_ = 0, room_depth_ = 0;  // calls of them that stand inside each other
};

}  // namespace verbena::messaging
