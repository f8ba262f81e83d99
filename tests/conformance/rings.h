// SPDX-License-Identifier: Apache-2.0
// What joins two devices of one process through memory, in the place of the driver's hub: each pair of queue
// pairs that entered RTR towards one another gets two rings, once both are there.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "soft/nic.h"
#include "soft/paths.h"

namespace verbena::conformance {

class Rings {
 public:
  // `pulls`: long messages are copied out of the sender's memory.
  Rings(bool pulls, std::uint32_t capacity);
  ~Rings();

  soft::Paths& of(int side) { return ends_[static_cast<std::size_t>(side)]; }
  // Opens what both entered, and tells of peers that have left. True when anything happened.
  bool settle(Instant now, std::array<soft::Nic*, 2> nics);

 private:
  struct End final : soft::Paths {
    Result<void> enter(Instant now, const verbena::local::Endpoint& self,
                       const verbena::local::Endpoint& peer) override;
    void handle_packet(Instant now, Qpn qpn) override;
    void leave(Qpn qpn, bool destroyed) override;
    void wake_peer(Qpn) override {}  // both sides are moved by hand

    struct Entered {
      Qpn self, peer;
      bool open = false;
    };
    std::vector<Entered> entered;
    std::vector<Qpn> left;  // whose peers are to hear of it
  };
  struct Segment;
  bool open(Instant now, std::array<soft::Nic*, 2> nics, End::Entered& near, End::Entered& far);

  const bool pulls_;
  const std::uint32_t capacity_;
  std::array<End, 2> ends_;
  std::vector<std::unique_ptr<Segment>> segments_;
};

}  // namespace verbena::conformance
