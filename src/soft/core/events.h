// SPDX-License-Identifier: Apache-2.0
// What the device has to say besides completions: collected in order, polled by the driver.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/fifo.h"
#include "verbena/base/verbs.h"

namespace verbena::core {

struct CqId {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const CqId&) const = default;
};
struct PdId {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const PdId&) const = default;
};

struct SrqId {
  std::uint32_t value = 0;
  constexpr auto operator<=>(const SrqId&) const = default;
};

struct Event {
  enum class Kind : std::uint8_t { Completion, Async };
  Kind kind = Kind::Async;
  AsyncEventType type = AsyncEventType::DeviceFatal;  // Kind::Async
  CqId cq;                                            // Kind::Completion and CqError
  Qpn qpn;                                            // events of a queue pair
  SrqId srq;                                          // SrqLimitReached
};

// First in, first out. Bounded by what the owner creates: one pending completion event per CQ, a few per QP.
class EventQueue {
 public:
  void completion(CqId cq) {
    events_.push_back({Event::Kind::Completion, AsyncEventType::DeviceFatal, cq, {}, {}});
  }
  void of_qp(AsyncEventType type, Qpn qpn) { events_.push_back({Event::Kind::Async, type, {}, qpn, {}}); }
  void of_cq(AsyncEventType type, CqId cq) { events_.push_back({Event::Kind::Async, type, cq, {}, {}}); }
  void limit_reached(SrqId srq) {
    events_.push_back({Event::Kind::Async, AsyncEventType::SrqLimitReached, {}, {}, srq});
  }
  // A completion queue overran; the device moves every queue pair on it to ERR.
  void overrun(CqId cq) {
    of_cq(AsyncEventType::CqError, cq);
    broken_.push_back(cq);
  }
  bool any_broken() const { return !broken_.empty(); }
  std::optional<CqId> poll_broken() {
    if (broken_.empty()) return std::nullopt;
    const CqId cq = broken_.back();
    broken_.pop_back();
    return cq;
  }
  bool empty() const { return events_.empty(); }
  std::optional<Event> poll() {
    if (events_.empty()) return std::nullopt;
    return events_.take_front();
  }

 private:
  Fifo<Event> events_;
  std::vector<CqId> broken_;
};

}  // namespace verbena::core
