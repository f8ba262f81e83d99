// SPDX-License-Identifier: Apache-2.0
#include "soft/local/responder.h"

#include "soft/core/dma.h"
#include "soft/core/rights.h"

namespace verbena::local {

// What a record carries of a message, or names.
struct Responder::Payload {
  template <class Head>
  Payload(const Head& head, std::span<const std::byte> record)
      : bytes(record.subspan(head.payload_offset, head.payload_bytes)),
        pieces(head.pieces.pieces.data(), head.pieces.count),
        size(pieces.empty() ? head.payload_bytes : static_cast<std::uint32_t>(head.pieces.bytes())) {}

  std::span<const std::byte> bytes;
  std::span<const Piece> pieces;
  std::uint32_t size;
};

namespace {

bool is_send(SendOpcode opcode) { return opcode == SendOpcode::Send || opcode == SendOpcode::SendWithImmediate; }
bool is_fetch(SendOpcode opcode) { return opcode >= SendOpcode::RdmaRead; }

}  // namespace

bool Responder::is_agreed(Placement placement) const {
  return placement == Placement::InRecord ||
         (placement == Placement::InMemory && link_.channel->peer_memory != nullptr);
}

void Responder::start() {
  expected_ = 0;
  open_ = not_ready_ = false;
  receive_sges_.assign(std::max(link_.qp.max_receive_segments(), 1u), {});
  answers_.clear();
  follow_limits();
}

void Responder::follow_limits() { answers_.limit_fetches(link_.qp.attributes().max_dest_rd_atomic); }

const RequestHead* Responder::read(std::uint16_t kind, std::span<const std::byte> record) {
  const bool honest = !open_ && parse(kind, record, request_) && is_agreed(request_.placement);
  return honest ? &request_ : nullptr;
}

bool Responder::handle(Instant now, std::span<const std::byte> record) {
  if (not_ready_) {
    if (request_.number != expected_) return true;
    if (answers_.says_no()) return false;           // it has not heard yet that it must come again
    not_ready_ = false;
  }
  if (request_.number != expected_) return false;  // none is lost
  received_ = 0;
  open_ = true;
  execute(now, Payload(request_, record));
  return true;
}

bool Responder::store_short(std::uint32_t number, std::span<const std::byte> payload) {
  if (open_ || not_ready_ || number != expected_) return false;
  core::QueuePair& qp = link_.qp;
  if (!qp.open_receive.open) {
    if (!qp.take_receive(receive_, receive_sges_)) return false;
    qp.open_receive = {true, receive_.id};
  }
  return core::store_whole(link_.memory, qp.receive_pd(), {receive_sges_.data(), receive_.sge_count}, payload);
}

void Responder::finish_short(Instant now, std::uint32_t length) {
  request_.opcode = SendOpcode::Send;
  request_.solicited = false;
  request_.immediate = {};
  request_.length = length;
  finish(now);
}

bool Responder::handle_continuation(Instant now, std::span<const std::byte> record) {
  const auto more = parse_continuation(record);
  if (!more || !is_agreed(more->placement)) return false;
  if (not_ready_) return true;
  if (!open_ || more->number != expected_) return false;
  const Payload payload(*more, record);
  if (payload.size > request_.length - received_) return false;
  execute(now, payload);
  return true;
}

void Responder::execute(Instant now, const Payload& payload) {
  const bool last = is_fetch(request_.opcode) || payload.size == request_.length - received_;
  core::PieceList pieces;  // where the payload goes
  Verdict verdict = check(payload.size, last, pieces);
  if (verdict == Verdict::Continue) verdict = touch_memory(pieces, payload, last);
  if (verdict != Verdict::Continue) return refuse(verdict);
  received_ += payload.size;
  if (last) finish(now);
}

Responder::Verdict Responder::touch_memory(const core::PieceList& pieces, const Payload& payload, bool last) {
  if (!payload.pieces.empty()) return pull(pieces, payload.pieces, payload.size, last);
  const bool there = is_atomic(request_.opcode) ? touch_word(pieces) : core::store(pieces, payload.bytes, last);
  return there ? Verdict::Continue : Verdict::MemoryFault;
}

bool Responder::touch_word(const core::PieceList& pieces) {
  std::byte* at = const_cast<std::byte*>(pieces.pieces[0].data);
  const std::optional<std::uint64_t> original =
      request_.opcode == SendOpcode::CompareAndSwap
          ? core::dma_compare_swap(at, request_.compare, request_.swap_or_add)
          : core::dma_fetch_add(at, request_.swap_or_add);
  atomic_original_ = original.value_or(0);
  return original.has_value();
}

void Responder::finish(Instant now) {
  core::Counters& c = link_.counters;
  open_ = false;
  const std::uint32_t number = expected_++;
  if (is_fetch(request_.opcode)) {
    push_fetch();
    return;
  }
  if (is_send(request_.opcode)) {
    ++c.rdma_recvs;
    complete_receive(CompletionOpcode::Receive);
  } else {
    ++c.served_writes;
    c.served_write_bytes += request_.length;
    if (request_.opcode == SendOpcode::RdmaWriteWithImmediate)
      complete_receive(CompletionOpcode::ReceiveRdmaWithImmediate);
  }
  if (answers_.owe(now, number)) ++c.ack_deferred;
  if (answers_.owed() >= link_.config.max_owed_requests) answers_.make_due();
}

void Responder::complete_receive(CompletionOpcode opcode) {
  link_.qp.complete_receive(request_.solicited, [&](Completion& completion) {
    completion.id = receive_.id;
    completion.status = CompletionStatus::Success;
    completion.opcode = opcode;
    completion.with_immediate =
        request_.opcode == SendOpcode::SendWithImmediate || request_.opcode == SendOpcode::RdmaWriteWithImmediate;
    completion.immediate = request_.immediate;
    completion.byte_count = request_.length;
    completion.qpn = link_.qp.qpn();
    completion.vendor_error = 0;
  });
}

void Responder::push_fetch() {
  core::Counters& c = link_.counters;
  Fetch fetch;
  fetch.atomic = is_atomic(request_.opcode);
  fetch.number = request_.number;
  fetch.length = request_.length;
  fetch.address = request_.remote_address;
  fetch.rkey = request_.rkey;
  fetch.value = atomic_original_;
  answers_.push(fetch);
  if (fetch.atomic) {
    ++c.served_atomics;
  } else {
    ++c.served_reads;
    c.served_read_bytes += fetch.length;
  }
}

void Responder::refuse(Verdict verdict) {
  core::Counters& c = link_.counters;
  open_ = false;
  if (verdict == Verdict::PeerGone) {
    link_.peer_gone = true;
    return;
  }
  if (verdict == Verdict::PeerFault) {  // its memory, not ours: it ends by what it finds there
    not_ready_ = true;
    ++c.invalid_requests;
    return answers_.say_no(RecordKind::Refuse, static_cast<std::uint8_t>(Refusal::RemoteOperation), expected_);
  }
  if (verdict == Verdict::NotReady) {
    not_ready_ = true;
    ++c.send_rnr_err;
    return answers_.say_no(RecordKind::NotReady, link_.qp.attributes().min_rnr_timer, expected_);
  }
  if (verdict == Verdict::AccessError) {
    ++c.access_violations;
    return fatal(Refusal::RemoteAccess, AsyncEventType::QpAccessError);
  }
  const bool fault = verdict == Verdict::MemoryFault;
  ++(fault ? c.memory_faults : c.invalid_requests);
  if (fault && !is_send(request_.opcode)) return fatal(Refusal::RemoteOperation, AsyncEventType::QpFatal);
  if (verdict == Verdict::InvalidRequest) return fatal(Refusal::InvalidRequest, AsyncEventType::QpRequestError);
  const bool too_short = verdict == Verdict::ReceiveTooShort;
  Completion completion;
  completion.id = receive_.id;
  completion.status = too_short ? CompletionStatus::LocalLengthError : CompletionStatus::LocalProtectionError;
  completion.opcode = CompletionOpcode::Receive;
  completion.qpn = link_.qp.qpn();
  link_.qp.complete_receive(completion, true);
  fatal(too_short ? Refusal::InvalidRequest : Refusal::RemoteOperation, AsyncEventType::QpRequestError);
}

void Responder::fatal(Refusal refusal, AsyncEventType event) {
  answers_.say_no(RecordKind::Refuse, static_cast<std::uint8_t>(refusal), expected_);  // leaves from ERR, once
  link_.qp.enter_error(event);
}

// The checks, in the order in which they are made. None changes memory.

Responder::Verdict Responder::check(std::size_t bytes, bool last, core::PieceList& pieces) {
  if (const Verdict verdict = check_allowed(); verdict != Verdict::Continue) return verdict;
  if (carries_payload(request_.opcode) && !is_send(request_.opcode)) {  // a bad key is told before a receive is wanted
    const Verdict verdict = check_memory(bytes, pieces);
    return verdict == Verdict::Continue ? check_resources(last) : verdict;
  }
  if (const Verdict verdict = check_resources(last); verdict != Verdict::Continue) return verdict;
  if (is_send(request_.opcode) && request_.length > receive_.length) return Verdict::ReceiveTooShort;
  return check_memory(bytes, pieces);
}

Responder::Verdict Responder::check_allowed() const {
  return includes(link_.qp.attributes().access, core::right_for(request_.opcode)) ? Verdict::Continue
                                                                                   : Verdict::InvalidRequest;
}

Responder::Verdict Responder::check_resources(bool last) {
  if (is_fetch(request_.opcode)) return answers_.can_fetch() ? Verdict::Continue : Verdict::InvalidRequest;
  const bool takes = is_send(request_.opcode) || (request_.opcode == SendOpcode::RdmaWriteWithImmediate && last);
  if (!takes || link_.qp.open_receive.open) return Verdict::Continue;
  if (!link_.qp.take_receive(receive_, receive_sges_)) return Verdict::NotReady;
  link_.qp.open_receive = {true, receive_.id};
  return Verdict::Continue;
}

Responder::Verdict Responder::check_memory(std::size_t bytes, core::PieceList& pieces) const {
  if (is_send(request_.opcode)) {
    const std::span<const ScatterGather> sges{receive_sges_.data(), receive_.sge_count};
    return core::find_pieces(link_.memory, link_.qp.receive_pd(), sges, received_, bytes, Access::LocalWrite, pieces)
               ? Verdict::Continue
               : Verdict::OperationError;
  }
  if (is_atomic(request_.opcode) && (request_.remote_address & 7) != 0) return Verdict::InvalidRequest;
  const std::uint32_t left = request_.length - received_;
  if (left == 0) return Verdict::Continue;
  // The whole rest is checked, with the first record and again with each: the region may have gone.
  std::byte* at = link_.memory.find_remote(request_.rkey, link_.pd(), request_.remote_address + received_, left,
                                           core::right_for(request_.opcode));
  if (at == nullptr) return Verdict::AccessError;
  if (is_atomic(request_.opcode)) {
    // An aligned address whose region lies misaligned in memory cannot be updated in one step.
    if ((reinterpret_cast<std::uintptr_t>(at) & 7) != 0) return Verdict::InvalidRequest;
    bytes = 8;
  }
  if (request_.opcode == SendOpcode::RdmaRead) return Verdict::Continue;
  pieces.pieces[0] = {at, bytes};
  pieces.count = 1;
  return Verdict::Continue;
}

}  // namespace verbena::local
