// SPDX-License-Identifier: Apache-2.0
// The connection manager of one device: IB CM over QP 1 with RDMA-CM addressing (format reference 9).
//
// Commands, datagrams and time go in; datagrams, a deadline and events come out. It holds no clock, thread or
// socket, and the same inputs with the same random numbers give the same outputs. One thread at a time.
//
// A ConnectionId lives from connect() or ConnectRequest until destroy(). destroy() never waits: what the
// protocol still owes the peer is done by an entry that nobody owns. No command and no datagram makes the
// manager forget a bound of ManagerConfig. Without an accepted connection, it never sends more messages than
// it receives.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>

#include "base/random.h"
#include "soft/cm/connection.h"
#include "soft/cm/event_queue.h"
#include "soft/cm/messages.h"
#include "soft/cm/table.h"
#include "soft/cm/types.h"
#include "soft/wire/path.h"
#include "verbena/base/result.h"

namespace verbena::cm {

class Manager {
 public:
  // `random` outlives the manager.
  Manager(const ManagerConfig& config, RandomSource& random);

  // Port 0 picks a free one; see listening_port(). `backlog` bounds the requests not yet accepted or
  // rejected.
  Result<ListenerId> listen(Instant now, PortSpace port_space, std::uint16_t port, std::uint32_t backlog);
  Result<std::uint16_t> listening_port(ListenerId id) const;
  // Requests whose event was not polled are rejected; polled ones stay the owner's.
  Result<void> stop_listening(Instant now, ListenerId id);

  Result<ConnectionId> connect(Instant now, const ConnectParams& params);
  Result<void> accept(Instant now, ConnectionId id, const AcceptParams& params);
  // Passive: instead of accept(). Active: instead of confirm(). The id stays until destroy().
  Result<void> reject(Instant now, ConnectionId id, std::span<const std::byte> private_data = {},
                      RejectReason reason = RejectReason::Consumer);
  // Active: the owner's queue pair is in RTS after ConnectResponse. Sends RTU; Established follows.
  Result<void> confirm(Instant now, ConnectionId id);
  // Passive: a data packet came before RTU (C-06). Established follows.
  Result<void> establish(Instant now, ConnectionId id);
  // Disconnected and TimewaitExit follow.
  Result<void> disconnect(Instant now, ConnectionId id);
  // No further event of this id.
  Result<void> destroy(Instant now, ConnectionId id);
  Result<ConnectionInfo> query(ConnectionId id) const;

  // The payload of a datagram to QP 1 whose BTH, DETH and ICRC are right.
  void handle_mad(Instant now, const wire::Path& path, std::span<const std::byte> mad);
  void handle_timeout(Instant now);

  bool poll_transmit(Instant now, OutgoingMad& out);
  // Whether the polls would give something; cheaper than asking them.
  bool transmit_waits() const { return !outgoing_.empty(); }
  bool event_waits() const { return !events_.empty(); }
  Instant next_deadline() const { return table_.next_deadline(); }
  bool poll_event(Event& out);

  const Counters& counters() const { return counters_; }
  const ManagerConfig& config() const { return config_; }
  std::size_t connections() const { return table_.size(); }
  std::uint32_t half_open() const { return table_.half_open(); }
  // Entries in every table and queue except listeners; 0 at rest.
  std::size_t footprint() const { return table_.footprint() + events_.size() + outgoing_.size(); }

 private:
  struct Listener {
    ListenerId id;
    std::uint32_t backlog = 0;
  };
  using Port = std::pair<PortSpace, std::uint16_t>;

  // commands.cc
  Result<std::uint16_t> pick_port(PortSpace port_space);
  Result<void> check(const ConnectParams& params) const;
  Result<Connection*> owned(ConnectionId id, const char* command) const;
  Result<void> wrong_state(const Connection& c, const char* command) const;

  // input.cc: one per message; each checks ids, source and state itself
  void on_req(Instant now, const wire::Path& path, const wire::MadHeader& header, const wire::CmReq& req);
  void on_rep(Instant now, const wire::Path& path, const wire::MadHeader& header, const wire::CmRep& rep);
  void on_first_rep(Instant now, Connection& c, const wire::MadHeader& header, const wire::CmRep& rep);
  void on_rtu(const wire::Path& path, const wire::MadHeader& header, const wire::CmRtu& rtu);
  void on_rej(Instant now, const wire::Path& path, const wire::MadHeader& header, const wire::CmRej& rej);
  // Whom a REJ speaks of; null, and counted, when it may not.
  Connection* rejected(const wire::Path& path, const wire::MadHeader& header, const wire::CmRej& rej);
  void on_mra(Instant now, const wire::Path& path, const wire::MadHeader& header, const wire::CmMra& mra);
  void on_dreq(Instant now, const wire::Path& path, const wire::MadHeader& header, const wire::CmDreq& dreq);
  void on_drep(Instant now, const wire::Path& path, const wire::CmDrep& drep);
  void on_sidr_req(const wire::Path& path, const wire::MadHeader& header, const wire::CmSidrReq& sidr);

  // requests.cc
  void on_duplicate_req(Instant now, Connection& c, const wire::Path& path, const wire::MadHeader& header,
                        const wire::CmReq& req);
  // Why the request is refused, and counts it; nullopt to admit it.
  std::optional<RejectReason> judge(const wire::Path& path, const wire::CmReq& req, const Listener* listener);
  void admit(Instant now, const wire::Path& path, const wire::MadHeader& header, const wire::CmReq& req,
             const Listener& listener);
  const Listener* listener_for(std::uint64_t service_id) const;

  // transitions.cc
  void to_established(Connection& c);
  void start_disconnect(Instant now, Connection& c);
  void enter_timewait(Instant now, Connection& c);
  // The handshake ended: event, Idle.
  void fail(Connection& c, EventType type, std::uint16_t reason);
  void tear_down_stale(Instant now, Connection& c);
  void send_reject(Instant now, Connection& c, std::span<const std::byte> private_data, RejectReason reason);
  void turn_away(Instant now, Connection& c);
  void send_timeout_reject(Connection& c);
  void finish(Connection& c);
  void raise(Connection& c, EventType type, std::uint16_t reason = 0);
  void resend_on_timer(Instant now, Connection& c);
  void give_up(Instant now, Connection& c);
  void expire(Instant now, Connection& c);
  void arm_retry(Instant now, Connection& c);
  void begin_retries(Instant now, Connection& c);

  // manager.cc
  void send(const Gid& to, std::uint8_t traffic_class, const MadBytes& mad);
  void send(const Connection& c, const MadBytes& mad);
  void count_sent(const MadBytes& mad);

  // Connection the message speaks of by both ids, from its own peer; otherwise null, and counted.
  Connection* match(const wire::Path& path, std::uint32_t our_id, std::uint32_t their_id);
  // The same by our id only.
  Connection* match_own(const wire::Path& path, std::uint32_t our_id);
  std::uint8_t capped(std::uint8_t peer_code) const {
    return std::min(peer_code, config_.peer_timeout_code_limit);
  }

  ManagerConfig config_;
  RandomSource& random_;
  ConnectionTable table_;
  EventQueue events_;
  std::map<Port, Listener> listeners_;
  std::map<std::uint64_t, Port> ports_;  // by ListenerId
  std::deque<OutgoingMad> outgoing_;
  Counters counters_;
  std::uint64_t last_listener_ = 0;
};

}  // namespace verbena::cm
