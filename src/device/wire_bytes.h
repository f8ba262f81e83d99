// SPDX-License-Identifier: Apache-2.0
// How the values that programs exchange are closed and checked: the last four bytes are a letter that names the kind, a
// version and a CRC-16/CCITT-FALSE of all before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/gid.h"
#include "verbena/base/result.h"

namespace verbena {
struct QueuePairAddress;
}

namespace verbena::wire_bytes {

void store_le16(std::byte* p, std::uint16_t value);
void store_le32(std::byte* p, std::uint32_t value);
void store_le64(std::byte* p, std::uint64_t value);
std::uint16_t load_le16(const std::byte* p);
std::uint32_t load_le32(const std::byte* p);
std::uint64_t load_le64(const std::byte* p);

void seal(std::span<std::byte> bytes, char kind);
// The first `size` of `bytes` are a sealed value of that kind. `name` is for the error.
Result<void> check_seal(std::span<const std::byte> bytes, std::size_t size, char kind, const char* name);

// An address as all who carry one have it: GID, queue pair number, first PSN, MTU.
inline constexpr std::size_t kAddressBytes = 28;
void store_address(std::byte* p, const QueuePairAddress& address);
// An MTU of 0, which is not told, passes. Errors: CorruptData (a field has a value that no queue pair has).
Result<QueuePairAddress> load_address(const std::byte* p, const char* name);
bool is_path_mtu(std::uint32_t bytes);
// No group, nobody, nor what is reserved: 0/8, 224/4, 240/4; ::, ff00::/8.
bool is_address_of_a_host(const Gid& gid);
// The field that no queue pair to be connected to can have, and its value; empty when all are fine. An MTU of 0 passes.
std::string impossible_field(const QueuePairAddress& address);

// Sealed bytes as text: two digits a byte. White space round the text is let pass.
std::string to_hex(std::span<const std::byte> bytes);
Result<std::vector<std::byte>> from_hex(std::string_view text, const char* name);

}  // namespace verbena::wire_bytes
