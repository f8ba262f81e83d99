// SPDX-License-Identifier: Apache-2.0
#include "tools/rping_protocol.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbena::tools {

namespace {

constexpr unsigned kFirstCharacter = 'A', kCharacters = 'z' - 'A' + 1;

void store_be(std::span<std::byte> out, std::uint64_t value) {
  for (std::size_t i = out.size(); i-- > 0; value >>= 8) out[i] = static_cast<std::byte>(value);
}

std::uint64_t load_be(std::span<const std::byte> in) {
  std::uint64_t value = 0;
  for (const std::byte b : in) value = value << 8 | std::to_integer<std::uint64_t>(b);
  return value;
}

// The bytes of a ping, in order.
class Payload {
 public:
  Payload(std::size_t size, std::uint64_t number)
      : size_(size), number_(number), head_(fmt::format("rdma-ping-{}: ", number)) {}
  std::byte operator[](std::size_t at) const {
    if (at + 1 == size_) return std::byte{0};
    if (at < head_.size()) return static_cast<std::byte>(head_[at]);
    return static_cast<std::byte>(kFirstCharacter + (number_ + at - head_.size()) % kCharacters);
  }

 private:
  const std::size_t size_;
  const std::uint64_t number_;
  const std::string head_;
};

}  // namespace

std::array<std::byte, RpingAdvertisement::kWireBytes> RpingAdvertisement::to_bytes() const {
  std::array<std::byte, kWireBytes> out{};
  const std::span<std::byte> all(out);
  store_be(all.subspan(0, 8), address);
  store_be(all.subspan(8, 4), rkey.value());
  store_be(all.subspan(12, 4), size);
  return out;
}

Result<RpingAdvertisement> RpingAdvertisement::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() != kWireBytes)
    return Error(ErrorCode::ProtocolError, fmt::format("a message of {} bytes, where those of rping have {}",
                                                       bytes.size(), kWireBytes));
  RpingAdvertisement advertisement;
  advertisement.address = load_be(bytes.subspan(0, 8));
  advertisement.rkey = RKey{static_cast<std::uint32_t>(load_be(bytes.subspan(8, 4)))};
  advertisement.size = static_cast<std::uint32_t>(load_be(bytes.subspan(12, 4)));
  return advertisement;
}

std::string RpingAdvertisement::to_string() const {
  return fmt::format("{} bytes at {:#x}, rkey {:#x}", size, address, rkey.value());
}

void fill_rping_payload(std::span<std::byte> out, std::uint64_t number) {
  const Payload payload(out.size(), number);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = payload[i];
}

Result<void> check_rping_payload(std::span<const std::byte> bytes, std::uint64_t number) {
  const Payload payload(bytes.size(), number);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (bytes[i] != payload[i])
      return Error(ErrorCode::CorruptData,
                   fmt::format("ping {}: byte {} of {} is {:#04x}, and must be {:#04x}", number, i, bytes.size(),
                               std::to_integer<unsigned>(bytes[i]), std::to_integer<unsigned>(payload[i])));
  return {};
}

std::string rping_text(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    if (b == std::byte{0}) break;
    const char c = static_cast<char>(b);
    text += c >= ' ' && c <= '~' ? c : '.';
  }
  return text;
}

}  // namespace verbena::tools
