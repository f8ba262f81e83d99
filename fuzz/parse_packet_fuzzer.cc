// SPDX-License-Identifier: Apache-2.0
// No bytes crash a parser, and what a parser accepts comes back the same when it is emitted and parsed again.
// The first byte picks the parser, the rest is its input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"
#include "soft/wire/cm_message.h"
#include "soft/wire/icrc.h"
#include "soft/wire/ip.h"
#include "soft/wire/packet.h"

namespace verbena::wire {
namespace {

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

bool same(const Packet& a, const Packet& b) {
  return a.bth == b.bth && a.reth == b.reth && a.atomic == b.atomic && a.aeth == b.aeth &&
         a.atomic_original == b.atomic_original && a.immediate == b.immediate &&
         a.invalidate == b.invalidate && a.deth == b.deth && a.feth == b.feth && a.xrceth == b.xrceth &&
         same_bytes(a.payload, b.payload);
}

Path some_path() {
  Path path;
  path.source = Gid::from_ipv4(192, 0, 2, 1);
  path.destination = Gid::from_ipv4(192, 0, 2, 2);
  path.source_port = 0xc000;
  return path;
}

// A reader may look at any datagram's sum before it knows whether the packet makes sense.
void check_icrc(const Path& path, std::span<const std::byte> datagram) {
  static IcrcVerifier verifier;
  std::uint16_t found = 0;
  if (verifier.check(path, std::nullopt, datagram, &found) == IcrcVerdict::Bad) return;
  VERBENA_ASSERT(verifier.check(path, found, datagram, nullptr) == IcrcVerdict::Exact);
}

void fuzz_packet(std::span<const std::byte> bytes) {
  const Path path = some_path();
  check_icrc(path, bytes);
  Packet packet;
  if (parse(bytes, packet) != DropReason::None) return;
  VERBENA_ASSERT(packet.info().known);
  VERBENA_ASSERT(datagram_bytes(packet) == bytes.size());
  VERBENA_ASSERT(!to_string(packet).empty());
  for (const std::size_t path_mtu : {256u, 1024u, 4096u})
    VERBENA_ASSERT(!payload_obeys(packet, path_mtu) || packet.payload.size() <= path_mtu);

  std::vector<std::byte> again(bytes.size());
  VERBENA_ASSERT(emit(packet, path, 7, again) == bytes.size());
  const std::size_t reserved = packet.info().transport == Transport::Cnp ? kCnpReservedBytes : 0;
  const std::size_t kept = packet.info().header_bytes - reserved;
  VERBENA_ASSERT(same_bytes(bytes.first(kept), std::span{again}.first(kept)));
  Packet parsed;
  VERBENA_ASSERT(parse(again, parsed) == DropReason::None);
  VERBENA_ASSERT(same(packet, parsed));
  IcrcVerifier verifier;
  VERBENA_ASSERT(verifier.check(path, 7, again, nullptr) == IcrcVerdict::Exact);
}

void fuzz_ip(std::span<const std::byte> bytes) {
  IpDatagram ip;
  if (parse_ip(bytes, ip) != DropReason::None) return;
  VERBENA_ASSERT(ip.payload.size() < bytes.size());
  VERBENA_ASSERT(ip.path.source.is_ipv4() == ip.path.destination.is_ipv4());
  check_icrc(ip.path, ip.payload);
  const bool with_checksum = ip.udp_checksum != 0;
  static_cast<void>(udp_checksum_holds(ip));

  std::vector<std::byte> again;
  append_ip(ip.path, ip.identification, ip.payload, with_checksum, again);
  IpDatagram parsed;
  VERBENA_ASSERT(parse_ip(again, parsed) == DropReason::None);
  VERBENA_ASSERT(parsed.path == ip.path && parsed.identification == ip.identification);
  VERBENA_ASSERT((parsed.udp_checksum != 0) == with_checksum && udp_checksum_holds(parsed));
  VERBENA_ASSERT(same_bytes(parsed.payload, ip.payload));
}

void check_cma_header(std::span<const std::byte, kCmaHeaderBytes> bytes) {
  CmaHeader header;
  if (!parse_cma_header(bytes, header)) return;
  std::array<std::byte, kCmaHeaderBytes> again;
  emit(header, again);
  CmaHeader parsed;
  VERBENA_ASSERT(parse_cma_header(again, parsed));
  VERBENA_ASSERT(parsed == header);
}

void fuzz_management(std::span<const std::byte> bytes) {
  MadHeader header;
  CmMessage message;
  if (parse_cm(bytes, header, message) != DropReason::None) return;
  VERBENA_ASSERT(bytes.size() == kMadBytes);
  VERBENA_ASSERT(!to_string(header, message).empty());
  if (const auto* req = std::get_if<CmReq>(&message)) check_cma_header(cma_part(req->private_data));
  if (const auto* req = std::get_if<CmSidrReq>(&message)) check_cma_header(cma_part(req->private_data));

  std::array<std::byte, kMadBytes> again;
  emit_mad(header, message, again);
  MadHeader parsed_header;
  CmMessage parsed;
  VERBENA_ASSERT(parse_cm(again, parsed_header, parsed) == DropReason::None);
  VERBENA_ASSERT(parsed_header == header);
  VERBENA_ASSERT(parsed == message);
}

}  // namespace
}  // namespace verbena::wire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span{data, size}).subspan(1);
  switch (data[0] % 3) {
    case 0:
      verbena::wire::fuzz_packet(bytes);
      break;
    case 1:
      verbena::wire::fuzz_ip(bytes);
      break;
    default:
      verbena::wire::fuzz_management(bytes);
      break;
  }
  return 0;
}
