// SPDX-License-Identifier: Apache-2.0
// All connections of a manager, and every way to find one. Keeps the counts that bound what peers can make us
// hold.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "base/id_slot.h"
#include "base/random.h"
#include "soft/cm/connection.h"
#include "soft/cm/timers.h"

namespace verbena::cm {

class ConnectionTable {
 public:
  // A new connection in Idle with a random communication id of the slot. Never null: the caller has asked size() first.
  Connection& create(RandomSource& random, const IdSlot& ids);
  // Frees the connection; its timers and indices with it.
  void erase(Connection& c);

  // Null if there is none.
  Connection* find(ConnectionId id) const;
  Connection* find_local(std::uint32_t local_comm_id) const;
  Connection* find_remote(const Gid& remote, std::uint64_t guid, std::uint32_t remote_comm_id) const;
  Connection* find_remote_qpn(const Gid& remote, std::uint64_t guid, Qpn qpn) const;

  // Enters the peer's identity (remote gid, guid, communication id, QPN); false, and no change, if it is
  // taken.
  bool register_remote(Connection& c);
  // Changes the state and every count that depends on it. Idle releases all indices.
  void set_state(Connection& c, State state);

  void arm(Connection& c, Instant at);
  void disarm(Connection& c);
  Instant next_deadline() const { return timers_.next(); }
  Connection* due(Instant now) const { return find(timers_.due(now)); }

  std::size_t size() const { return by_id_.size(); }
  std::uint32_t half_open() const { return half_open_; }
  std::uint32_t half_open(const Gid& source) const;
  std::uint32_t pending(ListenerId listener) const;
  std::uint32_t rejections() const { return rejections_; }
  // Entries in all indices and timers; 0 when every connection is gone.
  std::size_t footprint() const;
  // In order of creation.
  const std::map<std::uint64_t, std::unique_ptr<Connection>>& all() const { return by_id_; }

 private:
  using RemoteKey = std::tuple<Gid, std::uint64_t, std::uint32_t>;
  static RemoteKey comm_key(const Connection& c) {
    return {c.parameters.remote, c.remote_guid, c.remote_comm_id};
  }
  static RemoteKey qpn_key(const Connection& c) {
    return {c.parameters.remote, c.remote_guid, c.parameters.remote_qpn.value()};
  }
  void count(const Connection& c, bool enter);
  void drop_qpn(const Connection& c);
  void drop_indices(Connection& c);

  std::map<std::uint64_t, std::unique_ptr<Connection>> by_id_;
  std::map<std::uint32_t, Connection*> by_local_;
  std::map<RemoteKey, Connection*> by_remote_;
  std::map<RemoteKey, Connection*> by_remote_qpn_;
  std::map<Gid, std::uint32_t> half_open_by_source_;
  std::map<std::uint64_t, std::uint32_t> pending_by_listener_;
  TimerQueue timers_;
  std::uint32_t half_open_ = 0;
  std::uint32_t rejections_ = 0;
  std::uint64_t last_id_ = 0;
};

}  // namespace verbena::cm
