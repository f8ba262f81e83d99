// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "messaging/send_receive.h"

namespace verbena::messaging {

struct SendReceiveSender::Batch {
  std::array<SendRequest, kBatch> requests;
  std::array<ScatterGather, kBatch> pieces;
  std::array<std::uint32_t, kBatch> slots;
  std::size_t size = 0;
};

SendReceiveSender::SendReceiveSender(ProgressEngine& engine, const Options& options)
    : SenderEnd(engine, options) {}
SendReceiveSender::SendReceiveSender(ProgressEngine& engine, const Options& options, Aim aim)
    : SenderEnd(engine, options), aims_(aim == Aim::AtMemory) {}
SendReceiveSender::~SendReceiveSender() { drop_connection(); }

Result<void> SendReceiveSender::open() {
  buffers_.plan(options().max_message_bytes, options().depth, Access::None);
  inline_bytes_ = std::min(options().inline_bytes, device().info().max_inline_bytes);
  in_flight_.assign(options().depth, kNoSlot);
  batch_ = std::make_unique<Batch>();
  return buffers_.allocate(domain());
}

QueuePairCapabilities SendReceiveSender::queues() const {
  return {.max_send_requests = options().depth,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = inline_bytes_};
}

// A window that grows doubles with a control at most.
std::uint32_t SendReceiveSender::control_receives() const {
  if (options().kind.protocol == Protocol::SendReceive) return kCreditControls;
  return kCreditControls * static_cast<std::uint32_t>(std::bit_width(options().depth));
}

Result<void> SendReceiveSender::start(const Offer& theirs) {
  depth_ = most_ = settled().depth;
  if (settled().kind.protocol == Protocol::SendReceive) return {};
  if (theirs.extra == 0 || theirs.extra > most_)
    return Error(ErrorCode::ProtocolError, "the receiver grants " + std::to_string(theirs.extra) +
                                               " messages of " + std::to_string(most_));
  depth_ = static_cast<std::uint32_t>(theirs.extra);
  return {};
}

// ---- Sending.

void SendReceiveSender::add_buffer(Batch& batch, std::uint32_t slot, std::uint32_t bytes) {
  batch.pieces[batch.size] = buffers_.local(slot, bytes);
  batch.slots[batch.size] = slot;
}

// False when there is no buffer for it.
bool SendReceiveSender::add(Batch& batch, const Outgoing& message, std::uint64_t first) {
  SendRequest& request = batch.requests[batch.size];
  ScatterGather& piece = batch.pieces[batch.size];
  request = SendRequest{};
  request.id = first + batch.size;
  batch.slots[batch.size] = kNoSlot;
  const auto address = reinterpret_cast<std::uintptr_t>(message.data);
  if (message.lent) {
    piece = {address, message.size, message.lkey};
  } else if (inline_bytes_ != 0 && message.size <= inline_bytes_) {
    piece = {address, message.size, {}};
    request.flags = SendFlags::Signaled | SendFlags::Inline;
    ++counters_.inlined;
  } else {
    const std::uint32_t slot = buffers_.take();
    if (slot == kNoSlot) return false;
    add_buffer(batch, slot, message.size);
    if (message.size != 0) std::memcpy(buffers_.at(slot), message.data, message.size);
  }
  request.local = {&piece, message.size == 0 ? std::size_t{0} : std::size_t{1}};
  if (aims_) aim(request, request.id);
  ++batch.size;
  return true;
}

// Messages that went; the buffers of the others are free again.
std::size_t SendReceiveSender::flush(Batch& batch, std::uint64_t first) {
  const PostResult posted = post({batch.requests.data(), batch.size});
  for (std::size_t i = 0; i < batch.size; ++i) {
    if (i < posted.posted)
      in_flight_[(first + i) % in_flight_.size()] = batch.slots[i];
    else
      buffers_.give_back(batch.slots[i]);
  }
  closed_ = posted.status == PostStatus::WrongState;
  return posted.posted;
}

SendResult SendReceiveSender::put(std::span<const Outgoing> messages) {
  SendResult result;
  const std::size_t wanted = messages.size();
  const auto room = static_cast<std::size_t>(std::min<std::uint64_t>({wanted, credits(), free_requests()}));
  Batch& batch = *batch_;
  while (result.taken < room) {
    const std::size_t from = result.taken;
    const std::size_t count = std::min(room - from, kBatch);
    batch.size = 0;
    while (batch.size < count && add(batch, messages[from + batch.size], sent() + from)) continue;
    const std::size_t went = batch.size == 0 ? 0 : flush(batch, sent() + from);
    result.taken += static_cast<std::uint32_t>(went);
    if (went == count) continue;
    result.status = closed_ ? SendStatus::Closed : SendStatus::NoBuffer;
    return result;
  }
  if (room < wanted) result.status = credits() == room ? SendStatus::NoCredit : SendStatus::NoBuffer;
  return result;
}

SendResult SendReceiveSender::commit(std::uint32_t slot, std::uint32_t bytes) {
  if (credits() == 0) return {SendStatus::NoCredit, 0, 0};
  if (free_requests() == 0) return {SendStatus::NoBuffer, 0, 0};
  Batch& batch = *batch_;
  batch.size = 0;
  batch.requests[0] = SendRequest{};
  batch.requests[0].id = sent();
  add_buffer(batch, slot, bytes);
  batch.requests[0].local = {batch.pieces.data(), bytes == 0 ? std::size_t{0} : std::size_t{1}};
  if (aims_) aim(batch.requests[0], sent());
  batch.size = 1;
  const PostResult posted = post({batch.requests.data(), 1});
  if (!posted)
    return {posted.status == PostStatus::WrongState ? SendStatus::Closed : SendStatus::NoBuffer, 0, 0};
  in_flight_[sent() % in_flight_.size()] = batch.slots[0];
  return {SendStatus::Ok, 1, 0};
}

// ---- What comes back.

void SendReceiveSender::handle_sent(const Completion& completion) {
  buffers_.give_back(std::exchange(in_flight_[completion.id % in_flight_.size()], kNoSlot));
  completed_ = completion.id + 1;
  if (completion.status == CompletionStatus::Success) set_freed(completion.id + 1);
}

Result<void> SendReceiveSender::handle_given_back(std::uint32_t number) {
  return add_credits(counter_near(given_back_, number) - given_back_);
}

Result<void> SendReceiveSender::add_credits(std::uint64_t more) {
  if (credits() + more > most_)
    return Error(ErrorCode::ProtocolError, "the receiver gave back more messages than were sent");
  given_back_ += more;
  touch();
  return {};
}

}  // namespace verbena::messaging
