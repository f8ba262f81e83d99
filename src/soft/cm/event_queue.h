// SPDX-License-Identifier: Apache-2.0
// Events in order. Every entry belongs to a connection that still exists, so connections bound the queue.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "soft/cm/connection.h"

namespace verbena::cm {

class EventQueue {
 public:
  struct Entry {
    ConnectionId connection;
    EventType type = EventType::ConnectRequest;
    std::uint16_t reason = 0;
  };

  // At most one of each type waits per connection.
  void post(Connection& c, EventType type, std::uint16_t reason) {
    for (const std::uint64_t number : c.events)
      if (entries_.at(number).type == type) return;
    c.events.push_back(++last_);
    entries_.emplace(last_, Entry{c.id, type, reason});
  }
  void withdraw_all(Connection& c) {
    for (const std::uint64_t number : c.events) entries_.erase(number);
    c.events.clear();
  }
  void withdraw(Connection& c, EventType type) {
    std::erase_if(c.events, [&](std::uint64_t number) {
      return entries_.at(number).type == type && entries_.erase(number) == 1;
    });
  }
  bool empty() const { return entries_.empty(); }
  ConnectionId front_connection() const { return entries_.begin()->second.connection; }
  // `c` is the connection of the first entry.
  Entry pop(Connection& c) {
    const Entry entry = entries_.begin()->second;
    std::erase(c.events, entries_.begin()->first);
    entries_.erase(entries_.begin());
    return entry;
  }
  std::size_t size() const { return entries_.size(); }

 private:
  std::map<std::uint64_t, Entry> entries_;
  std::uint64_t last_ = 0;
};

}  // namespace verbena::cm
