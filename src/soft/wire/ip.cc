// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/ip.h"

#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/byte_order.h"

namespace verbena::wire {
namespace {

constexpr std::uint8_t kUdpProtocol = 17;

// Sixteen-bit one's complement sum (RFC 1071), not yet folded. An odd last byte counts as the upper half of a
// word.
std::uint64_t add_words(std::uint64_t sum, std::span<const std::byte> bytes) {
  std::size_t i = 0;
  for (; i + 2 <= bytes.size(); i += 2) sum += load_be16(&bytes[i]);
  if (i < bytes.size()) sum += std::uint64_t{load_u8(&bytes[i])} << 8;
  return sum;
}

std::uint16_t fold(std::uint64_t sum) {
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(sum);
}

std::span<const std::byte> address_bytes(const Gid& gid) {
  const auto all = std::as_bytes(std::span{gid.bytes});
  return gid.is_ipv4() ? all.subspan(12) : all;
}

// Over pseudo header, ports, length and payload; without the checksum field.
std::uint16_t udp_sum(const Path& path, std::span<const std::byte> payload) {
  const std::uint64_t udp_bytes = kUdpBytes + payload.size();
  std::uint64_t sum = add_words(0, address_bytes(path.source));
  sum = add_words(sum, address_bytes(path.destination));
  sum += kUdpProtocol + udp_bytes;                                             // pseudo header
  sum += path.source_port + std::uint64_t{path.destination_port} + udp_bytes;  // UDP header
  return fold(add_words(sum, payload));
}

DropReason parse_udp(std::span<const std::byte> bytes, IpDatagram& out) {
  if (bytes.size() < kUdpBytes) return DropReason::UdpLength;
  if (load_be16(&bytes[4]) != bytes.size()) return DropReason::UdpLength;
  out.path.source_port = load_be16(&bytes[0]);
  out.path.destination_port = load_be16(&bytes[2]);
  out.udp_checksum = load_be16(&bytes[6]);
  out.payload = bytes.subspan(kUdpBytes);
  return DropReason::None;
}

DropReason parse_ipv4(std::span<const std::byte> bytes, IpDatagram& out) {
  if (bytes.size() < kIpv4Bytes || load_u8(&bytes[0]) != 0x45) return DropReason::IpHeader;
  const std::size_t total = load_be16(&bytes[2]);
  const std::uint16_t flags = load_be16(&bytes[6]);
  if (total < kIpv4Bytes || total > bytes.size()) return DropReason::IpHeader;
  if ((flags & ~0x4000u) != 0) return DropReason::IpHeader;  // a fragment, or the reserved flag
  if (load_u8(&bytes[9]) != kUdpProtocol) return DropReason::IpHeader;
  out.path.traffic_class = load_u8(&bytes[1]);
  out.path.hop_limit = load_u8(&bytes[8]);
  out.path.flow_label = 0;
  out.identification = load_be16(&bytes[4]);
  out.dont_fragment = flags != 0;
  const auto* a = &bytes[12];
  const auto* b = &bytes[16];
  out.path.source = Gid::from_ipv4(load_u8(a), load_u8(a + 1), load_u8(a + 2), load_u8(a + 3));
  out.path.destination = Gid::from_ipv4(load_u8(b), load_u8(b + 1), load_u8(b + 2), load_u8(b + 3));
  return parse_udp(bytes.subspan(kIpv4Bytes, total - kIpv4Bytes), out);
}

DropReason parse_ipv6(std::span<const std::byte> bytes, IpDatagram& out) {
  if (bytes.size() < kIpv6Bytes) return DropReason::IpHeader;
  const std::uint32_t first = load_be32(&bytes[0]);
  const std::size_t udp_bytes = load_be16(&bytes[4]);
  if (udp_bytes > bytes.size() - kIpv6Bytes) return DropReason::IpHeader;
  if (load_u8(&bytes[6]) != kUdpProtocol) return DropReason::IpHeader;
  out.path.traffic_class = static_cast<std::uint8_t>(first >> 20);
  out.path.flow_label = first & 0xfffff;
  out.path.hop_limit = load_u8(&bytes[7]);
  out.identification = 0;
  out.dont_fragment = true;
  std::memcpy(out.path.source.bytes.data(), &bytes[8], 16);
  std::memcpy(out.path.destination.bytes.data(), &bytes[24], 16);
  if (out.path.source.is_ipv4() || out.path.destination.is_ipv4()) return DropReason::IpHeader;
  return parse_udp(bytes.subspan(kIpv6Bytes, udp_bytes), out);
}

void emit_ipv4(const Path& path, std::uint16_t identification, std::size_t udp_bytes,
               std::span<std::byte> to) {
  store_be16(&to[0], static_cast<std::uint16_t>(0x4500 | path.traffic_class));
  store_be16(&to[2], static_cast<std::uint16_t>(kIpv4Bytes + udp_bytes));
  store_be16(&to[4], identification);
  store_be16(&to[6], 0x4000);
  store_u8(&to[8], path.hop_limit);
  store_u8(&to[9], kUdpProtocol);
  store_be16(&to[10], 0);
  std::memcpy(&to[12], address_bytes(path.source).data(), 4);
  std::memcpy(&to[16], address_bytes(path.destination).data(), 4);
  store_be16(&to[10], static_cast<std::uint16_t>(~fold(add_words(0, to.first(kIpv4Bytes)))));
}

void emit_ipv6(const Path& path, std::size_t udp_bytes, std::span<std::byte> to) {
  store_be32(&to[0], 6u << 28 | std::uint32_t{path.traffic_class} << 20 | (path.flow_label & 0xfffff));
  store_be16(&to[4], static_cast<std::uint16_t>(udp_bytes));
  store_u8(&to[6], kUdpProtocol);
  store_u8(&to[7], path.hop_limit);
  std::memcpy(&to[8], path.source.bytes.data(), 16);
  std::memcpy(&to[24], path.destination.bytes.data(), 16);
}

}  // namespace

DropReason parse_ip(std::span<const std::byte> bytes, IpDatagram& out) {
  if (bytes.empty()) return DropReason::IpHeader;
  const unsigned version = load_u8(&bytes[0]) >> 4;
  if (version == 4) return parse_ipv4(bytes, out);
  return version == 6 ? parse_ipv6(bytes, out) : DropReason::IpHeader;
}

bool udp_checksum_holds(const IpDatagram& datagram) {
  if (datagram.udp_checksum == 0) return true;
  return fold(std::uint64_t{udp_sum(datagram.path, datagram.payload)} + datagram.udp_checksum) == 0xffff;
}

void append_ip(const Path& path, std::uint16_t identification, std::span<const std::byte> payload,
               bool with_checksum, std::vector<std::byte>& out) {
  VERBENA_ASSERT(path.source.is_ipv4() == path.destination.is_ipv4());
  const std::size_t udp_bytes = kUdpBytes + payload.size();
  const std::size_t ip_bytes = path.is_ipv4() ? kIpv4Bytes : kIpv6Bytes;
  VERBENA_ASSERT(ip_bytes + udp_bytes <= 0xffff);
  const std::size_t start = out.size();
  out.resize(start + ip_bytes + kUdpBytes);
  const std::span<std::byte> to = std::span{out}.subspan(start);
  if (path.is_ipv4()) {
    emit_ipv4(path, identification, udp_bytes, to);
  } else {
    emit_ipv6(path, udp_bytes, to);
  }
  std::byte* udp = to.data() + ip_bytes;
  const auto checksum = static_cast<std::uint16_t>(~udp_sum(path, payload));
  store_be16(udp, path.source_port);
  store_be16(udp + 2, path.destination_port);
  store_be16(udp + 4, static_cast<std::uint16_t>(udp_bytes));
  store_be16(udp + 6, !with_checksum ? std::uint16_t{0} : checksum != 0 ? checksum : std::uint16_t{0xffff});
  out.insert(out.end(), payload.begin(), payload.end());
}

}  // namespace verbena::wire
