// SPDX-License-Identifier: Apache-2.0
// One end of a case, the same to look at whether it is Verbena's device or the peer's. What a call cannot do
// it tells the report; the case goes on with what comes back and is FAILED.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pattern.h"
#include "verbena/base/verbs.h"

namespace verbena::interop {

// What one case found. The first failure is what is printed.
class Report {
 public:
  void fail(const std::string& what) {
    if (failure_.empty()) failure_ = what;
  }
  void expect(bool holds, const std::string& what) {
    if (!holds) fail(what);
  }
  bool failed() const { return !failure_.empty(); }
  const std::string& failure() const { return failure_; }

 private:
  std::string failure_;
};

struct PairOptions {
  std::uint32_t mtu = 1024;  // bytes
  Access access = Access::All;
  Psn first{};  // of the requests this side sends
  std::uint8_t max_rd_atomic = 16;
  std::uint8_t max_dest_rd_atomic = 16;
  std::uint8_t min_rnr_timer = 14;  // 1.28 ms
  std::uint8_t timeout = 17;        // 537 ms: more than a guest without hardware help takes to answer
  std::uint8_t retry_count = 6;
  std::uint8_t rnr_retry = 7;
};

// A pair as its peer must know it.
struct PairAddress {
  Gid gid;
  Qpn qpn;
  Psn first;
};

struct RegionHandle {
  std::uint64_t id = 0;
  std::uint64_t address = 0;
  RKey rkey;
};

struct Piece {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

struct Request {
  std::uint64_t id = 0;
  SendOpcode opcode = SendOpcode::Send;
  SendFlags flags = SendFlags::Signaled;
  std::vector<Piece> local{};
  std::uint64_t remote_address = 0;
  RKey rkey{};
  std::uint32_t immediate = 0;  // the four bytes on the wire, big-endian
  std::uint64_t compare = 0;
  std::uint64_t swap_or_add = 0;
};

struct Outcome {
  std::uint64_t id = 0;
  CompletionStatus status = CompletionStatus::Success;
  CompletionOpcode opcode = CompletionOpcode::Send;
  std::uint32_t bytes = 0;
  std::optional<std::uint32_t> immediate{};
};

struct PairEvent {
  AsyncEventType type = AsyncEventType::DeviceFatal;
  Qpn qpn;
};

enum class Queue { Send, Receive };

// In what a device may differ from the specification, whose way is the default.
struct Manners {
  // A message longer than its receive: what the requester and the receive are told.
  CompletionStatus too_long_at_requester = CompletionStatus::RemoteInvalidRequest;
  CompletionStatus too_long_at_receive = CompletionStatus::LocalLengthError;
  // A WRITE with immediate that is refused takes a receive along, which gets the requester's status.
  bool refused_write_takes_receive = false;
  // Refusing raises an event about the queue pair.
  bool refusal_raises_event = true;
  // A misaligned atomic is refused at the post.
  bool post_refuses_misaligned = false;
  // An empty READ needs no key, but its duplicate does, and ends the queue pair.
  bool repeated_empty_read_needs_key = false;
};

class Side {
 public:
  explicit Side(Report& report) : report_(report) {}
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  virtual ~Side() = default;

  virtual std::string name() const = 0;
  virtual Gid gid() const = 0;
  virtual Manners manners() const = 0;
  virtual std::uint32_t largest_mtu() const = 0;

  // A region between guards; all of it untouched.
  virtual RegionHandle make_region(std::uint64_t bytes, Access access = Access::All) = 0;
  // Writes the pattern of `seed` there; the rest of the region becomes untouched.
  virtual void fill(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes, std::uint64_t seed) = 0;
  virtual Digest digest(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) = 0;
  virtual void store(std::uint64_t region, std::uint64_t offset, std::uint64_t value) = 0;
  virtual std::uint64_t load(std::uint64_t region, std::uint64_t offset) = 0;
  // The bytes stay, the keys are dead.
  virtual void deregister(std::uint64_t region) = 0;

  // A queue pair in INIT, with queues of its own: 128 requests, 8 segments, 256 inline bytes.
  virtual std::uint64_t make_pair(const PairOptions& options) = 0;
  virtual Qpn qpn(std::uint64_t pair) = 0;
  // To RTS.
  virtual void connect(std::uint64_t pair, const PairAddress& peer) = 0;
  virtual void post_receive(std::uint64_t pair, std::uint64_t id, const std::vector<Piece>& pieces) = 0;
  // All with one post.
  virtual void post_send(std::uint64_t pair, std::span<const Request> requests) = 0;
  // Waits until there are `count`; fewer when time is up.
  virtual std::vector<Outcome> poll(std::uint64_t pair, Queue queue, std::size_t count,
                                    std::uint32_t wait_ms) = 0;
  virtual QueuePairState state(std::uint64_t pair) = 0;
  virtual void modify(std::uint64_t pair, QueuePairState state) = 0;
  virtual void destroy(std::uint64_t pair) = 0;
  // What was raised since the last call.
  virtual std::vector<PairEvent> events() = 0;
  // Ends all pairs and regions.
  virtual void release() = 0;

 protected:
  Report& report_;
};

}  // namespace verbena::interop
