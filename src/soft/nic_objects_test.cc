// SPDX-License-Identifier: Apache-2.0
// A device's objects: how many there may be, what keeps one, what a number that was used is good for; and the datagrams
// of connection management that reach it.
#include <functional>
#include <set>
#include <utility>

#include "soft/test_two_devices.h"

namespace verbena::soft {
namespace {

NicConfig small_config() {
  NicConfig config = Side::config(1);
  config.max_queue_pairs = config.max_completion_queues = config.max_protection_domains = 2;
  config.max_shared_receive_queues = 2;
  config.max_inline_bytes = 64;
  return config;
}

struct SmallDevice {
  SeededRandom random{3};
  Nic nic;
  core::PdId pd;
  core::CqId cq;

  explicit SmallDevice(const NicConfig& config = small_config())
      : nic(config, random), pd(*nic.create_pd()), cq(*nic.create_cq(16)) {}
  Nic::QpInit init() const {
    Nic::QpInit made;
    made.pd = pd;
    made.send_cq = made.receive_cq = cq;
    return made;
  }
};

template <class T>
ErrorCode code_of(const Result<T>& result) {
  return result ? ErrorCode{} : result.error().code();
}

TEST(Nic, makes_no_more_objects_than_its_limits) {
  SmallDevice d;
  ASSERT_TRUE(d.nic.create_pd());
  EXPECT_EQ(code_of(d.nic.create_pd()), ErrorCode::ResourceExhausted);
  ASSERT_TRUE(d.nic.create_cq(16));
  EXPECT_EQ(code_of(d.nic.create_cq(16)), ErrorCode::ResourceExhausted);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(d.nic.create_srq(d.pd, 4, 1));
    ASSERT_TRUE(d.nic.create_qp(d.init()));
  }
  EXPECT_EQ(code_of(d.nic.create_srq(d.pd, 4, 1)), ErrorCode::ResourceExhausted);
  EXPECT_EQ(code_of(d.nic.create_qp(d.init())), ErrorCode::ResourceExhausted);
}

TEST(Nic, makes_no_queue_pair_with_more_inline_bytes_than_it_takes) {
  SmallDevice d;
  Nic::QpInit init = d.init();
  init.capabilities.max_inline_bytes = 65;
  EXPECT_EQ(code_of(d.nic.create_qp(init)), ErrorCode::InvalidArgument);
  init.capabilities.max_inline_bytes = 64;
  EXPECT_TRUE(d.nic.create_qp(init));
}

TEST(Nic, keeps_a_protection_domain_while_memory_belongs_to_it) {
  SmallDevice d;
  std::vector<std::byte> memory(64);
  const auto region = d.nic.register_memory(d.pd, memory.data(), memory.size(), 0, Access::LocalWrite);
  ASSERT_TRUE(region);
  EXPECT_EQ(code_of(d.nic.destroy_pd(d.pd)), ErrorCode::Busy);
  ASSERT_TRUE(d.nic.deregister_memory(region->lkey));
  EXPECT_TRUE(d.nic.destroy_pd(d.pd));
}

// A late packet for one that is gone must not meet another.
TEST(Nic, gives_a_number_to_no_other_queue_pair_soon) {
  NicConfig config = small_config();
  config.ids = {20, 0x12345};  // sixteen numbers
  SmallDevice d(config);
  std::set<std::uint32_t> numbers;
  for (int i = 0; i < 16; ++i) {
    const auto made = d.nic.create_qp(d.init());
    ASSERT_TRUE(made);
    EXPECT_TRUE(numbers.insert(made->qpn.value()).second);
    ASSERT_TRUE(d.nic.destroy_qp(made->qpn));
  }
}

TEST_F(TwoDevices, refuse_a_peer_of_another_address_family) {
  const Nic::CreatedQp other = a.make_qp();
  using M = AttributeMask;
  QueuePairAttributes values;
  values.state = QueuePairState::Init;
  ASSERT_TRUE(a.nic.modify_qp(now, other.qpn, values, M::State | M::PkeyIndex | M::Port | M::Access));
  values.state = QueuePairState::Rtr;
  values.path_mtu = 1024;
  values.address.destination.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2};
  const auto moved = a.nic.modify_qp(now, other.qpn, values,
                                     M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn |
                                         M::MaxDestRdAtomic | M::MinRnrTimer);
  EXPECT_EQ(code_of(moved), ErrorCode::InvalidArgument);
  EXPECT_EQ(other.queues->state(), QueuePairState::Init);
}

TEST_F(TwoDevices, make_no_queue_pair_on_a_queue_that_overran) {
  complete_to(1);
  for (std::uint64_t id = 1; id <= 2; ++id) {
    post_receive(b.at(0, 8), id);
    const ScatterGather local = a.at(0, 8);
    post(request(SendOpcode::Send, local, 0));
    run();
  }
  ASSERT_TRUE(b.nic.cq(b.cq)->is_broken());
  Nic::QpInit init;
  init.pd = b.pd;
  init.send_cq = init.receive_cq = b.cq;
  EXPECT_EQ(code_of(b.nic.create_qp(init)), ErrorCode::WrongState);
  init.send_cq = *b.nic.create_cq(16);
  EXPECT_EQ(code_of(b.nic.create_qp(init)), ErrorCode::WrongState);
  std::swap(init.send_cq, init.receive_cq);
  EXPECT_EQ(code_of(b.nic.create_qp(init)), ErrorCode::WrongState);
}

TEST_F(TwoDevices, hear_the_doorbells_of_others_when_a_queue_pair_goes) {
  const Nic::CreatedQp gone = a.make_qp();
  const ScatterGather local = a.at(0, 8);
  const SendRequest write = request(SendOpcode::RdmaWrite, local, 0);
  ASSERT_EQ(a.qp.queues->post_send({&write, 1}).posted, 1u);
  a.nic.ring_doorbell(*a.qp.queues);
  a.nic.ring_doorbell(*gone.queues);
  ASSERT_TRUE(a.nic.destroy_qp(gone.qpn));
  run();
  EXPECT_EQ(a.poll().value().status, CompletionStatus::Success);
}

// ---- Connection management.

class ManagementPackets : public TwoDevices {
 protected:
  // The next datagram that a has to say, taken apart, and the path it goes.
  wire::Packet next() {
    EXPECT_TRUE(a.nic.poll_transmit(now, Nic::Acks::Owed, train));
    EXPECT_EQ(train.datagrams(), 1u);
    train.flatten(0, bytes_);
    path = train.path();
    wire::Packet packet;
    EXPECT_EQ(wire::parse(bytes_, packet), wire::DropReason::None);
    return packet;
  }
  void connect(std::uint8_t traffic_class = 0) {
    cm::ConnectParams to;
    to.remote = b.nic.config().address;
    to.port = 7471;
    to.qpn = a.qp.qpn;
    to.traffic_class = traffic_class;
    ASSERT_TRUE(a.nic.cm().connect(now, to));
  }
  void to_b(const wire::Packet& packet) {
    roce::Train one{roce::TrainLimits{}};
    one.set_path(path, wire::IcrcStart(path), 0);
    const roce::Piece piece{packet.payload.data(), packet.payload.size()};
    ASSERT_TRUE(one.add(packet, {&piece, 1}, packet.payload.size(), roce::Train::Payload::Copy));
    one.finish();
    std::vector<std::byte> datagram;
    one.flatten(0, datagram);
    b.nic.handle_datagram(now, path, 0, datagram);
  }

  wire::Path path;

 private:
  std::vector<std::byte> bytes_;
};

TEST_F(ManagementPackets, are_numbered_and_counted_and_marked_as_asked) {
  connect();
  const Psn first = next().bth.psn;
  EXPECT_EQ(path.traffic_class, 0);
  connect(0x68);
  EXPECT_EQ(next().bth.psn, first + 1);
  EXPECT_EQ(path.traffic_class, 0x68);
  EXPECT_EQ(a.nic.counters().sent_cm_pkts, 2u);
}

TEST_F(ManagementPackets, are_taken_whole_with_key_and_partition_alone) {
  connect();
  wire::Packet good = next();
  const auto dropped = [&](wire::DropReason reason, std::function<void(wire::Packet&)> change) {
    wire::Packet bad = good;
    change(bad);
    const std::uint64_t before = b.nic.counters().dropped[static_cast<std::size_t>(reason)];
    to_b(bad);
    EXPECT_EQ(b.nic.counters().dropped[static_cast<std::size_t>(reason)], before + 1);
    EXPECT_EQ(b.nic.counters().rcvd_cm_pkts, 0u);
  };
  dropped(wire::DropReason::BadPkey, [](wire::Packet& p) { p.deth.qkey = 0x80010001; });
  dropped(wire::DropReason::BadPkey, [](wire::Packet& p) { p.bth.pkey = 0x7ffe; });
  dropped(wire::DropReason::WrongTransport, [](wire::Packet& p) { p.bth.opcode = wire::Opcode::RcSendOnly; });
  dropped(wire::DropReason::BadLength, [](wire::Packet& p) { p.payload = p.payload.first(252); });
  dropped(wire::DropReason::BadLength, [](wire::Packet& p) {
    p.payload = p.payload.first(255);
    p.bth.pad_count = 1;
  });
  std::vector<std::byte> longer(good.payload.begin(), good.payload.end());
  longer.resize(260);
  dropped(wire::DropReason::BadLength, [&](wire::Packet& p) { p.payload = longer; });
  to_b(good);
  EXPECT_EQ(b.nic.counters().rcvd_cm_pkts, 1u);
}

}  // namespace
}  // namespace verbena::soft
