// SPDX-License-Identifier: Apache-2.0
// Programs that connect their queue pairs through connection management: one side asks, the other listens.
#include <cstring>

#include "sim/workload.h"

namespace verbena::sim {

namespace {

constexpr std::uint16_t kPort = 7471;

// Private data of a request: which pair, for the how-manieth time, and bytes that must arrive as they are.
struct Token {
  std::uint32_t pair = 0, incarnation = 0;
  std::array<std::byte, 24> rest{};
};

Token token_of(const Pair& pair) {
  Token token{pair.index, pair.incarnation, {}};
  Pattern(std::uint64_t{pair.index} << 32 | pair.incarnation).fill(token.rest);
  return token;
}

}  // namespace

void Workload::listen(std::uint8_t node) {
  auto id = world_.node(node).nic.cm().listen(world_.now(), cm::PortSpace::Tcp, kPort, 16);
  if (!id) return fail("setup", id.error().to_string());
  listeners_[node] = *id;
}

void Workload::ask_for_connection(Pair& pair) {
  Side& side = pair.sides[0];
  if (!create_queue_pair(pair, 0) || !to_init(side)) return;
  pair.sides[1].queues = nullptr;
  const Token token = token_of(pair);
  cm::ConnectParams params;
  params.remote = World::address_of(options_, pair.sides[1].node);
  params.port = kPort;
  params.qpn = side.qpn;
  params.starting_psn = side.first_psn;
  params.responder_resources = params.initiator_depth = options_.queues.rd_atomic;
  params.retry_count = options_.queues.retry_count;
  params.rnr_retry_count = options_.queues.rnr_retry;
  params.path_mtu_bytes = options_.queues.path_mtu;
  params.ack_timeout_code = options_.queues.timeout;
  params.private_data = std::as_bytes(std::span(&token, 1));
  auto id = nic(side).cm().connect(world_.now(), params);
  if (!id) return fail("CM", id.error().to_string());
  side.connection = {*id, true, false, false, false};
  pair.asked_at = world_.now();
  pair.refused = false;
  pair.state = Pair::State::Connecting;
  world_.wake(side.node);
  if (!healed_ && random_.chance(0.05))
    tick_at(world_.now() + random_up_to(Duration::milliseconds(100)), pair, Tick::Finish);
}

bool Workload::find_connection(std::uint8_t node, cm::ConnectionId id, Pair*& pair, std::size_t& s) {
  for (Pair& p : pairs_)
    for (std::size_t i = 0; i < 2; ++i)
      if (p.sides[i].node == node && p.sides[i].connection.live && p.sides[i].connection.id == id) {
        pair = &p;
        s = i;
        return true;
      }
  return false;
}

void Workload::on_cm_event(std::uint8_t node, const cm::Event& event) {
  ++coverage_.cm_events[static_cast<std::size_t>(event.type)];
  world_.mix(static_cast<std::uint64_t>(event.type) << 50 ^ event.connection.value ^
             std::uint64_t{node} << 60);
  if (event.type == cm::EventType::ConnectRequest) return on_connect_request(node, event);
  Pair* pair = nullptr;
  std::size_t s = 0;
  if (!find_connection(node, event.connection, pair, s))
    return fail("CM", "an event of a connection that was destroyed");
  Connection& c = pair->sides[s].connection;
  if (c.over) return fail("CM", "an event after the last");
  switch (event.type) {
    case cm::EventType::ConnectRequest:
      return;
    case cm::EventType::ConnectResponse:
      return on_connect_response(*pair, event);
    case cm::EventType::Established:
      return on_established(*pair, s);
    case cm::EventType::Rejected:
    case cm::EventType::Unreachable:
    case cm::EventType::ConnectError:
      return on_handshake_failed(*pair, s, event);
    case cm::EventType::Disconnected:
      if (c.disconnected || !c.established) return fail("CM", "disconnected twice or without connection");
      c.disconnected = true;
      return begin_closing(*pair, Duration::microseconds(500));
    case cm::EventType::TimewaitExit:
      if (!c.disconnected) return fail("CM", "time-wait ends before the disconnection");
      c.over = true;
      return;
  }
}

// What the two sides agreed on is what each asked for and the other can do (C-19).
bool Workload::parameters_agree(const cm::ConnectionParameters& mine, const Side& peer) {
  const QueueOptions& q = options_.queues;
  return mine.remote == World::address_of(options_, peer.node) && mine.remote_qpn == peer.qpn &&
         mine.remote_psn == peer.first_psn && mine.path_mtu_bytes == q.path_mtu &&
         mine.responder_resources == q.rd_atomic && mine.initiator_depth == q.rd_atomic;
}

void Workload::on_connect_request(std::uint8_t node, const cm::Event& event) {
  cm::Manager& manager = world_.node(node).nic.cm();
  const auto refuse = [&] {
    if (!manager.reject(world_.now(), event.connection) || !manager.destroy(world_.now(), event.connection))
      fail("CM", "reject() or destroy() of a request fails");
    world_.wake(node);
  };
  Token token;
  if (event.private_data.size < sizeof token) return fail("CM", "private data is too short");
  std::memcpy(&token, event.private_data.bytes.data(), sizeof token);
  const bool known_token = token.pair < pairs_.size() && pairs_[token.pair].sides[1].node == node &&
                           Pattern(std::uint64_t{token.pair} << 32 | token.incarnation).equals(token.rest);
  if (!known_token) return fail("CM", "private data has changed on the way");
  Pair& pair = pairs_[token.pair];
  Side& side = pair.sides[1];
  if (token.incarnation != pair.incarnation || pair.state != Pair::State::Connecting)
    return refuse();                                                                 // too late
  if (side.connection.live) return fail("CM", "one request makes two connections");  // C-01
  if (!parameters_agree(event.parameters, pair.sides[0]))
    return fail("CM", "the request is not what was asked for");
  pair.refused = pair.refused || (!healed_ && random_.chance(0.05));
  if (pair.refused) return refuse();
  if (!create_queue_pair(pair, 1) || !to_init(side)) return;
  if (!to_rtr(side, pair.sides[0], event.parameters.remote_psn)) return;
  cm::AcceptParams params;
  params.qpn = side.qpn;
  params.starting_psn = side.first_psn;
  params.rnr_retry_count = options_.queues.rnr_retry;
  if (auto done = manager.accept(world_.now(), event.connection, params); !done)
    return fail("CM", done.error().to_string());
  side.connection = {event.connection, true, false, false, false};
  world_.wake(node);
}

void Workload::on_connect_response(Pair& pair, const cm::Event& event) {
  Side& side = pair.sides[0];
  if (pair.state != Pair::State::Connecting || pair.sides[1].queues == nullptr)
    return fail("CM", "a response that nobody gave");
  if (!parameters_agree(event.parameters, pair.sides[1]))
    return fail("CM", "the response is not what was accepted");
  if (!to_rtr(side, pair.sides[1], event.parameters.remote_psn) || !to_rts(side, side.first_psn)) return;
  if (auto done = nic(side).cm().confirm(world_.now(), event.connection); !done)
    return fail("CM", done.error().to_string());
  world_.wake(side.node);
  begin_work(pair);
}

void Workload::on_established(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  if (side.connection.established) return fail("CM", "established twice");
  side.connection.established = true;
  if (s == 1 && side.queues != nullptr && side.queues->state() == QueuePairState::Rtr)
    to_rts(side, side.first_psn);
}

void Workload::on_handshake_failed(Pair& pair, std::size_t s, const cm::Event& event) {
  Connection& c = pair.sides[s].connection;
  if (c.established) return fail("CM", "a handshake fails after its success");
  c.over = true;
  if (event.type == cm::EventType::Rejected && s == 0 && !pair.refused && event.reason != 4)
    return fail("CM", "rejected without cause");
  if (event.type == cm::EventType::Unreachable && world_.now() - pair.asked_at < Duration::milliseconds(500))
    return fail("CM", "gave up too early");
  if (pair.state == Pair::State::Up) return begin_closing(pair, Duration::microseconds(300));
  close(pair);
}

// C-06: data came before the message that would have established the connection.
void Workload::on_first_data(std::uint8_t node, Qpn qpn) {
  const Known* at = known(node, qpn);
  if (at == nullptr) return;
  const Connection& c = pairs_[at->pair].sides[at->side].connection;
  if (!c.live || c.established) return;
  cm::Manager& manager = world_.node(node).nic.cm();
  if (manager.establish(world_.now(), c.id)) return;
  // The connection may have ended, and its event wait to be polled.
  const auto info = manager.query(c.id);
  if (!info || info->state == cm::State::RepSent) fail("CM", "establish() is refused");
}

// Either side may; the other learns of it, if anything of it arrives.
void Workload::disconnect(Pair& pair, std::size_t s) {
  Side& side = pair.sides[s];
  if (side.connection.disconnected) return;
  if (auto done = nic(side).cm().disconnect(world_.now(), side.connection.id); !done)
    return fail("CM", done.error().to_string());
  world_.wake(side.node);
  begin_closing(pair, Duration::milliseconds(1));
}

void Workload::forget_connection(Side& side) {
  if (!side.connection.live) return;
  if (auto done = nic(side).cm().destroy(world_.now(), side.connection.id); !done)
    fail("CM", done.error().to_string());
  side.connection = {};
  world_.wake(side.node);
}

// What the protocol still owes runs out by itself, and nothing stays.
void Workload::destroy_cm(std::uint8_t node) {
  soft::Nic& device = world_.node(node).nic;
  if (auto done = device.cm().stop_listening(world_.now(), listeners_[node]); !done)
    fail("CM", done.error().to_string());
  cm::Event event;
  roce::Train train{roce::TrainLimits{}};
  for (int i = 0; i < 100'000 && !device.next_deadline().is_never(); ++i) {
    const Instant at = std::max(device.next_deadline(), world_.now());
    device.handle_timeout(at);
    while (device.poll_transmit(at, soft::Nic::Acks::Flush, train)) {
    }
    while (device.cm().poll_event(event)) {
    }
  }
  while (device.poll_transmit(world_.now(), soft::Nic::Acks::Flush, train)) {
  }
  if (device.cm().footprint() != 0) fail("leak", "connection management keeps something");
}

}  // namespace verbena::sim
