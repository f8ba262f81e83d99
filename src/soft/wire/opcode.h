// SPDX-License-Identifier: Apache-2.0
// The 256 values of BTH.OpCode: what each is, which headers follow, which payload it may carry (format
// reference 2.3).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace verbena::wire {

enum class Opcode : std::uint8_t {
  RcSendFirst = 0x00,
  RcSendMiddle = 0x01,
  RcSendLast = 0x02,
  RcSendLastWithImmediate = 0x03,
  RcSendOnly = 0x04,
  RcSendOnlyWithImmediate = 0x05,
  RcWriteFirst = 0x06,
  RcWriteMiddle = 0x07,
  RcWriteLast = 0x08,
  RcWriteLastWithImmediate = 0x09,
  RcWriteOnly = 0x0a,
  RcWriteOnlyWithImmediate = 0x0b,
  RcReadRequest = 0x0c,
  RcReadResponseFirst = 0x0d,
  RcReadResponseMiddle = 0x0e,
  RcReadResponseLast = 0x0f,
  RcReadResponseOnly = 0x10,
  RcAcknowledge = 0x11,
  RcAtomicAcknowledge = 0x12,
  RcCompareSwap = 0x13,
  RcFetchAdd = 0x14,
  RcSendLastWithInvalidate = 0x16,
  RcSendOnlyWithInvalidate = 0x17,
  RcFlush = 0x1c,
  RcAtomicWrite = 0x1d,
  // UC: 0x20 | the RC value for SEND and WRITE. XRC: 0xa0 | the RC value. See opcode_info().
  UdSendOnly = 0x64,
  UdSendOnlyWithImmediate = 0x65,
  Cnp = 0x81,
};

enum class Transport : std::uint8_t { Rc, Uc, Rd, Ud, Cnp, Xrc, Unknown };

// What the message does, whatever its transport and place.
enum class Operation : std::uint8_t {
  None,
  Send,
  Write,
  ReadRequest,
  ReadResponse,
  Acknowledge,
  AtomicAcknowledge,
  CompareSwap,
  FetchAdd,
  Flush,
  AtomicWrite,
  Cnp,
};

// Extended headers, in the order in which they stand after the BTH.
enum ExtendedHeader : std::uint16_t {
  kNoHeader = 0,
  kRdeth = 1 << 0,
  kDeth = 1 << 1,
  kXrceth = 1 << 2,
  kFeth = 1 << 3,
  kReth = 1 << 4,
  kAtomicEth = 1 << 5,
  kAeth = 1 << 6,
  kAtomicAckEth = 1 << 7,
  kImmDt = 1 << 8,
  kIeth = 1 << 9,
};

// Which payload lengths are legal. Full: exactly the path MTU. NonEmpty: 1..PMTU. Any: 0..PMTU. Eight:
// exactly 8.
enum class PayloadRule : std::uint8_t { None, Full, NonEmpty, Any, Eight };

struct OpcodeInfo {
  std::string_view name = "reserved";
  Transport transport = Transport::Unknown;
  Operation operation = Operation::None;
  bool known = false;    // false: drop before any further use of the packet
  bool first = false;    // starts a message
  bool last = false;     // ends a message
  bool request = false;  // towards a responder; otherwise a response (or CNP)
  bool consumes_receive = false;
  bool completes_receive = false;
  std::uint16_t headers = kNoHeader;  // set of ExtendedHeader
  std::uint8_t header_bytes = 0;      // BTH and extended headers; the CNP's 16 reserved bytes count as header
  PayloadRule payload = PayloadRule::None;

  constexpr bool has(ExtendedHeader h) const { return (headers & h) != 0; }
};

// One entry for every one of the 256 values, so that no opcode byte can index out of range.
extern const std::array<OpcodeInfo, 256> kOpcodeTable;

inline const OpcodeInfo& opcode_info(std::uint8_t opcode) { return kOpcodeTable[opcode]; }
inline const OpcodeInfo& opcode_info(Opcode opcode) { return opcode_info(static_cast<std::uint8_t>(opcode)); }

inline constexpr std::size_t kBthBytes = 12;
inline constexpr std::size_t kIcrcBytes = 4;
inline constexpr std::size_t kCnpReservedBytes = 16;
inline constexpr std::size_t kMaxHeaderBytes = 48;  // BTH + XRCETH + AtomicETH, rounded up
inline constexpr std::size_t kMaxPathMtu = 4096;

}  // namespace verbena::wire
