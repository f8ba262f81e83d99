// SPDX-License-Identifier: Apache-2.0
// For tests: two managers on one link that the test holds in its hand, and messages taken apart and put
// together.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <vector>

#include "base/random.h"
#include "soft/cm/manager.h"

namespace verbena::cm {

inline constexpr std::uint16_t kPort = 7174;
inline constexpr Duration kLong = Duration::seconds(3600);

inline std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> out;
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  return out;
}

inline Gid gid_of(bool ipv6, std::uint8_t host) {
  if (!ipv6) return Gid::from_ipv4(192, 0, 2, host);
  Gid gid;
  gid.bytes = {0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host};
  return gid;
}

inline ManagerConfig quick_config(bool ipv6, std::uint8_t host) {
  ManagerConfig config;
  config.local = gid_of(ipv6, host);
  config.ca_guid = 0x0200'00ff'fe00'0000u | host;
  config.response_timeout_code = 14;
  config.packet_lifetime_code = 10;
  return config;
}

inline wire::Path path_between(const Gid& from, const Gid& to, std::uint8_t traffic_class = 0) {
  wire::Path path;
  path.source = from;
  path.destination = to;
  path.source_port = 0xc001;
  path.traffic_class = traffic_class;
  return path;
}

struct Decoded {
  wire::MadHeader header;
  wire::CmMessage message;

  template <class T>
  const T& as() const {
    return std::get<T>(message);
  }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(message);
  }
};

inline Decoded decode(const MadBytes& mad) {
  Decoded d;
  EXPECT_EQ(wire::parse_cm(mad, d.header, d.message), wire::DropReason::None);
  return d;
}

template <class T>
T read(const MadBytes& mad) {
  const Decoded d = decode(mad);
  if (!d.is<T>()) {
    ADD_FAILURE() << "another message: " << wire::to_string(d.header, d.message);
    return T{};
  }
  return d.as<T>();
}

// `mad` with its message changed by `change`.
template <class T, class F>
MadBytes altered(const MadBytes& mad, F&& change) {
  Decoded d = decode(mad);
  T message = d.as<T>();
  change(message);
  MadBytes out{};
  wire::emit_mad(d.header, message, out);
  return out;
}

struct Node {
  Node(const ManagerConfig& config, std::uint64_t seed) : random(seed), manager(config, random) {}

  const Gid& gid() const { return manager.config().local; }
  std::vector<OutgoingMad> sent(Instant now) {
    std::vector<OutgoingMad> out;
    OutgoingMad mad;
    while (manager.poll_transmit(now, mad)) out.push_back(mad);
    return out;
  }
  std::vector<Event> events() {
    std::vector<Event> out;
    Event event;
    while (manager.poll_event(event)) out.push_back(event);
    return out;
  }
  // The one event there is.
  Event event(EventType type) {
    const std::vector<Event> all = events();
    EXPECT_EQ(all.size(), 1u);
    if (all.size() != 1) return {};
    EXPECT_EQ(to_string(all[0].type), to_string(type));
    return all[0];
  }
  State state(ConnectionId id) {
    const auto info = manager.query(id);
    EXPECT_TRUE(info.has_value());
    return info ? info->state : State::Idle;
  }

  SeededRandom random;
  Manager manager;
};

inline AcceptParams accept_params(std::uint32_t qpn = 0x55, std::uint32_t psn = 0x5000) {
  AcceptParams p;
  p.qpn = Qpn{qpn};
  p.starting_psn = Psn{psn};
  p.responder_resources = 4;
  p.initiator_depth = 4;
  return p;
}

// Client and server; nothing moves but by deliver() and its friends.
struct World {
  explicit World(bool ipv6 = false) : World(quick_config(ipv6, 1), quick_config(ipv6, 2)) {}
  World(const ManagerConfig& client_config, const ManagerConfig& server_config)
      : client(client_config, 11), server(server_config, 22) {
    listener = server.manager.listen(now, PortSpace::Tcp, kPort, 16).value();
  }

  ConnectParams connect_params(std::uint32_t qpn = 0x44) const {
    ConnectParams p;
    p.remote = server.manager.config().local;
    p.port = kPort;
    p.qpn = Qpn{qpn};
    p.starting_psn = Psn{0x4000};
    p.responder_resources = 4;
    p.initiator_depth = 4;
    return p;
  }
  ConnectionId connect(std::uint32_t qpn = 0x44) { return connect(connect_params(qpn)); }
  ConnectionId connect(const ConnectParams& params) {
    const auto id = client.manager.connect(now, params);
    EXPECT_TRUE(id.has_value());
    return id.value();
  }
  void to_server(const MadBytes& mad) { give(client, server, mad); }
  void to_client(const MadBytes& mad) { give(server, client, mad); }
  void give(Node& from, Node& to, const MadBytes& mad) {
    to.manager.handle_mad(now, path_between(from.gid(), to.gid()), mad);
  }
  // The one message a node has to send.
  MadBytes one(Node& node) {
    const std::vector<OutgoingMad> all = node.sent(now);
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? MadBytes{} : all[0].bytes;
  }
  bool silent(Node& node) { return node.sent(now).empty(); }
  // Everything that waits, both ways, until nothing does.
  void exchange() {
    for (;;) {
      const auto up = client.sent(now);
      const auto down = server.sent(now);
      if (up.empty() && down.empty()) return;
      for (const auto& mad : up) to_server(mad.bytes);
      for (const auto& mad : down) to_client(mad.bytes);
    }
  }
  // To the node's next deadline.
  void tick(Node& node) {
    ASSERT_FALSE(node.manager.next_deadline().is_never());
    now = std::max(now, node.manager.next_deadline());
    node.manager.handle_timeout(now);
  }
  void settle() {
    for (;;) {
      exchange();
      const Instant next = std::min(client.manager.next_deadline(), server.manager.next_deadline());
      if (next.is_never()) return;
      now = std::max(now, next);
      client.manager.handle_timeout(now);
      server.manager.handle_timeout(now);
    }
  }
  // To the server's ConnectRequest.
  void request(std::uint32_t qpn = 0x44) { request(connect_params(qpn)); }
  void request(const ConnectParams& params) {
    active = connect(params);
    req = one(client);
    to_server(req);
    passive = server.event(EventType::ConnectRequest).connection;
  }
  // To the client's ConnectResponse; nothing is left on the link.
  void respond(std::uint32_t client_qpn = 0x44) {
    request(client_qpn);
    ASSERT_TRUE(server.manager.accept(now, passive, accept_params()).has_value());
    rep = one(server);
    to_client(rep);
    client.event(EventType::ConnectResponse);
  }
  void establish(std::uint32_t client_qpn = 0x44) {
    respond(client_qpn);
    ASSERT_TRUE(client.manager.confirm(now, active).has_value());
    rtu = one(client);
    to_server(rtu);
    client.event(EventType::Established);
    server.event(EventType::Established);
  }
  void destroy_both() {
    ASSERT_TRUE(client.manager.destroy(now, active).has_value());
    ASSERT_TRUE(server.manager.destroy(now, passive).has_value());
  }
  void expect_nothing_left() {
    EXPECT_EQ(client.manager.footprint(), 0u);
    EXPECT_EQ(server.manager.footprint(), 0u);
  }

  Instant now{1'000'000};
  Node client;
  Node server;
  ListenerId listener;
  ConnectionId active;
  ConnectionId passive;
  MadBytes req{}, rep{}, rtu{};
};

}  // namespace verbena::cm
