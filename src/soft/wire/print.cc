// SPDX-License-Identifier: Apache-2.0
#include "base/byte_order.h"
#include "base/rnr_timer.h"
#include "soft/wire/packet.h"
#include "soft/wire/text.h"

namespace verbena::wire {
namespace {

void add_aeth(Line& line, const Aeth& aeth) {
  switch (aeth_kind(aeth)) {
    case AethKind::Ack:
      line.add(" ack");
      if (const auto credits = credits_of(aeth.syndrome)) line.add(" credits ").decimal(*credits);
      break;
    case AethKind::RnrNak:
      line.add(" rnr nak wait ")
          .decimal(static_cast<std::uint64_t>(rnr_duration(aeth.syndrome).ns / 1000))
          .add(" us");
      break;
    case AethKind::Nak:
      line.add(" nak ").add(to_string(static_cast<NakCode>(aeth.syndrome)));
      break;
    case AethKind::Reserved:
      line.add(" reserved syndrome ").hex(aeth.syndrome, 2);
      break;
  }
  line.add(" msn ").decimal(aeth.msn);
}

void add_atomic(Line& line, const Packet& packet) {
  line.add(" va ").hex(packet.atomic.va).add(" rkey ").hex(packet.atomic.rkey.value());
  const bool swaps = packet.info().operation == Operation::CompareSwap;
  if (swaps) line.add(" compare ").hex(packet.atomic.compare);
  line.add(swaps ? " swap " : " add ").hex(packet.atomic.swap_or_add);
}

void add_extended(Line& line, const Packet& packet) {
  const OpcodeInfo& info = packet.info();
  if (info.has(kDeth))
    line.add(" qkey ").hex(packet.deth.qkey, 8).add(" from ").hex(packet.deth.source.value(), 6);
  if (info.has(kXrceth)) line.add(" srq ").hex(packet.xrceth & 0xffffff, 6);
  if (info.has(kFeth)) {
    line.add(packet.feth.selectivity() == 1 ? " region" : " range");
    line.add(" placement ").decimal(packet.feth.placement_type());
  }
  if (info.has(kReth)) {
    line.add(" va ").hex(packet.reth.va).add(" rkey ").hex(packet.reth.rkey.value());
    line.add(" len ").decimal(packet.reth.length);
  }
  if (info.has(kAtomicEth)) add_atomic(line, packet);
  if (info.has(kAeth)) add_aeth(line, packet.aeth);
  if (info.has(kAtomicAckEth)) line.add(" original ").hex(packet.atomic_original);
  if (info.has(kImmDt)) line.add(" imm ").hex(load_be32(packet.immediate.data()), 8);
  if (info.has(kIeth)) line.add(" invalidate ").hex(packet.invalidate.value());
}

}  // namespace

std::string_view to_string(DropReason reason) {
  switch (reason) {
    case DropReason::None:
      return "None";
    case DropReason::TooShort:
      return "TooShort";
    case DropReason::BadVersion:
      return "BadVersion";
    case DropReason::UnknownOpcode:
      return "UnknownOpcode";
    case DropReason::Truncated:
      return "Truncated";
    case DropReason::UdpLength:
      return "UdpLength";
    case DropReason::IpHeader:
      return "IpHeader";
    case DropReason::BadIcrc:
      return "BadIcrc";
    case DropReason::BadQpn:
      return "BadQpn";
    case DropReason::WrongTransport:
      return "WrongTransport";
    case DropReason::WrongAddress:
      return "WrongAddress";
    case DropReason::BadPkey:
      return "BadPkey";
    case DropReason::WrongPath:
      return "WrongPath";
    case DropReason::WrongState:
      return "WrongState";
    case DropReason::BadLength:
      return "BadLength";
    case DropReason::BadSyndrome:
      return "BadSyndrome";
    case DropReason::BadMad:
      return "BadMad";
    case DropReason::Count:
      break;
  }
  return "?";
}

std::string to_string(const Packet& packet) {
  Line line{packet.info().name};
  line.add(" qpn ").hex(packet.bth.destination.value(), 6);
  line.add(" psn ").hex(packet.bth.psn.value(), 6);
  if (packet.bth.ack_request) line.add(" ackreq");
  if (packet.bth.solicited) line.add(" solicited");
  if (packet.bth.fecn) line.add(" fecn");
  if (packet.bth.becn) line.add(" becn");
  add_extended(line, packet);
  if (!packet.payload.empty()) line.add(", ").decimal(packet.payload.size()).add(" B");
  return line.take();
}

}  // namespace verbena::wire
