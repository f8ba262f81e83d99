// SPDX-License-Identifier: Apache-2.0
// Why a datagram was dropped before it reached a queue pair. Each is a counter of that name.
#pragma once

#include <cstdint>
#include <string_view>

namespace verbena::wire {

enum class DropReason : std::uint8_t {
  None,
  TooShort,        // shorter than BTH and ICRC
  BadVersion,      // TVer is not 0
  UnknownOpcode,
  Truncated,       // headers, pad and ICRC do not fit
  UdpLength,       // UDP length is not the IP payload length
  IpHeader,        // not IP we speak: version, options, fragments, wrong protocol
  BadIcrc,
  BadQpn,          // QPN 0, unknown QPN, multicast QPN
  WrongTransport,  // opcode class is not the queue pair's
  WrongAddress,
  BadPkey,
  WrongState,      // queue pair does not listen in this state
  BadLength,       // payload against opcode or pad
  BadSyndrome,     // reserved AETH syndrome
  WrongPath,       // queue pair and peer agreed on shared memory
  BadMad,          // C-18: management class, version or method
  Count
};
std::string_view to_string(DropReason reason);

}  // namespace verbena::wire
