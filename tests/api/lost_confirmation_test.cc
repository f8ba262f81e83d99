// SPDX-License-Identifier: Apache-2.0
// An accepted connection whose peer's confirmation gets lost.
#include "device/device_state.h"
#include "device/queue_pair_steps.h"
#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

// A peer, driven by hand, that goes into service without confirming.
struct Caller {
  explicit Caller(const Endpoint& to) {
    provider::QueuePairSpec spec;
    spec.pd = provider::PdId{device.state().domain->id()};
    spec.send_cq = spec.receive_cq = must(context.create_cq(16));
    qpn = must(context.create_qp(spec)).qpn;
    must(queue_pair_steps::to_init(context, qpn, spec.type, Access::All));
    provider::ConnectionParameters wanted;
    wanted.remote = *Gid::parse(to.host);
    wanted.port = to.port;
    wanted.local_qpn = qpn;
    connection = must(context.connect(wanted, {}));
  }
  // True once the acceptance is there and the queue pair in service.
  bool ready() {
    context.progress();
    const auto event = context.poll_event();
    if (!event || event->kind != provider::Event::Kind::ConnectResponse) return false;
    const provider::ConnectionParameters p = must(context.connection_parameters(connection));
    constexpr auto kType = QueuePairType::ReliableConnected;
    must(queue_pair_steps::to_rtr(context, qpn, kType, {p.remote, p.remote_qpn, p.local_psn, p.path_mtu}, {}));
    must(queue_pair_steps::to_rts(context, qpn, kType, p.remote_psn, {}));
    return true;
  }

  Device device = must(Device::open());
  provider::Context& context = device.state().context();
  Qpn qpn;
  provider::ConnectionId connection{};
};

TEST(LostConfirmation, the_first_message_stands_for_it) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  Caller caller(listener.address());
  Connection accepted = must(must(listener.wait_request(Duration::seconds(60))).accept());
  EXPECT_TRUE(engine.run_until([&] { return caller.ready(); }, Duration::seconds(60)));
  EXPECT_EQ(accepted.phase(), ConnectionPhase::Connecting);
  SendRequest request;
  request.opcode = SendOpcode::RdmaWrite;
  ASSERT_TRUE(caller.context.qp(caller.qpn)->post_send({&request, 1}));
  must(accepted.wait_established(Duration::seconds(60)));
  EXPECT_EQ(accepted.phase(), ConnectionPhase::Established);
}

}  // namespace
}  // namespace verbena
