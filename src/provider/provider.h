// SPDX-License-Identifier: Apache-2.0
// The contract every kind of device fulfils: verbs, complete, as plain calls on ids. Interfaces have no fields.
// The device layer above adds types and ownership, nothing else; a drop-in libibverbs can sit on this as a thin layer.
//
// Threads: all methods of Context may be called from any thread; control calls take a lock inside. The data path
// (the ...Ops) takes one short lock per queue, but of queues that were made single_threaded, which is what a thread
// domain is to verbs (ibv_alloc_td): whoever made them has one thread at a time use them, their control calls included.
// No method calls user code.
// Errors: Error::native() is the errno that verbs would return, domain Errno.
// Order: requests of a queue pair are done in the order they were posted. What completes at the peer, and what an
// atomic changes there, is to be seen behind all bytes of the WRITEs before it. 8 bytes at a multiple of 8 change at
// once. Of WRITEs alone, inside one and among several, order is promised where DeviceInfo::order_in_write says so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verbena/base/device_info.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/base/verbs.h"

namespace verbena::provider {

// Ids of objects within one context. 0 is no object.
enum class PdId : std::uint32_t {};
enum class CqId : std::uint32_t {};
enum class SrqId : std::uint32_t {};
enum class ListenerId : std::uint64_t {};
enum class ConnectionId : std::uint64_t {};

using verbena::DeviceInfo;
using verbena::NamedCounter;
using verbena::OpenOptions;

struct MemoryRegionInfo {
  LKey lkey;
  RKey rkey;
  std::uint64_t address = 0;  // iova
  std::uint64_t length = 0;
};

struct QueuePairSpec {
  QueuePairType type = QueuePairType::ReliableConnected;
  PdId pd{};
  CqId send_cq{}, receive_cq{};
  QueuePairCapabilities capabilities;
  bool signal_all = false;
  SrqId srq{};  // where its receives come from; 0: from a queue of its own
  bool single_threaded = false;
};

struct SharedReceiveQueueSpec {
  PdId pd{};  // where the keys of its requests must be valid
  std::uint32_t max_requests = 0;
  std::uint32_t max_segments = 0;
  bool single_threaded = false;
};

struct CompletionQueueSpec {
  std::uint32_t capacity = 0;
  bool single_threaded = false;
};

class CompletionQueueOps {
 public:
  virtual ~CompletionQueueOps() = default;
  // Up to out.size() completions, oldest first. Looks at the ring only; see Context::progress().
  virtual std::size_t poll(std::span<Completion> out) = 0;
  // The next completion (or the next solicited or failed one) raises one event (Event::Kind::Completion).
  // May wait for whoever drives the device.
  virtual void arm(bool solicited_only) = 0;
};

class QueuePairOps {
 public:
  virtual ~QueuePairOps() = default;
  virtual PostResult post_send(std::span<const SendRequest> requests) = 0;
  virtual PostResult post_receive(std::span<const ReceiveRequest> requests) = 0;
  // Carries out a short WRITE before it returns, as its processor's own stores, where the peer's memory can be reached
  // so and all that was posted before is done; no completion follows. Its bytes need no registration. False: it is to
  // be posted, and the peer may have a part of it. Cheap where it cannot be.
  virtual bool write_now(const ShortWrite& write) = 0;
  // Likewise a READ: false, and a part of the bytes may have changed.
  virtual bool read_now(const ShortRead& read) = 0;
  virtual QueuePairState state() const = 0;
};

class SharedReceiveQueueOps {
 public:
  virtual ~SharedReceiveQueueOps() = default;
  virtual PostResult post(std::span<const ReceiveRequest> requests) = 0;
  // Takes back the oldest request with that id; it will not complete, and the device does not touch its memory. False:
  // there is none, or a message has begun to fill it.
  virtual bool withdraw(std::uint64_t id) = 0;
};

// What the context reports besides completions, in order of occurrence.
struct Event {
  enum class Kind : std::uint8_t {
    Completion,       // armed queue `cq` has something
    Async,            // `async` about `qpn`, `cq` or `srq`
    ConnectRequest,   // on `listener`: a new `connection` wants accept() or reject()
    ConnectResponse,  // the peer accepted: bring the queue pair up, then confirm()
    Established,
    Rejected,  // `reason`, private data
    Unreachable,
    ConnectError,
    Disconnected,
    TimewaitExit,
  };
  Kind kind = Kind::Async;
  AsyncEventType async = AsyncEventType::DeviceFatal;
  Qpn qpn;
  CqId cq{};
  SrqId srq{};
  ListenerId listener{};
  ConnectionId connection{};
  int reason = 0;  // reject reason of the CM protocol
  std::vector<std::byte> private_data;
};

// What a peer that is told no is told.
enum class Refusal : std::uint8_t {
  Consumer,     // the program said so
  NoResources,  // there is no room now: it may try again later
};

// What connection management needs to know to bring a queue pair up, and what it learned from the peer.
struct ConnectionParameters {
  Gid remote;
  std::uint16_t port = 0;  // CM port (service) of the peer; known to the listener too
  Qpn local_qpn;
  Psn local_psn;  // what our message states: the first PSN we accept (rq_psn of our queue pair)
  Qpn remote_qpn;
  Psn remote_psn;  // what the peer's message states: the first PSN it accepts (sq_psn of our queue pair)
  std::uint32_t path_mtu = 0;             // bytes; 0 = the device's
  std::uint8_t responder_resources = 16;  // READ and atomics we serve at once
  std::uint8_t initiator_depth = 16;      // READ and atomics we have out at once
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  std::uint8_t timeout = 14;  // ACK timeout code
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t traffic_class = 0;
  bool shared_receives = false;  // our queue pair has no receive queue of its own, which the peer is told
  std::uint32_t flow_label = 0;  // 20 bits; 0 in connect(): any
  bool request_is_there = false;  // the peer's device said that it has our request; its program has not answered yet
};

// An open device. Destroying it ends everything on it.
class Context {
 public:
  virtual ~Context() = default;

  virtual const DeviceInfo& info() const = 0;
  // Why this device, address, MTU and path were chosen: lines for people.
  virtual std::vector<std::string> explain() const = 0;
  virtual std::vector<NamedCounter> counters() const = 0;
  // Queues and regions that were made here and not destroyed yet.
  virtual std::size_t objects() const = 0;
  // How a queue pair's messages go, by packets or through memory, and why: words for people.
  virtual std::string explain_path(Qpn qpn) const = 0;
  // What the network said about a peer lately, in words ("port unreachable"); empty when nothing.
  virtual std::string hint_about(const Gid& peer) const = 0;
  // Writes out and ends the capture of OpenOptions::pcap_file. An error when the file lacks packets; fine without one.
  virtual Result<void> close_capture() = 0;
  // For sequence numbers and the like: unpredictable to peers, but in virtual time from the seed.
  virtual std::uint64_t random() = 0;

  // ---- Objects. destroy_*: Busy (EBUSY) while something refers to the object.
  virtual Result<PdId> create_pd() = 0;
  virtual Result<void> destroy_pd(PdId pd) = 0;
  // `file`: a sealed descriptor whose pages are mapped at `base` from its beginning, nobody else's, which
  // stays open as long as the region; or -1. A device may pass it on to peers of this host that the region
  // admits.
  virtual Result<MemoryRegionInfo> register_memory(PdId pd, void* base, std::uint64_t length,
                                                   std::uint64_t iova, Access access, int file) = 0;
  // Whether it would: memory is then allocated in files.
  virtual bool shares_memory() const = 0;
  // After return the device does not touch the memory any more.
  virtual Result<void> deregister_memory(LKey lkey) = 0;
  // Copies what a request of that domain would read there, `to` having room for all of it. False: the key, the range or
  // the domain is wrong, or the memory is not there any more; a part may have been copied.
  virtual bool read_local(PdId pd, const ScatterGather& from, std::byte* to) = 0;
  virtual Result<CqId> create_cq(const CompletionQueueSpec& spec) = 0;
  virtual Result<void> destroy_cq(CqId cq) = 0;
  // Look-up of an object's data path by id; valid until it is destroyed, nullptr for an unknown id.
  virtual CompletionQueueOps* cq(CqId cq) = 0;
  // Sizes are rounded up: see query_srq().
  virtual Result<SrqId> create_srq(const SharedReceiveQueueSpec& spec) = 0;
  // Fewer requests than `limit`, now or later, raise SrqLimitReached once; 0 takes that back.
  virtual Result<void> modify_srq(SrqId srq, std::uint32_t limit) = 0;
  virtual Result<SharedReceiveQueueAttributes> query_srq(SrqId srq) const = 0;
  virtual Result<void> destroy_srq(SrqId srq) = 0;
  virtual SharedReceiveQueueOps* srq(SrqId srq) = 0;
  struct CreatedQueuePair {
    Qpn qpn;
    QueuePairCapabilities capabilities;  // what was made
  };
  virtual Result<CreatedQueuePair> create_qp(const QueuePairSpec& spec) = 0;
  virtual Result<void> modify_qp(Qpn qpn, const QueuePairAttributes& values, AttributeMask mask) = 0;
  virtual Result<QueuePairAttributes> query_qp(Qpn qpn) const = 0;
  virtual Result<void> destroy_qp(Qpn qpn) = 0;
  virtual QueuePairOps* qp(Qpn qpn) = 0;

  // ---- Connection management: the RDMA-CM protocol over this device. Outcomes are events.
  virtual Result<ListenerId> listen(std::uint16_t port, int backlog) = 0;  // port 0: any; see listener_port()
  virtual Result<std::uint16_t> listener_port(ListenerId listener) const = 0;
  virtual Result<void> stop_listening(ListenerId listener) = 0;
  // local_qpn must be a queue pair in INIT or RESET; local_psn is chosen here when it is 0.
  virtual Result<ConnectionId> connect(const ConnectionParameters& parameters,
                                       std::span<const std::byte> private_data) = 0;
  virtual Result<void> accept(ConnectionId connection, const ConnectionParameters& parameters,
                              std::span<const std::byte> private_data) = 0;
  virtual Result<void> reject(ConnectionId connection, std::span<const std::byte> private_data, Refusal why) = 0;
  virtual Result<void> confirm(ConnectionId connection) = 0;
  virtual Result<void> disconnect(ConnectionId connection) = 0;
  virtual Result<void> destroy_connection(ConnectionId connection) = 0;
  // Negotiated, from our point of view; valid from ConnectRequest or ConnectResponse on.
  virtual Result<ConnectionParameters> connection_parameters(ConnectionId connection) const = 0;

  // ---- Progress.
  // Drives the device inline: packets in, packets out. True when anything happened. Cheap when there is nothing.
  virtual bool progress() = 0;
  // While on, what this thread posts may wait for off, or for whatever drives the device before that, and then leaves
  // together. One thread at a time has it on, once or several times over; posts of others leave as ever.
  virtual void gather_posts(bool on) = 0;
  // Oldest event, if any.
  virtual std::optional<Event> poll_event() = 0;
  // Readable while events may be waiting in poll_event() that no wait_event() returned for. Fits any event loop. -1
  // where there is none (simulator).
  virtual int event_fd() const = 0;
  // Whether that descriptor is told of what comes while no thread polls or waits here.
  virtual bool serves_itself() const { return true; }
  // The clock that this device lives by.
  virtual Instant now() const = 0;
  // Blocks until an event may be waiting or `until` has come. In virtual time: lets the world go on until then.
  virtual void wait_event(Instant until) = 0;
  // Makes the present or next wait_event() return. From signal handlers too.
  virtual void wake() = 0;
};

// One kind of device.
class Provider {
 public:
  virtual ~Provider() = default;
  virtual std::string name() const = 0;
  // Every device of this kind, usable or not by these options, each with its reason. The one open() takes for an empty
  // name is first.
  virtual std::vector<DeviceInfo> list(const OpenOptions& options) const = 0;
  virtual Result<std::unique_ptr<Context>> open(const OpenOptions& options) const = 0;
};

// Every provider there is, in order of preference. The only place that names them all: src/provider/registry.cc.
const std::vector<const Provider*>& providers();

}  // namespace verbena::provider
