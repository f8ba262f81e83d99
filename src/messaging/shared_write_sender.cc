// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/byte_order.h"
#include "messaging/shared_write.h"

namespace verbena::messaging {

Result<void> SharedWriteSender::open() {
  if (device().info().max_inline_bytes < ring::kWordBytes)
    return Error(ErrorCode::NotSupported, "messages by " + to_string(options().kind) +
                                              ": the device sends nothing inline, and words are sent so");
  auto answers = domain().allocate_memory(64, Access::LocalWrite);
  if (!answers) return answers.error();
  answers_ = std::move(*answers);
  items_.resize(options().depth);
  buffers_.plan(options().max_message_bytes, options().depth, Access::None);
  return buffers_.allocate(domain());
}

QueuePairCapabilities SharedWriteSender::queues() const {
  return {.max_send_requests = 2 * options().depth + 8,
          .max_receive_requests = 0,
          .max_send_segments = 1,
          .max_receive_segments = 1,
          .max_inline_bytes = ring::kWordBytes};
}

Result<void> SharedWriteSender::start(const Offer& theirs) {
  const auto unsound = [](const std::string& why) {
    return Error(ErrorCode::ProtocolError, "the receiver offers a shared ring " + why);
  };
  const SharedPlace place = SharedPlace::unpack(theirs.extra);
  geometry_ = {.capacity = place.capacity, .doubled = settled().kind.ring == RingMemory::DoubleMapped};
  if (!geometry_.is_valid()) return unsound("of " + std::to_string(place.capacity) + " bytes");
  const std::uint64_t needed =
      geometry_.frames().memory_bytes() + kSharedCells + (std::uint64_t{place.seat} + 1) * ring::kCellBytes;
  if (theirs.memory.length < needed)
    return unsound("of " + std::to_string(place.capacity) + " bytes in memory of " +
                   std::to_string(theirs.memory.length));
  if (settled().max_message_bytes > geometry_.max_payload_bytes())
    return unsound("that does not hold its longest message");
  if (theirs.memory.address % ring::kWordBytes != 0) return unsound("at an address that no atomic takes");
  remote_ = theirs.memory;
  seat_ = place.seat;
  const std::uint64_t cells = theirs.memory.length - geometry_.frames().memory_bytes() - kSharedCells;
  writer_.emplace(geometry_, cells / ring::kCellBytes);
  want_room();  // where the ring stands is not known
  return {};
}

// ---- Taking messages.

std::uint64_t SharedWriteSender::credits() const {
  if (!has_room_for(settled().max_message_bytes)) return 0;
  const std::uint64_t frame = geometry_.frame_bytes(settled().max_message_bytes);
  const std::uint64_t begin = std::max(tail_, writer_->head()), end = writer_->head() + geometry_.capacity;
  // One that does not fit in front of the end is dropped there, and reserved anew.
  const std::uint64_t dropped = geometry_.frames().room_at(begin) < end - begin ? frame : 0;
  const std::uint64_t room = (end - begin - queued_bytes_ - dropped) / frame;
  return std::min(std::max<std::uint64_t>(room, 1), settled().depth - (taken_ - released_));
}

// Others reserve too: one that was taken may wait for room all the same.
bool SharedWriteSender::has_room_for(std::uint32_t bytes) const {
  if (!writer_ || taken_ - released_ >= settled().depth) return false;
  const std::uint64_t end = std::max(tail_, writer_->head()) + queued_bytes_ + geometry_.frame_bytes(bytes);
  return end <= writer_->head() + geometry_.capacity;
}

void SharedWriteSender::take(const ScatterGather& memory, std::uint32_t slot) {
  item(taken_++) = {memory, slot, 0};
  queued_bytes_ += geometry_.frame_bytes(memory.length);
}

SendResult SharedWriteSender::put(std::span<const Outgoing> messages) {
  SendResult result;
  for (const Outgoing& message : messages) {
    if (!has_room_for(message.size)) {
      want_room();
      result.status = SendStatus::NoCredit;
      break;
    }
    if (!has_buffer()) {  // the receiver gave back what the device has not: its item is still needed
      result.status = SendStatus::NoBuffer;
      break;
    }
    if (message.lent) {
      take({reinterpret_cast<std::uintptr_t>(message.data), message.size, message.lkey}, kNoSlot);
    } else {
      const std::uint32_t slot = buffers_.take();
      if (slot == kNoSlot) {
        result.status = SendStatus::NoBuffer;
        break;
      }
      if (message.size != 0) std::memcpy(buffers_.at(slot), message.data, message.size);
      take(buffers_.local(slot, message.size), slot);
    }
    ++result.taken;
  }
  go_on();
  return result;
}

SendResult SharedWriteSender::commit(std::uint32_t slot, std::uint32_t bytes) {
  if (!has_room_for(bytes)) {
    want_room();
    return {SendStatus::NoCredit, 0, 0};
  }
  if (!has_buffer()) return {SendStatus::NoBuffer, 0, 0};
  take(buffers_.local(slot, bytes), slot);
  go_on();
  return {SendStatus::Ok, 1, 0};
}

// ---- Bringing them there.

SendRequest& SharedWriteSender::add_word(Batch& batch, ring::CellWord where, std::uint64_t word) {
  batch.words[batch.size] = word;
  batch.pieces[batch.size] = {
      reinterpret_cast<std::uintptr_t>(&batch.words[batch.size]), ring::kWordBytes, {}};
  SendRequest& request = batch.requests[batch.size];
  request.opcode = SendOpcode::RdmaWrite;
  request.flags = SendFlags::Inline;
  request.local = {&batch.pieces[batch.size], 1};
  request.remote_address =
      lines() + kSharedCells + std::uint64_t{seat_} * ring::kCellBytes + cell_offset(where);
  request.rkey = remote_.rkey;
  ++batch.size;
  return request;
}

// First that it is begun, then the reservation: a receiver that sees the one sees the other.
void SharedWriteSender::begin(Batch& batch) {
  said_waiting_ = said_long_ = false;
  const std::uint64_t begun = writer_->begin(item(posted_).memory.length);
  add_word(batch, ring::CellWord::Begun, begun);
  batch.pieces[batch.size] = answers_.local(0, ring::kWordBytes);
  SendRequest& add = batch.requests[batch.size];
  add.id = kAddId;
  add.opcode = SendOpcode::FetchAndAdd;
  add.local = {&batch.pieces[batch.size], 1};
  add.remote_address = lines() + kSharedTail;
  add.rkey = remote_.rkey;
  add.swap_or_add = writer_->frame_bytes();
  ++batch.size;
}

void SharedWriteSender::write_message(Batch& batch) {
  Item& message = item(posted_);
  SendRequest& request = batch.requests[batch.size];
  batch.pieces[batch.size] = message.memory;
  request.id = posted_;
  request.opcode = SendOpcode::RdmaWriteWithImmediate;
  request.local = {&batch.pieces[batch.size], message.memory.length == 0 ? std::size_t{0} : std::size_t{1}};
  request.remote_address = remote_.address + writer_->offset();
  request.rkey = remote_.rkey;
  store_be32(request.immediate.data(), writer_->immediate());
  ++batch.size;
  message.end = writer_->position() + writer_->frame_bytes();
  queued_bytes_ -= writer_->frame_bytes();
  ++posted_;
}

void SharedWriteSender::go_on() {
  Batch batch;
  switch (writer_->step()) {
    case Step::Asked:
      return;
    case Step::Idle:
      break;
    case Step::Wait:
      starved_ = true;
      if (!said_waiting_) {
        add_word(batch, ring::CellWord::Waiting, writer_->waiting_word());
        waits_since_ = engine().now();
      }
      said_waiting_ = true;
      static_cast<void>(flush(batch));
      return ask_for_head();
    case Step::Ready:
      write_message(batch);
      writer_->finish();
      break;
    case Step::Broken: {
      SendRequest& dropping = add_word(batch, ring::CellWord::Dropped, writer_->dropped_word());
      dropping.opcode = SendOpcode::RdmaWriteWithImmediate;
      store_be32(dropping.immediate.data(), writer_->immediate());
      writer_->finish();
      break;
    }
  }
  if (posted_ != taken_) begin(batch);
  if (flush(batch) && all_posted()) touch();
}

// False when there was nothing to do, or the connection is lost.
bool SharedWriteSender::flush(Batch& batch) {
  return batch.size != 0 && must_post({batch.requests.data(), batch.size});
}

void SharedWriteSender::want_room() {
  starved_ = true;
  ask_for_head();
}

void SharedWriteSender::ask_for_head() {
  if (!starved_ || reading_) return;
  const ScatterGather piece = answers_.local(8, ring::kWordBytes);
  SendRequest request;
  request.id = kReadId;
  request.opcode = SendOpcode::RdmaRead;
  request.local = {&piece, 1};
  request.remote_address = lines() + kSharedHead;
  request.rkey = remote_.rkey;
  reading_ = static_cast<bool>(post({&request, 1}));
}

// What was written to the cell wakes nobody.
void SharedWriteSender::say_how_long() {
  if (said_long_ || engine().now() < waits_since_ + kLongWait) return;
  said_long_ = true;
  say({Control::Word::Waits, 0});
}

// ---- What comes back.

void SharedWriteSender::handle_words(ring::Fault fault) {
  if (fault != ring::Fault::None) return fail(Error(ErrorCode::ProtocolError, std::string(to_string(fault))));
  while (released_ != posted_ && item(released_).end <= writer_->head()) ++released_;
  if (writer_->step() != Step::Asked) go_on();
}

void SharedWriteSender::handle_sent(const Completion& completion) {
  if (completion.id == kReadId) reading_ = false;
  if (completion.status != CompletionStatus::Success) return;
  if (completion.id == kReadId) {
    const std::uint64_t before = writer_->head();
    const ring::Fault fault = writer_->handle_head(ring::load_word(answers_.data() + 8));
    if (writer_->head() != before) starved_ = false;
    handle_words(fault);
    if (starved_ && writer_->step() == Step::Wait) {
      say_how_long();
      ask_for_head();
    }
    return touch();
  }
  if (completion.id == kAddId) {
    const ring::Fault fault = writer_->handle_position(ring::load_word(answers_.data()));
    tail_ = writer_->position() + writer_->frame_bytes();
    return handle_words(fault);
  }
  buffers_.give_back(item(completion.id).slot);
  done_ = completion.id + 1;
  set_freed(done_);
  touch();
}

Result<void> SharedWriteSender::handle_given_back(std::uint32_t) {
  return Error(ErrorCode::ProtocolError, "the receiver tells a head that is to be read");
}

}  // namespace verbena::messaging
