// SPDX-License-Identifier: Apache-2.0
// The checks of the responder, in the order in which they are made. None changes memory or moves the
// sequence.
#include "soft/core/planted.h"
#include "soft/roce/requester.h"
#include "soft/roce/responder.h"

namespace verbena::roce {

using core::planted;
using core::PlantedBug;
using wire::Operation;

Responder::Verdict Responder::check(const wire::Packet& packet) {
  if (const Verdict verdict = check_sequence(packet); verdict != Verdict::Continue) [[unlikely]] return verdict;
  if (const Verdict verdict = check_opcode_order(packet); verdict != Verdict::Continue) [[unlikely]] return verdict;
  if (const Verdict verdict = check_allowed(packet); verdict != Verdict::Continue) [[unlikely]] return verdict;
  // However a WRITE with immediate is cut, a bad key is told before a receive is wanted.
  const bool writes = packet.info().operation == Operation::Write;
  if (!writes)
    if (const Verdict verdict = check_resources(packet); verdict != Verdict::Continue) [[unlikely]] return verdict;
  if (const Verdict verdict = check_length(packet); verdict != Verdict::Continue) [[unlikely]] return verdict;
  if (const Verdict verdict = check_memory(packet); verdict != Verdict::Continue) [[unlikely]] return verdict;
  return writes ? check_resources(packet) : Verdict::Continue;
}

Responder::Verdict Responder::check_sequence(const wire::Packet& packet) const {
  const std::int32_t ahead = Psn::distance(packet.bth.psn, expected_);
  if (ahead == 0) [[likely]] return Verdict::Continue;
  if (ahead < 0) return planted(PlantedBug::SkipReplayCheck) ? Verdict::Continue : Verdict::Duplicate;
  if (planted(PlantedBug::AcceptGap) && ahead == 1) return Verdict::Continue;
  return Verdict::OutOfSequence;
}

Responder::Verdict Responder::check_opcode_order(const wire::Packet& packet) const {
  const wire::OpcodeInfo& info = packet.info();
  switch (info.operation) {
    case Operation::Send:
    case Operation::Write: {
      if (info.first) return open_ == Open::None ? Verdict::Continue : Verdict::InvalidRequest;
      const Open needed = info.operation == Operation::Send ? Open::Send : Open::Write;
      return open_ == needed ? Verdict::Continue : Verdict::InvalidRequest;
    }
    case Operation::ReadRequest:
    case Operation::CompareSwap:
    case Operation::FetchAdd:
      return open_ == Open::None ? Verdict::Continue : Verdict::InvalidRequest;
    default:
      return Verdict::InvalidRequest;  // FLUSH, ATOMIC WRITE: not enabled on any queue pair
  }
}

Responder::Verdict Responder::check_allowed(const wire::Packet& packet) const {
  const Access access = link_.qp.attributes().access;
  const wire::OpcodeInfo& info = packet.info();
  if (info.has(wire::kIeth))
    return Verdict::InvalidRequest;  // SEND with Invalidate: nothing here can be invalidated
  switch (info.operation) {
    case Operation::Write:
      return includes(access, Access::RemoteWrite) ? Verdict::Continue : Verdict::InvalidRequest;
    case Operation::ReadRequest:
      return includes(access, Access::RemoteRead) ? Verdict::Continue : Verdict::InvalidRequest;
    case Operation::CompareSwap:
    case Operation::FetchAdd:
      return includes(access, Access::RemoteAtomic) ? Verdict::Continue : Verdict::InvalidRequest;
    default:
      return Verdict::Continue;
  }
}

Responder::Verdict Responder::check_resources(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.operation == Operation::ReadRequest || info.operation == Operation::CompareSwap ||
      info.operation == Operation::FetchAdd)
    return responses_.pending_fetches() < max_resources_ ? Verdict::Continue : Verdict::InvalidRequest;
  if (!info.consumes_receive) return Verdict::Continue;
  return take_receive() ? Verdict::Continue : Verdict::Rnr;
}

// Unless one was taken before.
bool Responder::take_receive() {
  if (link_.qp.open_receive.open) [[unlikely]] return true;
  if (!link_.qp.take_receive(receive_, receive_sges_)) return false;
  if (rnr_stole_receive_) [[unlikely]] {
    rnr_stole_receive_ = false;
    if (!link_.qp.take_receive(receive_, receive_sges_)) return false;
  }
  link_.qp.open_receive = {true, receive_.id};
  return true;
}

Responder::Verdict Responder::check_length(const wire::Packet& packet) const {
  const wire::OpcodeInfo& info = packet.info();
  if (!wire::payload_obeys(packet, link_.mtu()))
    return Verdict::InvalidRequest;  // R-050 …
  constexpr std::uint32_t kMaxMessage = 1u << 31;
  if (info.has(wire::kReth) && packet.reth.length > kMaxMessage) return Verdict::InvalidRequest;
  if (info.operation == Operation::Send) {
    const std::uint64_t before = info.first ? 0 : received_;
    if (packet.payload.size() > receive_.length - before) return Verdict::ReceiveTooShort;
    return Verdict::Continue;
  }
  if (info.operation != Operation::Write) return Verdict::Continue;
  const std::uint32_t left = info.first ? packet.reth.length : write_left_;
  if (info.last) return packet.payload.size() == left ? Verdict::Continue : Verdict::InvalidRequest;
  return packet.payload.size() < left ? Verdict::Continue : Verdict::InvalidRequest;
}

Responder::Verdict Responder::check_memory(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  pieces_.count = 0;
  switch (info.operation) {
    case Operation::Send:
      return find_receive_pieces(info.first ? 0 : received_, packet.payload.size()) ? Verdict::Continue
                                                                                    : Verdict::OperationError;
    case Operation::Write: {
      const bool first = info.first;
      const std::uint64_t va = first ? packet.reth.va : write_va_;
      const RKey rkey = first ? packet.reth.rkey : write_rkey_;
      const std::uint32_t left = first ? packet.reth.length : write_left_;
      if (left == 0) return Verdict::Continue;
      // The whole rest is checked, at the first packet and again at each: the region may have gone.
      std::byte* at = link_.memory.find_remote(rkey, link_.pd(), va, left, Access::RemoteWrite);
      if (at == nullptr) return Verdict::AccessError;
      pieces_.pieces[0] = {at, packet.payload.size()};
      pieces_.count = 1;
      return Verdict::Continue;
    }
    case Operation::ReadRequest: {
      if (packet.reth.length == 0) return Verdict::Continue;
      const auto* at = link_.memory.find_remote(packet.reth.rkey, link_.pd(), packet.reth.va,
                                                packet.reth.length, Access::RemoteRead);
      return at == nullptr ? Verdict::AccessError : Verdict::Continue;
    }
    default: {
      if ((packet.atomic.va & 7) != 0) return Verdict::InvalidRequest;
      std::byte* at =
          link_.memory.find_remote(packet.atomic.rkey, link_.pd(), packet.atomic.va, 8, Access::RemoteAtomic);
      if (at == nullptr) return Verdict::AccessError;
      // An aligned address whose region lies misaligned in memory cannot be updated in one step.
      if ((reinterpret_cast<std::uintptr_t>(at) & 7) != 0) return Verdict::InvalidRequest;
      pieces_.pieces[0] = {at, 8};
      pieces_.count = 1;
      return Verdict::Continue;
    }
  }
}

bool Responder::find_receive_pieces(std::uint64_t offset, std::uint64_t bytes) {
  const std::span<const ScatterGather> sges{receive_sges_.data(), receive_.sge_count};
  return find_pieces(link_, link_.qp.receive_pd(), sges, offset, bytes, Access::LocalWrite, pieces_);
}

}  // namespace verbena::roce
