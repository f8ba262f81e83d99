// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/description.h"

#include <algorithm>

#include "device/wire_bytes.h"

namespace verbena {

namespace {
constexpr std::size_t kAddressAt = 4;
constexpr std::size_t kUserDataAt = kAddressAt + wire_bytes::kAddressBytes;
constexpr std::size_t kSealBytes = 4;
constexpr const char* kName = "ConnectionDescription";
}  // namespace

Result<void> ConnectionDescription::set_user_data(std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxUserData)
    return Error(ErrorCode::InvalidArgument, "describe a connection: " + std::to_string(bytes.size()) +
                                                 " bytes of user data, at most " + std::to_string(kMaxUserData));
  user_data_.assign(bytes.begin(), bytes.end());
  return {};
}

std::vector<std::byte> ConnectionDescription::to_bytes() const {
  std::vector<std::byte> out(kUserDataAt + user_data_.size() + kSealBytes);
  wire_bytes::store_le16(out.data(), static_cast<std::uint16_t>(out.size()));
  out[2] = std::byte{max_rd_atomic};
  out[3] = std::byte{max_dest_rd_atomic};
  wire_bytes::store_address(out.data() + kAddressAt, address);
  std::copy(user_data_.begin(), user_data_.end(), out.begin() + kUserDataAt);
  wire_bytes::seal(out, 'C');
  return out;
}

Result<ConnectionDescription> ConnectionDescription::from_bytes(std::span<const std::byte> bytes) {
  const std::string what = std::string(kName) + " from bytes: ";
  if (bytes.size() < kMinWireBytes)
    return Error(ErrorCode::InvalidArgument, what + "truncated: " + std::to_string(bytes.size()) +
                                                 " bytes, the shortest has " + std::to_string(kMinWireBytes));
  const std::size_t size = wire_bytes::load_le16(bytes.data());
  if (size < kMinWireBytes || size > kMinWireBytes + kMaxUserData)
    return Error(ErrorCode::CorruptData, what + "these bytes are none");
  if (bytes.size() < size)
    return Error(ErrorCode::InvalidArgument, what + "truncated: " + std::to_string(bytes.size()) + " of its " +
                                                 std::to_string(size) + " bytes");
  if (auto ok = wire_bytes::check_seal(bytes, size, 'C', kName); !ok) return ok.error();
  ConnectionDescription out;
  out.max_rd_atomic = std::to_integer<std::uint8_t>(bytes[2]);
  out.max_dest_rd_atomic = std::to_integer<std::uint8_t>(bytes[3]);
  const auto address = wire_bytes::load_address(bytes.data() + kAddressAt, kName);
  if (!address) return address.error();
  if (address->mtu == 0) return Error(ErrorCode::CorruptData, what + "its MTU is 0");
  out.address = *address;
  const auto user = bytes.subspan(kUserDataAt, size - kMinWireBytes);
  out.user_data_.assign(user.begin(), user.end());
  return out;
}

std::string ConnectionDescription::to_string() const { return wire_bytes::to_hex(to_bytes()); }

Result<ConnectionDescription> ConnectionDescription::parse(std::string_view text) {
  auto bytes = wire_bytes::from_hex(text, kName);
  if (!bytes) return bytes.error();
  return from_bytes(*bytes);
}

}  // namespace verbena
