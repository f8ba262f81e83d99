// SPDX-License-Identifier: Apache-2.0
// What will happen, ordered by time and, at the same time, by when it was asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "verbena/base/time.h"

namespace verbena::sim {

enum class EventKind : std::uint8_t { Arrival, Tick, Pause, Resume, Cut };

// When something is to happen, and, of what happens at one time, what comes first.
struct Moment {
  Instant at = Instant::never();
  std::uint64_t order = 0;

  bool operator<(const Moment& other) const { return at != other.at ? at < other.at : order < other.order; }
};

struct Event {
  Moment when;
  std::uint32_t argument = 0;
  EventKind kind = EventKind::Tick;
  std::uint8_t node = 0;
};

class EventQueue {
 public:
  void push(Instant at, EventKind kind, std::uint8_t node, std::uint32_t argument) {
    heap_.push_back({moment(at), argument, kind, node});
    std::push_heap(heap_.begin(), heap_.end(), Later{});
  }
  // For something that is kept elsewhere: asked for now.
  Moment moment(Instant at) { return {at, order_++}; }
  bool empty() const { return heap_.empty(); }
  Moment next() const { return heap_.empty() ? Moment{} : heap_.front().when; }
  Event pop() {
    const Event event = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), Later{});
    heap_.pop_back();
    return event;
  }

 private:
  struct Later {
    bool operator()(const Event& a, const Event& b) const { return b.when < a.when; }
  };
  std::vector<Event> heap_;
  std::uint64_t order_ = 0;
};

}  // namespace verbena::sim
