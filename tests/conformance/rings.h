// SPDX-License-Identifier: Apache-2.0
// What joins two devices of one process through memory, in the place of the driver's hub: each pair of queue
// pairs that entered RTR towards one another gets two rings, once both are there.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "soft/nic.h"
#include "soft/paths.h"

namespace verbena::conformance {

class Rings {
 public:
  struct Copies {
    bool pulls = false;   // long messages are copied out of the sender's memory
    bool direct = false;  // WRITE and READ go straight to regions that the peer grants
  };
  Rings(Copies copies, std::uint32_t capacity);
  ~Rings();

  soft::Paths& of(int side) { return ends_[static_cast<std::size_t>(side)]; }
  // Opens what both entered, brings grants that were asked for, and tells of peers that have left. True when anything
  // happened.
  bool settle(Instant now, std::array<soft::Nic*, 2> nics);

 private:
  struct End final : soft::Paths {
    Result<void> enter(Instant now, const verbena::local::Endpoint& self,
                       const verbena::local::Endpoint& peer) override;
    void handle_packet(Instant now, Qpn qpn) override;
    void leave(Qpn qpn, bool destroyed) override;
    void wake_peer(Qpn, bool) override {}  // both sides are moved by hand
    bool is_peer_gone(Qpn) override { return false; }  // who leaves here lives on
    // Nobody copies while another has its turn.
    bool wait_for_copy(Qpn qpn, const std::function<bool()>& copies) override;
    bool renew_pages(const core::MemoryRegion& region, int file) override;

    struct Entered {
      Qpn self, peer;
      bool open = false;
    };
    std::vector<Entered> entered;
    std::vector<Qpn> left;  // whose peers are to hear of it
  };
  struct Segment;
  bool open(Instant now, std::array<soft::Nic*, 2> nics, End::Entered& near, End::Entered& far);
  bool bring_grants(std::array<soft::Nic*, 2> nics, Segment& segment, std::size_t asker);
  bool is_open(std::size_t side, Qpn self, Qpn peer) const;

  const Copies copies_;
  const std::uint32_t capacity_;
  std::array<End, 2> ends_;
  std::vector<std::unique_ptr<Segment>> segments_;
};

}  // namespace verbena::conformance
