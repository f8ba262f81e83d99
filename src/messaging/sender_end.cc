// SPDX-License-Identifier: Apache-2.0
// A sending end's life: connecting, controls, ending. Messages and those who wait stand in sender_waits.cc.
#include "messaging/sender_end.h"

#include <utility>

#include "async/describe.h"
#include "base/assert.h"

namespace verbena::messaging {

SenderEnd::SenderEnd(ProgressEngine& engine, const Options& options)
    : engine_(engine.state()),
      options_(options),
      attached_(engine_.find(options.connection.device)),
      settled_{options.kind, options.max_message_bytes, options.depth, false},
      limiter_(options.rate),
      changed_(engine_) {
  tick_.end = this;
  tick_.bind(engine_, [](detail::Resumption& tick) { static_cast<Tick&>(tick).end->serve(); });
}

SenderEnd::~SenderEnd() { VERBENA_ASSERT(!connection_); }

// Those who wait are told while the protocol is still there to be asked.
void SenderEnd::drop_connection() {
  if (state_ != State::Closed) lose(Error(ErrorCode::Cancelled, "the sender was destroyed"));
  connection_.reset();
  on_room_ = nullptr;
  on_freed_ = nullptr;
  if (destroyed_ != nullptr) *std::exchange(destroyed_, nullptr) = true;
}

ProgressEngine& SenderEnd::engine_of_program() const { return engine_.owner(); }
Device& SenderEnd::device() const {
  return attached_ != nullptr ? attached_->device() : *options_.connection.device;
}
ProtectionDomain& SenderEnd::domain() const {
  ProtectionDomain* const own = options_.connection.protection_domain;
  return own != nullptr ? *own : device().protection_domain();
}

// ---- Connecting.

Result<void> SenderEnd::open_connection() {
  if (state_ != State::New) return Error(ErrorCode::WrongState, "connect a sender: it was used already");
  if (engine_.is_inherited()) return EngineState::inherited_error("sender");
  ConnectionOptions options = options_.connection;
  options.device = &device();
  options.receive_pool = nullptr;
  options.queues = queues();
  options.queues.max_send_requests += kControlSends;
  const std::uint32_t controls = has_own_receives() ? 0 : control_receives() + kControlReceives;
  options.queues.max_receive_requests += controls;
  auto connection = Connection::prepare(engine_.owner(), options);
  if (!connection) return connection.error();
  connection_.emplace(std::move(*connection));
  connection_->on_completion([this](const Completion& completion) { handle(completion); });
  connection_->on_closed([this] { connection_closed(); });
  for (std::uint32_t i = 0; i < controls; ++i) post_control_receive();
  return prepare(*connection_);
}

void SenderEnd::post_control_receive() { static_cast<void>(post_receive({kReceiveId | kFirstBaseId, {}})); }

PostResult SenderEnd::post_receive(const ReceiveRequest& request) {
  if (!connection_) return {PostStatus::WrongState, 0};
  return connection_->post_receive({&request, 1});
}

Offer SenderEnd::our_offer() const {
  Offer ours;
  ours.role = Role::Sender;
  ours.kind = options_.kind;
  ours.max_message_bytes = options_.max_message_bytes;
  ours.depth = options_.depth;
  ours.order_in_write = device().info().order_in_write;
  offer(ours);
  return ours;
}

Result<void> SenderEnd::begin(const Offer& theirs) {
  auto settled = settle(our_offer(), theirs);
  if (!settled) return settled.error();
  settled_ = *settled;
  if (auto ok = check_offer(theirs, settled_); !ok) return ok;
  if (auto ok = start(theirs); !ok) return ok;
  started_ = true;
  for (const Completion& completion : std::exchange(early_, {})) handle(completion);
  return status();
}

Task<Result<void>> SenderEnd::connect(std::string address) {
  if (auto ok = open_connection(); !ok) co_return ok;
  const auto ours = our_offer().to_bytes();
  state_ = State::Connecting;
  auto ok = co_await connection_->async_connect_to(address, ours);
  if (!ok && !has_answered(ok.error())) co_return ok;
  // The receiver may have said something already, and it may have been wrong: what is no receiver at all, first.
  peer_ = connection_->peer();
  const auto theirs = Offer::from_bytes(connection_->private_data());
  if (!theirs) ok = theirs.error();
  if (ok) ok = status();
  if (ok) ok = begin(*theirs);
  if (!ok) {
    state_ = State::Closed;
    lose(ok.error());
    co_return Error(ok.error().code(), "connect a sender to " + address + ": " + ok.error().context());
  }
  state_ = State::Open;
  co_return {};
}

Result<void> SenderEnd::accept(ConnectionRequest request) {
  const std::string what = "accept the receiver at " + request.peer().to_string() + ": ";
  const auto refuse = [&](const Error& error) {
    const bool for_now = error.code() == ErrorCode::ResourceExhausted;
    static_cast<void>(for_now ? request.reject_for_now(error.context()) : request.reject_in_words(error.context()));
    return Error(error.code(), what + error.context());
  };
  auto theirs = Offer::from_bytes(request.private_data());
  if (!theirs) return refuse(theirs.error());
  auto settled = settle(our_offer(), *theirs);
  if (!settled) return refuse(settled.error());
  if (auto ok = check_offer(*theirs, *settled); !ok) return refuse(ok.error());
  if (auto ok = open_connection(); !ok) return refuse(ok.error());
  peer_ = request.peer();
  auto accepted = request.accept(std::move(*connection_), our_offer().to_bytes());
  if (!accepted) {
    connection_.reset();
    return accepted.error();
  }
  *connection_ = std::move(*accepted);
  if (auto ok = begin(*theirs); !ok) {
    lose(ok.error());
    return Error(ok.error().code(), what + ok.error().context());
  }
  state_ = State::Open;
  return {};
}

std::string SenderEnd::explain() const {
  const std::string asked = to_string(options_.kind), settled = to_string(settled_.kind);
  const char* const tail = has_atomic_tail(settled_.kind, settled_.order_in_write) ? kAtomicTail : "";
  if (asked == settled) return settled + ": as asked for" + tail;
  std::string text = settled + ": what the receiver chose, instead of " + asked + tail;
  if (traits_of(options_.kind).order_in_write && !settled_.order_in_write)
    text += "; its device does not promise the order inside a WRITE that " + asked + " needs";
  return text;
}

PostResult SenderEnd::post(std::span<const SendRequest> requests) {
  if (!connection_) return {PostStatus::WrongState, 0};
  ++counters_.posts;
  if (requests.size() == 1) return connection_->post_send(requests);
  const ProgressEngine::Gathered together(engine_.owner());  // at the end of which it leaves, whatever is under way
  return connection_->post_send(requests);
}

bool SenderEnd::must_post(std::span<const SendRequest> requests) {
  const PostResult posted = post(requests);
  if (!posted && posted.status != PostStatus::WrongState)
    fail(Error(ErrorCode::InvalidArgument, "the device refuses a request: " + describe::refusal(posted.status)));
  return static_cast<bool>(posted);
}

void SenderEnd::say(Control control) {
  SendRequest request;
  request.id = kFirstBaseId;
  request.opcode = SendOpcode::SendWithImmediate;
  request.immediate = control.to_immediate();
  static_cast<void>(post({&request, 1}));
}

// ---- What comes.

void SenderEnd::handle(const Completion& completion) {
  if (engine_.is_inherited()) return;
  if (!started_) return early_.push_back(completion);
  if ((completion.id & kReceiveId) != 0) {
    if (completion.status != CompletionStatus::Success) return;
    const bool is_ours = (completion.id & kFirstBaseId) != 0;
    if (is_ours) post_control_receive();
    if (completion.with_immediate && completion.opcode == CompletionOpcode::Receive) {
      if (!is_ours) handle_control_in(completion);
      return handle_control(completion);
    }
    if (auto ok = handle_received(completion); !ok) fail(ok.error());
    return;
  }
  if (completion.id >= kFirstBaseId) return;
  handle_sent(completion);
}

Result<void> SenderEnd::handle_received(const Completion&) {
  return Error(ErrorCode::ProtocolError, "the receiver sent what no receiver sends");
}

void SenderEnd::handle_control(const Completion& completion) {
  const auto control = Control::from_immediate(completion.immediate);
  if (!control) return fail(Error(ErrorCode::ProtocolError, "the receiver sent what no receiver sends"));
  switch (control->word) {
    case Control::Word::GivenBack: {
      ++counters_.credit_messages;
      if (auto ok = handle_given_back(control->number); !ok) fail(ok.error());
      return;
    }
    case Control::Word::Finished:
      if (state_ != State::Closing || (sent() & Control::kNumberMask) != control->number)
        return fail(Error(ErrorCode::ProtocolError, "the receiver says it has all of what was not finished"));
      finished_ = true;
      return changed_.notify();
    case Control::Word::Finish:
    case Control::Word::Waits:
      return fail(Error(ErrorCode::ProtocolError, "the receiver says what only senders say"));
  }
}

// What comes after the receiver has everything is nobody's loss.
void SenderEnd::fail(Error error) {
  if (finished_) return;
  Error named(error.code(), "messages to " + peer_.to_string() + ": " + error.context());
  doomed_ = true;
  lose(std::move(named));
  tick_.make_ready();
}

void SenderEnd::connection_closed() {
  auto why = connection_->status();
  lose(why ? Error(ErrorCode::Disconnected, "the receiver closed the connection") : why.error());
}

// ---- Ending.

void SenderEnd::lose(Error error) {
  if (error_) return;
  if (state_ != State::Connecting) state_ = State::Closed;
  error_ = std::move(error);
  changed_.notify();
  while (!waiting_.empty()) end_wait(static_cast<Sending&>(waiting_.first()));
  while (!freeing_.empty()) freeing_.first().make_ready();
  if (on_room_) tick_.make_ready();
}

Result<void> SenderEnd::status() const {
  if (error_) return *error_;
  if (engine_.is_inherited()) return EngineState::inherited_error("sender");
  if (state_ == State::Closing) return Error(ErrorCode::Flushed, "the sender is being closed here");
  return {};
}

// Whoever comes later joins, whether those before it still wait or were given up.
Task<Result<void>> SenderEnd::close(std::shared_ptr<SenderEnd> /*self*/, Duration timeout) {
  if (engine_.is_inherited() || (state_ == State::Closed && !finished_)) co_return status();
  if (state_ == State::New || state_ == State::Connecting)
    co_return Error(ErrorCode::WrongState, "close a sender that is not open");
  const Instant deadline = engine_.now() + timeout;
  if (state_ == State::Open) {
    state_ = State::Closing;
    was_closed_ = true;
    cancel_waiting();
    cancel_freeing_behind(sent());
  }
  bool in_time = true;
  while (in_time && state_ == State::Closing && !all_posted()) in_time = co_await changed_.wait(deadline);
  if (in_time && state_ == State::Closing && !std::exchange(said_finish_, true))
    say({Control::Word::Finish, static_cast<std::uint32_t>(sent())});
  while (in_time && state_ == State::Closing && !finished_) in_time = co_await changed_.wait(deadline);
  if (!finished_ && state_ == State::Closed) co_return status();
  if (!finished_) {
    lose(Error(ErrorCode::TimedOut, "close the sender to " + peer_.to_string() +
                                        ": the receiver has not said in time that it has everything; "
                                        "its engine has to run meanwhile"));
    // Closed is closed: nothing is fetched any more. It runs the engine meanwhile.
    const auto last = std::exchange(connection_, std::nullopt);
    co_return status();
  }
  set_freed(sent());
  state_ = State::Closed;
  error_ = Error(ErrorCode::Flushed, "the sender was closed here");
  while (!freeing_.empty()) freeing_.first().make_ready();
  if (on_room_) tick_.make_ready();
  // The receiver has all of it: whether it still answers is nobody's loss.
  if (connection_) static_cast<void>(co_await connection_->async_close(deadline - engine_.now()));
  co_return {};
}

}  // namespace verbena::messaging
