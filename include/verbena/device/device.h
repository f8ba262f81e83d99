// SPDX-License-Identifier: Apache-2.0
// An RDMA device: a NIC, or Verbena's own in software. Everything else is made on one.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/device_info.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/base/verbs.h"
#include "verbena/device/completion_queue.h"
#include "verbena/device/memory_region.h"
#include "verbena/device/protection_domain.h"
#include "verbena/device/queue_pair.h"
#include "verbena/device/shared_receive_queue.h"

namespace verbena {

class DeviceState;

// What a device reports besides completions.
struct DeviceEvent {
  enum class Kind : std::uint8_t {
    Completion,  // the armed queue `completion_queue` has something
    Async,       // `async` about `qpn`, `completion_queue` or `shared_receive_queue`
  };
  Kind kind = Kind::Async;
  AsyncEventType async = AsyncEventType::DeviceFatal;
  Qpn qpn{};
  std::uint32_t completion_queue = 0;      // CompletionQueue::id()
  std::uint32_t shared_receive_queue = 0;  // SharedReceiveQueue::id()
};

// An open device. One process may open several, at one address or at several; each is driven by itself. So a program
// of many threads gives each a device and an engine, and they share nothing but the address.
//
// Lifetime: outlives everything made on it. Moving it keeps all of that valid. A program that destroys it
// before its memory, queues or engine ends with words that say so.
// Threads: any, unless a method says otherwise. Nothing here calls user code.
// Source: the first provider that has the wanted device; src/provider/registry.cc lists them.
class Device {
 public:
  // Every device of every provider, usable or not by open() without options, each with its reason.
  static std::vector<DeviceInfo> list();

  // Opens the device named by name or address in options.device. With an empty name: the software device on the first
  // free address of the loopback network, 127.0.0.1, 127.0.0.2 ..., so that processes of one host meet without options.
  // An address that is named may be opened by several processes of one user, or of users who all name each other
  // (OpenOptions::address_users), and several times by each: every device has listeners and queue pair numbers of its
  // own. In a child that the process forks the devices it inherits are cut off: what it does with them, ending them
  // among it, reaches nobody. It may open its own.
  // Errors: NotFound (no such device; the text lists those there are), AddressInUse (somebody holds the RoCE port there
  // and does not share it; the text says who), AddressNotAvailable, ResourceExhausted (64 devices are there),
  // PermissionDenied, InvalidArgument (an option, or a variable of the environment that stands for one), IoError.
  // The environment may ask for a capture and for a file of counters: environment.h.
  static Result<Device> open(const OpenOptions& options = {});
  // The same with this name or address alone. A template, so that braces are always options: open({.device = "lo"}).
  template <std::convertible_to<std::string_view> Text>
    requires(!std::same_as<Text, std::nullptr_t>)
  static Result<Device> open(const Text& name_or_address) {
    OpenOptions options;
    options.device = std::string_view(name_or_address);
    return open(options);
  }

  Device(Device&& other) noexcept;
  Device& operator=(Device&& other) noexcept;
  ~Device();

  const DeviceInfo& info() const;
  Gid address() const { return info().address; }
  // Why this device, address, MTU and path: lines for people.
  std::vector<std::string> explain() const;
  std::vector<NamedCounter> counters() const;
  // Writes out OpenOptions::pcap_file and closes it: nothing is captured from then on. Nothing to do without a capture.
  // Errors: ResourceExhausted (a full disk), IoError: packets are missing in the file. The destructor cannot tell.
  Result<void> close_capture();

  // ---- Memory. Connections use the device's own protection domain unless told otherwise.
  ProtectionDomain& protection_domain();
  // A further one. Errors: ResourceExhausted.
  Result<ProtectionDomain> create_protection_domain();
  // In the device's own protection domain; see there.
  Result<MemoryRegion> register_memory(std::span<std::byte> memory, Access access = Access::All) {
    return protection_domain().register_memory(memory, access);
  }
  template <PlainMemory R>
  Result<MemoryRegion> register_memory(R& memory, Access access = Access::All) {
    return protection_domain().register_memory(memory, access);
  }
  Result<MemoryRegion> allocate_memory(std::size_t bytes, Access access = Access::All) {
    return protection_domain().allocate_memory(bytes, access);
  }

  // ---- Verbs. Connections make their own queues.
  // Errors: InvalidArgument (0 or more than info().max_completion_entries), ResourceExhausted.
  Result<CompletionQueue> create_completion_queue(std::uint32_t capacity);
  // `domain` outlives the queue. Errors: InvalidArgument (0 or more requests than info().max_requests, too many
  // segments), ResourceExhausted.
  Result<SharedReceiveQueue> create_shared_receive_queue(const ProtectionDomain& domain,
                                                         const SharedReceiveQueueOptions& options = {});
  Result<SharedReceiveQueue> create_shared_receive_queue(const ProtectionDomain&& domain,
                                                         const SharedReceiveQueueOptions& options = {}) = delete;
  Result<SharedReceiveQueue> create_shared_receive_queue(const SharedReceiveQueueOptions& options = {}) {
    return create_shared_receive_queue(protection_domain(), options);
  }
  // `domain` and the queues outlive it. Errors: InvalidArgument (a capability over the device's limit), NotSupported
  // (type), WrongState (a completion queue that overran), ResourceExhausted.
  Result<QueuePair> create_queue_pair(const ProtectionDomain& domain, CompletionQueue& send,
                                      CompletionQueue& receive, const QueuePairOptions& options = {});
  Result<QueuePair> create_queue_pair(const ProtectionDomain&& domain, CompletionQueue& send,
                                      CompletionQueue& receive, const QueuePairOptions& options = {}) = delete;
  Result<QueuePair> create_queue_pair(CompletionQueue& queue, const QueuePairOptions& options = {}) {
    return create_queue_pair(protection_domain(), queue, queue, options);
  }

  // ---- Progress by hand. A device attached to a ProgressEngine is driven by that, and its events go there.
  // Packets in, packets out, once. True when anything happened.
  bool progress();
  [[nodiscard]] std::optional<DeviceEvent> poll_event();
  // Blocks until an event may be waiting or `until` has come.
  void wait_event(Instant until);
  // Readable while events may be waiting, but for those for which a wait_event() returned: after that, poll_event()
  // until there are none. -1 for a device in virtual time. Without a service thread nothing that comes is told while no
  // thread polls or waits.
  int event_fd() const;
  // The clock this device lives by.
  Instant now() const;

  // For the library's upper layers.
  DeviceState& state() { return *state_; }

 private:
  friend class DeviceFactory;
  explicit Device(std::unique_ptr<DeviceState> state);
  void settle();
  static Result<Device> open_as_told(const OpenOptions& options);
  detail::Inner<std::unique_ptr<DeviceState>, "Device"> state_;
};

}  // namespace verbena
