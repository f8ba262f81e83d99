// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstring>
#include <utility>

#include "device/wire_bytes.h"
#include "messaging/direct_read.h"

namespace verbena::messaging {

Result<void> DirectReadSender::open() {
  in_flight_.assign(options().depth, kNoSlot);
  if (device().info().max_inline_bytes < Announcement::kWireBytes)
    return Error(ErrorCode::NotSupported, "messages by direct-read: the device sends nothing inline");
  return {};
}

QueuePairCapabilities DirectReadSender::queues() const {
  return {.max_send_requests = options().depth,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = Announcement::kWireBytes};
}

Result<void> DirectReadSender::start(const Offer&) {
  depth_ = settled().depth;
  buffers_.plan(max_message_bytes(), options().depth, Access::RemoteRead);
  return {};
}

Announcement DirectReadSender::announcement_of(std::uint32_t slot, std::uint32_t bytes) const {
  return {buffers_.memory().remote().address + buffers_.offset(slot), buffers_.memory().rkey(), bytes};
}

SendStatus DirectReadSender::announce(std::uint64_t number, const Announcement& announcement,
                                      std::uint32_t slot) {
  std::array<std::byte, Announcement::kWireBytes> bytes;
  wire_bytes::store_le64(&bytes[0], announcement.address);
  wire_bytes::store_le32(&bytes[8], announcement.rkey.value());
  wire_bytes::store_le32(&bytes[12], announcement.bytes);
  const ScatterGather piece{reinterpret_cast<std::uintptr_t>(bytes.data()), Announcement::kWireBytes, {}};
  SendRequest request;
  request.id = number;
  request.flags = SendFlags::Signaled | SendFlags::Inline;
  request.local = {&piece, 1};
  const PostResult posted = post({&request, 1});
  if (!posted) return posted.status == PostStatus::WrongState ? SendStatus::Closed : SendStatus::NoBuffer;
  in_flight_[number % in_flight_.size()] = slot;
  return SendStatus::Ok;
}

SendResult DirectReadSender::put(std::span<const Outgoing> messages) {
  SendResult result;
  const Together together(*this, messages.size());
  for (const Outgoing& message : messages) {
    const std::uint64_t number = sent() + result.taken;
    std::uint32_t slot = kNoSlot;
    if (number >= depth_ + given_back_) {
      result.status = SendStatus::NoCredit;
    } else if (number >= completed_ + in_flight_.size()) {
      result.status = SendStatus::NoBuffer;
    } else if (message.lent) {
      const auto address = reinterpret_cast<std::uintptr_t>(message.data);
      result.status = announce(number, {address, message.rkey, message.size}, slot);
    } else if ((slot = take_buffer()) != kNoSlot) {
      if (message.size != 0) std::memcpy(buffers_.at(slot), message.data, message.size);
      result.status = announce(number, announcement_of(slot, message.size), slot);
      if (!result) buffers_.give_back(slot);
    } else {
      result.status = is_open() ? SendStatus::NoBuffer : SendStatus::Closed;
    }
    if (!result) return result;
    ++result.taken;
  }
  return result;
}

SendResult DirectReadSender::commit(std::uint32_t slot, std::uint32_t bytes) {
  if (credits() == 0) return {SendStatus::NoCredit, 0, 0};
  if (sent() >= completed_ + in_flight_.size()) return {SendStatus::NoBuffer, 0, 0};
  const SendStatus status = announce(sent(), announcement_of(slot, bytes), slot);
  return {status, status == SendStatus::Ok ? 1u : 0u, 0};
}

void DirectReadSender::handle_sent(const Completion& completion) {
  completed_ = completion.id + 1;
  touch();
}

Result<void> DirectReadSender::handle_given_back(std::uint32_t number) {
  const std::uint64_t given_back = counter_near(given_back_, number);
  if (given_back > sent())
    return Error(ErrorCode::ProtocolError, "the receiver has read more messages than were sent");
  for (; given_back_ < given_back; ++given_back_)
    buffers_.give_back(std::exchange(in_flight_[given_back_ % in_flight_.size()], kNoSlot));
  set_freed(given_back_);
  touch();
  return {};
}

}  // namespace verbena::messaging
