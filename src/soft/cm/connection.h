// SPDX-License-Identifier: Apache-2.0
// One connection as data, and the questions about it that need no manager.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "soft/cm/types.h"

namespace verbena::cm {

struct Connection {
  ConnectionId id;
  ListenerId listener;
  bool passive = false;
  bool owned = true;          // a handle exists; destroy() gives it up
  bool announced = true;      // passive: the owner has polled ConnectRequest
  bool ended = false;         // the owner knows that it is over
  State state = State::Idle;  // changed by ConnectionTable only

  std::uint32_t local_comm_id = 0;  // 0: not registered
  std::uint32_t remote_comm_id = 0;
  std::uint64_t remote_guid = 0;
  std::uint64_t transaction = 0;  // of the handshake; DREQ draws another

  ConnectionParameters parameters;
  PrivateData private_data;
  std::uint16_t reason = 0;
  bool explicit_ack_timeout = false;  // the owner chose it; the peer's ACK delay does not count

  // The message that a timer or a duplicate of the peer's makes us send again; REQ, REP, RTU, REJ or DREQ.
  std::array<std::byte, kMadBytes> message{};
  std::uint8_t retries_left = 0;
  std::uint8_t max_retries = 0;
  Duration interval;
  Instant deadline = Instant::never();
  Instant asked_at;  // when the message came that the owner has to answer

  std::vector<std::uint64_t> events;  // not yet polled, as numbers of EventQueue
};

// Passive, and the peer has not shown that it hears us.
constexpr bool is_half_open(const Connection& c) {
  return c.passive && (c.state == State::ReqReceived || c.state == State::MraReqSent ||
                       c.state == State::RepSent || c.state == State::MraRepReceived);
}
// Waits for the application's accept() or reject().
constexpr bool is_pending(const Connection& c) {
  return c.state == State::ReqReceived || c.state == State::MraReqSent;
}
// Our REP is out, no RTU yet.
constexpr bool awaits_rtu(State s) { return s == State::RepSent || s == State::MraRepReceived; }
// Our REQ is out, no REP yet.
constexpr bool awaits_rep(State s) { return s == State::ReqSent || s == State::MraReqReceived; }
// A second connection from the peer's queue pair would be a contradiction (C-02).
constexpr bool holds_remote_qpn(State s) {
  return s != State::Idle && s != State::TimeWait && s != State::RejectSent && !awaits_rep(s);
}

// Data queue pairs: not management, not multicast.
constexpr bool is_usable(Qpn qpn) { return qpn.value() > 1 && qpn != kMulticastQpn; }

// Congestion marks are the network's: what we send carries none of the peer's.
constexpr std::uint8_t without_ecn(std::uint8_t traffic_class) { return traffic_class & 0xfc; }

inline void keep(PrivateData& to, std::span<const std::byte> from) {
  to.size = from.size();
  std::copy(from.begin(), from.end(), to.bytes.begin());
}

// 0 for what is no path MTU.
constexpr std::uint8_t mtu_code(std::uint32_t bytes) {
  for (std::uint8_t code = 1; code <= 5; ++code)
    if (bytes == 128u << code) return code;
  return 0;
}
constexpr std::uint32_t mtu_bytes(std::uint8_t code) { return code >= 1 && code <= 5 ? 128u << code : 0; }

}  // namespace verbena::cm
