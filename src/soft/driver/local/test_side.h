// SPDX-License-Identifier: Apache-2.0
// A hub and a device it serves, one turn at a time.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "soft/driver/local/hub.h"

namespace verbena::soft::local {

// Addresses of this process and its children alone: what is offered is visible to the whole network
// namespace.
inline Gid address(std::uint8_t number) {
  static const pid_t pid = ::getpid();
  Gid gid;
  gid.bytes[0] = 0xfd;
  std::memcpy(&gid.bytes[4], &pid, sizeof pid);
  gid.bytes[15] = number;
  return gid;
}

// A device with one queue pair, without a network.
struct Side {
  explicit Side(std::uint8_t number, bool required = false, IdSlot ids = {}, Duration farewell = {},
                const std::string& folder = {}, std::vector<uid_t> users = {})
      : random(number + ids.value), nic(config(number, ids), random) {
    std::optional<MeetingFolder> meets;
    if (!folder.empty()) {
      auto there = MeetingFolder::open(folder);
      EXPECT_TRUE(there) << there.error().to_string();
      if (there) meets.emplace(std::move(*there));
    }
    auto opened = Hub::open({.address = nic.config().address,
                             .ids = ids,
                             .required = required,
                             .users = std::move(users),
                             .farewell = farewell},
                            std::move(meets));
    EXPECT_TRUE(opened) << opened.error().to_string();
    hub = std::move(*opened);
    hub->serve(nic);
    pd = *nic.create_pd();
    cq = *nic.create_cq(64);
    region = *nic.register_memory(pd, memory.data(), memory.size(), 0x10000, Access::All);
    use_another();
  }
  // From here on.
  void use_another() {
    Nic::QpInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    qp = *nic.create_qp(init);
    QueuePairAttributes a;
    a.state = QueuePairState::Init;
    a.access = Access::All;
    using M = AttributeMask;
    EXPECT_TRUE(nic.modify_qp(now, qp.qpn, a, M::State | M::PkeyIndex | M::Port | M::Access));
  }
  static NicConfig config(std::uint8_t number, const IdSlot& ids) {
    NicConfig config;
    config.ids = ids;
    config.address = address(number);
    return config;
  }

  verbena::local::Endpoint endpoint() const { return {nic.config().address, qp.qpn}; }
  Result<void> to_rtr(const verbena::local::Endpoint& peer) {
    using M = AttributeMask;
    QueuePairAttributes a;
    a.state = QueuePairState::Rtr;
    a.address.destination = peer.gid;
    a.destination = peer.qpn;
    a.path_mtu = 1024;
    a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 1;
    return nic.modify_qp(now, qp.qpn, a,
                         M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic |
                             M::MinRnrTimer);
  }
  void to_rts(std::uint8_t timeout = 14) {
    using M = AttributeMask;
    QueuePairAttributes a;
    a.state = QueuePairState::Rts;
    a.max_rd_atomic = 4;
    a.timeout = timeout;
    a.retry_count = 1;
    a.rnr_retry = 7;
    EXPECT_TRUE(nic.modify_qp(now, qp.qpn, a,
                              M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout));
  }
  void to(QueuePairState state) {
    QueuePairAttributes a;
    a.state = state;
    EXPECT_TRUE(nic.modify_qp(now, qp.qpn, a, AttributeMask::State));
  }
  void connect(const verbena::local::Endpoint& peer) {
    EXPECT_TRUE(to_rtr(peer));
    to_rts();
  }

  void turn() {
    hub->handle_events(now, true);
    hub->handle_hang_ups(now);
    nic.handle_records(now);
    nic.handle_doorbells(now);
    if (nic.next_deadline() <= now) nic.handle_timeout(now);
    while (nic.emit_records(now)) continue;
    nic.check_invariants();
  }
  void write(std::uint64_t id, const Side& to, std::uint32_t bytes) {
    const ScatterGather from{0x10000, bytes, region.lkey};
    SendRequest request;
    request.id = id;
    request.opcode = SendOpcode::RdmaWrite;
    request.flags = SendFlags::Signaled;
    request.local = {&from, 1};
    request.remote_address = 0x10000;
    request.rkey = to.region.rkey;
    EXPECT_EQ(qp.queues->post_send({&request, 1}).posted, 1u);
    nic.ring_doorbell(*qp.queues);
  }
  std::vector<Completion> completions() {
    std::array<Completion, 16> some;
    const std::size_t count = nic.cq(cq)->poll(some);
    return {some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count)};
  }
  std::string explained() const {
    std::string text;
    for (const std::string& line : hub->explain()) text += line + "\n";
    return text;
  }
  std::uint64_t fallbacks() const {
    for (const NamedCounter& counter : hub->counters())
      if (counter.name == "local_fallbacks") return counter.value;
    ADD_FAILURE() << "no counter of fallbacks";
    return 0;
  }
  bool on_rings() const { return explained().find(": shared memory with") != std::string::npos; }
  bool on_packets() const { return explained().find(": RoCE, because") != std::string::npos; }

  Instant now{1'000'000};
  SeededRandom random;
  Nic nic;
  std::unique_ptr<Hub> hub;
  core::PdId pd;
  core::CqId cq;
  std::array<std::byte, 4096> memory{};
  core::MemoryRegion region;
  Nic::CreatedQp qp;
};

// Where side 2 will be in another process: queue pair numbers are of a seed.
inline const verbena::local::Endpoint& foreign_endpoint() {
  static const verbena::local::Endpoint endpoint = Side(2).endpoint();
  return endpoint;
}

inline void turn_until(const std::function<bool()>& done, std::initializer_list<Side*> sides) {
  for (int turns = 0; !done() && turns < 1'000'000; ++turns)
    for (Side* side : sides) side->turn();
  EXPECT_TRUE(done());
}

}  // namespace verbena::soft::local
