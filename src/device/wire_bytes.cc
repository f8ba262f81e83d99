// SPDX-License-Identifier: Apache-2.0
#include "device/wire_bytes.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>

#include "verbena/device/queue_pair.h"

namespace verbena::wire_bytes {

static_assert(std::endian::native == std::endian::little);

void store_le16(std::byte* p, std::uint16_t value) { std::memcpy(p, &value, sizeof value); }
void store_le32(std::byte* p, std::uint32_t value) { std::memcpy(p, &value, sizeof value); }
void store_le64(std::byte* p, std::uint64_t value) { std::memcpy(p, &value, sizeof value); }

namespace {

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

constexpr std::byte kVersion{1};

std::uint16_t crc16(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xffff;
  for (const std::byte b : bytes) {
    crc ^= std::to_integer<std::uint32_t>(b) << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000) != 0 ? crc << 1 ^ 0x1021 : crc << 1;
  }
  return static_cast<std::uint16_t>(crc);
}

}  // namespace

std::uint16_t load_le16(const std::byte* p) { return load<std::uint16_t>(p); }
std::uint32_t load_le32(const std::byte* p) { return load<std::uint32_t>(p); }
std::uint64_t load_le64(const std::byte* p) { return load<std::uint64_t>(p); }

void seal(std::span<std::byte> bytes, char kind) {
  std::byte* const end = bytes.data() + bytes.size() - 4;
  end[0] = static_cast<std::byte>(kind);
  end[1] = kVersion;
  store_le16(end + 2, crc16(bytes.first(bytes.size() - 2)));
}

Result<void> check_seal(std::span<const std::byte> bytes, std::size_t size, char kind, const char* name) {
  const std::string what = std::string(name) + " from bytes: ";
  if (bytes.size() < size)
    return Error(ErrorCode::InvalidArgument,
                 what + std::to_string(bytes.size()) + " bytes, needs " + std::to_string(size));
  const std::byte* const end = bytes.data() + size - 4;
  if (end[0] != static_cast<std::byte>(kind))
    return Error(ErrorCode::CorruptData, what + "these bytes are none");
  if (end[1] != kVersion)
    return Error(ErrorCode::CorruptData,
                 what + "version " + std::to_string(std::to_integer<int>(end[1])) + ", this side knows 1");
  if (load_le16(end + 2) != crc16(bytes.first(size - 2)))
    return Error(ErrorCode::CorruptData, what + "damaged");
  return {};
}

void store_address(std::byte* p, const QueuePairAddress& address) {
  std::memcpy(p, address.gid.bytes.data(), address.gid.bytes.size());
  store_le32(p + 16, address.qpn.value());
  store_le32(p + 20, address.psn.value());
  store_le32(p + 24, address.mtu);
}

Result<QueuePairAddress> load_address(const std::byte* p, const char* name) {
  const std::uint32_t qpn = load_le32(p + 16), psn = load_le32(p + 20);
  QueuePairAddress out{{}, Qpn{qpn}, Psn{psn}, load_le32(p + 24)};
  std::memcpy(out.gid.bytes.data(), p, out.gid.bytes.size());
  std::string wrong = impossible_field(out);
  if (qpn > Qpn::kMask) wrong = "queue pair number " + std::to_string(qpn) + " has more than 24 bits";
  if (psn > Psn::kMask) wrong = "first PSN " + std::to_string(psn) + " has more than 24 bits";
  if (!wrong.empty()) return Error(ErrorCode::CorruptData, std::string(name) + " from bytes: its " + wrong);
  return out;
}

bool is_address_of_a_host(const Gid& gid) {
  const auto& b = gid.bytes;
  return gid.is_ipv4() ? b[12] != 0 && b[12] < 224 : !gid.is_zero() && b[0] != 0xff;
}

bool is_path_mtu(std::uint32_t bytes) { return std::has_single_bit(bytes) && bytes >= 256 && bytes <= 4096; }

std::string impossible_field(const QueuePairAddress& address) {
  const auto& [gid, qpn, psn, mtu] = address;
  if (!is_address_of_a_host(gid)) return "GID " + gid.to_string() + " is no address of a host";
  if (qpn <= kGsiQpn || qpn == kMulticastQpn)
    return "queue pair number " + std::to_string(qpn.value()) + " is none that is connected to";
  if (mtu != 0 && !is_path_mtu(mtu))
    return "MTU " + std::to_string(mtu) + " is not 256, 512, 1024, 2048 or 4096";
  return {};
}

std::string to_hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte b : bytes) {
    text += kDigits[std::to_integer<std::size_t>(b >> 4)];
    text += kDigits[std::to_integer<std::size_t>(b & std::byte{15})];
  }
  return text;
}

Result<std::vector<std::byte>> from_hex(std::string_view text, const char* name) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  const std::string what = std::string(name) + " from text: ";
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    unsigned value = 0;
    const char* const begin = text.data() + i;
    const auto parsed = std::from_chars(begin, begin + std::min<std::size_t>(2, text.size() - i), value, 16);
    if (parsed.ec != std::errc{} || parsed.ptr != begin + 2)
      return Error(ErrorCode::InvalidArgument,
                   what + "no two hexadecimal digits at position " + std::to_string(i));
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

}  // namespace verbena::wire_bytes
