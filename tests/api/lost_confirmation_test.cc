// SPDX-License-Identifier: Apache-2.0
// An accepted connection whose peer's confirmation gets lost.
#include <thread>

#include "device/device_state.h"
#include "device/queue_pair_steps.h"
#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

// For what the engine does not wait for, as it is of another device.
template <class F>
bool drive_until(ProgressEngine& engine, F&& condition) {
  const Instant end = engine.now() + Duration::seconds(60);
  while (!condition()) {
    if (engine.now() > end) return false;
    if (!engine.run_once()) std::this_thread::yield();
  }
  return true;
}

// A peer, driven by hand, that goes into service without confirming.
struct Caller {
  explicit Caller(const Endpoint& to) {
    provider::QueuePairSpec spec;
    spec.pd = provider::PdId{device.state().domain->id()};
    cq = spec.send_cq = spec.receive_cq = must(context.create_cq({16}));
    qpn = must(context.create_qp(spec)).qpn;
    must(queue_pair_steps::to_init(context, qpn, spec.type, Access::All));
    provider::ConnectionParameters wanted;
    wanted.remote = *Gid::parse(to.host);
    wanted.port = to.port;
    wanted.local_qpn = qpn;
    connection = must(context.connect(wanted, {}));
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() {
    must(context.destroy_qp(qpn));
    must(context.destroy_cq(cq));
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
  provider::CqId cq{};
  Qpn qpn;
  provider::ConnectionId connection{};
};

TEST(LostConfirmation, the_first_message_stands_for_it) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  Caller caller(listener.address());
  Connection accepted = must(must(listener.wait_request(Duration::seconds(60))).accept());
  ASSERT_TRUE(drive_until(engine, [&] { return caller.ready(); }));
  EXPECT_EQ(accepted.phase(), ConnectionPhase::Connecting);
  SendRequest request;
  request.opcode = SendOpcode::RdmaWrite;
  ASSERT_TRUE(caller.context.qp(caller.qpn)->post_send({&request, 1}));
  must(accepted.wait_established(Duration::seconds(60)));
  EXPECT_EQ(accepted.phase(), ConnectionPhase::Established);
}

TEST(LostConfirmation, an_acceptance_that_was_taken_back_before_it_was_seen_is_a_lost_connection) {
  Device server = must(Device::open());
  ProgressEngine server_engine = must(ProgressEngine::create(server));
  Listener listener = must(Listener::create(server_engine));
  Device client = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(client));
  std::optional<Result<Connection>> outcome;
  engine.spawn([](ProgressEngine& on, std::string to, std::optional<Result<Connection>>& end) -> Task<void> {
    end = co_await Connection::async_connect(on, to);
  }(engine, listener.address().to_string(), outcome));
  engine.run_once();
  { const Connection accepted = must(must(listener.wait_request(Duration::seconds(60))).accept()); }
  const auto took_it_back = [&] {  // two messages: the acceptance, and that it is over
    for (const NamedCounter& counter : client.counters())
      if (counter.name == "rcvd_cm_pkts") return counter.value >= 2;
    return false;
  };
  ASSERT_TRUE(drive_until(server_engine, took_it_back));
  ASSERT_FALSE(outcome) << "nobody drove it";
  ASSERT_TRUE(engine.run_until([&] { return outcome.has_value(); }, Duration::seconds(60)));
  ASSERT_FALSE(*outcome);
  EXPECT_EQ(outcome->error().code(), ErrorCode::ConnectionLost) << outcome->error().to_string();
}

}  // namespace
}  // namespace verbena
