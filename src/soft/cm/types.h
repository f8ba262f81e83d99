// SPDX-License-Identifier: Apache-2.0
// What the connection manager takes and gives: ids, configuration, command parameters, events, counters.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/id_slot.h"
#include "soft/wire/cm_message.h"
#include "verbena/base/gid.h"
#include "verbena/base/ids.h"
#include "verbena/base/time.h"

namespace verbena::cm {

using wire::kMadBytes;
using wire::PortSpace;
using RejectReason = wire::CmRejectReason;

// User private data per message (C-12). Receivers always see the full size, zero padded.
inline constexpr std::size_t kConnectPrivateBytes = 56;  // REQ, behind the 36-byte address header
inline constexpr std::size_t kAcceptPrivateBytes = 196;  // REP
inline constexpr std::size_t kRejectPrivateBytes = 148;  // REJ

// Never reused within a manager's life.
struct ListenerId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const ListenerId&) const = default;
};
struct ConnectionId {
  std::uint64_t value = 0;
  constexpr auto operator<=>(const ConnectionId&) const = default;
};

struct ManagerConfig {
  Gid local;
  std::uint64_t ca_guid = 0;
  IdSlot ids;  // communication ids are drawn from it

  // Timer codes: t stands for 2^max(t-8,0) ms.
  std::uint8_t response_timeout_code = 20;
  std::uint8_t packet_lifetime_code = 16;
  std::uint8_t max_retries = 15;  // at most 15
  std::uint8_t target_ack_delay_code = 15;
  // Times a peer states (response time, ACK timeout) count in our timers up to this code only.
  std::uint8_t peer_timeout_code_limit = 21;
  // How long an MRA may hold us, as a code.
  std::uint8_t mra_service_code_limit = 24;
  // A repeated REQ is answered with MRA once the application has been silent for this long.
  Duration mra_after = Duration::forever();
  std::uint8_t mra_service_code = 20;

  std::uint32_t half_open_per_source = 256;
  std::uint32_t half_open_total = 4096;
  std::uint32_t connections = 65536;       // in every state, the ones that linger included
  std::uint32_t rejections_kept = 4096;    // rejected requests remembered for their duplicates
  std::uint32_t outgoing_messages = 8192;  // not yet polled; more are dropped and counted
  std::uint32_t listeners = 4096;

  std::uint8_t max_responder_resources = 16;  // C-19
  std::uint8_t max_initiator_depth = 16;
  std::uint32_t max_path_mtu_bytes = 4096;
};

struct ConnectParams {
  Gid remote;
  PortSpace port_space = PortSpace::Tcp;
  std::uint16_t port = 0;
  Qpn qpn;
  Psn starting_psn;
  std::uint8_t responder_resources = 1;
  std::uint8_t initiator_depth = 1;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry_count = 7;
  std::uint32_t path_mtu_bytes = 1024;
  std::uint8_t ack_timeout_code = 0;  // 0: from packet lifetime and ACK delay
  bool srq = false;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;  // 20 bits; 0: a random one
  std::span<const std::byte> private_data;
};

struct AcceptParams {
  Qpn qpn;
  Psn starting_psn;
  std::uint8_t responder_resources = 0xff;  // cut to what both sides can do
  std::uint8_t initiator_depth = 0xff;
  std::uint8_t rnr_retry_count = 7;
  bool srq = false;
  std::span<const std::byte> private_data;
};

enum class State : std::uint8_t {
  Idle,  // over; only the owner's handle is left
  ReqSent,
  MraReqReceived,  // peer asked for patience with our REQ
  RepReceived,     // waits for confirm()
  ReqReceived,     // waits for accept() or reject()
  MraReqSent,      // the same, peer told to be patient
  RepSent,
  MraRepReceived,
  Established,
  DreqSent,
  TimeWait,
  RejectSent,  // answers duplicates with the same REJ
};
std::string_view to_string(State state);

// What the owner needs for its queue pair, and what can be said of the peer. All from our point of view:
// responder_resources is what our queue pair must hold, initiator_depth what it may use.
struct ConnectionParameters {
  Gid remote;
  PortSpace port_space = PortSpace::Tcp;
  std::uint16_t local_port = 0;
  std::uint16_t remote_port = 0;
  Qpn local_qpn;
  Qpn remote_qpn;
  Psn local_psn;
  Psn remote_psn;
  std::uint32_t path_mtu_bytes = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t ack_timeout_code = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
  bool remote_srq = false;
};

// Private data of the last REQ, REP or REJ of the peer.
struct PrivateData {
  std::array<std::byte, kAcceptPrivateBytes> bytes{};
  std::size_t size = 0;
  std::span<const std::byte> span() const { return {bytes.data(), size}; }
};

struct ConnectionInfo {
  State state = State::Idle;
  bool passive = false;
  ConnectionParameters parameters;
  PrivateData private_data;
  std::uint16_t reason = 0;  // REJ reason of the end, 0 if none
};

enum class EventType : std::uint8_t {
  ConnectRequest,   // passive: accept() or reject()
  ConnectResponse,  // active: move the queue pair to RTS, then confirm()
  Established,
  Rejected,      // reason, private data
  Unreachable,   // the peer stopped answering during the handshake
  ConnectError,  // the handshake ended otherwise
  Disconnected,  // move the queue pair to error
  TimewaitExit,  // the queue pair number may be used again
};
std::string_view to_string(EventType type);

struct Event {
  EventType type = EventType::ConnectRequest;
  ConnectionId connection;
  ListenerId listener;  // with ConnectRequest
  std::uint16_t reason = 0;
  ConnectionParameters parameters;
  PrivateData private_data;
};

struct OutgoingMad {
  Gid destination;
  std::uint8_t traffic_class = 0;
  std::array<std::byte, kMadBytes> bytes{};
};

struct Counters {
  std::uint64_t cm_req_sent = 0, cm_req_rcvd = 0;
  std::uint64_t cm_mra_sent = 0, cm_mra_rcvd = 0;
  std::uint64_t cm_rej_sent = 0, cm_rej_rcvd = 0;
  std::uint64_t cm_rep_sent = 0, cm_rep_rcvd = 0;
  std::uint64_t cm_rtu_sent = 0, cm_rtu_rcvd = 0;
  std::uint64_t cm_dreq_sent = 0, cm_dreq_rcvd = 0;
  std::uint64_t cm_drep_sent = 0, cm_drep_rcvd = 0;
  std::uint64_t cm_sidr_req_rcvd = 0, cm_sidr_rep_sent = 0;
  std::uint64_t cm_retries = 0;     // messages sent again by a timer
  std::uint64_t cm_duplicates = 0;  // REQ, REP, RTU, DREQ seen before
  // REJ sent, by cause.
  std::uint64_t cm_rej_no_listener = 0, cm_rej_backlog = 0, cm_rej_limit = 0, cm_rej_stale = 0;
  std::uint64_t cm_rej_bad_address = 0, cm_rej_unsupported = 0, cm_rej_consumer = 0, cm_rej_timeout = 0;
  std::uint64_t cm_rej_unknown_id = 0;
  // Messages dropped, by reason.
  std::uint64_t cm_drop_malformed = 0;    // length, class, version, method (C-18)
  std::uint64_t cm_drop_attribute = 0;    // a message we do not speak
  std::uint64_t cm_drop_source = 0;       // from another address than the peer's (C-17)
  std::uint64_t cm_drop_destination = 0;  // not to us
  std::uint64_t cm_drop_unknown_id = 0;   // C-10
  std::uint64_t cm_drop_transaction = 0;
  std::uint64_t cm_drop_qpn = 0;         // C-08
  std::uint64_t cm_drop_state = 0;       // C-09
  std::uint64_t cm_drop_queue_full = 0;  // ours, not polled in time

  std::uint64_t dropped() const {
    return cm_drop_malformed + cm_drop_attribute + cm_drop_source + cm_drop_destination + cm_drop_unknown_id +
           cm_drop_transaction + cm_drop_qpn + cm_drop_state;
  }
};

}  // namespace verbena::cm
