// SPDX-License-Identifier: Apache-2.0
// The way of a message to the program, and those who wait for one.
#include <algorithm>
#include <utility>

#include "async/engine_state.h"
#include "messaging/looking.h"
#include "messaging/receiver_end.h"

namespace verbena::messaging {

std::size_t ReceiverEnd::take(std::span<Message> out) {
  // What the protocol still has is of peers that are gone, or in memory that a forked child has not.
  if (dropped_ || engine_.is_inherited()) return 0;
  const std::size_t count = poll(out);
  counters_.messages += count;
  if (count != 0) look_interval_ = kLookInterval;
  for (std::size_t i = 0; i < count; ++i) counters_.bytes += out[i].bytes().size();
  if (count == 0 && has_end_to_tell()) tick_.make_ready();
  return count;
}

// One that is cut off may have messages behind those of others, which are still to come: nothing is due until they do.
bool ReceiverEnd::has_end_to_tell() const {
  return has_cut_off_ && std::any_of(peers_.begin(), peers_.end(), [this](const auto& peer) {
           return peer->cut_off_ && !peer->told_ && (!peer->fenced_ || is_empty(*peer));
         });
}

// Memory first. Where messages come by themselves it is looked at several times, as driving the engine takes longer.
std::size_t ReceiverEnd::receive(std::span<Message> out) {
  if (const std::size_t count = take(out); count != 0) return count;
  if (looks() && 2 * peers_.size() <= kLooksPerRun && arrivals_.come_by_themselves()) {
    struct Patience {
      std::size_t& left;
      explicit Patience(std::size_t& of) : left(of) { left = kLooksPerRun; }
      ~Patience() { left = 0; }
    };
    const Patience patience(patience_);
    if (const std::size_t count = take(out); count != 0) return arrivals_.on_look(), count;
  }
  const Calling calling(destroyed_, tick_);
  engine_.run_for_program();
  const std::size_t count = calling.destroyed_it() ? 0 : take(out);
  if (count != 0) arrivals_.on_run();
  return count;
}

Error ReceiverEnd::over_error() const {
  if (engine_.is_inherited()) return EngineState::inherited_error("receiver");
  if (dropped_) return Error(ErrorCode::Cancelled, "receive a message: the receiver was destroyed meanwhile");
  return last_error_ ? *last_error_ : Error(ErrorCode::Disconnected, "there is no sender");
}

Result<Message> ReceiverEnd::receive_blocking(Duration timeout) {
  const Instant deadline = engine_.now() + timeout;
  Message message;
  bool looks_now = false, is_done = false;
  const auto is_cancelled = [this, before = times_cancelled_] { return times_cancelled_ != before; };
  const auto done = [&] { return is_done = take({&message, 1}) != 0 || is_over() || is_cancelled(); };
  // Who comes or goes meanwhile begins or ends the looking.
  do {
    looks_now = polls();
    engine_.run_until([&] { return done() || polls() != looks_now; }, deadline, look_every(looks_now));
  } while (!is_done && polls() != looks_now);
  if (!message.empty()) return message;
  if (is_over()) return over_error();
  if (is_cancelled()) return Error(ErrorCode::Cancelled, "receive a message: cancelled");
  return Error(ErrorCode::DeadlineExceeded, "receive a message: none came before the deadline");
}

void ReceiverEnd::wait_for_message(Receiving& receiving, std::coroutine_handle<> who) {
  receiving.bind(engine_, who);
  receiving.held_ = shared_from_this();
  if (!receiving.deadline_.is_never()) receiving.make_ready_at(receiving.deadline_);
  waiting_.push_back(receiving);
  look_again();
}

void ReceiverEnd::cancel_waiting() {
  ++times_cancelled_;
  while (!waiting_.empty()) {
    auto& receiving = static_cast<Receiving&>(waiting_.first());
    receiving.cancelled_ = true;
    receiving.make_ready();
  }
}

void ReceiverEnd::on_message(std::function<void(Message)> f) {
  const auto before = std::exchange(
      on_message_, f ? std::make_shared<const std::function<void(Message)>>(std::move(f)) : nullptr);
  if (on_message_) tick_.make_ready();
}

// ---- From the engine.

void ReceiverEnd::ask() {
  if (dropped_) return;
  if (has_places() && (replays_ || engine_.is_draining())) return ask_soon();
  const Calling calling(destroyed_, asking_);
  ask_for_places();
}

void ReceiverEnd::serve() {
  const Calling calling(destroyed_, tick_);
  serve_waiting();
  hand_to_callback(calling);
  if (!calling.destroyed_it() && !engine_.is_inherited()) reap(calling);
  if (calling.destroyed_it()) return;
  while (is_over() && !waiting_.empty()) {
    auto& receiving = static_cast<Receiving&>(waiting_.first());
    receiving.over_ = true;
    receiving.make_ready();
  }
  look_again();
}

void ReceiverEnd::serve_waiting() {
  while (!waiting_.empty()) {
    auto& receiving = static_cast<Receiving&>(waiting_.first());
    if (take({&receiving.message_, 1}) == 0) return;
    receiving.make_ready();
  }
}

void ReceiverEnd::hand_to_callback(const Calling& calling) {
  if (depth_ == Nested::kMost) return;  // one of those this stands in goes on
  for (int left = kCallbacksPerTurn; !calling.destroyed_it() && on_message_ && engine_.may_call(tick_); --left) {
    if (left == 0) return tick_.make_ready_at(engine_.now());
    Message message;
    if (take({&message, 1}) == 0) return;
    const auto f = on_message_;
    // It may run the engine, and wait there for what no completion announces.
    if (looks()) tick_.make_ready();
    const Nested nested(engine_, depth_, calling);
    (*f)(std::move(message));
  }
}

void ReceiverEnd::look_again() {
  if (!polls() || (waiting_.empty() && !on_message_)) return;
  tick_.make_ready_at(engine_.now() + look_interval_);
  look_interval_ = std::min(look_interval_ * 2, kLongestLookInterval);
}

}  // namespace verbena::messaging
