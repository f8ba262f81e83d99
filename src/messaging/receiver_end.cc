// SPDX-License-Identifier: Apache-2.0
// A receiving end's senders: connecting, controls, ending. Messages and those who wait stand in
// receiver_waits.cc.
#include "messaging/receiver_end.h"

#include <algorithm>
#include <array>
#include <utility>

#include "async/engine_state.h"
#include "base/assert.h"

namespace verbena::messaging {

namespace {

constexpr std::uint32_t kKeepAlives = 1;  // that a connection adds to its queue

}  // namespace

ReceiverEnd::ReceiverEnd(ProgressEngine& engine, const Options& options)
    : engine_(engine.state()),
      options_(options),
      attached_(engine_.find(options.connection.device)),
      wanted_(options.kind),
      interrupts_(traits_of(options.kind).interrupts) {
  tick_.end = asking_.end = dropping_.end = this;
  tick_.bind(engine_, [](detail::Resumption& tick) { static_cast<Tick&>(tick).end->serve(); });
  dropping_.bind(engine_, [](detail::Resumption& tick) { static_cast<Tick&>(tick).end->serve(); });
  asking_.bind(engine_, [](detail::Resumption& tick) { static_cast<Tick&>(tick).end->ask(); });
}

ReceiverEnd::~ReceiverEnd() { VERBENA_ASSERT(peers_.empty()); }

void ReceiverEnd::drop_peers() {
  cancel_waiting();
  dropped_ = true;
  while (!peers_.empty()) remove(peers_.back()->id());
  on_message_ = nullptr;
  on_peer_end_ = nullptr;
  place_ = nullptr;
  if (destroyed_ != nullptr) *std::exchange(destroyed_, nullptr) = true;
}

ProgressEngine& ReceiverEnd::engine_of_program() const { return engine_.owner(); }
Device& ReceiverEnd::device() const {
  return attached_ != nullptr ? attached_->device() : *options_.connection.device;
}
ProtectionDomain& ReceiverEnd::domain() const {
  ProtectionDomain* const own = options_.connection.protection_domain;
  return own != nullptr ? *own : device().protection_domain();
}

std::string ReceiverEnd::explain() const {
  const std::string kind = to_string(options_.kind), wanted = to_string(wanted_);
  const DeviceInfo& info = device().info();
  const std::string order = "the order inside a WRITE that " + wanted + " needs";
  const char* const tail = has_atomic_tail(options_.kind, info.order_in_write) ? kAtomicTail : "";
  if (kind != wanted)
    return kind + " instead of " + wanted + ": device " + info.name + " does not promise " + order + tail;
  if (traits_of(wanted_).order_in_write) return kind + ": device " + info.name + " promises " + order;
  return kind + ": as asked for; it needs no order inside a WRITE" + tail;
}

std::size_t ReceiverEnd::live_peers() const {
  return static_cast<std::size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const auto& p) { return p->started_ && !p->cut_off_; }));
}

// ---- Connecting.

Result<void> ReceiverEnd::check_max_senders() const {
  const std::uint32_t most = device().info().max_queue_pairs;
  if (options_.max_senders <= most) return {};
  return Error(ErrorCode::InvalidArgument, "messages by " + to_string(options_.kind) + ": max_senders is " +
                                               std::to_string(options_.max_senders) + ", and the device has " +
                                               std::to_string(most) + " queue pairs, one for each");
}

QueuePairCapabilities ReceiverEnd::all_queues() const {
  QueuePairCapabilities all = queues();
  all.max_send_requests += kControlSends;
  const std::uint32_t controls = control_receives();
  if (controls != 0) all.max_receive_requests += controls + kControlReceives;
  return all;
}

Result<void> ReceiverEnd::check_queues() const {
  const QueuePairCapabilities all = all_queues();
  const std::uint32_t longer = std::max(all.max_send_requests + kKeepAlives, all.max_receive_requests);
  const std::uint32_t most = device().info().max_requests;
  if (longer <= most) return {};
  return Error(ErrorCode::InvalidArgument, "messages by " + to_string(options_.kind) + ": a depth of " +
                                               std::to_string(options_.depth) + " takes a queue of " +
                                               std::to_string(longer) + " requests, and the device's hold " +
                                               std::to_string(most));
}

Result<ReceiverPeer*> ReceiverEnd::add_peer() {
  if (engine_.is_inherited()) return EngineState::inherited_error("receiver");
  if (peers_.size() >= options_.max_senders)
    return Error(ErrorCode::ResourceExhausted,
                 "the receiver serves " + std::to_string(peers_.size()) +
                     (peers_.size() == 1 ? " sender" : " senders") + ", and takes no more");
  auto made = make_peer(next_peer_);
  if (!made) return made.error();
  ++next_peer_;
  ReceiverPeer& peer = **made;
  ConnectionOptions options = options_.connection;
  options.device = &device();
  options.queues = all_queues();
  options.receive_pool = receive_pool().get();
  auto connection = Connection::prepare(engine_.owner(), options);
  if (!connection) return connection.error();
  peer.connection_.emplace(std::move(*connection));
  peer.connection_->on_completion([this, &peer](const Completion& completion) { handle(peer, completion); });
  peer.connection_->on_closed([this, &peer] { connection_closed(peer); });
  const std::uint32_t controls = control_receives();
  peer.receives_taken_ = controls == 0 ? 0 : controls + kControlReceives;
  post_control_receives(peer);
  if (auto ok = prepare(peer); !ok) return ok.error();
  peers_.push_back(std::move(*made));
  return &peer;
}

// A peer that goes, whichever way the frame is left, unless it has become one of them.
class ReceiverEnd::Seat {
 public:
  Seat(ReceiverEnd& end, PeerId id) : end_(end), id_(id) {}
  Seat(const Seat&) = delete;
  Seat& operator=(const Seat&) = delete;
  ~Seat() {
    if (!kept_) end_.remove(id_);
  }
  PeerId keep() { return kept_ = true, id_; }

 private:
  ReceiverEnd& end_;
  const PeerId id_;
  bool kept_ = false;
};

// Its connection goes before the protocol's memory. That runs the engine, and it has its seat until then: others come,
// and it may be removed inside.
void ReceiverEnd::remove(PeerId id) {
  Calling calling(destroyed_, tick_);
  const auto is_it = [id](const auto& peer) { return peer->id() == id; };
  auto found = std::find_if(peers_.begin(), peers_.end(), is_it);
  if (found == peers_.end()) return;
  drop_connection(**found);
  if (calling.destroyed_it()) return;
  found = std::find_if(peers_.begin(), peers_.end(), is_it);
  if (found == peers_.end()) return;
  const std::unique_ptr<ReceiverPeer> held = std::move(*found);
  peers_.erase(found);
}

// Runs the engine. The peer may be gone after, and this.
void ReceiverEnd::drop_connection(ReceiverPeer& peer) {
  const auto pool = receive_pool();  // goes behind the connection
  const auto last = std::exchange(peer.connection_, std::nullopt);
}

Offer ReceiverEnd::our_offer(ReceiverPeer* peer, const Offer* theirs) {
  Offer ours;
  ours.role = Role::Receiver;
  ours.order_in_write = device().info().order_in_write;
  ours.kind = options_.kind;
  ours.max_message_bytes = options_.max_message_bytes;
  ours.depth = options_.depth;
  if (peer != nullptr) offer(*peer, ours, theirs);
  return ours;
}

Result<void> ReceiverEnd::begin(ReceiverPeer& peer, const Offer& ours, const Offer& theirs) {
  auto settled = settle(ours, theirs);
  if (!settled) return settled.error();
  if (auto ok = check_offer(theirs, *settled); !ok) return ok;
  peer.name_ = peer.connection_->peer().to_string();
  if (auto ok = start(peer, theirs, *settled); !ok) return ok;
  // From here on it is one of them, though it may have ended: what it said before is handed out first.
  peer.started_ = true;
  ++taken_peers_;
  replays_ = true;
  for (const Completion& completion : std::exchange(peer.early_, {})) handle(peer, completion);
  replays_ = false;
  if (peer.cut_off_) {
    has_cut_off_ = true;
    touch();
  }
  touch_if_awaited();
  return {};
}

Result<PeerId> ReceiverEnd::accept(ConnectionRequest request) {
  const std::string what = "accept the sender at " + request.peer().to_string() + ": ";
  const auto refuse = [&](const Error& error) {
    ++counters_.peers_refused;
    const bool for_now = error.code() == ErrorCode::ResourceExhausted;
    static_cast<void>(for_now ? request.reject_for_now(error.context()) : request.reject_in_words(error.context()));
    return Error(error.code(), what + error.context());
  };
  auto theirs = Offer::from_bytes(request.private_data());
  if (!theirs) return refuse(theirs.error());
  auto settled = settle(our_offer(nullptr, nullptr), *theirs);
  if (!settled) return refuse(settled.error());
  if (auto ok = check_offer(*theirs, *settled); !ok) return refuse(ok.error());
  auto added = add_peer();
  if (!added) return refuse(added.error());
  ReceiverPeer& peer = **added;
  Seat seat(*this, peer.id());
  const Offer ours = our_offer(&peer, &*theirs);
  auto accepted = request.accept(std::move(*peer.connection_), ours.to_bytes());
  if (!accepted) return accepted.error();
  *peer.connection_ = std::move(*accepted);
  if (auto ok = begin(peer, ours, *theirs); !ok) {
    ++counters_.peers_refused;
    return Error(ok.error().code(), what + ok.error().context());
  }
  return seat.keep();
}

Task<Result<PeerId>> ReceiverEnd::connect(std::shared_ptr<ReceiverEnd> /*self*/, std::string address) {
  const std::string what = "connect a receiver to " + address + ": ";
  const Error destroyed(ErrorCode::Cancelled, what + "it was destroyed meanwhile");
  if (dropped_) co_return destroyed;
  auto added = add_peer();
  if (!added) co_return added.error();
  ReceiverPeer& peer = **added;
  Seat seat(*this, peer.id());
  const Offer ours = our_offer(&peer, nullptr);
  const auto bytes = ours.to_bytes();
  auto ok = co_await peer.connection_->async_connect_to(address, bytes);
  if (dropped_) co_return destroyed;  // and the peer with it
  if (ok || has_answered(ok.error())) {
    auto theirs = Offer::from_bytes(peer.connection_->private_data());
    if (!theirs) ok = theirs.error();
    if (ok) ok = begin(peer, ours, *theirs);
    if (!ok) ok = Error(ok.error().code(), what + ok.error().context());
  }
  if (!ok) co_return ok.error();
  co_return seat.keep();
}

bool ReceiverEnd::disconnect(PeerId id) {
  for (const auto& peer : peers_) {
    if (peer->id() != id || peer->cut_off_) continue;
    peer->doomed_ = true;
    cut_off(*peer, Error(ErrorCode::Cancelled, "the receiver let go of this sender"));
    return true;
  }
  return false;
}

// ---- What comes and goes.

PostResult ReceiverEnd::post(ReceiverPeer& peer, std::span<const SendRequest> requests) {
  if (peer.cut_off_ || !peer.connection_) return {PostStatus::WrongState, 0};
  return peer.connection_->post_send(requests);
}

void ReceiverEnd::post_control_receives(ReceiverPeer& peer) {
  constexpr std::uint32_t kAtOnce = 32;
  static constexpr auto kRequests = [] {
    std::array<ReceiveRequest, kAtOnce> all;
    all.fill({kReceiveId | kFirstBaseId, {}});
    return all;
  }();
  while (peer.receives_taken_ != 0 && peer.connection_) {
    const std::uint32_t count = std::min(peer.receives_taken_, kAtOnce);
    peer.receives_taken_ -= count;
    const PostResult result = peer.connection_->post_receive(std::span(kRequests).first(count));
    peer.receives_taken_ += count - static_cast<std::uint32_t>(result.posted);
    if (!result) return;
  }
}

bool ReceiverEnd::post_control(ReceiverPeer& peer, Control control) {
  SendRequest request;
  request.id = kFirstBaseId;
  request.opcode = SendOpcode::SendWithImmediate;
  request.immediate = control.to_immediate();
  return static_cast<bool>(post(peer, {&request, 1}));
}

bool ReceiverEnd::tell_given_back(ReceiverPeer& peer, std::uint64_t number) {
  post_control_receives(peer);
  if (!post_control(peer, {Control::Word::GivenBack, static_cast<std::uint32_t>(number)})) return false;
  ++counters_.credit_messages;
  return true;
}

void ReceiverEnd::handle(ReceiverPeer& peer, const Completion& completion) {
  if (engine_.is_inherited()) return;
  if (!peer.started_) return peer.early_.push_back(completion);
  Result<void> ok;
  if ((completion.id & kReceiveId) != 0) {
    if (completion.status != CompletionStatus::Success) return;
    const bool is_control = completion.opcode == CompletionOpcode::Receive && completion.with_immediate;
    const bool is_ours = (completion.id & kFirstBaseId) != 0;
    if (is_ours && ++peer.receives_taken_ >= peer.receives_at_once_) post_control_receives(peer);
    if (is_control && !is_ours) handle_control_in(peer, completion);
    if (is_control) return handle_control(peer, completion.immediate);
    ok = handle_received(peer, completion);
  } else if (completion.id < kFirstBaseId) {
    ok = handle_sent(peer, completion);
  } else if (completion.status == CompletionStatus::Success) {
    answer_finish(peer);
    handle_told(peer);
  }
  if (!ok) fail(peer, ok.error());
}

Result<void> ReceiverEnd::handle_waiting(ReceiverPeer&) {
  return Error(ErrorCode::ProtocolError, "the sender sent what no sender sends");
}

void ReceiverEnd::handle_control(ReceiverPeer& peer, const std::array<std::byte, 4>& immediate) {
  const auto control = Control::from_immediate(immediate);
  if (control && control->word == Control::Word::Waits) {
    if (auto ok = handle_waiting(peer); !ok) fail(peer, ok.error());
    return;
  }
  if (!control || control->word != Control::Word::Finish || peer.total_)
    return fail(peer, Error(ErrorCode::ProtocolError, "the sender sent what no sender sends"));
  peer.total_ = counter_near(peer.arrived_, control->number);
  handle_finish(peer);
  answer_finish(peer);
  touch();
}

void ReceiverEnd::answer_finish(ReceiverPeer& peer) {
  if (peer.answered_ || !peer.total_ || !has_all(peer, *peer.total_)) return;
  peer.answered_ = post_control(peer, {Control::Word::Finished, static_cast<std::uint32_t>(*peer.total_)});
}

void ReceiverEnd::fail(ReceiverPeer& peer, Error error) {
  peer.doomed_ = true;
  cut_off(peer, Error(error.code(), "messages of " + peer.name_ + ": " + error.context()));
}

void ReceiverEnd::connection_closed(ReceiverPeer& peer) {
  auto why = peer.connection_->status();
  cut_off(peer, why ? Error(ErrorCode::Disconnected, "the sender closed the connection") : why.error());
}

void ReceiverEnd::cut_off(ReceiverPeer& peer, Error error) {
  if (peer.cut_off_) return;
  peer.cut_off_ = true;
  peer.error_ = std::move(error);
  has_cut_off_ = true;
  touch();
}

// How its end is told: by what it said, not by how the connection went.
Result<void> ReceiverEnd::end_of(const ReceiverPeer& peer) const {
  if (peer.total_ && *peer.total_ == peer.arrived_ && !peer.doomed_) return {};
  if (peer.doomed_ || peer.error_->code() != ErrorCode::Disconnected) return *peer.error_;
  return Error(ErrorCode::ConnectionLost, "messages of " + peer.name_ + ": the sender left without closing");
}

// Those whose connection is gone and from whom nothing can be received any more are told, and go when what
// was handed out is back. After anything that may run the engine, and this inside it, all peers are looked at anew.
void ReceiverEnd::reap(const Calling& calling) {
  has_cut_off_ = false;
  for (std::size_t i = 0; !calling.destroyed_it() && !engine_.is_inherited() && i < peers_.size();) {
    ReceiverPeer& peer = *peers_[i];
    ++i;
    answer_finish(peer);
    if (!peer.cut_off_ || !peer.started_) continue;
    if (peer.doomed_ && peer.connection_) {
      // What has arrived can be received: it is handed out before the connection goes.
      if (!peer.doomed_in_) peer.doomed_in_ = engine_.runs_drained();
      if (engine_.left_completions() && engine_.runs_drained() - *peer.doomed_in_ < engine_.runs_to_hand_out()) {
        dropping_.make_ready_at(engine_.now());
        continue;
      }
      drop_connection(peer);
      i = 0;
      continue;
    }
    if (!std::exchange(peer.fenced_, true)) handle_fenced(peer);
    has_cut_off_ = has_cut_off_ || !peer.told_;
    if (!is_empty(peer)) continue;
    if (!std::exchange(peer.ended_, true)) count_end(peer);
    if (!peer.told_ && on_peer_end_ && (end_depth_ == Nested::kMost || !engine_.may_call(tick_))) continue;
    if (!peer.told_)
      tell_end(peer, calling);
    else if (peer.outstanding_ == 0)
      remove(peer.id());
    else
      continue;
    i = 0;
  }
}

// Whoever waits for messages goes by that, though on_peer_end() comes later.
void ReceiverEnd::count_end(const ReceiverPeer& peer) {
  const Result<void> how = end_of(peer);
  counters_.peers_lost += !how;
  const std::uint64_t lost = counters_.peers_lost;
  const std::string all = lost == 0 ? "all senders have closed" : "no sender is left; lost: " + std::to_string(lost);
  last_error_ = how ? Error(ErrorCode::Disconnected, all) : how.error();
  ++ended_;
}

void ReceiverEnd::tell_end(ReceiverPeer& peer, const Calling& calling) {
  peer.told_ = true;
  const auto f = on_peer_end_;
  if (!f) return;
  const Result<void> how = end_of(peer);
  const Nested nested(engine_, end_depth_, calling);
  (*f)(peer.id(), how);
}

}  // namespace verbena::messaging
