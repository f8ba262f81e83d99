// SPDX-License-Identifier: Apache-2.0
// C-15: two managers in virtual time on a link that loses, doubles, delays, reorders and corrupts, from a
// seed.
#include <algorithm>
#include <map>
#include <tuple>

#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

struct Faults {
  double loss = 0;
  double duplication = 0;
  double corruption = 0;
  bool deliver_corrupted = false;  // otherwise the ICRC has dropped it
  Duration delay = Duration::milliseconds(1);
  Duration jitter = Duration::milliseconds(0);
};

Faults thirty_percent() {
  Faults f;
  f.loss = f.duplication = f.corruption = 0.3;
  f.jitter = Duration::milliseconds(150);  // more than two retry intervals: anything overtakes anything
  return f;
}

enum class View { Asking, Answering, Established, Failed, Over };

// One application with the connections it knows of, which does what an application must, some time later.
struct Agent {
  explicit Agent(const ManagerConfig& config, std::uint64_t seed) : node(config, seed) {}

  struct Known {
    View view = View::Asking;
    int established = 0;
    int ended = 0;
    std::uint32_t index = 0;
  };
  Node node;
  std::map<ConnectionId, Known> known;
};

class Chaos {
 public:
  Chaos(std::uint64_t seed, const Faults& faults, bool ipv6)
      : random_(seed),
        faults_(faults),
        client_(quick_config(ipv6, 1), seed * 2 + 1),
        server_(quick_config(ipv6, 2), seed * 2) {
    listener_ = server_.node.manager.listen(now_, PortSpace::Tcp, kPort, 64).value();
  }

  void connect(std::uint32_t count) {
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::array<std::byte, 1> index{static_cast<std::byte>(i)};
      ConnectParams p;
      p.remote = server_.node.gid();
      p.port = kPort;
      p.qpn = Qpn{0x100 + i};
      p.private_data = index;
      const ConnectionId id = client_.node.manager.connect(now_, p).value();
      client_.known[id].index = i;
    }
  }

  // Until nothing is under way and no timer runs.
  void run() { run_until(Instant::never()); }
  void run_until(Instant end) {
    for (;;) {
      pump(client_, server_);
      pump(server_, client_);
      const Instant next = std::min({next_packet(), next_action(), client_.node.manager.next_deadline(),
                                     server_.node.manager.next_deadline()});
      if (next.is_never() || next > end) return;
      now_ = std::max(now_, next);
      while (next_packet() <= now_) deliver();
      while (next_action() <= now_) act();
      client_.node.manager.handle_timeout(now_);
      server_.node.manager.handle_timeout(now_);
    }
  }

  void disconnect_all() {
    for (Agent* agent : {&client_, &server_}) {
      for (auto& [id, known] : agent->known) {
        if (known.view == View::Established && random_.chance(agent == &client_ ? 0.7 : 0.4))
          plan(*agent, id, Do::Disconnect);
      }
    }
    run();
    for (auto& [id, known] : client_.known) {
      if (known.view == View::Established) plan(client_, id, Do::Disconnect);
    }
    run();
  }

  void destroy_all() {
    for (Agent* agent : {&client_, &server_}) {
      for (auto& [id, known] : agent->known) EXPECT_TRUE(agent->node.manager.destroy(now_, id).has_value());
      agent->known.clear();
    }
    run();
  }

  // Both ends of every connection see the same.
  void expect_agreement() {
    std::map<std::uint32_t, View> server_views;
    for (const auto& [id, known] : server_.known) {
      EXPECT_NE(known.view, View::Answering);
      // Of several requests of one index, the one that lives counts.
      if (!server_views.contains(known.index) || known.view == View::Established)
        server_views[known.index] = known.view;
    }
    for (const auto& [id, known] : client_.known) {
      EXPECT_NE(known.view, View::Asking);
      const auto found = server_views.find(known.index);
      const bool server_lives = found != server_views.end() && found->second == View::Established;
      EXPECT_EQ(known.view == View::Established, server_lives) << "connection " << known.index;
    }
    for (const Agent* agent : {&client_, &server_}) {
      for (const auto& [id, known] : agent->known) {
        EXPECT_LE(known.established, 1);
        EXPECT_LE(known.ended, 1);
      }
    }
  }

  void expect_nothing_left() {
    EXPECT_EQ(client_.node.manager.footprint(), 0u);
    EXPECT_EQ(server_.node.manager.footprint(), 0u);
  }
  int established() const {
    return static_cast<int>(std::count_if(client_.known.begin(), client_.known.end(),
                                          [](const auto& k) { return k.second.established > 0; }));
  }
  std::size_t requests() const { return server_.known.size(); }
  std::uint64_t digest() const { return digest_; }
  Agent& client() { return client_; }
  Agent& server() { return server_; }

 private:
  enum class Do { Accept, Reject, Confirm, Disconnect };
  struct Packet {
    Agent* from;
    Agent* to;
    MadBytes bytes;
  };
  struct Action {
    Agent* agent;
    ConnectionId id;
    Do what;
  };
  using Key = std::pair<Instant, std::uint64_t>;

  Instant next_packet() const { return packets_.empty() ? Instant::never() : packets_.begin()->first.first; }
  Instant next_action() const { return actions_.empty() ? Instant::never() : actions_.begin()->first.first; }
  Instant later(Duration most) {
    return now_ + Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most.ns) + 1))};
  }
  void mix(std::uint64_t value) { digest_ = (digest_ ^ value) * 0x100000001b3u; }

  void pump(Agent& from, Agent& to) {
    OutgoingMad mad;
    while (from.node.manager.poll_transmit(now_, mad)) {
      mix(static_cast<std::uint64_t>(now_.ns));
      for (const std::byte b : mad.bytes) mix(std::to_integer<std::uint64_t>(b));
      const int copies = random_.chance(faults_.duplication) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        if (random_.chance(faults_.loss)) continue;
        Packet packet{&from, &to, mad.bytes};
        if (random_.chance(faults_.corruption)) {
          if (!faults_.deliver_corrupted) continue;
          packet.bytes[random_.below(kMadBytes)] ^= static_cast<std::byte>(1 + random_.below(255));
        }
        packets_.emplace(Key{later(faults_.jitter) + faults_.delay, ++sequence_}, packet);
      }
    }
    Event event;
    while (from.node.manager.poll_event(event)) on_event(from, event);
  }

  void deliver() {
    const Packet packet = packets_.begin()->second;
    packets_.erase(packets_.begin());
    packet.to->node.manager.handle_mad(now_, path_between(packet.from->node.gid(), packet.to->node.gid()),
                                       packet.bytes);
    pump(client_, server_);
    pump(server_, client_);
  }

  void plan(Agent& agent, ConnectionId id, Do what) {
    actions_.emplace(Key{later(Duration::milliseconds(60)), ++sequence_}, Action{&agent, id, what});
  }

  // A command may come too late: the state has moved on, and an event tells so.
  void act() {
    const Action a = actions_.begin()->second;
    actions_.erase(actions_.begin());
    Manager& m = a.agent->node.manager;
    switch (a.what) {
      case Do::Accept:
        (void)m.accept(now_, a.id, accept_params(0x200 + static_cast<std::uint32_t>(a.id.value)));
        break;
      case Do::Reject:
        if (m.reject(now_, a.id)) a.agent->known[a.id].view = View::Failed;
        break;
      case Do::Confirm:
        (void)m.confirm(now_, a.id);
        break;
      case Do::Disconnect:
        (void)m.disconnect(now_, a.id);
        break;
    }
  }

  void on_event(Agent& agent, const Event& e) {
    mix(static_cast<std::uint64_t>(e.type) << 32 | e.reason);
    mix(e.connection.value);
    Agent::Known& known = agent.known[e.connection];
    switch (e.type) {
      case EventType::ConnectRequest:
        known.view = View::Answering;
        known.index = std::to_integer<std::uint32_t>(e.private_data.bytes[0]);
        plan(agent, e.connection, random_.chance(0.1) ? Do::Reject : Do::Accept);
        break;
      case EventType::ConnectResponse:
        plan(agent, e.connection, Do::Confirm);
        break;
      case EventType::Established:
        known.view = View::Established;
        ++known.established;
        break;
      case EventType::Rejected:
      case EventType::Unreachable:
      case EventType::ConnectError:
        EXPECT_NE(known.view, View::Established);
        known.view = View::Failed;
        ++known.ended;
        break;
      case EventType::Disconnected:
        known.view = View::Over;
        ++known.ended;
        break;
      case EventType::TimewaitExit:
        break;
    }
  }

  SeededRandom random_;
  Faults faults_;
  Instant now_{0};
  Agent client_;
  Agent server_;
  ListenerId listener_;
  std::map<Key, Packet> packets_;
  std::map<Key, Action> actions_;
  std::uint64_t sequence_ = 0;
  std::uint64_t digest_ = 0xcbf29ce484222325u;
};

TEST(ConnectionManagerChaos, C15_every_connect_ends_alike_on_both_sides_under_30_percent_of_everything) {
  int established = 0;
  int asked = 0;
  for (std::uint64_t seed = 1; seed <= 1500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos chaos(seed, thirty_percent(), seed % 2 == 0);
    const auto count = static_cast<std::uint32_t>(1 + seed % 4);
    chaos.connect(count);
    chaos.run();
    chaos.expect_agreement();
    established += chaos.established();
    asked += static_cast<int>(count);
    chaos.disconnect_all();
    chaos.expect_agreement();
    chaos.destroy_all();
    chaos.expect_nothing_left();
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(established * 100, asked * 80);  // a tenth is rejected on purpose
}

TEST(ConnectionManagerChaos, C15_destroy_at_any_moment_leaves_nothing) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos chaos(seed, thirty_percent(), false);
    chaos.connect(4);
    SeededRandom random(seed);
    chaos.run_until(Instant{static_cast<std::int64_t>(random.below(1'500'000'000))});
    chaos.destroy_all();
    chaos.destroy_all();  // requests that came meanwhile
    chaos.expect_nothing_left();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ConnectionManagerChaos, corrupted_messages_that_arrive_break_nothing_and_leave_nothing) {
  Faults faults = thirty_percent();
  faults.deliver_corrupted = true;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Chaos chaos(seed, faults, seed % 2 == 0);
    chaos.connect(3);
    chaos.run();
    chaos.disconnect_all();
    chaos.destroy_all();
    chaos.expect_nothing_left();
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(ConnectionManagerChaos, a_clean_link_establishes_every_connection_with_one_message_of_each_kind) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Chaos chaos(seed, Faults{}, seed % 2 == 0);
    chaos.connect(1);
    chaos.run();
    const Counters& c = chaos.client().node.manager.counters();
    const Counters& s = chaos.server().node.manager.counters();
    EXPECT_EQ(chaos.requests(), 1u);
    EXPECT_EQ(c.dropped() + s.dropped(), 0u);
    if (chaos.established() == 1) {
      EXPECT_EQ(s.cm_rej_sent, 0u);
      EXPECT_EQ(c.cm_rej_sent, 0u);
    } else {
      EXPECT_EQ(s.cm_rej_consumer, 1u);
    }
  }
}

TEST(ConnectionManagerChaos, the_same_seed_gives_the_same_bytes) {
  const auto digest = [](std::uint64_t seed) {
    Chaos chaos(seed, thirty_percent(), false);
    chaos.connect(4);
    chaos.run();
    chaos.disconnect_all();
    return chaos.digest();
  };
  for (std::uint64_t seed = 1; seed <= 50; ++seed) EXPECT_EQ(digest(seed), digest(seed));
  EXPECT_NE(digest(1), digest(2));
}

}  // namespace
}  // namespace verbena::cm
