// SPDX-License-Identifier: Apache-2.0
#include "soft/roce/responder.h"

#include <algorithm>
#include <cstring>

#include "soft/core/dma.h"
#include "soft/core/planted.h"
#include "soft/roce/requester.h"

namespace verbena::roce {

using core::planted;
using core::PlantedBug;
using wire::Operation;

void Responder::start() {
  const QueuePairAttributes& a = link_.qp.attributes();
  expected_ = a.rq_psn;
  msn_ = 0;
  open_ = Open::None;
  nak_said_ = rnr_said_ = rnr_stole_receive_ = false;
  receive_sges_.assign(std::max(link_.qp.max_receive_segments(), 1u), {});
  received_ = 0;
  resources_ = {};
  next_resource_ = 0;
  conversation_ = {};
  responses_.reset();
  follow_limits();
}

void Responder::follow_limits() {
  max_resources_ = link_.qp.attributes().max_dest_rd_atomic;
  responses_.make_room(2 * max_resources_ + 4);
}

void Responder::handle(Instant now, const wire::Packet& packet) {
  const Verdict verdict = check(packet);
  switch (verdict) {
    [[likely]] case Verdict::Continue:
      nak_said_ = rnr_said_ = false;
      return execute(now, packet);
    case Verdict::Duplicate:
      return handle_duplicate(now, packet);
    case Verdict::Drop:
      return;
    case Verdict::OutOfSequence:
    case Verdict::Rnr:
    case Verdict::InvalidRequest:
    case Verdict::AccessError:
    case Verdict::OperationError:
    case Verdict::ReceiveTooShort:
    case Verdict::MemoryFault:
      return refuse(packet, verdict);
  }
}

std::uint32_t Responder::consumed_psns(const wire::Packet& packet) const {
  return packet.info().operation == Operation::ReadRequest ? packets_of(packet.reth.length, link_.mtu()) : 1;
}

void Responder::execute(Instant now, const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  const Psn psn = packet.bth.psn;
  if (!touch_memory(packet)) [[unlikely]] return refuse(packet, Verdict::MemoryFault);
  expected_ = psn + consumed_psns(packet);
  if (planted(PlantedBug::MsnCountsPackets) ? true : info.last) msn_ = (msn_ + 1) & Psn::kMask;
  switch (info.operation) {
    [[likely]] case Operation::Send:
      execute_send(packet);
      break;
    [[likely]] case Operation::Write:
      execute_write(packet);
      break;
    case Operation::ReadRequest:
      return execute_read(packet);
    default:
      return execute_atomic(packet);
  }
  if (info.last || packet.bth.ack_request)
    owe_acknowledge(now, psn, msn_, packet.bth.ack_request && !info.last);
}

// The checks of responder_checks.cc, for as many as pass them all.
Run Responder::open_run(const wire::Packet& packet, std::uint32_t count) {
  if (packet.bth.psn + 1 != expected_ || check_opcode_order(packet) != Verdict::Continue ||
      check_allowed(packet) != Verdict::Continue)
    return {};
  const std::uint32_t mtu = link_.mtu();
  if (open_ == Open::Write) {
    count = std::min(count, (write_left_ - 1) / mtu);
    return {link_.memory.find_remote(write_rkey_, link_.pd(), write_va_, write_left_, Access::RemoteWrite), count};
  }
  count = static_cast<std::uint32_t>(std::min<std::uint64_t>(count, (receive_.length - received_) / mtu));
  if (!find_receive_pieces(received_, std::uint64_t{count} * mtu) || pieces_.count != 1) return {};
  return {const_cast<std::byte*>(pieces_.pieces[0].data), count};
}

void Responder::close_run(std::uint32_t count) {
  nak_said_ = rnr_said_ = false;
  expected_ = expected_ + count;
  const std::uint32_t bytes = count * link_.mtu();
  if (open_ == Open::Send) {
    received_ += bytes;
    return;
  }
  write_va_ += bytes;
  write_left_ -= bytes;
}

bool Responder::opens_sends(const wire::Packet& packet) const {
  return packet.bth.opcode == wire::Opcode::RcSendOnly && packet.bth.psn + 1 == expected_ &&
         check_opcode_order(packet) == Verdict::Continue && check_allowed(packet) == Verdict::Continue &&
         wire::payload_obeys(packet, link_.mtu());
}

// The rest of handle(): what is not the same of each. What was taken before another check failed is there when it is
// handled by itself.
bool Responder::take_send(const wire::Packet& packet) {
  if (!take_receive() || !core::store_whole(link_.memory, link_.qp.receive_pd(),
                                            {receive_sges_.data(), receive_.sge_count}, packet.payload))
    return false;
  nak_said_ = rnr_said_ = false;
  expected_ = packet.bth.psn + 1;
  msn_ = (msn_ + 1) & Psn::kMask;
  execute_send(packet);
  return true;
}

void Responder::close_sends(Instant now, std::uint32_t count) {
  if (count != 0) owe_acknowledge(now, expected_ - 1, msn_, false, count);
}

bool Responder::touch_memory(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  switch (info.operation) {
    case Operation::Send:
      return core::store(pieces_, packet.payload, info.last);
    case Operation::Write:
      return (planted(PlantedBug::AckBeforeStore) && info.last) ||
             core::store(pieces_, packet.payload, info.last);
    case Operation::CompareSwap:
    case Operation::FetchAdd: {
      std::byte* at = const_cast<std::byte*>(pieces_.pieces[0].data);
      const wire::AtomicEth& a = packet.atomic;
      const std::optional<std::uint64_t> original = info.operation == Operation::CompareSwap
                                                        ? core::dma_compare_swap(at, a.compare, a.swap_or_add)
                                                        : core::dma_fetch_add(at, a.swap_or_add);
      atomic_original_ = original.value_or(0);
      return original.has_value();
    }
    default:
      return true;
  }
}

void Responder::complete_receive(const wire::Packet& packet, CompletionOpcode opcode,
                                 std::uint32_t byte_count) {
  link_.qp.complete_receive(packet.bth.solicited, [&](Completion& completion) {
    completion.id = receive_.id;
    completion.status = CompletionStatus::Success;
    completion.opcode = opcode;
    completion.with_immediate = packet.info().has(wire::kImmDt);
    completion.immediate = {};
    if (completion.with_immediate && !(planted(PlantedBug::WriteWithImmediateDropsImmediate) &&
                                       opcode == CompletionOpcode::ReceiveRdmaWithImmediate))
      completion.immediate = packet.immediate;
    completion.byte_count = byte_count;
    completion.qpn = link_.qp.qpn();
    completion.vendor_error = 0;
  });
}

void Responder::execute_send(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.first) received_ = 0;
  received_ += packet.payload.size();
  open_ = info.last ? Open::None : Open::Send;
  if (!info.last) return;
  ++link_.counters.rdma_recvs;
  complete_receive(packet, CompletionOpcode::Receive, static_cast<std::uint32_t>(received_));
}

void Responder::execute_write(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.first) {
    write_va_ = packet.reth.va;
    write_rkey_ = packet.reth.rkey;
    write_left_ = write_length_ = packet.reth.length;
  }
  write_va_ += packet.payload.size();
  write_left_ -= static_cast<std::uint32_t>(packet.payload.size());
  open_ = info.last ? Open::None : Open::Write;
  if (!info.last) return;
  ++link_.counters.served_writes;
  link_.counters.served_write_bytes += write_length_;
  if (info.completes_receive)
    complete_receive(packet, CompletionOpcode::ReceiveRdmaWithImmediate, write_length_);
}

void Responder::remember(const Resource& resource) {
  if (resources_.size() < max_resources_) {
    std::rotate(resources_.begin(), resources_.begin() + static_cast<std::ptrdiff_t>(next_resource_), resources_.end());
    next_resource_ = resources_.size();
    resources_.resize(max_resources_);
  }
  resources_[next_resource_] = resource;
  next_resource_ = (next_resource_ + 1) % resources_.size();
}

void Responder::execute_read(const wire::Packet& packet) {
  const wire::Reth& reth = packet.reth;
  remember({true, false, packet.bth.psn, consumed_psns(packet), reth.va, reth.rkey, reth.length, 0, msn_});
  ++link_.counters.served_reads;
  link_.counters.served_read_bytes += reth.length;
  Response response;
  response.kind = Response::Kind::Read;
  response.psn = packet.bth.psn;
  response.msn = msn_;
  response.va = reth.va;
  response.rkey = reth.rkey;
  response.length = reth.length;
  responses_.push(response);
}

void Responder::execute_atomic(const wire::Packet& packet) {
  const wire::AtomicEth& a = packet.atomic;
  remember({true, true, packet.bth.psn, 1, a.va, a.rkey, 8, atomic_original_, msn_});
  ++link_.counters.served_atomics;
  Response response;
  response.kind = Response::Kind::Atomic;
  response.psn = packet.bth.psn;
  response.msn = msn_;
  response.value = atomic_original_;
  responses_.push(response);
}

Responder::Resource* Responder::resource_at(Psn psn) {
  // The newest first: one that is older than a whole turn of the numbers may cover the same.
  for (std::size_t i = 1; i <= resources_.size(); ++i) {
    Resource& r = resources_[(next_resource_ + resources_.size() - i) % resources_.size()];
    if (r.valid && ((psn.value() - r.first.value()) & Psn::kMask) < r.packets) return &r;
  }
  return nullptr;
}

void Responder::handle_duplicate(Instant now, const wire::Packet& packet) {
  ++link_.counters.duplicate_request;
  switch (packet.info().operation) {
    case Operation::ReadRequest:
      return repeat_read(packet);
    case Operation::CompareSwap:
    case Operation::FetchAdd:
      return repeat_atomic(packet);
    case Operation::Send:
    case Operation::Write:
      if (planted(PlantedBug::CompleteTwice) && packet.info().completes_receive && open_ == Open::None &&
          link_.qp.take_receive(receive_, receive_sges_))
        complete_receive(packet, CompletionOpcode::Receive, 0);
      return acknowledge_again(now, packet.bth.psn);
    default:
      return;
  }
}

// R-030, with R-081: the newest number that is short of every READ and atomic behind the duplicate. Only their own
// responses answer those, and the requester may not have them.
void Responder::acknowledge_again(Instant now, Psn duplicate) {
  Psn newest = expected_ - 1;
  std::uint32_t msn = msn_;
  for (const Resource& r : resources_) {
    if (!r.valid || !r.first.is_after(duplicate) || r.first.is_after(newest)) continue;
    newest = r.first - 1;
    msn = (r.msn - 1) & Psn::kMask;
  }
  owe_acknowledge(now, newest, msn, true);
}

void Responder::repeat_read(const wire::Packet& packet) {
  const Resource* r = resource_at(packet.bth.psn);
  const wire::Reth& reth = packet.reth;
  if (r == nullptr || r->atomic || !packet.payload.empty()) return;
  const std::uint32_t skipped = (packet.bth.psn.value() - r->first.value()) & Psn::kMask;
  const std::uint64_t offset = std::uint64_t{skipped} * link_.mtu();
  // Only what the original asked for, from a packet boundary on.
  if (reth.rkey != r->rkey || reth.va != r->va + offset || offset > r->length ||
      reth.length > r->length - offset)
    return;
  if (check_allowed(packet) != Verdict::Continue) return refuse(packet, Verdict::InvalidRequest);
  if (reth.length != 0 &&
      link_.memory.find_remote(reth.rkey, link_.pd(), reth.va, reth.length, Access::RemoteRead) == nullptr)
    return fatal(wire::NakCode::RemoteAccess, packet.bth.psn, AsyncEventType::QpAccessError);
  Response response;
  response.kind = Response::Kind::Read;
  response.psn = packet.bth.psn;
  response.msn = r->msn;
  response.again = true;
  response.va = reth.va;
  response.rkey = reth.rkey;
  response.length = reth.length;
  responses_.replay(response);
}

void Responder::repeat_atomic(const wire::Packet& packet) {
  const Resource* r = resource_at(packet.bth.psn);
  if (r == nullptr || !r->atomic) return;
  ++link_.counters.atomic_replays;
  if (planted(PlantedBug::ReexecuteDuplicateAtomic)) {
    std::byte* at = link_.memory.find_remote(r->rkey, link_.pd(), r->va, 8, Access::RemoteAtomic);
    if (at != nullptr && packet.info().operation == Operation::FetchAdd)
      static_cast<void>(core::dma_fetch_add(at, packet.atomic.swap_or_add));
  }
  Response response;
  response.kind = Response::Kind::Atomic;
  response.psn = packet.bth.psn;
  response.msn = r->msn;
  response.again = true;
  response.value = r->value;
  responses_.replay(response);
}

void Responder::refuse(const wire::Packet& packet, Verdict verdict) {
  const Psn psn = packet.bth.psn;
  if (verdict == Verdict::OutOfSequence) {
    ++link_.counters.out_of_seq_request;
    if (planted(PlantedBug::NeverSendSequenceNak)) {
      expected_ = psn + 1;
      return;
    }
    if (nak_said_ || rnr_said_) return;
    nak_said_ = true;
    ++link_.counters.send_seq_err;
    return say_nak(wire::nak_syndrome(wire::NakCode::SequenceError), expected_);
  }
  if (verdict == Verdict::Rnr) {
    rnr_said_ = true;
    nak_said_ = false;
    rnr_stole_receive_ = planted(PlantedBug::RnrConsumesReceive);
    ++link_.counters.send_rnr_err;
    return say_nak(wire::rnr_syndrome(link_.qp.attributes().min_rnr_timer), psn);
  }
  if (verdict == Verdict::AccessError) {
    ++link_.counters.access_violations;
    return fatal(wire::NakCode::RemoteAccess, psn, AsyncEventType::QpAccessError);
  }
  const bool fault = verdict == Verdict::MemoryFault;
  ++(fault ? link_.counters.memory_faults : link_.counters.invalid_requests);
  if (fault && packet.info().operation != Operation::Send)
    return fatal(wire::NakCode::RemoteOperation, psn, AsyncEventType::QpFatal);
  if (verdict == Verdict::InvalidRequest)
    return fatal(wire::NakCode::InvalidRequest, psn, AsyncEventType::QpRequestError);
  const bool too_short = verdict == Verdict::ReceiveTooShort;
  Completion completion;
  completion.id = receive_.id;
  completion.status = too_short ? CompletionStatus::LocalLengthError : CompletionStatus::LocalProtectionError;
  completion.opcode = CompletionOpcode::Receive;
  completion.qpn = link_.qp.qpn();
  link_.qp.complete_receive(completion, true);
  fatal(too_short ? wire::NakCode::InvalidRequest : wire::NakCode::RemoteOperation, psn,
        AsyncEventType::QpRequestError);
}

void Responder::owe_acknowledge(Instant now, Psn psn, std::uint32_t msn, bool prompt, std::uint32_t requests) {
  const bool first = responses_.empty() || responses_.back().kind != Response::Kind::Acknowledge;
  if (conversation_.on_owed(now, first, link_.config, requests)) prompt = true;
  link_.counters.ack_deferred += first ? requests - 1 : requests;
  if (!first) {
    Response& last = responses_.back();
    last.prompt = last.prompt || prompt;
    if (psn.is_before(last.psn)) return;  // a duplicate's: what is owed says more
    last.psn = psn;
    last.msn = msn;
    return;
  }
  Response response;
  response.psn = psn;
  response.msn = msn;
  response.prompt = prompt;
  response.since = now;
  responses_.push(response);
}

void Responder::say_nak(std::uint8_t syndrome, Psn psn) {
  Response response;
  response.kind = Response::Kind::Nak;
  response.psn = psn;
  response.msn = msn_;
  response.syndrome = syndrome;
  responses_.push(response);
}

void Responder::fatal(wire::NakCode code, Psn psn, AsyncEventType event) {
  say_nak(wire::nak_syndrome(code), psn);  // leaves from ERR, once
  link_.qp.enter_error(event);
}

}  // namespace verbena::roce
