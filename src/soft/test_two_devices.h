// SPDX-License-Identifier: Apache-2.0
// Two devices with a queue pair each, joined by a perfect wire.
#pragma once

#include <gtest/gtest.h>

#include "soft/nic.h"

namespace verbena::soft {

struct Side {
  Side(std::uint8_t last, std::uint64_t seed) : random(seed), nic(config(last), random) {
    pd = *nic.create_pd();
    cq = *nic.create_cq(256);
    memory.assign(1 << 20, std::byte{0});
    region = *nic.register_memory(pd, memory.data(), memory.size(), 0x10000, Access::All);
    qp = make_qp();
  }
  Nic::CreatedQp make_qp() {
    Nic::QpInit init;
    init.pd = pd;
    init.send_cq = init.receive_cq = cq;
    return *nic.create_qp(init);
  }
  static NicConfig config(std::uint8_t last) {
    NicConfig c;
    c.address = Gid::from_ipv4(192, 0, 2, last);
    c.path_mtu = 4096;
    c.source_ports = {0xc000, 0xc001, 0xc002, 0xc003};
    return c;
  }
  void bring_up(const Side& peer, std::uint8_t hop_limit = 64, std::uint32_t flow_label = 0) {
    bring_up(qp, peer, peer.qp, hop_limit, flow_label);
  }
  void bring_up(const Nic::CreatedQp& ours, const Side& peer, const Nic::CreatedQp& theirs, std::uint8_t hop_limit = 64,
                std::uint32_t flow_label = 0) {
    using M = AttributeMask;
    QueuePairAttributes a;
    a.state = QueuePairState::Init;
    a.access = Access::All;
    ASSERT_TRUE(nic.modify_qp({}, ours.qpn, a, M::State | M::PkeyIndex | M::Port | M::Access));
    a.state = QueuePairState::Rtr;
    a.address.destination = peer.nic.config().address;
    a.address.hop_limit = hop_limit;
    a.address.flow_label = flow_label;
    a.address.traffic_class = static_cast<std::uint8_t>(flow_label);
    a.destination = theirs.qpn;
    a.path_mtu = 1024;
    a.rq_psn = Psn{0xfffff0};
    a.sq_psn = Psn{0xfffff0};
    a.max_rd_atomic = a.max_dest_rd_atomic = 4;
    a.min_rnr_timer = 12;
    a.timeout = 14;
    a.retry_count = a.rnr_retry = 7;
    ASSERT_TRUE(nic.modify_qp({}, ours.qpn, a,
                              M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn |
                                  M::MaxDestRdAtomic | M::MinRnrTimer));
    a.state = QueuePairState::Rts;
    ASSERT_TRUE(nic.modify_qp(
        {}, ours.qpn, a, M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout));
  }
  ScatterGather at(std::uint64_t offset, std::uint32_t length) const {
    return {0x10000 + offset, length, region.lkey};
  }
  std::optional<Completion> poll() {
    Completion c;
    if (nic.cq(cq)->poll({&c, 1}) == 0) return std::nullopt;
    return c;
  }

  SeededRandom random;
  Nic nic;
  core::PdId pd;
  core::CqId cq;
  std::vector<std::byte> memory;
  core::MemoryRegion region;
  Nic::CreatedQp qp;
};

class TwoDevices : public ::testing::Test {
 protected:
  TwoDevices() : a(1, 1), b(2, 2), train({}) {
    a.bring_up(b);
    b.bring_up(a);
    for (std::size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = static_cast<std::byte>(i * 7 + (i >> 8));
  }
  // b has a queue of so many completions, and a queue pair with it, in place of those it had.
  void complete_to(std::uint32_t completions) {
    b.cq = *b.nic.create_cq(completions);
    b.qp = b.make_qp();
    QueuePairAttributes reset;
    reset.state = QueuePairState::Reset;
    ASSERT_TRUE(a.nic.modify_qp(now, a.qp.qpn, reset, AttributeMask::State));
    a.bring_up(b);
    b.bring_up(a);
  }
  bool move(Side& from, Side& to) {
    bool any = false;
    std::vector<std::byte> bytes;
    while (from.nic.poll_transmit(now, Nic::Acks::Flush, train)) {
      for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
        train.flatten(i, bytes);
        to.nic.handle_datagram(now, train.path(), std::nullopt, bytes);
      }
      any = true;
    }
    return any;
  }
  void run() {
    a.nic.handle_doorbells(now);
    b.nic.handle_doorbells(now);
    for (bool any = true; any;) {
      any = move(a, b);
      any = move(b, a) || any;
    }
    a.nic.check_invariants();
    b.nic.check_invariants();
  }
  void post(const SendRequest& request) {
    ASSERT_TRUE(a.qp.queues->post_send({&request, 1}));
    a.nic.ring_doorbell(*a.qp.queues);
  }
  void post_receive(const ScatterGather& sge, std::uint64_t id) {
    const ReceiveRequest request{id, {&sge, 1}};
    ASSERT_TRUE(b.qp.queues->post_receive({&request, 1}));
  }
  SendRequest request(SendOpcode opcode, const ScatterGather& local, std::uint64_t remote_offset) {
    SendRequest r;
    r.id = 77;
    r.opcode = opcode;
    r.local = {&local, 1};
    r.remote_address = 0x10000 + remote_offset;
    r.rkey = b.region.rkey;
    return r;
  }

  Side a, b;
  roce::Train train;
  Instant now{1'000'000};
};

}  // namespace verbena::soft
