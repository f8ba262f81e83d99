// SPDX-License-Identifier: Apache-2.0
#include "soft/cm/table.h"

#include "base/assert.h"

namespace verbena::cm {
namespace {

template <class Map, class Key>
auto* look_up(const Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &*found->second;
}

template <class Key>
void increment(std::map<Key, std::uint32_t>& counts, const Key& key) {
  ++counts[key];
}

template <class Key>
void decrement(std::map<Key, std::uint32_t>& counts, const Key& key) {
  const auto found = counts.find(key);
  VERBENA_ASSERT(found != counts.end() && found->second > 0);
  if (--found->second == 0) counts.erase(found);
}

}  // namespace

Connection& ConnectionTable::create(RandomSource& random, const IdSlot& ids) {
  std::uint32_t comm_id = 0;
  do {
    comm_id = ids.place(random.next_u32(), 32);  // C-16
  } while (comm_id == 0 || by_local_.contains(comm_id));
  auto made = std::make_unique<Connection>();
  Connection& c = *made;
  c.id = ConnectionId{++last_id_};
  c.local_comm_id = comm_id;
  by_local_.emplace(comm_id, &c);
  by_id_.emplace(c.id.value, std::move(made));
  return c;
}

void ConnectionTable::erase(Connection& c) {
  set_state(c, State::Idle);
  by_id_.erase(c.id.value);
}

Connection* ConnectionTable::find(ConnectionId id) const { return look_up(by_id_, id.value); }

Connection* ConnectionTable::find_local(std::uint32_t local_comm_id) const {
  return look_up(by_local_, local_comm_id);
}

Connection* ConnectionTable::find_remote(const Gid& remote, std::uint64_t guid,
                                         std::uint32_t remote_comm_id) const {
  return look_up(by_remote_, RemoteKey{remote, guid, remote_comm_id});
}

Connection* ConnectionTable::find_remote_qpn(const Gid& remote, std::uint64_t guid, Qpn qpn) const {
  return look_up(by_remote_qpn_, RemoteKey{remote, guid, qpn.value()});
}

bool ConnectionTable::register_remote(Connection& c) {
  if (by_remote_.contains(comm_key(c)) || by_remote_qpn_.contains(qpn_key(c))) return false;
  by_remote_.emplace(comm_key(c), &c);
  by_remote_qpn_.emplace(qpn_key(c), &c);
  return true;
}

void ConnectionTable::count(const Connection& c, bool enter) {
  if (is_half_open(c)) {
    half_open_ += enter ? 1u : ~0u;
    enter ? increment(half_open_by_source_, c.parameters.remote)
          : decrement(half_open_by_source_, c.parameters.remote);
  }
  if (is_pending(c)) {
    enter ? increment(pending_by_listener_, c.listener.value)
          : decrement(pending_by_listener_, c.listener.value);
  }
  if (c.state == State::RejectSent) rejections_ += enter ? 1u : ~0u;
}

void ConnectionTable::set_state(Connection& c, State state) {
  count(c, false);
  c.state = state;
  count(c, true);
  if (!holds_remote_qpn(state)) drop_qpn(c);
  if (state == State::Idle) drop_indices(c);
}

void ConnectionTable::drop_qpn(const Connection& c) {
  const auto found = by_remote_qpn_.find(qpn_key(c));
  if (found != by_remote_qpn_.end() && found->second == &c) by_remote_qpn_.erase(found);
}

void ConnectionTable::drop_indices(Connection& c) {
  disarm(c);
  by_local_.erase(c.local_comm_id);
  c.local_comm_id = 0;
  const auto found = by_remote_.find(comm_key(c));
  if (found != by_remote_.end() && found->second == &c) by_remote_.erase(found);
}

void ConnectionTable::arm(Connection& c, Instant at) {
  disarm(c);
  c.deadline = at;
  if (!at.is_never()) timers_.arm(at, c.id);
}

void ConnectionTable::disarm(Connection& c) {
  if (!c.deadline.is_never()) timers_.cancel(c.deadline, c.id);
  c.deadline = Instant::never();
}

std::uint32_t ConnectionTable::half_open(const Gid& source) const {
  const auto found = half_open_by_source_.find(source);
  return found == half_open_by_source_.end() ? 0 : found->second;
}

std::uint32_t ConnectionTable::pending(ListenerId listener) const {
  const auto found = pending_by_listener_.find(listener.value);
  return found == pending_by_listener_.end() ? 0 : found->second;
}

std::size_t ConnectionTable::footprint() const {
  return by_id_.size() + by_local_.size() + by_remote_.size() + by_remote_qpn_.size() +
         half_open_by_source_.size() + pending_by_listener_.size() + timers_.size() + half_open_ +
         rejections_;
}

}  // namespace verbena::cm
