// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

// A REQ as a client at `source` would send it; distinct `n`, distinct connection.
MadBytes forged_req(const World& w, const Gid& source, std::uint32_t n, std::uint64_t guid = 0xabcd,
                    std::uint8_t traffic_class = 0) {
  wire::CmReq req;
  req.local_comm_id = n;
  req.service_id = wire::service_id(PortSpace::Tcp, kPort);
  req.local_ca_guid = guid;
  req.local_qpn = Qpn{0x1000 + n};
  req.path_mtu = 3;
  req.max_cm_retries = 15;
  req.local_response_timeout = req.remote_response_timeout = 14;
  req.primary.ack_timeout = 14;
  req.primary.traffic_class = traffic_class;
  req.primary.local_gid = source;
  req.primary.remote_gid = w.server.manager.config().local;
  wire::CmaHeader cma;
  cma.ip_version = source.is_ipv4() ? 4 : 6;
  cma.source = source;
  cma.destination = req.primary.remote_gid;
  wire::emit(cma, wire::cma_part(req.private_data));
  wire::MadHeader header;
  header.transaction_id = n;
  MadBytes out{};
  wire::emit_mad(header, req, out);
  return out;
}

void hand_in(World& w, const Gid& source, const MadBytes& mad) {
  w.server.manager.handle_mad(w.now, path_between(source, w.server.gid()), mad);
}

TEST(ConnectionManager, C04_a_full_backlog_refuses_with_reason_3) {
  World w;
  for (std::uint32_t i = 1; i <= 16; ++i) hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), i));
  EXPECT_TRUE(w.silent(w.server));
  hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), 17));
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::NoResources);
  EXPECT_EQ(w.server.manager.counters().cm_rej_backlog, 1u);
  const auto events = w.server.events();
  ASSERT_EQ(events.size(), 16u);
  ASSERT_TRUE(w.server.manager.accept(w.now, events[0].connection, accept_params()).has_value());
  w.server.sent(w.now);
  hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), 18));
  EXPECT_TRUE(w.silent(w.server));
  w.server.event(EventType::ConnectRequest);
}

TEST(ConnectionManager, C04_half_open_connections_are_bounded_per_source_and_in_all) {
  ManagerConfig config = quick_config(false, 2);
  config.half_open_per_source = 3;
  config.half_open_total = 8;
  World w(quick_config(false, 1), config);
  ASSERT_TRUE(w.server.manager.stop_listening(w.now, w.listener).has_value());
  ASSERT_TRUE(w.server.manager.listen(w.now, PortSpace::Tcp, kPort, 10000).has_value());
  for (std::uint8_t host = 10; host < 20; ++host) {
    const Gid source = gid_of(false, host);
    for (std::uint32_t i = 1; i <= 100; ++i) hand_in(w, source, forged_req(w, source, i));
    EXPECT_LE(w.server.manager.half_open(), 8u);
  }
  EXPECT_EQ(w.server.manager.half_open(), 8u);
  EXPECT_EQ(w.server.manager.connections(), 8u);
  EXPECT_EQ(w.server.manager.counters().cm_rej_limit, 992u);
  for (const Event& event : w.server.events()) {
    ASSERT_TRUE(w.server.manager.accept(w.now, event.connection, accept_params()).has_value());
  }
  EXPECT_EQ(w.server.manager.half_open(), 8u);  // no RTU yet: still half open
}

TEST(ConnectionManager, C04_a_flood_grows_no_queue_when_nobody_polls) {
  ManagerConfig config = quick_config(false, 2);
  config.outgoing_messages = 64;
  World w(quick_config(false, 1), config);
  for (std::uint32_t i = 1; i <= 5000; ++i) hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), i));
  EXPECT_LE(w.server.manager.footprint(), 64u + 16u * 6u + 32u);
  EXPECT_GT(w.server.manager.counters().cm_drop_queue_full, 0u);
}

TEST(ConnectionManager, C04_requests_withdrawn_before_they_are_seen_leave_nothing) {
  World w;
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), i));
    wire::CmRej rej;
    rej.local_comm_id = i;
    rej.rejected = wire::CmMessageKind::Other;
    rej.reason = RejectReason::Timeout;
    rej.information_bytes = 8;
    rej.information[6] = std::byte{0xab};
    rej.information[7] = std::byte{0xcd};
    MadBytes bytes{};
    wire::emit_mad(wire::MadHeader{}, rej, bytes);
    hand_in(w, w.client.gid(), bytes);
  }
  EXPECT_EQ(w.server.manager.footprint(), 0u);
  EXPECT_TRUE(w.server.events().empty());
}

TEST(ConnectionManager, C04_remembered_rejections_are_bounded) {
  ManagerConfig config = quick_config(false, 2);
  config.rejections_kept = 5;
  World w(quick_config(false, 1), config);
  for (std::uint32_t i = 1; i <= 50; ++i) {
    hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), i));
    const ConnectionId id = w.server.event(EventType::ConnectRequest).connection;
    ASSERT_TRUE(w.server.manager.reject(w.now, id).has_value());
    ASSERT_TRUE(w.server.manager.destroy(w.now, id).has_value());
  }
  EXPECT_EQ(w.server.manager.connections(), 5u);
}

TEST(ConnectionManager, S9_connections_are_bounded_in_both_directions) {
  ManagerConfig config = quick_config(false, 2);
  config.connections = 2;
  World w(quick_config(false, 1), config);
  hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), 1));
  ConnectParams p = w.connect_params();
  p.remote = w.client.gid();
  ASSERT_TRUE(w.server.manager.connect(w.now, p).has_value());
  w.server.sent(w.now);
  EXPECT_EQ(w.server.manager.connect(w.now, p).error().code(), ErrorCode::ResourceExhausted);
  hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), 2));
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::NoResources);
}

TEST(ConnectionManager, C11_an_address_header_that_is_none_is_refused_and_counted) {
  World w;
  const MadBytes good = forged_req(w, w.client.gid(), 1);
  const auto refused = [&](auto change) {
    const std::uint64_t before = w.server.manager.counters().cm_rej_bad_address;
    hand_in(w, w.client.gid(), altered<wire::CmReq>(good, [&](wire::CmReq& r) { change(r.private_data); }));
    EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::Consumer);
    EXPECT_EQ(w.server.manager.counters().cm_rej_bad_address, before + 1);
    EXPECT_EQ(w.server.manager.connections(), 0u);
  };
  using Bytes = std::array<std::byte, 92>;
  refused([](Bytes& b) { b[0] = std::byte{1}; });     // version
  refused([](Bytes& b) { b[1] = std::byte{0x50}; });  // IP version 5
  refused([](Bytes& b) { b[1] = std::byte{0x60}; });  // another family than the path's
  refused([](Bytes& b) { b[19] = std::byte{77}; });   // another source than the path's
  refused([](Bytes& b) { b[35] = std::byte{77}; });   // not to us
  hand_in(w, w.client.gid(), good);
  w.server.event(EventType::ConnectRequest);
}

TEST(ConnectionManager, C16_communication_and_transaction_ids_do_not_repeat_or_count_up) {
  World w;
  std::set<std::uint32_t> ids;
  std::set<std::uint64_t> transactions;
  std::uint32_t last = 0;
  int close = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    w.connect(0x100 + i);
    const Decoded d = decode(w.one(w.client));
    const std::uint32_t id = d.as<wire::CmReq>().local_comm_id;
    EXPECT_NE(id, 0u);
    ids.insert(id);
    transactions.insert(d.header.transaction_id);
    if (id - last < 0x10000) ++close;
    last = id;
  }
  EXPECT_EQ(ids.size(), 2000u);
  EXPECT_EQ(transactions.size(), 2000u);
  EXPECT_LE(close, 3);
}

TEST(ConnectionManager, C17_messages_from_another_address_do_nothing) {
  World w;
  const Gid stranger = gid_of(false, 66);
  const auto from_stranger = [&](Node& to, const MadBytes& mad) {
    const auto before = to.manager.counters().cm_drop_source;
    to.manager.handle_mad(w.now, path_between(stranger, to.gid()), mad);
    EXPECT_EQ(to.manager.counters().cm_drop_source, before + 1);
    EXPECT_TRUE(w.silent(to));
    EXPECT_TRUE(to.events().empty());
  };
  w.active = w.connect();
  w.req = w.one(w.client);
  from_stranger(w.server, w.req);
  EXPECT_EQ(w.server.manager.connections(), 0u);
  w.to_server(w.req);
  w.passive = w.server.event(EventType::ConnectRequest).connection;

  const std::uint32_t client_id = read<wire::CmReq>(w.req).local_comm_id;
  MadBytes forged{};
  wire::CmRej rej;
  rej.remote_comm_id = client_id;
  wire::emit_mad(decode(w.req).header, rej, forged);
  from_stranger(w.client, forged);
  wire::CmMra mra;
  mra.remote_comm_id = client_id;
  wire::emit_mad(decode(w.req).header, mra, forged);
  from_stranger(w.client, forged);

  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  const MadBytes rep = w.one(w.server);
  from_stranger(w.client, rep);
  w.to_client(rep);
  w.client.event(EventType::ConnectResponse);
  ASSERT_TRUE(w.client.manager.confirm(w.now, w.active).has_value());
  w.client.events();
  const MadBytes rtu = w.one(w.client);
  from_stranger(w.server, rtu);
  w.to_server(rtu);
  w.server.event(EventType::Established);
  from_stranger(w.client, rep);

  ASSERT_TRUE(w.client.manager.disconnect(w.now, w.active).has_value());
  const MadBytes dreq = w.one(w.client);
  from_stranger(w.server, dreq);
  w.to_server(dreq);
  const MadBytes drep = w.one(w.server);
  from_stranger(w.client, drep);
  w.to_client(drep);
  w.client.event(EventType::Disconnected);
}

TEST(ConnectionManager, C17_a_timeout_REJ_by_GUID_counts_from_the_own_address_only) {
  World w;
  w.request();
  ASSERT_TRUE(w.client.manager.destroy(w.now, w.active).has_value());
  const MadBytes rej = w.one(w.client);
  EXPECT_EQ(read<wire::CmRej>(rej).remote_comm_id, 0u);
  w.server.manager.handle_mad(w.now, path_between(gid_of(false, 66), w.server.gid()), rej);
  EXPECT_EQ(w.server.state(w.passive), State::ReqReceived);
  w.to_server(rej);
  EXPECT_EQ(w.server.event(EventType::Rejected).reason, 4);
}

TEST(ConnectionManager, replies_of_another_transaction_are_dropped) {
  World w;
  w.request();
  ASSERT_TRUE(w.server.manager.accept(w.now, w.passive, accept_params()).has_value());
  const MadBytes rep = w.one(w.server);
  MadBytes forged = rep;
  forged[15] ^= std::byte{1};
  w.to_client(forged);
  EXPECT_TRUE(w.client.events().empty());
  EXPECT_EQ(w.client.manager.counters().cm_drop_transaction, 1u);
  w.to_client(rep);
  w.client.event(EventType::ConnectResponse);
}

TEST(ConnectionManager, C18_other_classes_versions_methods_and_lengths_are_dropped) {
  World w;
  const MadBytes good = forged_req(w, w.client.gid(), 1);
  for (const std::size_t at : {0u, 1u, 2u, 3u}) {
    MadBytes bad = good;
    bad[at] ^= std::byte{0x10};
    hand_in(w, w.client.gid(), bad);
  }
  const wire::Path path = path_between(w.client.gid(), w.server.gid());
  for (const std::size_t size : {0u, 1u, 24u, 255u})
    w.server.manager.handle_mad(w.now, path, std::span(good).first(size));
  EXPECT_EQ(w.server.manager.counters().cm_drop_malformed, 8u);
  MadBytes lap = good;
  lap[17] = std::byte{0x19};
  hand_in(w, w.client.gid(), lap);
  EXPECT_EQ(w.server.manager.counters().cm_drop_attribute, 1u);
  w.server.manager.handle_mad(w.now, path_between(w.client.gid(), gid_of(false, 3)), good);
  EXPECT_EQ(w.server.manager.counters().cm_drop_destination, 1u);
  EXPECT_EQ(w.server.manager.connections(), 0u);
  EXPECT_TRUE(w.silent(w.server));
}

TEST(ConnectionManager, C18_requests_without_id_or_queue_pair_are_dropped) {
  World w;
  const MadBytes good = forged_req(w, w.client.gid(), 1);
  hand_in(w, w.client.gid(), altered<wire::CmReq>(good, [](wire::CmReq& r) { r.local_comm_id = 0; }));
  for (const std::uint32_t qpn : {0u, 1u, 0xffffffu}) {
    hand_in(w, w.client.gid(), altered<wire::CmReq>(good, [&](wire::CmReq& r) { r.local_qpn = Qpn{qpn}; }));
  }
  EXPECT_EQ(w.server.manager.counters().cm_drop_malformed, 4u);
  EXPECT_EQ(w.server.manager.connections(), 0u);
  EXPECT_TRUE(w.silent(w.server));
}

TEST(ConnectionManager, a_vendor_extension_in_the_attribute_modifier_is_no_fault) {
  World w;
  MadBytes req = forged_req(w, w.client.gid(), 1);
  req[20] = std::byte{0x80};
  req[23] = std::byte{0x15};
  hand_in(w, w.client.gid(), req);
  w.server.event(EventType::ConnectRequest);
}

TEST(ConnectionManager, C20_a_dead_requester_is_forgotten_before_and_after_accept) {
  World w;
  w.request();
  const Instant start = w.now;
  const Duration interval = retry_interval(10, 14);
  w.tick(w.server);
  EXPECT_LE(w.now - start, interval * 17);
  EXPECT_EQ(w.server.event(EventType::Unreachable).connection, w.passive);
  EXPECT_EQ(w.server.manager.half_open(), 0u);
  EXPECT_EQ(read<wire::CmRej>(w.one(w.server)).reason, RejectReason::NoResources);

  World v;
  v.request();
  const Instant accepted = v.now;
  ASSERT_TRUE(v.server.manager.accept(v.now, v.passive, accept_params()).has_value());
  while (v.server.manager.half_open() > 0) v.tick(v.server);
  EXPECT_LE(v.now - accepted, interval * 16 * 9 / 8);
  EXPECT_EQ(v.server.event(EventType::Unreachable).connection, v.passive);
}

TEST(ConnectionManager, C20_a_request_that_nobody_saw_leaves_nothing) {
  World w;
  w.connect();
  w.to_server(w.one(w.client));
  w.tick(w.server);
  EXPECT_TRUE(w.server.events().empty());
  w.server.sent(w.now);
  EXPECT_EQ(w.server.manager.footprint(), 0u);
}

TEST(ConnectionManager, S10_without_an_accept_never_more_goes_out_than_came_in) {
  SeededRandom random(7);
  ManagerConfig config = quick_config(false, 2);
  config.mra_after = Duration::nanoseconds(0);
  World w(quick_config(false, 1), config);
  std::size_t in = 0;
  std::size_t out = 0;
  for (int i = 0; i < 20000; ++i) {
    MadBytes mad = forged_req(w, w.client.gid(), static_cast<std::uint32_t>(1 + random.below(40)));
    const std::uint64_t attribute = random.below(3) == 0 ? 0x10 : 0x10 + random.below(12);
    mad[17] = static_cast<std::byte>(attribute);
    if (random.chance(0.2)) mad[24 + random.below(100)] ^= static_cast<std::byte>(1 + random.below(255));
    hand_in(w, w.client.gid(), mad);
    ++in;
    if (random.chance(0.05) && !w.server.manager.next_deadline().is_never()) {
      w.now = w.server.manager.next_deadline();
      w.server.manager.handle_timeout(w.now);
    }
    out += w.server.sent(w.now).size();
    EXPECT_LE(out, in);
  }
  EXPECT_GT(out, 100u);
}

TEST(ConnectionManager, answers_carry_the_traffic_class_of_the_question_without_congestion_marks) {
  World w;
  hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), 1, 0xabcd, 0x6b));
  const ConnectionId id = w.server.event(EventType::ConnectRequest).connection;
  ASSERT_TRUE(w.server.manager.accept(w.now, id, accept_params()).has_value());
  const auto sent = w.server.sent(w.now);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].traffic_class, 0x68);
  EXPECT_EQ(sent[0].destination, w.client.gid());
}

// The kernel shows the class of an arriving packet only where it is asked to: the request says it itself.
TEST(ConnectionManager, a_refusal_carries_the_traffic_class_that_the_request_asks_for) {
  World w;
  ASSERT_TRUE(w.server.manager.stop_listening(w.now, w.listener).has_value());
  hand_in(w, w.client.gid(), forged_req(w, w.client.gid(), 1, 0xabcd, 0x6b));
  const auto sent = w.server.sent(w.now);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].traffic_class, 0x68);
}

}  // namespace
}  // namespace verbena::cm
