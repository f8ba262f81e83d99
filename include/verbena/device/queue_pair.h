// SPDX-License-Identifier: Apache-2.0
// One end of a conversation, as verbs know it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/verbs.h"

namespace verbena {

namespace provider {
class Context;
class QueuePairOps;
}  // namespace provider

class CompletionQueue;
class ProtectionDomain;
class SharedReceiveQueue;

// What two sides must tell each other to connect queue pairs by hand. A value; travels as 32 bytes.
//
//     0      16    20    24    28    29  30      32
//     | gid  | qpn | psn | mtu | 'Q' | 1 | check |     little-endian but for the GID; check as in RemoteMemory
struct QueuePairAddress {
  static constexpr std::size_t kWireBytes = 32;

  Gid gid{};
  Qpn qpn{};
  Psn psn{};              // of the first packet this side sends
  std::uint32_t mtu = 0;  // largest path MTU this side can do, bytes; 0: not told

  std::array<std::byte, kWireBytes> to_bytes() const;
  // Errors as RemoteMemory::from_bytes(); CorruptData too where a field has a value that no queue pair has.
  static Result<QueuePairAddress> from_bytes(std::span<const std::byte> bytes);

  bool operator==(const QueuePairAddress&) const = default;
};

// How hard a reliable queue pair tries, and what it lets the peer do.
struct ReliabilityOptions {
  // Code: 4.096 us * 2^timeout without progress count as one period (14: 67 ms); at most 31; 0: one that never ends.
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;  // periods after the first before RetryExceeded; 0..7
  std::uint8_t rnr_retry = 7;    // RNR answers before RnrRetryExceeded; 0..6, 7: for ever
  std::uint8_t min_rnr_timer =
      12;  // code of the pause we ask a sender for when no receive is posted (12: 0.64 ms); at most 31
  // At most DeviceInfo::max_rd_atomic each; to a connection 16 is that, where less. Of its two ends' the smaller holds.
  // By packets a long READ goes in pieces that count each: the peer of a queue pair serves no fewer than this has out.
  std::uint8_t max_rd_atomic = 16;       // READ and atomics we have out at once
  std::uint8_t max_dest_rd_atomic = 16;  // READ and atomics of the peer we serve at once
  Access access = Access::All;  // what the peer may do through this queue pair, within its regions' rights
};

// What the packets of a queue pair carry for routers: the one says which queue, the other keeps it on one way.
struct PacketMarks {
  std::uint8_t traffic_class = 0;  // IPv4 TOS, IPv6 traffic class (DSCP << 2)
  std::uint32_t flow_label = 0;    // 20 bits, on IPv6; picks the UDP source port on both. 0: none, any port
};

// What a queue pair is made with.
struct QueuePairOptions {
  QueuePairType type = QueuePairType::ReliableConnected;
  QueuePairCapabilities capabilities{};
  bool signal_all = false;  // every send request completes, whatever its flags
  // Where its receives come from; nullptr: from a queue of its own. With one, post_receive() is refused.
  SharedReceiveQueue* shared_receive_queue = nullptr;
};

// A queue pair made and driven by hand; Connection is the comfortable way.
//
// Lifetime: the device, the protection domain, the completion queues and the shared receive queue outlive it.
// Destroying it ends it at once: requests that did not complete never will.
// Threads: posting and state() from any thread; modify() and its helpers one thread at a time.
class QueuePair {
 public:
  QueuePair(QueuePair&& other) noexcept;
  QueuePair& operator=(QueuePair&& other) noexcept;
  ~QueuePair();

  // Adds requests to the queue and lets the device start on them. With a refusal, those before it are posted.
  PostResult post_send(std::span<const SendRequest> requests);
  PostResult post_send(const SendRequest& request) { return post_send(std::span{&request, 1}); }
  PostResult post_receive(std::span<const ReceiveRequest> requests);
  PostResult post_receive(const ReceiveRequest& request) { return post_receive(std::span{&request, 1}); }

  // Carries out a WRITE before it returns, without a completion: with the bytes in place, in the order of every
  // WRITE, when this says true. That goes between processes of one host, for up to 1 MiB into memory allocated with a
  // device (Device::allocate_memory) that was written once or twice before, when everything posted before is done and
  // no other thread has the device. Otherwise it is false and is to be posted; the peer may have a part of it then.
  [[nodiscard]] bool try_write_now(const ShortWrite& write);
  // Likewise a READ, where max_rd_atomic allows one, and of other memory, too, where the kernel lets this process read
  // its owner's: the bytes are here when this says true. Otherwise a part of them may have changed.
  [[nodiscard]] bool try_read_now(const ShortRead& read);

  Qpn qpn() const { return qpn_; }
  QueuePairState state() const;
  const QueuePairCapabilities& capabilities() const { return capabilities_; }

  // As ibv_modify_qp; with an error nothing has changed. Errors: InvalidArgument (mask, value or transition).
  Result<void> modify(const QueuePairAttributes& values, AttributeMask mask);
  Result<QueuePairAttributes> query() const;

  // RESET to INIT: receives may be posted from now on.
  Result<void> to_init(Access access = Access::All);
  // INIT to RTR: messages of `peer` are taken. The path MTU is the smaller of both sides'; the marks are this side's
  // own. Through shared memory nobody looks at first PSNs and path MTUs: that they do not agree, packets alone show.
  // Errors: InvalidArgument (a flow label of more than 20 bits).
  Result<void> to_rtr(const QueuePairAddress& peer, const ReliabilityOptions& options = {},
                      const PacketMarks& marks = {});
  // RTR to RTS: requests are sent. `psn` is address().psn, as told to the peer.
  Result<void> to_rts(const ReliabilityOptions& options = {});
  // All requests end as Flushed.
  Result<void> to_error();
  // From RESET to RTS: the three steps above.
  Result<void> connect(const QueuePairAddress& peer, const ReliabilityOptions& options = {},
                       const PacketMarks& marks = {});
  // What the peer must know. The PSN was drawn when the queue pair was made.
  const QueuePairAddress& address() const { return address_; }

 private:
  friend class Device;
  QueuePair() = default;
  void release();

  detail::Inner<provider::Context*, "QueuePair"> context_;
  detail::Inner<provider::QueuePairOps*, "QueuePair"> ops_;
  Qpn qpn_;
  QueuePairType type_ = QueuePairType::ReliableConnected;
  QueuePairCapabilities capabilities_;
  QueuePairAddress address_;
};

}  // namespace verbena
