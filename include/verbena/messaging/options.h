// SPDX-License-Identifier: Apache-2.0
// What the ends of a message protocol are made with, and what they counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "verbena/connection/connection.h"
#include "verbena/device/memory_region.h"
#include "verbena/messaging/protocol.h"

namespace verbena::messaging {

// A sender's own limit, whatever the receiver would take. 0: none.
struct RateLimit {
  std::uint64_t messages_per_second = 0;
  std::uint64_t bytes_per_second = 0;
  std::uint32_t burst = 16;  // messages that may go at once after a pause; of bytes nothing goes ahead of its time

  bool operator==(const RateLimit&) const = default;
};

struct Options {
  // The same protocol at both ends; another is refused. Where its choices differ nobody is refused and nobody told: the
  // receiver's commit, acknowledgement, ring and fence hold, of BufferedRead the sender's ring. Sender::kind() says it.
  Kind kind{};
  // Of a receiver whose device does not promise the order inside a WRITE that `kind` needs (Commit::Reversed, see
  // Traits and DeviceInfo::order_in_write). Without: the nearest kind that needs none is taken, Offset where the
  // acknowledgement is read and Immediate otherwise; Receiver::kind() and explain() say so. With: NotSupported.
  bool exact_kind = false;
  // Longest message, bytes. Of both ends' the smaller holds. At most the 2^31 that a device takes in one request, with
  // what a ring writes along (Commit::Offset and Reversed): create() says how many are left.
  std::uint32_t max_message_bytes = 4096;
  // Messages in flight: sent, and not yet given back by the receiver. Of both ends' the smaller holds. Of
  // SharedReceive, the receives of all senders together; of DirectRead, those announced: as many more may be read and
  // held, and each takes two requests of a queue (DeviceInfo::max_requests). What is given back is told by quarters
  // where that takes a message, so a program may hold three quarters for long; of SharedReceive three quarters of what
  // is left beside one for each of max_senders, and of DirectRead as many of each sender as an equal part of all that
  // are connected, at least one. A ring without Commit::Immediate holds what fits, and depth is the number of the
  // sender's own buffers.
  std::uint32_t depth = 64;
  // Of a ring, for the protocols that have one: a power of two of whole pages, to which it is rounded up, of at most
  // 8 GiB. A message takes seven sixteenths of it at most, with its word where it has one; seven eighths where it is
  // mapped twice. Of BufferedRead, the sender's; a receiver takes none larger than its own. A sender of BufferedWrite
  // has as much memory as its receiver's ring, and takes none larger than 64 MiB unless its own is.
  std::uint64_t ring_bytes = std::uint64_t{1} << 20;
  // That a receiver takes. Of SharedReceive at most `depth`; of DirectRead and SharedWrite, which have memory for each,
  // at most DeviceInfo::max_queue_pairs. A place is free again when on_peer_end() was told of its sender and what that
  // sent is given back: one that closes and connects at once may be refused, and is taken when it asks again.
  std::uint32_t max_senders = 32;
  // Of a sender that SENDs, or WRITEs to places it was granted (SendReceive, SharedReceive, DirectWrite): messages up
  // to that long go in the request itself, longer ones by way of a buffer. The device's own limit holds where that is
  // smaller; 0: none goes so.
  std::uint32_t inline_bytes = 192;
  RateLimit rate{};  // of a sender
  // Device, protection domain, timeouts, packet marks. `queues` and `receive_pool` are the protocol's to
  // choose.
  ConnectionOptions connection{};
};

// Why a message did not go.
enum class [[nodiscard]] SendStatus : std::uint8_t{
    Ok,
    NoCredit,     // the receiver has no room: try again when it gave something back
    NoBuffer,     // this side's own buffers are all on their way
    RateLimited,  // Options::rate
    TooLong,      // over max_message_bytes(), or over what was reserved
    NotReserved,  // what is committed is empty, committed already, or another sender's
    Closed,       // closed here, or broken: status() says
};
std::string_view to_string(SendStatus status);

// Registered memory of the user's that a message is sent from or arrives in. A value. The rkey is for the
// protocols in which the other end moves the bytes.
struct LentMemory {
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
  LKey lkey{};
  RKey rkey{};

  // [offset, offset + bytes) of a region, which outlives the loan: the device checks the range when the message goes.
  static LentMemory of(const MemoryRegion& region, std::uint64_t offset, std::uint32_t bytes) {
    return {region.local(offset, bytes).address, bytes, region.lkey(), region.rkey()};
  }
  static LentMemory of(const MemoryRegion&& region, std::uint64_t offset, std::uint32_t bytes) = delete;
};

// A message of one sender: 1, 2, 3 ...
using MessageId = std::uint64_t;

struct [[nodiscard]] SendResult {
  SendStatus status = SendStatus::Ok;
  std::uint32_t taken = 0;  // messages that go; with a refusal, the index of the refused one
  MessageId last = 0;       // the last that goes; 0 when none does
  explicit operator bool() const { return status == SendStatus::Ok; }
};

struct SenderCounters {
  std::uint64_t messages = 0, bytes = 0;
  std::uint64_t inlined = 0;    // that went without a buffer
  std::uint64_t lent = 0;       // that went from the user's memory
  std::uint64_t posts = 0;      // batches handed to the device
  // Refusals by reason: each of a try_ function, and of a send that waits the first alone.
  std::uint64_t no_credit = 0, no_buffer = 0, rate_limited = 0, too_long = 0;
  std::uint64_t credit_messages = 0;  // from the receiver
};

struct ReceiverCounters {
  std::uint64_t messages = 0, bytes = 0;
  std::uint64_t given_back = 0;
  std::uint64_t credit_messages = 0;  // to the senders
  std::uint64_t peers_refused = 0;    // that wanted another protocol, or were too many
  std::uint64_t peers_lost = 0;       // that ended without closing
};

}  // namespace verbena::messaging
