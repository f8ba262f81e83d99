// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "base/byte_order.h"
#include "messaging/buffered_write.h"
#include "messaging/ring_options.h"

namespace verbena::messaging {

namespace {

constexpr std::uint32_t kRequestsPerMessage = 2;
constexpr std::size_t kSegments = 4;
constexpr std::uint64_t kMostRing = std::uint64_t{64} << 20;  // that is taken from a receiver without being asked for
constexpr std::uint32_t kCopied = 4096;  // of a reservation: what is shorter is copied like a message that was not lent

}  // namespace

// Requests of one batch, and where their bytes stand.
struct BufferedWriteSender::Batch {
  static constexpr std::size_t kRequests = kBatch * kRequestsPerMessage + 1;
  std::array<SendRequest, kRequests> requests;
  std::array<std::array<ScatterGather, kSegments>, kRequests> pieces;
  std::array<std::uint64_t, kRequests> words;
  std::size_t size = 0;
  std::optional<ring::RemoteWrite> last{};  // no request yet: another may join it
};

BufferedWriteSender::BufferedWriteSender(ProgressEngine& engine, const Options& options)
    : SenderEnd(engine, options) {}
BufferedWriteSender::~BufferedWriteSender() { drop_connection(); }

Result<void> BufferedWriteSender::open() {
  if (device().info().max_inline_bytes < ring::kWordBytes)
    return Error(ErrorCode::NotSupported, "messages by " + to_string(options().kind) +
                                              ": the device sends nothing inline, and words are sent so");
  most_ = std::min(device().info().max_requests - 8, 4 * options().depth + 3 * std::uint32_t{kBatch});
  signals_.resize(most_ + 1);
  batch_ = std::make_unique<Batch>();
  return {};
}

QueuePairCapabilities BufferedWriteSender::queues() const {
  return {.max_send_requests = most_ + 1,
          .max_receive_requests = 0,
          .max_send_segments = kSegments,
          .max_receive_segments = 1,
          .max_inline_bytes = ring::kWordBytes};
}

Result<void> BufferedWriteSender::check_offer(const Offer& theirs, const Settled& settled) const {
  const bool asked_for = theirs.extra <= kMostRing || theirs.extra / 2 < options().ring_bytes;
  if (asked_for || !geometry_of(settled, theirs.extra).is_valid()) return {};
  return Error(ErrorCode::InvalidArgument, "the receiver offers a ring of " + std::to_string(theirs.extra) +
                                               " bytes, and this end needs as many: its ring_bytes are " +
                                               std::to_string(options().ring_bytes));
}

Result<void> BufferedWriteSender::start(const Offer& theirs) {
  const auto unsound = [](const std::string& why) {
    return Error(ErrorCode::ProtocolError, "the receiver offers a ring " + why);
  };
  const ring::Geometry geometry = geometry_of(settled(), theirs.extra);
  if (!geometry.is_valid()) return unsound("of " + std::to_string(theirs.extra) + " bytes");
  if (theirs.memory.length < geometry.memory_bytes() + kRingLines)
    return unsound("of " + std::to_string(theirs.extra) + " bytes in memory of " +
                   std::to_string(theirs.memory.length));
  if (settled().max_message_bytes > geometry.max_payload_bytes())
    return unsound("that does not hold its longest message");
  remote_ = theirs.memory;
  atomic_tail_ = has_atomic_tail(settled().kind, settled().order_in_write);
  if (atomic_tail_ && remote_.address % ring::kWordBytes != 0) return unsound("at an address that no atomic takes");
  if (atomic_tail_ && options().connection.reliability.max_rd_atomic == 0) return needs_atomics("max_rd_atomic is 0");
  zeros_ = geometry.memory_bytes();
  auto image = domain().allocate_memory(static_cast<std::size_t>(zeros_ + kRingLines), Access::LocalWrite);
  if (!image) return image.error();
  image_ = std::move(*image);
  writer_.emplace(geometry, image_.bytes());
  buffers_.plan(max_message_bytes(), options().depth, Access::None);
  return {};
}

std::uint64_t BufferedWriteSender::credits() const {
  return writer_ ? writer_->count_room(settled().max_message_bytes) : 0;
}
bool BufferedWriteSender::has_room_for(std::uint32_t bytes) const {
  return writer_ && writer_->count_room(bytes) != 0;
}

// ---- Sending.

// The requests of one message more, beside those of a batch.
bool BufferedWriteSender::may_post(std::size_t beside) const {
  return requests_ + beside + kRequestsPerMessage + 2 <= most_;
}

void BufferedWriteSender::begin_batch() {
  batch_->size = 0;
  batch_->last.reset();
}

bool BufferedWriteSender::is_tail(const ring::RemoteWrite& write) {
  return write.target == ring::RemoteWrite::Target::Tail;
}

std::uint64_t BufferedWriteSender::place_of(const ring::RemoteWrite& write) const {
  return remote_.address + (is_tail(write) ? zeros_ + kTailLine : write.offset);
}

void BufferedWriteSender::add_tail(const ring::RemoteWrite& write) {
  if (!atomic_tail_) return add_word(write);
  close_last();
  SendRequest& request = batch_->requests[batch_->size];
  batch_->pieces[batch_->size][0] = image_.local(zeros_ + kAnswer, ring::kWordBytes);
  request = SendRequest{};
  request.opcode = SendOpcode::FetchAndAdd;
  request.local = {batch_->pieces[batch_->size].data(), 1};
  request.remote_address = place_of(write);
  request.rkey = remote_.rkey;
  request.swap_or_add = write.word - tail_;
  tail_ = write.word;
  ++batch_->size;
}

void BufferedWriteSender::add_word(const ring::RemoteWrite& write) {
  close_last();
  SendRequest& request = batch_->requests[batch_->size];
  std::uint64_t& word = batch_->words[batch_->size];
  word = write.word;
  batch_->pieces[batch_->size][0] = {reinterpret_cast<std::uintptr_t>(&word), ring::kWordBytes, {}};
  request = SendRequest{};
  request.opcode = SendOpcode::RdmaWrite;
  request.flags = SendFlags::Inline;
  request.local = {batch_->pieces[batch_->size].data(), 1};
  request.remote_address = place_of(write);
  request.rkey = remote_.rkey;
  ++batch_->size;
}

void BufferedWriteSender::add_write(const ring::RemoteWrite& write, const Outgoing& message,
                                    const ring::Reservation& place) {
  if (message.lent) {
    close_last();
    return put_write(write, message, place);
  }
  if (batch_->last && ring::join(*batch_->last, write)) return;
  close_last();
  batch_->last = write;
}

void BufferedWriteSender::close_last() {
  if (!batch_->last) return;
  put_write(*batch_->last, {}, {});
  batch_->last.reset();
}

void BufferedWriteSender::put_write(const ring::RemoteWrite& write, const Outgoing& message,
                                    const ring::Reservation& place) {
  SendRequest& request = batch_->requests[batch_->size];
  auto& pieces = batch_->pieces[batch_->size];
  std::size_t count = 0;
  const auto add_piece = [&](const ScatterGather& piece) {
    if (piece.length != 0) pieces[count++] = piece;
  };
  add_piece(image_.local(zeros_, write.zero_bytes));
  if (message.lent) {
    const auto front = static_cast<std::uint32_t>(place.payload_offset - write.image_offset);
    const std::uint32_t back = write.bytes - front - message.size;
    add_piece(image_.local(write.image_offset, front));
    add_piece({reinterpret_cast<std::uintptr_t>(message.data), message.size, message.lkey});
    add_piece(image_.local(place.payload_offset + message.size, back));
  } else {
    add_piece(image_.local(write.image_offset, write.bytes));
  }
  request = SendRequest{};
  request.opcode = SendOpcode::RdmaWrite;
  request.flags = SendFlags::None;
  request.local = {pieces.data(), count};
  request.remote_address = place_of(write);
  request.rkey = remote_.rkey;
  if (write.immediate) {
    request.opcode = SendOpcode::RdmaWriteWithImmediate;
    store_be32(request.immediate.data(), *write.immediate);
  }
  ++batch_->size;
}

SendStatus BufferedWriteSender::add(const Outgoing& message) {
  if (!may_post(batch_->size)) return SendStatus::NoBuffer;
  const auto place = writer_->try_reserve(message.size);
  if (!place) return no_room();
  if (!message.lent && message.size != 0)
    std::memcpy(writer_->payload(*place).data(), message.data, message.size);
  const ring::WriteList& writes = writer_->commit(*place);
  for (const ring::RemoteWrite& write : writes.view()) add(write, message, *place);
  return SendStatus::Ok;
}

void BufferedWriteSender::add(const ring::RemoteWrite& write, const Outgoing& message,
                              const ring::Reservation& place) {
  if (write.source == ring::RemoteWrite::Source::Word)
    add_word(write);
  else
    add_write(write, message, place);
}

// A message alone: what goes without a request does, and what follows that does not is a batch.
SendResult BufferedWriteSender::put_one(const Outgoing& message) {
  if (!may_post(0)) return {SendStatus::NoBuffer, 0, 0};
  const auto place = writer_->try_reserve(message.size);
  if (!place) return {no_room(), 0, 0};
  if (message.size != 0) std::memcpy(writer_->payload(*place).data(), message.data, message.size);
  const ring::WriteList& writes = writer_->commit(*place);
  std::span<const ring::RemoteWrite> left = writes.view();
  while (!left.empty() && write_through(left.front())) left = left.subspan(1);
  const auto tail = left.empty() ? writer_->publish() : std::nullopt;
  if (left.empty() && (!tail || write_through(*tail))) {
    set_freed(sent() + 1);
    return {SendStatus::Ok, 1, 0};
  }
  begin_batch();
  for (const ring::RemoteWrite& write : left) add(write, message, *place);
  if (tail) add_tail(*tail);
  if (!flush(sent() + 1, kNoSlot)) return {SendStatus::Closed, 0, 0};
  return {SendStatus::Ok, 1, 0};
}

// False when the device takes nothing more, for good: what was committed is lost with the connection.
bool BufferedWriteSender::flush(MessageId last, std::uint32_t slot) {
  if (batch_->last && batch_->size == 0 && write_through(*batch_->last)) batch_->last.reset();
  close_last();
  const auto tail = writer_->publish();
  if (tail && !(batch_->size == 0 && write_through(*tail))) add_tail(*tail);
  const auto count = static_cast<std::uint32_t>(batch_->size);
  if (count == 0) {
    buffers_.give_back(slot);
    set_freed(last);
    return true;
  }
  SendRequest& end = batch_->requests[count - 1];
  end.flags = end.flags | SendFlags::Signaled;
  if (!must_post({batch_->requests.data(), count})) return false;
  requests_ += count;
  signals_[(first_signal_ + signal_count_++) % signals_.size()] = {last, count, slot};
  return true;
}

// False: it needs a request, and so does what follows. The zeros are where the next frame will end: what was posted
// does not read them, and of what is to be posted nothing may stand there yet.
bool BufferedWriteSender::write_through(const ring::RemoteWrite& write) {
  if (write.immediate || (is_tail(write) && atomic_tail_)) return false;
  ShortWrite now;
  now.remote_address = place_of(write);
  now.rkey = remote_.rkey;
  if (write.source == ring::RemoteWrite::Source::Word) {
    now.bytes = std::as_bytes(std::span{&write.word, 1});
  } else {
    std::byte* const image = image_.data() + (write.image_offset - write.zero_bytes);
    if (write.zero_bytes != 0) std::memset(image, 0, ring::kWordBytes);
    now.bytes = {image, write.zero_bytes + write.bytes};
  }
  return write_now(now);
}

SendResult BufferedWriteSender::put(std::span<const Outgoing> messages) {
  return messages.size() == 1 && !messages[0].lent ? put_one(messages[0]) : put_all(messages);
}

SendResult BufferedWriteSender::put_all(std::span<const Outgoing> messages) {
  SendResult result;
  while (result.taken < messages.size()) {
    begin_batch();
    std::uint32_t count = 0;
    SendStatus status = SendStatus::Ok;
    while (count < kBatch && result.taken + count < messages.size()) {
      status = add(messages[result.taken + count]);
      if (status != SendStatus::Ok) break;
      ++count;
    }
    if (count != 0 && !flush(sent() + result.taken + count, kNoSlot)) {
      result.status = SendStatus::Closed;
      return result;
    }
    result.taken += count;
    if (status == SendStatus::Ok) continue;
    result.status = status;
    return result;
  }
  return result;
}

SendResult BufferedWriteSender::commit(std::uint32_t slot, std::uint32_t bytes) {
  const LentMemory memory = LentMemory::of(buffers_.memory(), buffers_.offset(slot), bytes);
  if (bytes <= kCopied) {
    const SendResult result = put_one(Outgoing::copy({buffers_.at(slot), bytes}));
    if (result) buffers_.give_back(slot);
    return result;
  }
  begin_batch();
  const SendStatus status = add(Outgoing::lend(memory));
  if (status != SendStatus::Ok) return {status, 0, 0};
  if (!flush(sent() + 1, slot)) return {SendStatus::Closed, 0, 0};
  return {SendStatus::Ok, 1, 0};
}

// ---- What comes back.

SendStatus BufferedWriteSender::no_room() {
  want_room();
  return SendStatus::NoCredit;
}

void BufferedWriteSender::want_room() {
  starved_ = reads_head();
  ask_for_head();
}

void BufferedWriteSender::ask_for_head() {
  if (!starved_ || reading_) return;
  const ScatterGather piece = image_.local(zeros_ + kHeadLine, ring::kWordBytes);
  SendRequest request;
  request.id = kReadId;
  request.opcode = SendOpcode::RdmaRead;
  request.local = {&piece, 1};
  request.remote_address = remote_.address + zeros_ + kHeadLine;
  request.rkey = remote_.rkey;
  reading_ = static_cast<bool>(post({&request, 1}));
}

Result<void> BufferedWriteSender::take_head(std::uint64_t head) {
  const std::uint64_t before = writer_->head();
  if (const ring::Fault fault = writer_->handle_head(head); fault != ring::Fault::None)
    return Error(ErrorCode::ProtocolError, std::string(to_string(fault)));
  if (writer_->head() == before) return {};
  starved_ = false;
  touch();
  return {};
}

void BufferedWriteSender::handle_sent(const Completion& completion) {
  if (completion.id == kReadId) {
    reading_ = false;
    if (completion.status != CompletionStatus::Success) return;
    if (auto ok = take_head(ring::load_word(image_.data() + zeros_ + kHeadLine)); !ok) fail(ok.error());
    return;
  }
  const Signal done = signals_[first_signal_];
  // One that failed ends all of them.
  if (completion.status != CompletionStatus::Success || signal_count_ == 0) return;
  first_signal_ = (first_signal_ + 1) % signals_.size();
  --signal_count_;
  requests_ -= done.requests;
  buffers_.give_back(done.slot);
  set_freed(done.message);
  touch();
}

Result<void> BufferedWriteSender::handle_given_back(std::uint32_t number) {
  const std::uint32_t unit = writer_->geometry().unit;
  return take_head(counter_near(writer_->head() / unit, number) * unit);
}

}  // namespace verbena::messaging
