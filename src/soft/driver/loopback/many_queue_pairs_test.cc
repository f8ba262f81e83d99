// SPDX-License-Identifier: Apache-2.0
// Ten thousand connections between two devices of one process.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "base/random.h"
#include "soft/driver/loopback/hub.h"

namespace verbena::soft::loopback {
namespace {

using M = AttributeMask;

constexpr std::uint32_t kPairs = 10'000;
constexpr std::uint32_t kMessageBytes = 8;

// One end of all connections: their receives come from one shared queue.
struct Host {
  Host(Hub& hub, const Gid& address, std::uint64_t seed) : memory(std::size_t{kPairs} * kMessageBytes) {
    NicConfig config;
    config.address = address;
    HostDevice::Options options;
    options.service_thread = false;
    device = std::move(hub.open(config, std::make_unique<SeededRandom>(seed), std::move(options))).value();
    device->with_nic([this](Nic& nic, Instant) {
      pd = *nic.create_pd();
      cq = nic.cq(*nic.create_cq(2 * kPairs));
      srq = nic.srq(*nic.create_srq(pd, kPairs, 1));
      region = *nic.register_memory(pd, memory.data(), memory.size(), 0, Access::LocalWrite);
      Nic::QpInit init;
      init.pd = pd;
      init.send_cq = init.receive_cq = cq->id();
      init.srq = srq->id();
      init.capabilities = {16, 0, 1, 0, kMessageBytes};
      for (std::uint32_t i = 0; i < kPairs; ++i) queues.push_back(nic.create_qp(init).value().queues);
    });
    for (std::uint32_t i = 0; i < kPairs; ++i) {
      const ScatterGather place{std::uint64_t{i} * kMessageBytes, kMessageBytes, region.lkey};
      const ReceiveRequest request{i, {&place, 1}};
      EXPECT_TRUE(srq->post({&request, 1}));
    }
  }

  void connect(const Host& peer) {
    device->with_nic([&](Nic& nic, Instant now) {
      QueuePairAttributes a;
      a.access = Access::All;
      a.address.destination = peer.device->config().address;
      a.path_mtu = 1024;
      a.max_rd_atomic = a.max_dest_rd_atomic = 16;
      a.timeout = 14;
      a.retry_count = a.rnr_retry = 7;
      for (std::uint32_t i = 0; i < kPairs; ++i) {
        a.destination = peer.queues[i]->qpn();
        const auto go = [&](QueuePairState state, M mask) {
          a.state = state;
          ASSERT_TRUE(nic.modify_qp(now, queues[i]->qpn(), a, M::State | mask));
        };
        go(QueuePairState::Init, M::PkeyIndex | M::Port | M::Access);
        go(QueuePairState::Rtr,
           M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic | M::MinRnrTimer);
        go(QueuePairState::Rts, M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout);
      }
    });
  }

  // A message that says from which queue pair it comes.
  void send(std::uint32_t i) {
    const std::uint64_t text = queues[i]->qpn().value();
    const ScatterGather piece{reinterpret_cast<std::uintptr_t>(&text), kMessageBytes, LKey{}};
    SendRequest request;
    request.flags = SendFlags::Inline | SendFlags::Signaled;
    request.local = {&piece, 1};
    ASSERT_TRUE(queues[i]->post_send({&request, 1}));
    device->kick(*queues[i]);
  }

  void drive() {
    device->progress();
    std::array<Completion, 64> done;
    while (const std::size_t n = cq->poll(done))
      for (std::size_t i = 0; i < n; ++i) {
        ASSERT_EQ(done[i].status, CompletionStatus::Success);
        if (done[i].opcode == CompletionOpcode::Send)
          ++sent;
        else
          received.push_back(done[i]);
      }
  }

  std::vector<std::byte> memory;
  std::unique_ptr<HostDevice> device;
  core::PdId pd;
  core::CompletionQueue* cq = nullptr;
  core::SharedReceiveQueue* srq = nullptr;
  core::MemoryRegion region;
  std::vector<core::QueuePair*> queues;
  std::uint32_t sent = 0;
  std::vector<Completion> received;
};

TEST(ManyQueuePairs, ten_thousand_connections_pass_a_message_each) {
  Hub hub;
  Host near(hub, Gid::from_ipv4(10, 0, 0, 1), 1), far(hub, Gid::from_ipv4(10, 0, 0, 2), 2);
  near.connect(far);
  far.connect(near);
  constexpr std::uint32_t kAtOnce = 500;  // the hub loses what does not fit
  for (std::uint32_t i = 0; i < kPairs;) {
    for (std::uint32_t n = 0; n < kAtOnce; ++n, ++i) near.send(i);
    while (near.sent < i || far.received.size() < i) {
      near.drive();
      far.drive();
      ASSERT_FALSE(HasFatalFailure());
    }
  }
  std::unordered_map<std::uint64_t, std::size_t> place_of;
  for (std::size_t i = 0; i < kPairs; ++i) place_of[near.queues[i]->qpn().value()] = i;
  std::vector<bool> heard(kPairs, false);
  for (const Completion& completion : far.received) {
    std::uint64_t text = 0;
    std::memcpy(&text, far.memory.data() + completion.id * kMessageBytes, kMessageBytes);
    const std::size_t i = place_of.at(text);
    EXPECT_EQ(completion.qpn, far.queues[i]->qpn());
    EXPECT_FALSE(heard[i]);
    heard[i] = true;
  }
  EXPECT_EQ(far.received.size(), kPairs);
}

}  // namespace
}  // namespace verbena::soft::loopback
