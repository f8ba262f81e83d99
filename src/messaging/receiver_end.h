// SPDX-License-Identifier: Apache-2.0
// What all receiving ends have in common: senders that come and go, waiting. A protocol derives from it.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "messaging/calling.h"
#include "messaging/control.h"
#include "messaging/looking.h"
#include "messaging/offer.h"
#include "verbena/base/spin.h"
#include "verbena/messaging/receiver.h"

namespace verbena::messaging {

// One sender. A protocol derives from it what it keeps for each.
class ReceiverPeer {
 public:
  ReceiverPeer(ReceiverEnd& end, PeerId id) : end_(end), id_(id) {}
  virtual ~ReceiverPeer() = default;
  ReceiverPeer(const ReceiverPeer&) = delete;
  ReceiverPeer& operator=(const ReceiverPeer&) = delete;

  ReceiverEnd& end() const { return end_; }
  PeerId id() const { return id_; }
  // Its connection is gone: nothing more will arrive.
  bool is_cut_off() const { return cut_off_; }
  // Registered for it alone.
  virtual std::uint64_t memory_bytes() const { return 0; }

  // ---- For the protocol.
  Connection& connection() { return *connection_; }
  const std::string& name() const { return name_; }
  // The base's receives are posted anew when so many are taken, and before what is given back is told.
  void post_receives_by(std::uint32_t count) { receives_at_once_ = count; }
  std::uint64_t arrived() const { return arrived_; }  // messages handed out, since the beginning
  // Of a message that poll() hands out.
  Message hand_out(std::span<const std::byte> bytes, std::uint64_t token) {
    ++arrived_;
    ++outstanding_;
    return {*this, id_, bytes, token};
  }

 private:
  friend class ReceiverEnd;
  ReceiverEnd& end_;
  const PeerId id_;
  std::optional<Connection> connection_;
  std::string name_;  // of the peer, for errors
  std::uint64_t arrived_ = 0;
  std::uint32_t outstanding_ = 0;       // handed out and not given back
  std::uint32_t receives_at_once_ = 1;  // of the base's,
  std::uint32_t receives_taken_ = 0;    // and so many are not posted
  std::optional<std::uint64_t> total_;  // it said that this is all
  bool answered_ = false;               // and we said that all of it is here
  bool cut_off_ = false;
  bool started_ = false;
  std::vector<Completion> early_;  // what came before: it may speak before its connection is known here
  bool doomed_ = false;  // cut off by this end
  std::optional<std::uint64_t> doomed_in_;  // runs drained when it was looked at first since
  bool fenced_ = false;
  bool ended_ = false;  // counted as such
  bool told_ = false;
  std::optional<Error> error_;  // why it was cut off; none when it closed
};

// The seam: see SenderEnd. Per sender: make_peer(), queues(), prepare(), start(); then the rest in any order.
// A peer is destroyed when its connection is gone, all that arrived was handed out and all of that given
// back.
class ReceiverEnd : public std::enable_shared_from_this<ReceiverEnd> {
 public:
  static Result<std::unique_ptr<ReceiverEnd>> create(ProgressEngine& engine, const Options& options);
  virtual ~ReceiverEnd();
  // The receiver is being destroyed: see SenderEnd. May be repeated.
  void drop_peers();
  ReceiverEnd(const ReceiverEnd&) = delete;
  ReceiverEnd& operator=(const ReceiverEnd&) = delete;

  // ---- For Receiver and Message.
  Result<PeerId> accept(ConnectionRequest request);
  // `self` is this, which lives as long as the task. Cancelled: the receiver was destroyed meanwhile.
  Task<Result<PeerId>> connect(std::shared_ptr<ReceiverEnd> self, std::string address);
  bool disconnect(PeerId peer);
  std::size_t live_peers() const;
  std::size_t receive(std::span<Message> out);
  Result<Message> receive_blocking(Duration timeout);
  // What is here, without driving the engine.
  std::size_t take(std::span<Message> out);
  // No sender is left, and there was one; or the receiver is gone.
  bool is_over() const { return dropped_ || engine_.is_inherited() || (taken_peers_ != 0 && taken_peers_ == ended_); }
  // The receiver is gone, or goes: its peers do.
  bool is_dropped() const { return dropped_; }
  Error over_error() const;
  void wait_for_message(Receiving& receiving, std::coroutine_handle<> who);
  void cancel_waiting();
  bool has_waiting() const { return !waiting_.empty(); }
  void on_message(std::function<void(Message)> f);
  using PeerEndHandler = std::function<void(PeerId, const Result<void>&)>;
  void on_peer_end(PeerEndHandler f) {
    on_peer_end_ = f ? std::make_shared<const PeerEndHandler>(std::move(f)) : nullptr;
  }
  void on_place(std::function<std::optional<LentMemory>(PeerId, std::uint32_t)> f) { place_ = std::move(f); }
  void give_back(ReceiverPeer& peer, std::uint64_t token) {
    ++counters_.given_back;
    if (!engine_.is_inherited()) handle_given_back(peer, token);
    if (--peer.outstanding_ == 0 && peer.cut_off_) touch();
  }
  EngineState& engine() const { return engine_; }
  // With the kind that the device allows.
  const Options& options() const { return options_; }
  std::string explain() const;
  const ReceiverCounters& counters() const { return counters_; }

  // ---- A protocol.
  virtual std::uint64_t memory_bytes() const = 0;

 protected:
  ReceiverEnd(ProgressEngine& engine, const Options& options);

  // ---- A protocol.
  // Checks the options and allocates what all senders share.
  virtual Result<void> open() = 0;
  virtual Result<std::unique_ptr<ReceiverPeer>> make_peer(PeerId id) = 0;
  // Requests in flight per sender, beside the base's: those of controls.
  virtual QueuePairCapabilities queues() const = 0;
  // Where all receives come from; null: each connection has its own. Who ends a connection holds it meanwhile: this
  // end may be destroyed inside.
  virtual std::shared_ptr<ReceivePool> receive_pool() { return nullptr; }
  // Receives for controls that the base shall post; 0 when the protocol's own take them.
  virtual std::uint32_t control_receives() const = 0;
  // Before the connection is: posts receives, so that the first message finds one.
  virtual Result<void> prepare(ReceiverPeer& /*peer*/) { return {}; }
  // `theirs` is null where ours goes first.
  virtual void offer(ReceiverPeer& /*peer*/, Offer& /*ours*/, const Offer* /*theirs*/) {}
  // What a sender offers, before it is answered: it is told what is wrong.
  virtual Result<void> check_offer(const Offer& /*theirs*/, const Settled& /*settled*/) const { return {}; }
  virtual Result<void> start(ReceiverPeer& peer, const Offer& theirs, const Settled& settled) = 0;
  // Hands out what is here, by ReceiverPeer::hand_out(), in turns over the senders. Looks at memory only.
  virtual std::size_t poll(std::span<Message> out) = 0;
  virtual void handle_given_back(ReceiverPeer& peer, std::uint64_t token) = 0;
  // A receive of the protocol's own has a message; or, a request of its own is done, well or not. Ids of its
  // requests are below kFirstBaseId, those of its receives are such a number and kReceiveId. Errors:
  // ProtocolError: the connection ends.
  virtual Result<void> handle_received(ReceiverPeer& peer, const Completion& completion) = 0;
  virtual Result<void> handle_sent(ReceiverPeer& peer, const Completion& completion) = 0;
  // A control has left the queue of requests: one that found no room may be said now.
  virtual void handle_told(ReceiverPeer& /*peer*/) {}
  // A receive of the protocol's own was taken by a control: post it again.
  virtual void handle_control_in(ReceiverPeer& /*peer*/, const Completion& /*completion*/) {}
  // It said that this is all; answer_finish() may follow.
  virtual void handle_finish(ReceiverPeer& /*peer*/) {}
  // It waits for room, and somebody may hold it up. Errors: as handle_received().
  virtual Result<void> handle_waiting(ReceiverPeer& peer);
  // So many messages of it are in this end's memory, and survive the connection. In most protocols all are
  // when Finish is; others call answer_finish() when they are.
  virtual bool has_all(const ReceiverPeer& /*peer*/, std::uint64_t /*total*/) const { return true; }
  // Nothing of a peer that is cut off waits in memory any more.
  virtual bool is_empty(const ReceiverPeer& peer) const = 0;
  // Its queue pair is out of service: nothing of it lands in this end's memory any more.
  virtual void handle_fenced(ReceiverPeer& /*peer*/) {}
  // A message may come without any completion: those who wait look at the memory.
  virtual bool looks() const { return !interrupts_; }

  // ---- For the protocol.
  // Of one that has memory for each sender that may come: no more are named than can.
  Result<void> check_max_senders() const;
  static constexpr std::uint64_t kFirstBaseId = std::uint64_t{1} << 62;
  static constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;
  PostResult post(ReceiverPeer& peer, std::span<const SendRequest> requests);
  // Messages, or bytes, given back by this sender's receiver since the beginning.
  // False: the queue of requests is full, or the peer is gone; handle_told() may follow.
  bool tell_given_back(ReceiverPeer& peer, std::uint64_t number);
  // See Connection::check_alive().
  static void check_alive(ReceiverPeer& peer) {
    if (!peer.cut_off_ && peer.connection_) peer.connection_->check_alive();
  }
  ProgressEngine& engine_of_program() const;
  Device& device() const;
  ProtectionDomain& domain() const;
  // A message may be here.
  void touch() { tick_.make_ready(); }
  void touch_at(Instant at) { tick_.make_ready_at(at); }
  // Those who wait look now: without a sender there is nothing to look at.
  bool polls() const { return !peers_.empty() && looks(); }
  void touch_if_awaited() {
    if (!waiting_.empty() || on_message_) tick_.make_ready();
  }
  // This sender breaks the protocol: its connection ends with that error.
  void fail(ReceiverPeer& peer, Error error);
  // For receives of a receive pool: a SEND came with that immediate.
  void handle_control(ReceiverPeer& peer, const std::array<std::byte, 4>& immediate);
  void answer_finish(ReceiverPeer& peer);
  // The program says where messages go. It may throw, so it is asked from the engine alone, never inside itself nor
  // inside a destructor: by ask_for_places(), in the run after ask_soon(), or at once by ask() in what the engine
  // calls; and anew when it threw. Without it nobody needs to wait for that.
  bool has_places() const { return static_cast<bool>(place_); }
  void ask_soon() { asking_.make_ready(); }
  void ask();
  virtual void ask_for_places() {}
  // Where the program wants a message to go; nothing when it does not care.
  std::optional<LentMemory> place_for(const ReceiverPeer& peer, std::uint32_t bytes) const {
    return place_ ? place_(peer.id(), bytes) : std::nullopt;
  }
  std::span<const std::unique_ptr<ReceiverPeer>> peers() const { return peers_; }
  // poll_one(peer, message) says whether there was one; everybody's next comes before anybody's one after that.
  // While there is none it looks as often as receive() has patience.
  template <class PollOne>
  std::size_t poll_in_turns(std::span<Message> out, PollOne poll_one) {
    std::size_t count = 0;
    std::size_t most_idle = peers_.empty() ? 0 : std::max(peers_.size(), patience_);
    for (std::size_t idle = 0; count < out.size() && idle < most_idle;) {
      turn_ = turn_ + 1 < peers_.size() ? turn_ + 1 : 0;
      const bool found = poll_one(*peers_[turn_], out[count]);
      idle = found ? 0 : idle + 1;
      if (found) {
        ++count;
        most_idle = peers_.size();
      } else if (count == 0 && turn_ == 0 && idle < patience_) {
        spin_pause();
      }
    }
    return count;
  }
  std::uint64_t memory_of_peers() const {
    std::uint64_t bytes = 0;
    for (const auto& peer : peers_) bytes += peer->memory_bytes();
    return bytes;
  }
  ReceiverCounters counters_;

 private:
  static constexpr int kCallbacksPerTurn = 64;  // others have their turn in between
  struct Tick : detail::Resumption {
    ReceiverEnd* end = nullptr;
  };
  class Seat;

  QueuePairCapabilities all_queues() const;
  Result<void> check_queues() const;
  Result<ReceiverPeer*> add_peer();
  Offer our_offer(ReceiverPeer* peer, const Offer* theirs);
  Result<void> begin(ReceiverPeer& peer, const Offer& ours, const Offer& theirs);
  void remove(PeerId id);
  void drop_connection(ReceiverPeer& peer);
  void handle(ReceiverPeer& peer, const Completion& completion);
  void post_control_receives(ReceiverPeer& peer);
  bool post_control(ReceiverPeer& peer, Control control);
  void connection_closed(ReceiverPeer& peer);
  void cut_off(ReceiverPeer& peer, Error error);
  bool has_end_to_tell() const;
  Result<void> end_of(const ReceiverPeer& peer) const;
  void count_end(const ReceiverPeer& peer);
  void tell_end(ReceiverPeer& peer, const Calling& calling);
  void serve();
  void serve_waiting();
  // These call users.
  void hand_to_callback(const Calling& calling);
  void reap(const Calling& calling);
  void look_again();

  EngineState& engine_;
  const Options options_;
  AttachedDevice* const attached_;  // null: the program named another, which is told when it is used
  Kind wanted_;             // what the program asked for
  const bool interrupts_;  // every message comes with a completion
  std::vector<std::unique_ptr<ReceiverPeer>> peers_;
  PeerId next_peer_ = 0;
  std::uint64_t taken_peers_ = 0, ended_ = 0;
  bool has_cut_off_ = false;  // somebody waits to be told of its end
  bool dropped_ = false;      // the receiver is gone
  bool replays_ = false;      // what came before its sender was known
  std::optional<Error> last_error_;
  Tick tick_, asking_;
  Tick dropping_;  // in the next run: tick_ may be due at another time
  std::size_t turn_ = 0;  // whose messages were looked for last
  std::size_t patience_ = 0;  // of receive(): looks in vain, if not one at each sender's
  Arrivals arrivals_;
  Duration look_interval_ = Duration::microseconds(1);
  detail::ResumptionList waiting_;
  std::uint32_t times_cancelled_ = 0;  // who drives the engine while it waits stands in no list
  std::shared_ptr<const std::function<void(Message)>> on_message_;
  std::shared_ptr<const PeerEndHandler> on_peer_end_;
  int depth_ = 0, end_depth_ = 0;  // calls of on_message_ and of that, inside each other
  std::function<std::optional<LentMemory>(PeerId, std::uint32_t)> place_;
  bool* destroyed_ = nullptr;  // set while users are called
};

}  // namespace verbena::messaging
