// SPDX-License-Identifier: Apache-2.0
// What the two ends of a message protocol tell each other before the first message, as private data of the
// connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbena/base/result.h"
#include "verbena/device/remote_memory.h"
#include "verbena/messaging/protocol.h"

namespace verbena::messaging {

enum class Role : std::uint8_t { Sender = 1, Receiver = 2 };

// The connecting end offers, the accepting end answers with what holds from then on.
//
//     0      1          2        3     4      5        6       7      8          12      16     36      44
//     | role | protocol | commit | ack | ring | fenced | flags | zero | longest  | depth | memory | extra |
//     'M' | 1 | check | memory: address (8), length (8), key (4); flags: bit 0 is order_in_write;
//     little-endian; check as in RemoteMemory
struct Offer {
  static constexpr std::size_t kWireBytes = 48;
  static constexpr std::uint8_t kVersion = 1;

  Role role = Role::Sender;
  Kind kind{};
  bool order_in_write = false;          // DeviceInfo's, of this end: of what is written to its memory
  std::uint32_t max_message_bytes = 0;  // not 0
  std::uint32_t depth = 0;              // not 0
  RemoteMemory memory{};                // the protocol's, at this end
  std::uint64_t extra = 0;              // the protocol's

  std::array<std::byte, kWireBytes> to_bytes() const;
  // What follows is ignored. Errors: ProtocolError (no offer, another version, values there are not,
  // damaged).
  static Result<Offer> from_bytes(std::span<const std::byte> bytes);

  bool operator==(const Offer&) const = default;
};

// Of a connection that could not be made: it failed by what the peer sent, so there is an offer, or there is none.
inline bool has_answered(const Error& failure) { return failure.domain() == ErrorDomain::WorkCompletion; }

// What holds between two ends: the smaller sizes, and the receiver's choice of commit, acknowledgement and
// ring; of BufferedRead, where the ring is the sender's, the sender's choice of it. Errors: InvalidArgument
// (two senders, two receivers, two protocols), NotSupported (the receiver's commit needs an order inside a WRITE that
// its device does not promise), in words for both ends' users.
//
// Order inside a WRITE matters at the end whose memory is written, and there alone: its device places the bytes, in
// whatever way the other's sent them. (Within a host the sender's device may store them itself; it is a software device
// then, which promises the same.) Who waits for such an order:
//
//   BufferedWrite, Reversed     the receiver, at whose side the ring is: its device has to promise it.
//   BufferedWrite, Offset       nobody: the tail is a WRITE of one word behind that of the messages.
//   BufferedRead                nobody: what the receiver READs is there when the READ is done; its one WRITE, of the
//                               head, into the sender's memory, is one word.
//   SharedWrite                 nobody: messages come with completions; its cells are words.
//   the rest, and Immediate     nobody: completions alone.
//
// So the receiver's promise decides, whatever the sender's device does. A sender is told of it all the same.
struct Settled {
  Kind kind{};
  std::uint32_t max_message_bytes = 0;
  std::uint32_t depth = 0;
  bool order_in_write = false;  // promised of what is written to the receiver's memory
};
Result<Settled> settle(const Offer& ours, const Offer& theirs);

// The nearest kind that needs no order inside a WRITE: the same, where it needs none. A receiver that issues nothing
// goes on to issue nothing, by Offset; any other gets Immediate, which needs but completions.
Kind without_order_in_write(const Kind& kind);

// Of Offset: a WRITE moves the ring's tail where the receiver's device promises that it comes behind the others, and an
// atomic where not: that is all the standard asks to come behind them, besides what completes at the receiver.
bool has_atomic_tail(const Kind& kind, bool order_in_write);
Error needs_atomics(const std::string& but);
inline constexpr const char* kAtomicTail = "; an atomic moves the tail, as that device promises no order of WRITEs";

}  // namespace verbena::messaging
