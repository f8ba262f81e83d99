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

#include "verbena/base/result.h"

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

// The same as text: two digits a byte. White space round the text is let pass.
std::string to_hex(std::span<const std::byte> bytes);
Result<std::vector<std::byte>> from_hex(std::string_view text, const char* name);

}  // namespace verbena::wire_bytes
