// SPDX-License-Identifier: Apache-2.0
// What chooses, for each queue pair of a device, between packets and memory shared with its peer; the driver's. Without
// one all go by packets. The device's owner calls it, and it calls the device from inside.
#pragma once

#include <functional>

#include "soft/local/hello.h"
#include "soft/local/transport.h"
#include "soft/local/wake.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"

namespace verbena::soft {

// The memory of one connection: its rings, and the two wake words.
struct LocalLink {
  verbena::local::Channel channel;
  verbena::local::Sleeper sleeper;  // ours
  verbena::local::Waker waker;      // of the peer
};

class Paths {
 public:
  virtual ~Paths() = default;
  // It entered RTR, and its posts wait until Nic::use_roce() or use_local(), now or later. Errors: there is no path it
  // may take.
  virtual Result<void> enter(Instant now, const verbena::local::Endpoint& self,
                             const verbena::local::Endpoint& peer) = 0;
  // A packet of the peer's came before the path was decided: Nic::use_roce() follows.
  virtual void handle_packet(Instant now, Qpn qpn) = 0;
  // It is in ERR, reset or destroyed, and uses no shared memory any more.
  virtual void leave(Qpn qpn, bool destroyed) = 0;
  // The peer hung up: whether its process is gone, too, or at least the device in it.
  virtual bool is_peer_gone(Qpn qpn) = 0;
  // The peer copies to or from a region that was taken back. Waits while `copies()`, but no longer than a
  // peer that runs can take. False: it still does.
  virtual bool wait_for_copy(Qpn qpn, const std::function<bool()>& copies) = 0;
  // After that: the region, which stood in `file`, stands in pages of its own from now on, with the bytes it has.
  // False: there is no memory for them.
  virtual bool renew_pages(const core::MemoryRegion& region, int file) = 0;
  // The peer sleeps, and there is something for it. `unwatched`: it may be awake, and not look there.
  virtual void wake_peer(Qpn qpn, bool unwatched) = 0;
};

}  // namespace verbena::soft
