// SPDX-License-Identifier: Apache-2.0
// Management datagram: the 256 bytes a UD SEND to queue pair 1 carries, 24 of them this header (format
// reference 9.1).
//
//    0                   1                   2                   3
//   +---------------+---------------+---------------+---------------+
//   | base version  |     class     | class version |    method     |
//   +---------------+---------------+---------------+---------------+
//   |            status             |        class specific         |
//   +-------------------------------+-------------------------------+
//   |                        transaction id                         |
//   |                                                               |
//   +-------------------------------+-------------------------------+
//   |         attribute id          |           reserved            |
//   +-------------------------------+-------------------------------+
//   |                      attribute modifier                       |
//   +---------------------------------------------------------------+
//   |                   message, 232 bytes                          |
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "soft/wire/drop_reason.h"

namespace verbena::wire {

inline constexpr std::size_t kMadBytes = 256;
inline constexpr std::size_t kMadHeaderBytes = 24;
inline constexpr std::size_t kCmBytes = kMadBytes - kMadHeaderBytes;
inline constexpr std::uint32_t kGsiQkey = 0x80010000;

// What the 232 bytes are. The values are those of the attribute id.
enum class CmAttribute : std::uint16_t {
  Req = 0x10,
  Mra = 0x11,
  Rej = 0x12,
  Rep = 0x13,
  Rtu = 0x14,
  Dreq = 0x15,
  Drep = 0x16,
  SidrReq = 0x17,
  SidrRep = 0x18,
  Lap = 0x19,
  Apr = 0x1a,
};
// "REQ" and so on; "attribute" for what CM does not know.
std::string_view to_string(CmAttribute attribute);

// The defaults are those of every CM message.
struct MadHeader {
  static constexpr std::uint8_t kBaseVersion = 1;
  static constexpr std::uint8_t kCmClass = 7;
  static constexpr std::uint8_t kCmClassVersion = 2;
  static constexpr std::uint8_t kMethodSend = 3;

  std::uint8_t base_version = kBaseVersion;
  std::uint8_t management_class = kCmClass;
  std::uint8_t class_version = kCmClassVersion;
  std::uint8_t method = kMethodSend;
  std::uint16_t status = 0;
  std::uint16_t class_specific = 0;
  std::uint64_t transaction_id = 0;
  CmAttribute attribute = CmAttribute::Req;  // any value may come
  std::uint16_t reserved = 0;
  std::uint32_t attribute_modifier = 0;  // not always 0: vendors put their extensions here

  bool operator==(const MadHeader&) const = default;
};

// `payload` is that of the UD packet. BadLength when it is not 256 bytes, BadMad when class, version or
// method are not those of CM (C-18). The attribute is not judged.
DropReason parse_mad(std::span<const std::byte> payload, MadHeader& out);
void emit_mad_header(const MadHeader& header, std::span<std::byte, kMadHeaderBytes> to);

// The message behind the header of a payload that parse_mad() accepted, and of one to be filled.
inline std::span<const std::byte, kCmBytes> cm_part(std::span<const std::byte> payload) {
  return payload.subspan(kMadHeaderBytes).first<kCmBytes>();
}
inline std::span<std::byte, kCmBytes> cm_part(std::span<std::byte, kMadBytes> payload) {
  return payload.subspan<kMadHeaderBytes, kCmBytes>();
}

}  // namespace verbena::wire
