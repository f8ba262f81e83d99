// SPDX-License-Identifier: Apache-2.0
// The public face of a receiving end.
#include "verbena/messaging/receiver.h"

#include <string>
#include <utility>

#include "async/engine_state.h"
#include "messaging/receiver_end.h"

namespace verbena::messaging {

void Message::give_back() {
  ReceiverPeer* const from = std::exchange(from_, nullptr);
  if (from != nullptr) from->end().give_back(*from, token_);
}

// ---- Receiving.

bool Receiving::await_ready() {
  if (end_->has_waiting() && !end_->is_over()) return false;
  return end_->take({&message_, 1}) != 0 || end_->is_over();
}
void Receiving::await_suspend(std::coroutine_handle<> who) { end_->wait_for_message(*this, who); }
// Who is resumed before this one may destroy the receiver, and with it what the message lies in.
Receiving::~Receiving() {
  if (held_ && held_->is_dropped()) message_.from_ = nullptr;
}
Result<Message> Receiving::await_resume() {
  if (held_ && held_->is_dropped()) return held_->over_error();
  if (!message_.empty()) return std::move(message_);
  if (cancelled_) return Error(ErrorCode::Cancelled, "receive a message: cancelled");
  if (over_ || end_->is_over()) return end_->over_error();
  return Error(ErrorCode::DeadlineExceeded, "receive a message: none came before the deadline");
}

// ---- Receiver.

Receiver::Receiver(std::shared_ptr<ReceiverEnd> end) : end_(std::move(end)) {}
Receiver::Receiver(Receiver&& other) noexcept = default;
Receiver& Receiver::operator=(Receiver&& other) noexcept {
  if (this == &other) return *this;
  const auto old = std::exchange(end_, std::move(other.end_));  // callbacks find the new one
  if (old != nullptr) old->drop_peers();
  return *this;
}
Receiver::~Receiver() {
  if (end_ != nullptr) end_->drop_peers();
}

Result<Receiver> Receiver::create(ProgressEngine& engine, const Options& options) {
  auto end = ReceiverEnd::create(engine, options);
  if (!end) return end.error();
  return Receiver(std::move(*end));
}

Result<PeerId> Receiver::accept(ConnectionRequest request) {
  const auto end = end_.pointer();  // a callback may destroy the receiver meanwhile
  return end->accept(std::move(request));
}
Result<PeerId> Receiver::connect(std::string_view address) {
  return end_->engine().run(end_->connect(end_.pointer(), std::string(address)));
}
Task<Result<PeerId>> Receiver::async_connect(std::string_view address) {
  return end_->connect(end_.pointer(), std::string(address));
}
bool Receiver::disconnect(PeerId peer) { return end_->disconnect(peer); }
std::size_t Receiver::peers() const { return end_->live_peers(); }
void Receiver::on_peer_end(std::function<void(PeerId, const Result<void>&)> f) {
  end_->on_peer_end(std::move(f));
}

std::optional<Message> Receiver::try_receive() {
  std::optional<Message> message(std::in_place);
  if (end_->receive({&*message, 1}) == 0) message.reset();
  return message;
}
std::size_t Receiver::try_receive(std::span<Message> out) { return end_->receive(out); }
Result<Message> Receiver::receive(Duration timeout) {
  const auto end = end_.pointer();  // what it waits for may destroy this
  return end->receive_blocking(timeout);
}
Receiving Receiver::async_receive(Duration timeout) { return {*end_, end_->engine().now() + timeout}; }
void Receiver::cancel_waiting() { end_->cancel_waiting(); }
void Receiver::on_message(std::function<void(Message)> f) { end_->on_message(std::move(f)); }

void Receiver::on_place(std::function<std::optional<LentMemory>(PeerId, std::uint32_t)> f) {
  end_->on_place(std::move(f));
}

const Kind& Receiver::kind() const { return end_->options().kind; }
std::string Receiver::explain() const { return end_->explain(); }
std::uint32_t Receiver::max_message_bytes() const { return end_->options().max_message_bytes; }
std::uint64_t Receiver::memory_bytes() const { return end_->memory_bytes(); }
const ReceiverCounters& Receiver::counters() const { return end_->counters(); }

}  // namespace verbena::messaging
