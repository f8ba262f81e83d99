// SPDX-License-Identifier: Apache-2.0
// What a Linux 6.1 kernel's rdma_cm over rxe puts on the wire, and whether we say the same and understand it.
#include "soft/cm/test_world.h"

namespace verbena::cm {
namespace {

// Captured MADs in hex without their trailing zeros: one whole rping connection between two rxe devices ...
constexpr std::string_view kRequest =
    "0107020300000000000000022592a709001000000000000009a79225000000000000000001061c061c77fffffe45cff6"
    "000000000000000000001b0100000001000000a0bdc43fa7ffff37f0ffffffff00000000000000000000ffff0a4f0001"
    "00000000000000000000ffff0a4f00021516a00000400098000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000408e1c0000000000000000000000000a4f00010000000000000000"
    "000000000a4f0002";
constexpr std::string_view kReply =
    "0107020300000000000000022592a70900130000000000000aa7922509a792250000000000001b000000000071c60b00"
    "010178e0a0b9c2fffe5fa277";
constexpr std::string_view kReadyToUse = "0107020300000000000000022592a709001400000000000009a792250aa79225";
constexpr std::string_view kDisconnect =
    "0107020300000000000000022592a709001500000000000009a792250aa7922500001b";
constexpr std::string_view kDisconnected = "0107020300000000000000022592a70900160000000000000aa7922509a79225";
// ... and a client that was killed while it asked.
constexpr std::string_view kKilledRequest =
    "010702030000000000000002efbcc434001000000000000034c4bcef000000000000000001061c06505400fffe77000b"
    "00000000000000000000110100000001000000a0dcd5bca7ffff37f0ffffffff00000000000000000000ffff0a4d000b"
    "00000000000000000000ffff0a4d0001789eb00000400098000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000040c17b0000000000000000000000000a4d000b0000000000000000"
    "000000000a4d0001";
constexpr std::string_view kKilledReject =
    "010702030000000000000002efbcc434001200000000000034c4bcef0000000080100004505400fffe77000b";

MadBytes from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  MadBytes out{};
  for (std::size_t i = 0; i * 2 < hex.size(); ++i) {
    out[i] = static_cast<std::byte>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  }
  return out;
}

// Offsets in the MAD of what differs from run to run.
constexpr std::size_t kTransaction = 8;
constexpr std::size_t kLocalId = 24;
constexpr std::size_t kRemoteId = 28;
constexpr std::size_t kFlowLabel = 24 + 88;
constexpr std::size_t kSourcePort = 24 + 142;

void copy(MadBytes& to, const MadBytes& from, std::size_t at, std::size_t n) {
  std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), n,
              to.begin() + static_cast<std::ptrdiff_t>(at));
}

void put_id(MadBytes& mad, std::size_t at, std::uint32_t id) {
  for (std::size_t i = 0; i < 4; ++i) mad[at + i] = static_cast<std::byte>(id >> (24 - 8 * i));
}

const Gid kClient = Gid::from_ipv4(10, 79, 0, 1);
const Gid kServer = Gid::from_ipv4(10, 79, 0, 2);

// The timers of Linux 6.1.
ManagerConfig kernel_config(const Gid& local, std::uint64_t guid) {
  ManagerConfig config;
  config.local = local;
  config.ca_guid = guid;
  config.packet_lifetime_code = 18;
  return config;
}

ConnectParams kernel_params() {
  ConnectParams p;
  p.remote = kServer;
  p.port = 7174;
  p.qpn = Qpn{0x1b};
  p.starting_psn = Psn{0xbdc43f};
  return p;
}

TEST(ConnectionManager, sends_the_REQ_a_kernel_sends_bit_by_bit) {
  Node client(kernel_config(kClient, 0x1c77fffffe45cff6), 3);
  ASSERT_TRUE(client.manager.connect(Instant{0}, kernel_params()).has_value());
  const auto sent = client.sent(Instant{0});
  ASSERT_EQ(sent.size(), 1u);
  MadBytes expected = from_hex(kRequest);
  copy(expected, sent[0].bytes, kTransaction, 8);
  copy(expected, sent[0].bytes, kLocalId, 4);
  copy(expected, sent[0].bytes, kFlowLabel, 3);
  copy(expected, sent[0].bytes, kSourcePort, 2);
  EXPECT_EQ(sent[0].bytes, expected);
}

TEST(ConnectionManager, the_default_REQ_states_the_times_of_a_present_kernel) {
  ManagerConfig config;
  config.local = kClient;
  Node client(config, 3);
  ASSERT_TRUE(client.manager.connect(Instant{0}, kernel_params()).has_value());
  const auto req = read<wire::CmReq>(client.sent(Instant{0})[0].bytes);
  EXPECT_EQ(req.local_response_timeout, 20);
  EXPECT_EQ(req.remote_response_timeout, 20);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_EQ(req.primary.ack_timeout, 17);
}

TEST(ConnectionManager, serves_a_kernel_client_with_the_messages_of_a_kernel_server) {
  const Instant now{0};
  Node server(kernel_config(kServer, 0xa0b9c2fffe5fa277), 4);
  ASSERT_TRUE(server.manager.listen(now, PortSpace::Tcp, 7174, 5).has_value());
  const wire::Path path = path_between(kClient, kServer);
  server.manager.handle_mad(now, path, from_hex(kRequest));
  const Event request = server.event(EventType::ConnectRequest);
  EXPECT_EQ(request.parameters.remote, kClient);
  EXPECT_EQ(request.parameters.remote_port, 0x8e1c);
  EXPECT_EQ(request.parameters.remote_qpn, Qpn{0x1b});
  EXPECT_EQ(request.parameters.remote_psn, Psn{0xbdc43f});
  EXPECT_EQ(request.parameters.path_mtu_bytes, 1024u);
  EXPECT_EQ(request.parameters.responder_resources, 1);
  EXPECT_EQ(request.parameters.initiator_depth, 1);
  EXPECT_EQ(request.parameters.ack_timeout_code, 19);
  EXPECT_EQ(request.parameters.retry_count, 7);
  EXPECT_EQ(request.parameters.rnr_retry_count, 7);
  EXPECT_EQ(request.parameters.flow_label, 0x1516au);

  AcceptParams accept;
  accept.qpn = Qpn{0x1b};
  accept.starting_psn = Psn{0x71c60b};
  ASSERT_TRUE(server.manager.accept(now, request.connection, accept).has_value());
  const MadBytes rep = server.sent(now)[0].bytes;
  MadBytes expected = from_hex(kReply);
  copy(expected, rep, kLocalId, 4);
  EXPECT_EQ(rep, expected);
  const std::uint32_t our_id = read<wire::CmRep>(rep).local_comm_id;

  MadBytes rtu = from_hex(kReadyToUse);
  put_id(rtu, kRemoteId, our_id);
  server.manager.handle_mad(now, path, rtu);
  server.event(EventType::Established);

  MadBytes dreq = from_hex(kDisconnect);
  put_id(dreq, kRemoteId, our_id);
  server.manager.handle_mad(now, path, dreq);
  server.event(EventType::Disconnected);
  expected = from_hex(kDisconnected);
  copy(expected, rep, kLocalId, 4);
  EXPECT_EQ(server.sent(now)[0].bytes, expected);
}

TEST(ConnectionManager, speaks_to_a_kernel_server_as_a_kernel_client) {
  const Instant now{0};
  Node client(kernel_config(kClient, 0x1c77fffffe45cff6), 3);
  const ConnectionId id = client.manager.connect(now, kernel_params()).value();
  const MadBytes req = client.sent(now)[0].bytes;
  const std::uint32_t our_id = read<wire::CmReq>(req).local_comm_id;
  const wire::Path path = path_between(kServer, kClient);

  MadBytes rep = from_hex(kReply);
  copy(rep, req, kTransaction, 8);
  put_id(rep, kRemoteId, our_id);
  client.manager.handle_mad(now, path, rep);
  const Event response = client.event(EventType::ConnectResponse);
  EXPECT_EQ(response.parameters.remote_qpn, Qpn{0x1b});
  EXPECT_EQ(response.parameters.remote_psn, Psn{0x71c60b});
  EXPECT_EQ(response.parameters.ack_timeout_code, 19);

  ASSERT_TRUE(client.manager.confirm(now, id).has_value());
  client.event(EventType::Established);
  MadBytes expected = from_hex(kReadyToUse);
  copy(expected, req, kTransaction, 8);
  put_id(expected, kLocalId, our_id);
  EXPECT_EQ(client.sent(now)[0].bytes, expected);

  ASSERT_TRUE(client.manager.disconnect(now, id).has_value());
  const MadBytes dreq = client.sent(now)[0].bytes;
  expected = from_hex(kDisconnect);
  copy(expected, dreq, kTransaction, 8);
  put_id(expected, kLocalId, our_id);
  EXPECT_EQ(dreq, expected);

  MadBytes drep = from_hex(kDisconnected);
  put_id(drep, kRemoteId, our_id);
  client.manager.handle_mad(now, path, drep);
  client.event(EventType::Disconnected);
}

TEST(ConnectionManager, C20_a_killed_kernel_client_frees_the_request) {
  const Instant now{0};
  const Gid local = Gid::from_ipv4(10, 77, 0, 1);
  Node server(kernel_config(local, 1), 4);
  ASSERT_TRUE(server.manager.listen(now, PortSpace::Tcp, 7174, 5).has_value());
  const wire::Path path = path_between(Gid::from_ipv4(10, 77, 0, 11), local);
  server.manager.handle_mad(now, path, from_hex(kKilledRequest));
  const ConnectionId id = server.event(EventType::ConnectRequest).connection;
  server.manager.handle_mad(now, path, from_hex(kKilledReject));
  EXPECT_EQ(server.event(EventType::Rejected).reason, 4);
  ASSERT_TRUE(server.manager.destroy(now, id).has_value());
  EXPECT_EQ(server.manager.footprint(), 0u);
}

TEST(ConnectionManager, gives_up_a_REQ_with_the_REJ_a_killed_kernel_client_sends) {
  const Instant now{0};
  Node client(kernel_config(Gid::from_ipv4(10, 77, 0, 11), 0x505400fffe77000b), 3);
  ConnectParams p = kernel_params();
  p.remote = Gid::from_ipv4(10, 77, 0, 1);
  const ConnectionId id = client.manager.connect(now, p).value();
  const MadBytes req = client.sent(now)[0].bytes;
  ASSERT_TRUE(client.manager.destroy(now, id).has_value());
  MadBytes expected = from_hex(kKilledReject);
  copy(expected, req, kTransaction, 8);
  copy(expected, req, kLocalId, 4);
  EXPECT_EQ(client.sent(now)[0].bytes, expected);
}

}  // namespace
}  // namespace verbena::cm
