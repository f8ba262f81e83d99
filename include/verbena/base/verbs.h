// SPDX-License-Identifier: Apache-2.0
// The vocabulary of verbs as plain values, with verbs' numbers. Used unchanged from the public API down to
// the device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "verbena/base/gid.h"
#include "verbena/base/ids.h"

namespace verbena {

// A set of rights on memory or a queue pair. Bits as ibv_access_flags, but for the last, which is of memory alone.
enum class Access : std::uint32_t {
  None = 0,
  LocalWrite = 1 << 0,
  RemoteWrite = 1 << 1,
  RemoteRead = 1 << 2,
  RemoteAtomic = 1 << 3,
  All = 0xf,
  // Processes of this host neither map these bytes nor read them: all that goes between them and a peer is copied into
  // a ring and out of it. Takes no right away.
  NoDirect = 1u << 30,
};
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr Access operator&(Access a, Access b) {
  return static_cast<Access>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
constexpr bool includes(Access have, Access wanted) { return (have & wanted) == wanted; }

// A piece of registered local memory: address as registered (iova), length in bytes, L_Key.
struct ScatterGather {
  std::uint64_t address = 0;
  std::uint32_t length = 0;
  LKey lkey{};
};

enum class SendOpcode : std::uint8_t {  // numbers of ibv_wr_opcode
  RdmaWrite = 0,
  RdmaWriteWithImmediate = 1,
  Send = 2,
  SendWithImmediate = 3,
  RdmaRead = 4,
  CompareAndSwap = 5,
  FetchAndAdd = 6,
};

enum class SendFlags : std::uint8_t {  // bits of ibv_send_flags
  None = 0,
  Fence = 1 << 0,
  Signaled = 1 << 1,
  Solicited = 1 << 2,
  Inline = 1 << 3,
};
constexpr SendFlags operator|(SendFlags a, SendFlags b) {
  return static_cast<SendFlags>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
constexpr bool has_flag(SendFlags have, SendFlags wanted) {
  return (static_cast<std::uint8_t>(have) & static_cast<std::uint8_t>(wanted)) ==
         static_cast<std::uint8_t>(wanted);
}

// One request for the send queue. Spans are read during the post only; the memory they name belongs to the
// device until the request completes, except with SendFlags::Inline, where it is copied.
struct SendRequest {
  std::uint64_t id = 0;  // comes back in Completion::id
  SendOpcode opcode = SendOpcode::Send;
  SendFlags flags = SendFlags::Signaled;
  std::span<const ScatterGather> local{};
  std::uint64_t remote_address = 0;
  RKey rkey{};
  std::array<std::byte, 4> immediate{};  // sent as is (network order by convention)
  std::uint64_t compare = 0;             // CompareAndSwap: expected value
  std::uint64_t swap_or_add = 0;         // CompareAndSwap: new value; FetchAndAdd: addend
};

// A WRITE that is no request: see QueuePair::try_write_now().
struct ShortWrite {
  std::span<const std::byte> bytes{};  // of any memory
  std::uint64_t remote_address = 0;
  RKey rkey{};
};

// A READ that is no request: see QueuePair::try_read_now().
struct ShortRead {
  std::span<std::byte> bytes{};  // of any memory
  std::uint64_t remote_address = 0;
  RKey rkey{};
};

struct ReceiveRequest {
  std::uint64_t id = 0;
  std::span<const ScatterGather> local{};
};

// Why a post was refused. Requests before the refused one are posted.
enum class [[nodiscard]] PostStatus : std::uint8_t{
    Ok,
    QueueFull,        // ENOMEM: poll completions first
    WrongState,       // EINVAL: the queue pair is not in a state that takes requests
    TooManySegments,  // EINVAL: more scatter/gather elements than the queue was made for
    InlineTooLong,    // EINVAL: more bytes than the queue's inline limit
    InvalidRequest,   // EINVAL: opcode, flags or lengths that do not go together
    SharedReceives,   // EINVAL: the queue pair takes its receives from a shared receive queue: post there
};
std::string_view to_string(PostStatus status);
// The errno that verbs would return; 0 for Ok.
int to_errno(PostStatus status);

struct [[nodiscard]] PostResult {
  PostStatus status = PostStatus::Ok;
  std::size_t posted = 0;  // requests taken; with a refusal, the index of the refused one
  explicit operator bool() const { return status == PostStatus::Ok; }
};

enum class CompletionStatus : std::uint8_t {  // numbers of ibv_wc_status
  Success = 0,
  LocalLengthError = 1,
  LocalQpOperationError = 2,
  LocalProtectionError = 4,
  Flushed = 5,
  BadResponse = 7,
  LocalAccessError = 8,
  RemoteInvalidRequest = 9,
  RemoteAccessError = 10,
  RemoteOperationError = 11,
  RetryExceeded = 12,
  RnrRetryExceeded = 13,
  FatalError = 19,
  GeneralError = 21,
};
std::string_view to_string(CompletionStatus status);
ErrorCode to_error_code(CompletionStatus status);  // not for Success

enum class CompletionOpcode : std::uint8_t {  // numbers of ibv_wc_opcode
  Send = 0,
  RdmaWrite = 1,
  RdmaRead = 2,
  CompareAndSwap = 3,
  FetchAndAdd = 4,
  Receive = 128,
  ReceiveRdmaWithImmediate = 129,
};
std::string_view to_string(CompletionOpcode opcode);

// Completion::vendor_error of RetryExceeded: the peer shared memory, and its process was seen to end or let go of it.
inline constexpr std::uint32_t kVendorPeerEnded = 1;

// One outcome. With a status other than Success only id, status, qpn and vendor_error mean something.
struct Completion {
  std::uint64_t id = 0;
  CompletionStatus status = CompletionStatus::Success;
  CompletionOpcode opcode = CompletionOpcode::Send;
  bool with_immediate = false;
  std::array<std::byte, 4> immediate{};
  std::uint32_t byte_count = 0;  // receives and READ: bytes of the message
  Qpn qpn{};
  std::uint32_t vendor_error = 0;
};

enum class QueuePairType : std::uint8_t {
  ReliableConnected = 2,
  UnreliableConnected = 3,
  UnreliableDatagram = 4
};

enum class QueuePairState : std::uint8_t { Reset, Init, Rtr, Rts, Sqd, Sqe, Error };
std::string_view to_string(QueuePairState state);

// Where packets go: the address vector of verbs as far as it means something on RoCE.
struct AddressVector {
  Gid destination{};
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 64;
  std::uint32_t flow_label = 0;
  std::uint8_t sgid_index = 0;
};

// Attributes of a queue pair, units and ranges as in ibv_qp_attr.
struct QueuePairAttributes {
  QueuePairState state = QueuePairState::Reset;
  QueuePairState current_state = QueuePairState::Reset;
  Access access = Access::None;
  std::uint16_t pkey_index = 0;
  std::uint8_t port = 1;
  std::uint32_t qkey = 0;
  AddressVector address{};
  std::uint32_t path_mtu = 1024;  // bytes: 256, 512, 1024, 2048 or 4096
  Qpn destination{};
  Psn rq_psn{};
  Psn sq_psn{};
  std::uint8_t max_rd_atomic = 0;       // READ and atomics we may have outstanding
  std::uint8_t max_dest_rd_atomic = 0;  // READ and atomics the peer may have outstanding
  std::uint8_t min_rnr_timer = 0;       // code 0..31
  std::uint8_t timeout = 0;             // code 0..31: 4.096 us * 2^timeout; 0 is for ever
  std::uint8_t retry_count = 0;         // 0..7
  std::uint8_t rnr_retry = 0;           // 0..7; 7 is for ever
  bool sq_drained_event = false;
};

// Which members modify() looks at. Bits of ibv_qp_attr_mask.
enum class AttributeMask : std::uint32_t {
  None = 0,
  State = 1 << 0,
  CurrentState = 1 << 1,
  SqDrainedEvent = 1 << 2,
  Access = 1 << 3,
  PkeyIndex = 1 << 4,
  Port = 1 << 5,
  Qkey = 1 << 6,
  Address = 1 << 7,
  PathMtu = 1 << 8,
  Timeout = 1 << 9,
  RetryCount = 1 << 10,
  RnrRetry = 1 << 11,
  RqPsn = 1 << 12,
  MaxRdAtomic = 1 << 13,
  AlternatePath = 1 << 14,
  MinRnrTimer = 1 << 15,
  SqPsn = 1 << 16,
  MaxDestRdAtomic = 1 << 17,
  PathMigration = 1 << 18,
  Capabilities = 1 << 19,
  DestinationQpn = 1 << 20,
};
constexpr AttributeMask operator|(AttributeMask a, AttributeMask b) {
  return static_cast<AttributeMask>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
constexpr AttributeMask operator&(AttributeMask a, AttributeMask b) {
  return static_cast<AttributeMask>(static_cast<std::uint32_t>(a) & static_cast<std::uint32_t>(b));
}
constexpr AttributeMask operator~(AttributeMask a) {
  return static_cast<AttributeMask>(~static_cast<std::uint32_t>(a));
}
constexpr bool any(AttributeMask a) { return a != AttributeMask::None; }

// Sizes of a queue pair's queues. What is asked for is rounded up; the answer holds what was made.
struct QueuePairCapabilities {
  std::uint32_t max_send_requests = 64;
  std::uint32_t max_receive_requests = 64;
  std::uint32_t max_send_segments = 4;
  std::uint32_t max_receive_segments = 4;
  std::uint32_t max_inline_bytes = 64;
};

// Of a shared receive queue.
struct SharedReceiveQueueAttributes {
  std::uint32_t max_requests = 0;
  std::uint32_t max_segments = 0;
  std::uint32_t limit = 0;  // fewer requests than this raise SrqLimitReached, once; 0: not armed
};

enum class AsyncEventType : std::uint8_t {  // numbers of ibv_event_type
  CqError = 0,
  QpFatal = 1,
  QpRequestError = 2,
  QpAccessError = 3,
  CommEstablished = 4,
  SqDrained = 5,
  DeviceFatal = 8,
  PortActive = 9,
  PortError = 10,
  SrqLimitReached = 15,
  LastWqeReached = 16,
  // Verbena's own: the process at the other end of shared memory is gone, and nothing was outstanding that could fail.
  // What is posted from now on ends as RetryExceeded; receives stay.
  PeerEnded = 128,
  // Verbena's own: path=local was asked for, and the peer shares no memory with this queue pair, which is in ERR.
  PathRefused = 129,
};
std::string_view to_string(AsyncEventType type);

}  // namespace verbena
