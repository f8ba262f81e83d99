// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "device/device_state.h"
#include "messaging/buffered_read.h"
#include "messaging/ring/memory.h"
#include "provider/provider.h"

namespace verbena::messaging {

Result<void> BufferedReadSender::open() {
  auto capacity = ring_capacity(options());
  if (!capacity) return capacity.error();
  capacity_ = *capacity;
  const Access access = Access::LocalWrite | Access::RemoteRead | Access::RemoteWrite;
  auto ring = RegisteredRing::create(domain(), capacity_, options().kind.ring, ReadRing::kLines, access);
  if (!ring) return ring.error();
  ring_ = std::move(*ring);
  return {};
}

QueuePairCapabilities BufferedReadSender::queues() const {
  return {.max_send_requests = 0,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = 0};
}

void BufferedReadSender::offer(Offer& ours) const {
  ours.memory = ring_.region.remote();
  ours.extra = capacity_;
}

Result<void> BufferedReadSender::start(const Offer& theirs) {
  if (theirs.extra < capacity_)
    return Error(ErrorCode::InvalidArgument, "the receiver takes rings of at most " +
                                                 std::to_string(theirs.extra) + " bytes, and this one has " +
                                                 std::to_string(capacity_));
  const ring::Geometry geometry = geometry_of(settled(), capacity_);
  const auto image = ring_.region.bytes().first(static_cast<std::size_t>(geometry.memory_bytes()));
  writer_.emplace(geometry, image);
  buffers_.plan(max_message_bytes(), options().depth, Access::None);
  return {};
}

std::uint64_t BufferedReadSender::credits() const {
  return writer_ ? writer_->count_room(settled().max_message_bytes) : 0;
}
bool BufferedReadSender::has_room_for(std::uint32_t bytes) const {
  return writer_ && writer_->count_room(bytes) != 0;
}

// ---- Sending.

// False when nothing more was given back, or the receiver lies.
bool BufferedReadSender::take_head() {
  const std::uint64_t before = writer_->head();
  const std::uint64_t head = ring::load_word(line(ReadRing::kHead));
  if (head == before) return false;
  if (const ring::Fault fault = writer_->handle_head(head); fault != ring::Fault::None) {
    fail(Error(ErrorCode::ProtocolError, std::string(to_string(fault))));
    return false;
  }
  touch();
  return true;
}

// False: what was lent may not be read, and the connection ends as one whose request named it. No request names it
// here, so that the device is asked to read it at once.
bool BufferedReadSender::copy_in(const Outgoing& message, std::byte* to) {
  if (!message.lent) {
    std::memcpy(to, message.data, message.size);
    return true;
  }
  const ScatterGather from{reinterpret_cast<std::uintptr_t>(message.data), message.size, message.lkey};
  if (device().state().context().read_local(provider::PdId{domain().id()}, from, to)) return true;
  fail(Error(ErrorCode::LocalProtectionError,
             "the " + std::to_string(message.size) +
                 " bytes that were lent must lie inside a live region of this connection's protection domain"));
  return false;
}

SendStatus BufferedReadSender::add(const Outgoing& message) {
  auto place = writer_->try_reserve(message.size);
  if (!place && take_head()) place = writer_->try_reserve(message.size);
  if (!place) return is_open() ? SendStatus::NoCredit : SendStatus::Closed;
  if (message.size != 0 && !copy_in(message, writer_->payload(*place).data())) return SendStatus::Closed;
  // The image is the ring itself: what is left to write is a word that is not in it.
  const ring::WriteList& writes = writer_->commit(*place);
  for (const ring::RemoteWrite& write : writes.view())
    if (write.source == ring::RemoteWrite::Source::Word)
      std::memcpy(ring_.region.data() + write.offset, &write.word, ring::kWordBytes);
  return SendStatus::Ok;
}

void BufferedReadSender::publish() {
  if (const auto tail = writer_->publish()) ring::store_word(line(ReadRing::kTail), tail->word);
}

// All of it is copied: the caller's memory is free at once.
SendResult BufferedReadSender::put(std::span<const Outgoing> messages) {
  SendResult result;
  for (const Outgoing& message : messages) {
    result.status = add(message);
    if (!result) break;
    ++result.taken;
  }
  publish();
  set_freed(sent() + result.taken);
  return result;
}

SendResult BufferedReadSender::commit(std::uint32_t slot, std::uint32_t bytes) {
  const Outgoing message = Outgoing::copy({buffers_.at(slot), bytes});
  const SendResult result = put({&message, 1});
  if (result) buffers_.give_back(slot);
  return result;
}

Result<void> BufferedReadSender::handle_given_back(std::uint32_t) {
  return Error(ErrorCode::ProtocolError, "the receiver says what it has to write into the ring's head");
}

}  // namespace verbena::messaging
