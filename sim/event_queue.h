// SPDX-License-Identifier: Apache-2.0
// What will happen, ordered by time and, at the same time, by when it was asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "verbena/base/time.h"

namespace verbena::sim {

enum class EventKind : std::uint8_t { Arrival, Poll, Tick, Pause, Resume, Cut, Mend };

struct Event {
  Instant at;
  std::uint64_t order = 0;
  std::uint32_t argument = 0;
  EventKind kind = EventKind::Poll;
  std::uint8_t node = 0;
};

class EventQueue {
 public:
  void push(Instant at, EventKind kind, std::uint8_t node, std::uint32_t argument) {
    heap_.push_back({at, order_++, argument, kind, node});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  bool empty() const { return heap_.empty(); }
  Instant next() const { return heap_.empty() ? Instant::never() : heap_.front().at; }
  Event pop() {
    const Event event = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    heap_.pop_back();
    return event;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace verbena::sim
