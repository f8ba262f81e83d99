// SPDX-License-Identifier: Apache-2.0
// For tests: two devices in the real world, one connected queue pair each.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "soft/driver/host_device.h"

namespace verbena::soft::test {

inline constexpr std::uint64_t kBase = 0x10000;

struct End {
  explicit End(HostDevice& d) : device(d), memory(4u << 20) {
    device.with_nic([this](Nic& nic, Instant) {
      pd = *nic.create_pd();
      cq = *nic.create_cq(1024);
      region = *nic.register_memory(pd, memory.data(), memory.size(), kBase, Access::All);
      Nic::QpInit init;
      init.pd = pd;
      init.send_cq = init.receive_cq = cq;
      qp = *nic.create_qp(init);
      ring = nic.cq(cq);
    });
  }

  // A peer may still be answered twice when the test has seen enough: the device must not read freed memory.
  ~End() {
    device.with_nic([this](Nic& nic, Instant) {
      static_cast<void>(nic.destroy_qp(qp.qpn));  // unless the test has done so
      static_cast<void>(nic.deregister_memory(region.lkey));
    });
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  // timeout: code of the period without progress; retries: periods after the first.
  void connect(const End& peer, std::uint32_t mtu = 4096, std::uint8_t timeout = 14, std::uint8_t retries = 7) {
    using M = AttributeMask;
    device.with_nic([&](Nic& nic, Instant now) {
      QueuePairAttributes a;
      a.state = QueuePairState::Init;
      a.access = Access::All;
      ASSERT_TRUE(nic.modify_qp(now, qp.qpn, a, M::State | M::PkeyIndex | M::Port | M::Access));
      a.state = QueuePairState::Rtr;
      a.address.destination = peer.device.config().address;
      a.destination = peer.qp.qpn;
      a.path_mtu = mtu;
      a.max_rd_atomic = a.max_dest_rd_atomic = 16;
      a.min_rnr_timer = 12;
      a.timeout = timeout;
      a.retry_count = a.rnr_retry = retries;
      ASSERT_TRUE(nic.modify_qp(now, qp.qpn, a,
                                M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn |
                                    M::MaxDestRdAtomic | M::MinRnrTimer));
      a.state = QueuePairState::Rts;
      ASSERT_TRUE(nic.modify_qp(
          now, qp.qpn, a, M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout));
    });
  }

  void reset() {
    device.with_nic([&](Nic& nic, Instant now) {
      QueuePairAttributes a;
      a.state = QueuePairState::Reset;
      ASSERT_TRUE(nic.modify_qp(now, qp.qpn, a, AttributeMask::State));
    });
  }

  ScatterGather at(std::uint64_t offset, std::uint32_t length) const {
    return {kBase + offset, length, region.lkey};
  }

  void post(SendOpcode opcode, const End& peer, std::uint64_t from, std::uint32_t length, std::uint64_t to) {
    const ScatterGather local = at(from, length);
    SendRequest request;
    request.opcode = opcode;
    request.local = {&local, 1};
    request.remote_address = kBase + to;
    request.rkey = peer.region.rkey;
    ASSERT_TRUE(qp.queues->post_send({&request, 1}));
    device.kick(*qp.queues);
  }
  void post_receive(std::uint64_t to, std::uint32_t length) {
    const ScatterGather local = at(to, length);
    const ReceiveRequest request{7, {&local, 1}};
    ASSERT_TRUE(qp.queues->post_receive({&request, 1}));
  }
  // Polling.
  Completion poll() {
    Completion c;
    while (ring->poll({&c, 1}) == 0) device.progress();
    return c;
  }
  // Sleeping.
  Completion wait() {
    Completion c;
    for (;;) {
      if (ring->poll({&c, 1}) != 0) return c;
      device.arm(*ring, false);
      if (ring->poll({&c, 1}) != 0) return c;
      device.wait_event(Instant::never());
      while (device.poll_event()) {
      }
    }
  }

  HostDevice& device;
  std::vector<std::byte> memory;
  core::PdId pd;
  core::CqId cq;
  core::MemoryRegion region;
  Nic::CreatedQp qp{};
  core::CompletionQueue* ring = nullptr;
};

// Each way of waiting moves bytes both ways.
inline void exercise(HostDevice& first, HostDevice& second) {
  End a(first), b(second);
  a.connect(b);
  b.connect(a);
  for (std::size_t i = 0; i < a.memory.size(); ++i) a.memory[i] = static_cast<std::byte>(i * 31 + (i >> 12));

  a.post(SendOpcode::RdmaWrite, b, 0, 1 << 20, 64);
  ASSERT_EQ(a.poll().status, CompletionStatus::Success);
  EXPECT_EQ(std::memcmp(a.memory.data(), b.memory.data() + 64, 1 << 20), 0);

  a.post(SendOpcode::RdmaRead, b, 2 << 20, 1 << 20, 64);  // nobody polls at b: its service thread answers
  ASSERT_EQ(a.wait().status, CompletionStatus::Success);
  EXPECT_EQ(std::memcmp(a.memory.data(), a.memory.data() + (2 << 20), 1 << 20), 0);

  for (int i = 0; i < 200; ++i) {
    b.post_receive(3 << 20, 64);
    a.post_receive(3 << 20, 64);
    a.post(SendOpcode::Send, b, 0, 8, 0);
    ASSERT_EQ((i % 2 == 0 ? b.poll() : b.wait()).opcode, CompletionOpcode::Receive);
    b.post(SendOpcode::Send, a, 0, 8, 0);
    int seen = 0;
    for (int k = 0; k < 2; ++k)
      seen += (i % 3 == 0 ? a.poll() : a.wait()).status == CompletionStatus::Success ? 1 : 0;
    ASSERT_EQ(seen, 2);
    ASSERT_EQ(b.wait().status, CompletionStatus::Success);
  }
  for (End* end : {&a, &b})
    end->device.with_nic([end](Nic& nic, Instant) { ASSERT_TRUE(nic.destroy_qp(end->qp.qpn)); });
}

}  // namespace verbena::soft::test
