// SPDX-License-Identifier: Apache-2.0
// One RoCEv2 packet: the validated representation, its parser and its emitter.
// The only code that reads packet bytes. What parse() returns can be emitted again byte for byte, but for pad
// bytes and the CNP's reserved bytes, which are zero in every packet that keeps the rules and are emitted as
// zero.
//
//   parse()         drops what cannot be read (R-001..R-004), and responses and datagrams whose payload
//   breaks the rules. payload_obeys() judges the payload of a request. RC, UC and XRC requests come out of
//   parse() even when it breaks the
//                   rules, since a responder has to answer them (R-050..R-057).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/byte_order.h"
#include "soft/wire/aeth.h"
#include "soft/wire/bth.h"
#include "soft/wire/drop_reason.h"
#include "soft/wire/extended_headers.h"
#include "soft/wire/opcode.h"
#include "soft/wire/path.h"
#include "verbena/base/ids.h"

namespace verbena::wire {

// Which of the members beside `bth` hold something is told by opcode_info(bth.opcode).headers.
struct Packet {
  Bth bth;
  Reth reth;
  AtomicEth atomic;
  Aeth aeth;
  std::uint64_t atomic_original = 0;
  std::array<std::byte, 4> immediate{};  // as on the wire: verbs' network-order imm_data
  RKey invalidate;
  Deth deth;
  Feth feth;
  std::uint32_t rdeth = 0;  // never parsed nor emitted: every RD opcode is unknown
  std::uint32_t xrceth = 0;
  std::span<const std::byte> payload;  // without pad; points into the datagram

  const OpcodeInfo& info() const { return opcode_info(bth.opcode); }
};

// Parse one UDP payload (BTH … ICRC). The ICRC is not checked here: see IcrcVerifier.
// On failure returns the reason and leaves `out` unspecified. Members whose header the opcode does not have
// keep their value.
DropReason parse(std::span<const std::byte> datagram, Packet& out);

// Whether `next` is the datagram after `before`, in all but payload: a BTH alone before that, as long, the following
// number. What parse() said of the one it then says of the other.
bool repeats(std::span<const std::byte> before, std::span<const std::byte> next);
// The same of the BTHs that begin two datagrams which are as long, and of which the first is known to be so.
inline bool repeats_bth(const std::byte* before, const std::byte* next) {
  const std::uint32_t numbered = load_be32(before + 8);
  return load_be64(before) == load_be64(next) && (numbered & Psn::kMask) != Psn::kMask &&
         load_be32(next + 8) == numbered + 1;
}

// Payload length and pad count are what the opcode asks for at this path MTU (R-050..R-052, R-055..R-057).
bool payload_obeys(const Packet& packet, std::size_t path_mtu);

// BTH and extended headers of `packet` into out (>= kMaxHeaderBytes). pad_count is written as given in bth.
// Returns the number of bytes, opcode_info().header_bytes. The opcode must be a known one.
std::size_t emit_headers(const Packet& packet, std::span<std::byte> out);

constexpr std::uint8_t pad_count_for(std::size_t payload_bytes) {
  return static_cast<std::uint8_t>((4 - (payload_bytes & 3)) & 3);
}
// Whole UDP payload: headers, payload, pad, ICRC.
inline std::size_t datagram_bytes(const Packet& packet) {
  return packet.info().header_bytes + packet.payload.size() + packet.bth.pad_count + kIcrcBytes;
}

// Whole UDP payload with ICRC into out (>= datagram_bytes()); for management packets, tests and tools.
// Returns the number of bytes written.
std::size_t emit(const Packet& packet, const Path& path, std::uint16_t identification,
                 std::span<std::byte> out);

// One line for people: "RC WRITE First qpn 0x000012 psn 0x800000 ackreq va 0x1000 rkey 0x1234 len 8192, 1024
// B".
std::string to_string(const Packet& packet);

}  // namespace verbena::wire
