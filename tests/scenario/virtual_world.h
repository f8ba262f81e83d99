// SPDX-License-Identifier: Apache-2.0
// The virtual network of the public API for tests of the library, which may do more to it: datagrams come
// that no device sent, queue pairs are killed.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "../../sim/forging.h"
#include "testing/network_state.h"
#include "verbena/testing/virtual_network.h"
#include "verbena/verbena.h"

namespace verbena::test {

// Those of NetworkFaults, and more.
struct WorldOptions {
  double loss = 0, duplicate = 0, corrupt = 0;
  Duration delay = Duration::microseconds(5), jitter = Duration::microseconds(20);
  Duration replay{};
  double burst = 0;
  Duration burst_time = Duration::microseconds(500);
  double hostile = 0;  // another comes besides that a device must ignore, with a right ICRC
  double ghost = 0;    // of acknowledgements: one for what was never sent comes besides
  std::size_t room = 0;
  // How long hosts wait for an answer in connection management: 2^(code - 8) ms.
  std::uint8_t response_timeout_code = 20;

  testing::NetworkFaults faults() const {
    return {.loss = loss,
            .duplicate = duplicate,
            .corrupt = corrupt,
            .burst = burst,
            .burst_time = burst_time,
            .delay = delay,
            .jitter = jitter,
            .replay = replay,
            .room = room};
  }
};

// Puts in datagrams that no device sent, and knows which queue pair heard last from where.
class Forger final : public testing::DatagramObserver {
 public:
  Forger(testing::FaultyNetwork& network, std::uint64_t seed) : network_(network), random_(~seed) {
    network_.observe(this);
  }
  ~Forger() override { network_.observe(nullptr); }
  Forger(const Forger&) = delete;
  Forger& operator=(const Forger&) = delete;

  void forge(double hostile, double ghost) {
    hostile_ = hostile;
    ghost_ = ghost;
  }
  std::uint64_t forged() const { return forged_; }
  Qpn heard_last(const Gid& from, const Gid& to) const { return heard_.at({from, to}); }

  void on_sent(Instant now, const testing::Datagram& datagram) override {
    const Qpn to{load_be24(&datagram.bytes[5])};
    if (to != kGsiQpn) heard_[{datagram.path.source, datagram.path.destination}] = to;
    if (hostile_ != 0 && random_.chance(hostile_)) deliver_hostile(now, datagram);
    if (ghost_ != 0 && random_.chance(ghost_)) deliver_ghost(now, datagram);
  }

 private:
  void deliver_hostile(Instant now, testing::Datagram d) {
    sim::forge(d.path, d.identification, d.bytes, random_);
    ++forged_;
    network_.deliver(now, std::move(d), {});
  }
  // Nobody has so much under way.
  void deliver_ghost(Instant now, testing::Datagram d) {
    if (d.bytes[0] != static_cast<std::byte>(wire::Opcode::RcAcknowledge)) return;
    const auto ahead = static_cast<std::uint32_t>((1u << 20) + random_.below(1000));
    d.bytes[wire::kBthBytes] = std::byte{wire::kSyndromeAck};
    store_be24(&d.bytes[9], (Psn(load_be24(&d.bytes[9])) + ahead).value());
    sim::seal(d.path, d.identification, d.bytes);
    ++forged_;
    network_.deliver(now, std::move(d), {});
  }

  testing::FaultyNetwork& network_;
  SeededRandom random_;
  double hostile_ = 0, ghost_ = 0;
  std::uint64_t forged_ = 0;
  std::map<std::pair<Gid, Gid>, Qpn> heard_;  // from, to: the queue pair that was meant last
};

class VirtualWorld {
 public:
  // What fails in here ends the test program.
  VirtualWorld(std::uint64_t seed, const WorldOptions& options)
      : network_(*testing::VirtualNetwork::create(seed, options.faults())),
        forger_(network_.state().network(), seed) {
    cm::ManagerConfig management;
    management.response_timeout_code = options.response_timeout_code;
    network_.state().set_connection_management(management);
    forger_.forge(options.hostile, options.ghost);
  }

  class Host final : public testing::VirtualHost {
   public:
    Host(VirtualWorld& world, const testing::VirtualHost& host) : VirtualHost(host), world_(world) {}
    // The queue pair that heard from that host last is in error, as if its own host had said so.
    void kill_queue_pair(const Host& peer) {
      const Qpn which = world_.forger_.heard_last(peer.address(), address());
      const auto kill = [&](soft::Nic& nic, Instant now) {
        QueuePairAttributes values;
        values.state = QueuePairState::Error;
        return nic.modify_qp(now, which, values, AttributeMask::State);
      };
      EXPECT_TRUE(state().driver().with_nic(kill));
    }

   private:
    VirtualWorld& world_;
  };

  Host& add_host() {
    hosts_.push_back(std::make_unique<Host>(*this, *network_.add_host()));
    return *hosts_.back();
  }
  Instant now() const { return network_.now(); }
  // Whether it is done within that time.
  bool run_until(const std::function<bool()>& done, Duration limit) {
    const auto over = network_.run_until(done, limit);
    EXPECT_TRUE(over || over.error().code() != ErrorCode::ResourceExhausted) << over.error().to_string();
    return over.has_value();
  }

  void change_network(const WorldOptions& options) {
    EXPECT_TRUE(network_.change_faults(options.faults()));
    forger_.forge(options.hostile, options.ghost);
  }
  void after(Duration delay, std::function<void()> f) { network_.after(delay, std::move(f)); }
  void cut(const Host& from, const Host& to) { network_.cut(from, to); }
  void mend() { network_.mend(); }

  std::uint64_t hash() const { return network_.hash(); }
  std::uint64_t lost() const { return network_.counters().lost; }
  std::uint64_t corrupted() const { return network_.counters().corrupted; }
  std::uint64_t cut_off() const { return network_.counters().cut_off; }
  std::uint64_t forged() const { return forger_.forged(); }
  std::uint64_t overflowed() const { return network_.counters().overflowed; }

 private:
  testing::VirtualNetwork network_;
  Forger forger_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

}  // namespace verbena::test
