// SPDX-License-Identifier: Apache-2.0
// The way of a message into a protocol, and those who wait for room or for their memory.
#include <algorithm>
#include <utility>

#include "async/engine_state.h"
#include "messaging/looking.h"
#include "messaging/sender_end.h"

namespace verbena::messaging {

namespace {

bool may_go_later(SendStatus status) {
  return status == SendStatus::NoCredit || status == SendStatus::NoBuffer ||
         status == SendStatus::RateLimited;
}

}  // namespace

Error SenderEnd::refusal(SendStatus status, std::uint32_t bytes) const {
  const std::string what = "send " + std::to_string(bytes) + " bytes to " + peer_.to_string() + ": ";
  if (status == SendStatus::TooLong)
    return Error(ErrorCode::InvalidArgument,
                 what + "at most " + std::to_string(max_message_bytes()) + " are agreed with the receiver");
  if (status == SendStatus::Closed) {
    const auto open = this->status();
    const Error why = open ? Error(ErrorCode::WrongState, "the connection takes nothing any more") : open.error();
    return Error(why.code(), what + why.context(), why.native(), why.domain());
  }
  return Error(ErrorCode::DeadlineExceeded, what + std::string(to_string(status)) + " before the deadline");
}

Error SenderEnd::cancelled_send() {
  return Error(ErrorCode::Cancelled, "send a message: cancelled while it waited for room");
}

// ---- As much as goes now.

SendResult SenderEnd::send(std::span<const Outgoing> messages) {
  const SendResult result = try_now(messages);
  if (!result) count_refusal(result.status, result.taken < messages.size() ? messages[result.taken].size : 0);
  return result;
}

// Counts no refusal: who waits tries often, and was refused once.
SendResult SenderEnd::try_now(std::span<const Outgoing> messages) {
  if (!is_open()) return {SendStatus::Closed, 0, 0};
  if (!waiting_.empty()) {
    const bool never = !messages.empty() && messages[0].size > settled_.max_message_bytes;
    return {never ? SendStatus::TooLong : SendStatus::NoCredit, 0, 0};  // or in line
  }
  return messages.size() == 1 && !limiter_.is_on() ? pass_one(messages[0]) : pass(messages);
}

// Of these, from the first on, how many the limit on their rate lets go.
std::size_t SenderEnd::count_allowed(Instant now, std::span<const Outgoing> messages) const {
  RateLimiter after = limiter_;
  std::size_t count = 0;
  for (; count < messages.size() && after.allows(now); ++count) after.take(now, messages[count].size);
  return count;
}

// One message, which no limit on their rate holds up.
SendResult SenderEnd::pass_one(const Outgoing& message) {
  SendResult result{SendStatus::TooLong, 0, 0};
  if (message.size <= settled_.max_message_bytes) result = put({&message, 1});
  if (!result) return result;
  counters_.bytes += message.size;
  counters_.lent += message.lent ? 1 : 0;
  result.last = ++counters_.messages;
  return result;
}

SendResult SenderEnd::pass(std::span<const Outgoing> messages) {
  SendStatus stopped = SendStatus::Ok;
  std::size_t fit = 0;
  while (fit < messages.size() && messages[fit].size <= settled_.max_message_bytes) ++fit;
  if (fit < messages.size()) stopped = SendStatus::TooLong;
  const Instant now = limiter_.is_on() ? engine_.now() : Instant{};
  if (limiter_.is_on())
    if (const std::size_t allowed = count_allowed(now, messages.first(fit)); allowed < fit) {
      fit = allowed;
      stopped = SendStatus::RateLimited;
    }
  SendResult result{SendStatus::Ok, 0, 0};
  if (fit != 0) result = put(messages.first(fit));
  for (const Outgoing& message : messages.first(result.taken)) {
    counters_.bytes += message.size;
    counters_.lent += message.lent ? 1 : 0;
    if (limiter_.is_on()) limiter_.take(now, message.size);
  }
  counters_.messages += result.taken;
  if (result.taken != 0) result.last = counters_.messages;
  if (result.status == SendStatus::Ok) result.status = stopped;
  return result;
}

void SenderEnd::count_refusal(SendStatus status, std::uint32_t bytes) {
  const bool wants_buffer = status == SendStatus::NoBuffer && has_buffer();
  std::uint32_t& shortest = wants_buffer ? refused_buffer_bytes_ : refused_bytes_;
  if (may_go_later(status)) shortest = std::min(shortest, bytes);
  counters_.no_credit += status == SendStatus::NoCredit;
  if (status == SendStatus::NoCredit) await_another_try(bytes);
  counters_.no_buffer += status == SendStatus::NoBuffer;
  counters_.rate_limited += status == SendStatus::RateLimited;
  counters_.too_long += status == SendStatus::TooLong;
}

// Who tries again when the engine wakes up would sleep where no completion announces room.
void SenderEnd::await_another_try(std::uint32_t bytes) {
  if (!has_silent_room()) return;
  const bool is_first = !is_try_awaited() || sent_when_refused_ != counters_.messages;
  awaited_bytes_ = bytes;
  tried_at_ = engine_.now();
  if (!is_first) return;
  sent_when_refused_ = counters_.messages;
  refused_at_ = tried_at_;
  look_again();
}

std::uint32_t SenderEnd::take_buffer() {
  if (buffers_.is_allocated()) return buffers_.take();
  if (auto ok = buffers_.allocate(domain()); !ok) {
    fail(ok.error());
    return kNoSlot;
  }
  return buffers_.take();
}

std::optional<Reservation> SenderEnd::try_reserve(std::uint32_t bytes) {
  if (!is_open()) return std::nullopt;
  if (bytes > max_message_bytes()) {
    ++counters_.too_long;
    return std::nullopt;
  }
  const std::uint32_t slot = take_buffer();
  if (!is_open()) return std::nullopt;
  if (slot == kNoSlot) {
    ++counters_.no_buffer;
    refused_buffer_bytes_ = std::min(refused_buffer_bytes_, bytes);
    return std::nullopt;
  }
  return Reservation(*this, {buffers_.at(slot), bytes}, slot);
}

SendResult SenderEnd::try_commit(Reservation& reservation, std::uint32_t bytes) {
  if (!is_open()) return {SendStatus::Closed, 0, 0};
  if (reservation.end_ != this) return {SendStatus::NotReserved, 0, 0};
  SendResult result{SendStatus::Ok, 0, 0};
  if (bytes > reservation.bytes_.size())
    result.status = SendStatus::TooLong;
  else if (!waiting_.empty() && !first_wants_buffer())
    result.status = SendStatus::NoCredit;  // in line
  else if (limiter_.is_on() && !limiter_.allows(engine_.now()))
    result.status = SendStatus::RateLimited;
  else
    result = commit(static_cast<std::uint32_t>(reservation.slot_), bytes);
  if (!result) {
    count_refusal(result.status, bytes);
    refused_commit_ = refused_commit_ || may_go_later(result.status);
    return result;
  }
  if (limiter_.is_on()) limiter_.take(engine_.now(), bytes);
  reservation.end_ = nullptr;
  counters_.bytes += bytes;
  result.last = ++counters_.messages;
  return result;
}

// What is committed has a buffer. Who waits for one may wait for this.
bool SenderEnd::first_wants_buffer() {
  return static_cast<Sending&>(waiting_.first()).result_.status == SendStatus::NoBuffer;
}

// ---- Until it goes.

Result<MessageId> SenderEnd::send_blocking(const Outgoing& message, Duration timeout) {
  const Instant deadline = deadline_of(timeout);
  Sending sending(*this, message, deadline);
  if (is_open() && looks()) look();
  if (!sending.await_ready()) {
    // It asks by itself whether it was served; who began to wait inside does not wait for one that is late.
    sending.bind(engine_, [](detail::Resumption& late) { static_cast<Sending&>(late).leave_line(); });
    if (!deadline.is_never()) sending.make_ready_at(deadline);
    stand_in_line(sending);
    const auto is_over = [&] {
      if (is_open() && looks()) look();
      serve_waiting();
      return !sending.in_line_;
    };
    engine_.run_until(is_over, deadline, look_every(looks()));
  }
  return sending.await_resume();
}

Result<void> SenderEnd::wait_freed(MessageId message, Duration timeout) {
  const Instant deadline = deadline_of(timeout);
  const auto is_cancelled = [&, before = freeings_cancelled_, was_closed = was_closed_] {
    return freeings_cancelled_ != before || (was_closed_ && !was_closed && message > sent());
  };
  const auto is_over = [&] {
    if (looks() && is_open()) look();
    return freed_ >= message || state_ == State::Closed || engine_.is_inherited() || is_cancelled();
  };
  engine_.run_until(is_over, deadline, look_every(looks()));
  if (freed_ >= message) return {};
  const std::string what = "wait for the memory of message " + std::to_string(message) + " to " + peer_.to_string();
  if (is_cancelled()) return Error(ErrorCode::Cancelled, what);
  if (engine_.is_inherited()) return status();
  return state_ == State::Closed ? *error_ : Error(ErrorCode::DeadlineExceeded, what);
}

void SenderEnd::wait_for_room(Sending& sending, std::coroutine_handle<> who) {
  sending.held_ = shared_from_this();
  sending.bind(engine_, who);
  if (!is_open()) return sending.make_ready();
  if (!sending.deadline_.is_never()) sending.make_ready_at(sending.deadline_);
  stand_in_line(sending);
}

void SenderEnd::stand_in_line(Sending& sending) {
  if (!is_open()) return;
  waiting_.push_back(sending);
  sending.in_line_ = true;
  look_again();
}

// Served, cancelled, or lost with the sender.
void SenderEnd::end_wait(Sending& sending) {
  sending.in_line_ = false;
  sending.make_ready();
}

void SenderEnd::wait_for_freed(Freeing& freeing, std::coroutine_handle<> who) {
  freeing.held_ = shared_from_this();
  freeing.bind(engine_, who);
  if (!freeing.deadline_.is_never()) freeing.make_ready_at(freeing.deadline_);
  freeing_.push_back(freeing);
  look_again();
}

void SenderEnd::cancel_waiting() {
  while (!waiting_.empty()) {
    auto& sending = static_cast<Sending&>(waiting_.first());
    sending.cancelled_ = true;
    end_wait(sending);
  }
  touch();
}

void SenderEnd::cancel_freeing() {
  ++freeings_cancelled_;
  cancel_freeing_behind(0);
}

void SenderEnd::cancel_freeing_behind(MessageId message) {
  detail::ResumptionList still;
  while (!freeing_.empty()) {
    auto& freeing = static_cast<Freeing&>(freeing_.first());
    if (freeing.message_ <= message) {
      still.push_back(freeing);
      continue;
    }
    freeing.cancelled_ = true;
    freeing.make_ready();
  }
  while (!still.empty()) freeing_.push_back(still.first());
}

void SenderEnd::on_freed(std::function<void(MessageId)> f) {
  const auto before = std::exchange(
      on_freed_, f ? std::make_shared<const std::function<void(MessageId)>>(std::move(f)) : nullptr);
  told_freed_ = freed_;
  look_again();
}

void SenderEnd::on_room(std::function<void()> f) {
  on_room_.swap(f);  // the one before may be all that holds this end
  tick_.make_ready();
}

// ---- From the engine.

void SenderEnd::serve() {
  if (state_ == State::Connecting) return;  // who connects still needs the connection
  if (is_open() && looks()) look();
  serve_waiting();
  serve_freeing();
  if (state_ == State::Closing) changed_.notify();
  const Calling calling(destroyed_, tick_);
  call_back(calling);
  if (calling.destroyed_it()) return;
  look_again();
  if (!doomed_) return;
  const auto last = std::exchange(connection_, std::nullopt);  // it runs the engine, and this may be gone after
}

void SenderEnd::serve_waiting() {
  while (is_open() && !waiting_.empty()) {
    auto& sending = static_cast<Sending&>(waiting_.first());
    sending.result_ = pass({&sending.message_, 1});
    if (may_go_later(sending.result_.status)) return;
    end_wait(sending);
  }
}

// They wait in no order: whoever is served leaves, the others go round once.
void SenderEnd::serve_freeing() {
  detail::ResumptionList still;
  while (!freeing_.empty()) {
    auto& freeing = static_cast<Freeing&>(freeing_.first());
    if (freeing.message_ <= freed_ || state_ == State::Closed || engine_.is_inherited())
      freeing.make_ready();
    else
      still.push_back(freeing);
  }
  while (!still.empty()) freeing_.push_back(still.first());
}

// Or for the longest, when nothing was refused.
bool SenderEnd::has_room_for_refused() {
  const auto fits = [this](std::uint32_t bytes) { return has_room_for(std::min(bytes, max_message_bytes())); };
  const bool waits_for_buffer = refused_buffer_bytes_ != kNoneRefused;
  const bool waits_for_room = refused_bytes_ != kNoneRefused || !waits_for_buffer;
  const bool room = waits_for_room && fits(refused_bytes_);
  const bool buffer_room = waits_for_buffer && fits(refused_buffer_bytes_);
  if (is_open() && !room && !buffer_room) want_room();
  return has_buffer() && (room || (buffer_room && !buffers_.all_taken()));
}

// Any of these may destroy this end, or run the engine: what else is to be told, or looked for, is served inside then.
void SenderEnd::call_back(const Calling& calling) {
  if (on_freed_ && freed_ > told_freed_ && freed_depth_ != Nested::kMost && engine_.may_call(tick_)) {
    told_freed_ = freed_;
    touch();
    {
      const auto f = on_freed_;  // which may be all that holds this end
      const Nested nested(engine_, freed_depth_, calling);
      (*f)(freed_);
    }
    if (calling.destroyed_it()) return;
    if (freed_ > told_freed_) touch();
  }
  if (is_try_awaited() && (has_room_for(awaited_bytes_) || engine_.now() - tried_at_ > kTryPatience))
    awaited_bytes_ = kNoneRefused;
  room_held_by_rate_ = false;
  if (!on_room_ || room_depth_ == Nested::kMost || !engine_.may_call(tick_)) return;
  const bool may_go = has_room_for_refused();
  room_held_by_rate_ = may_go && limiter_.is_on() && !limiter_.allows(engine_.now());
  const bool passes = waiting_.empty() || (refused_commit_ && first_wants_buffer());
  const bool over = state_ == State::Closed || engine_.is_inherited();
  if (!over && !(passes && may_go && !room_held_by_rate_)) return;
  const auto f = std::exchange(on_room_, nullptr);
  refused_bytes_ = refused_buffer_bytes_ = kNoneRefused;
  refused_commit_ = false;
  touch();
  const Nested nested(engine_, room_depth_, calling);
  f();
  if (!calling.destroyed_it() && on_room_) touch();
}

Duration SenderEnd::try_interval() const {
  const Duration part{(engine_.now() - refused_at_).ns / kTryIntervalPart};
  return std::clamp(part, kLookInterval, kLongestTryInterval);
}

// What no completion announces must be looked for, as long as somebody waits for it. Whether the limit on their rate
// holds messages up is what was found when they were refused: it may let them go by now, and nobody else would say so.
void SenderEnd::look_again() {
  if (state_ == State::Closed || engine_.is_inherited() || !has_interest()) return;
  if (looks()) {
    // Who tries may not come back.
    const bool waits = is_room_awaited() || !is_try_awaited();
    return tick_.make_ready_at(engine_.now() + (waits ? kLookInterval : try_interval()));
  }
  const bool is_held = waiting_.empty()
                           ? room_held_by_rate_
                           : static_cast<Sending&>(waiting_.first()).result_.status == SendStatus::RateLimited;
  if (limiter_.is_on() && is_held) tick_.make_ready_at(limiter_.next());
}

}  // namespace verbena::messaging
