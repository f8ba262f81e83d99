// SPDX-License-Identifier: Apache-2.0
// The public face of a sending end.
#include "verbena/messaging/sender.h"

#include <algorithm>
#include <array>
#include <utility>

#include "messaging/sender_end.h"

namespace verbena::messaging {

namespace {

constexpr std::size_t kChunk = 32;

// In pieces that stand on the stack.
template <class From, class Make>
SendResult send_all(SenderEnd& end, std::span<const From> messages, Make make) {
  SendResult total;
  std::array<Outgoing, kChunk> chunk;
  do {
    const std::size_t count = std::min(messages.size() - total.taken, kChunk);
    for (std::size_t i = 0; i < count; ++i) chunk[i] = make(messages[total.taken + i]);
    const SendResult part = end.send({chunk.data(), count});
    total.taken += part.taken;
    total.last = std::max(total.last, part.last);
    total.status = part.status;
  } while (total && total.taken < messages.size());
  return total;
}

}  // namespace

Reservation::~Reservation() {
  if (end_ != nullptr) end_->return_reservation(slot_);
}

// ---- Sending, Freeing.

bool Sending::await_ready() {
  result_ = end_->send({&message_, 1});
  return result_ || result_.status == SendStatus::TooLong || result_.status == SendStatus::Closed;
}
void Sending::await_suspend(std::coroutine_handle<> who) { end_->wait_for_room(*this, who); }
void Sending::leave_line() {
  if (std::exchange(in_line_, false)) end_->handle_left_line();
}
Result<MessageId> Sending::await_resume() {
  leave_line();
  if (result_) return result_.last;
  if (cancelled_) return SenderEnd::cancelled_send();
  return end_->refusal(end_->is_open() ? result_.status : SendStatus::Closed, message_.size);
}

bool Freeing::await_ready() const { return end_->freed() >= message_ || end_->has_ended(); }
void Freeing::await_suspend(std::coroutine_handle<> who) { end_->wait_for_freed(*this, who); }
Result<void> Freeing::await_resume() const {
  if (end_->freed() >= message_) return {};
  if (end_->has_ended() && !cancelled_) return end_->status();
  return Error(cancelled_ ? ErrorCode::Cancelled : ErrorCode::DeadlineExceeded,
               "wait for the memory of message " + std::to_string(message_));
}

// ---- Sender.

Sender::Sender(std::shared_ptr<SenderEnd> end) : end_(std::move(end)) {}
Sender::Sender(Sender&& other) noexcept = default;
Sender& Sender::operator=(Sender&& other) noexcept {
  if (this == &other) return *this;
  const auto old = std::exchange(end_, std::move(other.end_));  // callbacks find the new one
  if (old != nullptr) old->drop_connection();
  return *this;
}
Sender::~Sender() {
  if (end_ != nullptr) end_->drop_connection();
}

Result<Sender> Sender::connect(ProgressEngine& engine, std::string_view address, const Options& options) {
  return engine.run(async_connect(engine, address, options));
}

namespace {

Task<Result<Sender>> connect_to(EngineState& engine, std::string address, Options options) {
  auto end = SenderEnd::create(engine.owner(), options);
  if (!end) co_return end.error();
  auto ok = co_await (*end)->connect(std::move(address));
  if (!ok) co_return ok.error();
  co_return Sender(std::move(*end));
}

}  // namespace

Task<Result<Sender>> Sender::async_connect(ProgressEngine& engine, std::string_view address,
                                           const Options& options) {
  return connect_to(engine.state(), std::string(address), options);
}

Result<Sender> Sender::accept(ProgressEngine& engine, ConnectionRequest request, const Options& options) {
  auto end = SenderEnd::create(engine, options);
  if (!end) return end.error();
  if (auto ok = (*end)->accept(std::move(request)); !ok) return ok.error();
  return Sender(std::move(*end));
}

SendResult Sender::try_send(std::span<const std::byte> message) {
  const Outgoing one = Outgoing::copy(message);
  return end_->send({&one, 1});
}
SendResult Sender::try_send_batch(std::span<const std::span<const std::byte>> messages) {
  return send_all(*end_, messages, [](std::span<const std::byte> m) { return Outgoing::copy(m); });
}
SendResult Sender::try_lend(const LentMemory& message) {
  const Outgoing one = Outgoing::lend(message);
  return end_->send({&one, 1});
}
SendResult Sender::try_lend_batch(std::span<const LentMemory> messages) {
  return send_all(*end_, messages, [](const LentMemory& m) { return Outgoing::lend(m); });
}
std::optional<Reservation> Sender::try_reserve(std::uint32_t bytes) { return end_->try_reserve(bytes); }
SendResult Sender::try_commit(Reservation& reservation, std::uint32_t bytes) {
  return end_->try_commit(reservation, bytes);
}

Result<MessageId> Sender::send(std::span<const std::byte> message, Duration timeout) {
  const auto end = end_.pointer();  // what it waits for may destroy this
  return end->send_blocking(Outgoing::copy(message), timeout);
}
Result<MessageId> Sender::lend(const LentMemory& message, Duration timeout) {
  const auto end = end_.pointer();
  return end->send_blocking(Outgoing::lend(message), timeout);
}
Sending Sender::async_send(std::span<const std::byte> message, Duration timeout) {
  return {*end_, Outgoing::copy(message), end_->deadline_of(timeout)};
}
Sending Sender::async_lend(const LentMemory& message, Duration timeout) {
  return {*end_, Outgoing::lend(message), end_->deadline_of(timeout)};
}
void Sender::cancel_waiting() {
  end_->cancel_waiting();
  end_->cancel_freeing();
}

MessageId Sender::freed() const { return end_->freed(); }
Result<void> Sender::wait_freed(MessageId message, Duration timeout) {
  const auto end = end_.pointer();
  return end->wait_freed(message, timeout);
}
Freeing Sender::async_freed(MessageId message, Duration timeout) {
  return {*end_, message, end_->deadline_of(timeout)};
}
void Sender::on_freed(std::function<void(MessageId)> f) { end_->on_freed(std::move(f)); }
void Sender::on_room(std::function<void()> f) { end_->on_room(std::move(f)); }

Result<void> Sender::close(Duration timeout) {
  Task<Result<void>> closing = end_->close(end_.pointer(), timeout);
  return end_->engine().run(std::move(closing));
}
Task<Result<void>> Sender::async_close(Duration timeout) { return end_->close(end_.pointer(), timeout); }
Result<void> Sender::status() const { return end_->status(); }
bool Sender::closed() const { return !end_->is_open(); }

const Kind& Sender::kind() const { return end_->kind(); }
std::string Sender::explain() const { return end_->explain(); }
std::uint32_t Sender::max_message_bytes() const { return end_->max_message_bytes(); }
std::uint64_t Sender::credits() const { return end_->credits(); }
std::uint64_t Sender::memory_bytes() const { return end_->memory_bytes(); }
const SenderCounters& Sender::counters() const { return end_->counters(); }
Endpoint Sender::peer() const { return end_->peer(); }

}  // namespace verbena::messaging
