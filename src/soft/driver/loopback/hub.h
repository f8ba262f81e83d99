// SPDX-License-Identifier: Apache-2.0
// Devices of one process joined without sockets: what one sends, the other finds in its queue. For tests and
// for programs that want both ends in one process on a machine where nothing may be opened.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "soft/driver/host_device.h"

namespace verbena::soft::loopback {

// Any thread. Outlives the devices made from it.
class Hub {
 public:
  Hub();
  ~Hub();
  // A device at that address of the hub's own network; the address need not exist on this machine.
  // AddressInUse when another device of this hub has it.
  Result<std::unique_ptr<HostDevice>> open(NicConfig config, std::unique_ptr<RandomSource> random,
                                           HostDevice::Options options);

  struct Mailbox;

 private:
  friend class HubPort;
  std::shared_ptr<Mailbox> find(const Gid& address);
  void close(const Gid& address);

  std::mutex mutex_;
  std::map<Gid, std::shared_ptr<Mailbox>> mailboxes_;
};

}  // namespace verbena::soft::loopback
