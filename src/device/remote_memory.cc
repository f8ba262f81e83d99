// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/remote_memory.h"

#include <string>

#include "device/wire_bytes.h"

namespace verbena {

Result<RemoteMemory> RemoteMemory::sub_range(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > length || bytes > length - offset)
    return Error(ErrorCode::InvalidArgument, "range of " + std::to_string(bytes) + " bytes at offset " +
                                                 std::to_string(offset) + " is outside a memory of " +
                                                 std::to_string(length) + " bytes");
  return RemoteMemory{address + offset, bytes, rkey};
}

std::array<std::byte, RemoteMemory::kWireBytes> RemoteMemory::to_bytes() const {
  std::array<std::byte, kWireBytes> out{};
  wire_bytes::store_le64(out.data(), address);
  wire_bytes::store_le64(out.data() + 8, length);
  wire_bytes::store_le32(out.data() + 16, rkey.value());
  wire_bytes::seal(out, 'V');
  return out;
}

Result<RemoteMemory> RemoteMemory::from_bytes(std::span<const std::byte> bytes) {
  if (auto ok = wire_bytes::check_seal(bytes, kWireBytes, 'V', "RemoteMemory"); !ok) return ok.error();
  return RemoteMemory{wire_bytes::load_le64(bytes.data()), wire_bytes::load_le64(bytes.data() + 8),
                      RKey{wire_bytes::load_le32(bytes.data() + 16)}};
}

std::string RemoteMemory::to_string() const { return wire_bytes::to_hex(to_bytes()); }

Result<RemoteMemory> RemoteMemory::parse(std::string_view text) {
  auto bytes = wire_bytes::from_hex(text, "RemoteMemory");
  if (!bytes) return bytes.error();
  return from_bytes(*bytes);
}

}  // namespace verbena
