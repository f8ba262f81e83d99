// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/packet.h"

#include <cstring>

#include "base/assert.h"
#include "base/byte_order.h"
#include "soft/wire/icrc.h"

namespace verbena::wire {
namespace {

// Hands out the bytes of one header after the other. The opcode table says how many there are in all.
template <class Byte>
struct Cursor {
  Byte* at;

  Byte* take(std::size_t bytes) {
    Byte* const taken = at;
    at += bytes;
    return taken;
  }
};

// The caller has checked that info.header_bytes are there.
void parse_extended(const OpcodeInfo& info, Cursor<const std::byte> from, Packet& out) {
  if (info.headers == kNoHeader) [[likely]] return;
  if (info.has(kDeth)) out.deth = parse_deth(from.take(kDethBytes));
  if (info.has(kXrceth)) out.xrceth = load_be32(from.take(kXrcethBytes));
  if (info.has(kFeth)) out.feth = parse_feth(from.take(kFethBytes));
  if (info.has(kReth)) out.reth = parse_reth(from.take(kRethBytes));
  if (info.has(kAtomicEth)) out.atomic = parse_atomic_eth(from.take(kAtomicEthBytes));
  if (info.has(kAeth)) out.aeth = parse_aeth(from.take(kAethBytes));
  if (info.has(kAtomicAckEth)) out.atomic_original = load_be64(from.take(kAtomicAckEthBytes));
  if (info.has(kImmDt)) std::memcpy(out.immediate.data(), from.take(kImmDtBytes), kImmDtBytes);
  if (info.has(kIeth)) out.invalidate = RKey{load_be32(from.take(kIethBytes))};
}

std::byte* emit_extended(const OpcodeInfo& info, const Packet& packet, Cursor<std::byte> to) {
  if (info.header_bytes == kBthBytes) [[likely]] return to.at;
  if (info.has(kDeth)) emit(packet.deth, to.take(kDethBytes));
  if (info.has(kXrceth)) store_be32(to.take(kXrcethBytes), packet.xrceth);
  if (info.has(kFeth)) emit(packet.feth, to.take(kFethBytes));
  if (info.has(kReth)) emit(packet.reth, to.take(kRethBytes));
  if (info.has(kAtomicEth)) emit(packet.atomic, to.take(kAtomicEthBytes));
  if (info.has(kAeth)) emit(packet.aeth, to.take(kAethBytes));
  if (info.has(kAtomicAckEth)) store_be64(to.take(kAtomicAckEthBytes), packet.atomic_original);
  if (info.has(kImmDt)) std::memcpy(to.take(kImmDtBytes), packet.immediate.data(), kImmDtBytes);
  if (info.has(kIeth)) store_be32(to.take(kIethBytes), packet.invalidate.value());
  if (info.transport == Transport::Cnp) std::memset(to.take(kCnpReservedBytes), 0, kCnpReservedBytes);
  return to.at;
}

bool length_obeys(PayloadRule rule, std::size_t bytes, std::size_t path_mtu) {
  switch (rule) {
    case PayloadRule::None:
      return bytes == 0;
    case PayloadRule::Full:
      return bytes == path_mtu;
    case PayloadRule::NonEmpty:
      return bytes != 0 && bytes <= path_mtu;
    [[likely]] case PayloadRule::Any:
      return bytes <= path_mtu;
    case PayloadRule::Eight:
      return bytes == 8;
  }
  return false;
}

// What can be said of a payload without the path MTU. A full one is a multiple of four, so its pad is 0 like
// any other's.
bool payload_is_possible(const Packet& packet) {
  const std::size_t bytes = packet.payload.size();
  const PayloadRule rule = packet.info().payload;
  if (packet.bth.pad_count != pad_count_for(bytes)) return false;
  if (rule == PayloadRule::Full) return bytes != 0 && bytes <= kMaxPathMtu && packet.bth.pad_count == 0;
  return length_obeys(rule, bytes, kMaxPathMtu);
}

// Requests on a connection are judged by the queue pair, which must answer them.
bool is_connected_request(const OpcodeInfo& info) { return info.request && info.transport != Transport::Ud; }

}  // namespace

DropReason parse(std::span<const std::byte> datagram, Packet& out) {
  if (datagram.size() < kBthBytes + kIcrcBytes) [[unlikely]] return DropReason::TooShort;
  const DropReason reason = parse_bth(datagram.first<kBthBytes>(), out.bth);
  if (reason != DropReason::None) [[unlikely]] return reason;
  const OpcodeInfo& info = out.info();
  if (!info.known) [[unlikely]] return DropReason::UnknownOpcode;
  const std::size_t overhead = std::size_t{info.header_bytes} + out.bth.pad_count + kIcrcBytes;
  if (datagram.size() < overhead) [[unlikely]] return DropReason::Truncated;
  parse_extended(info, {datagram.data() + kBthBytes}, out);
  out.payload = datagram.subspan(info.header_bytes, datagram.size() - overhead);
  if (!is_connected_request(info) && !payload_is_possible(out)) [[unlikely]] return DropReason::BadLength;
  return DropReason::None;
}

bool repeats(std::span<const std::byte> before, std::span<const std::byte> next) {
  if (before.size() != next.size() || next.size() < kBthBytes + kIcrcBytes) return false;
  return opcode_info(load_u8(&before[0])).header_bytes == kBthBytes && repeats_bth(&before[0], &next[0]);
}

bool payload_obeys(const Packet& packet, std::size_t path_mtu) {
  const std::size_t bytes = packet.payload.size();
  return packet.bth.pad_count == pad_count_for(bytes) && length_obeys(packet.info().payload, bytes, path_mtu);
}

std::size_t emit_headers(const Packet& packet, std::span<std::byte> out) {
  const OpcodeInfo& info = packet.info();
  VERBENA_ASSERT(info.known);
  VERBENA_ASSERT(out.size() >= info.header_bytes);
  emit_bth(packet.bth, out.first<kBthBytes>());
  const std::byte* end = emit_extended(info, packet, {out.data() + kBthBytes});
  VERBENA_ASSERT(end == out.data() + info.header_bytes);
  return info.header_bytes;
}

std::size_t emit(const Packet& packet, const Path& path, std::uint16_t identification,
                 std::span<std::byte> out) {
  const std::size_t bytes = datagram_bytes(packet);
  VERBENA_ASSERT(out.size() >= bytes);
  const std::size_t header_bytes = emit_headers(packet, out);
  if (!packet.payload.empty()) std::memcpy(&out[header_bytes], packet.payload.data(), packet.payload.size());
  const std::size_t covered = bytes - kIcrcBytes;
  if (packet.bth.pad_count != 0) std::memset(&out[covered - packet.bth.pad_count], 0, packet.bth.pad_count);
  store_icrc(&out[covered], icrc_of(path, identification, out.first(covered)));
  return bytes;
}

}  // namespace verbena::wire
