// SPDX-License-Identifier: Apache-2.0
// What an engine shall resume: now, and at a time.
#pragma once

#include <vector>

#include "verbena/async/resumption.h"

namespace verbena::detail {

class Resumptions {
 public:
  Resumptions() = default;
  ~Resumptions();  // who still waits for a time waits for nothing, and may be destroyed later
  Resumptions(const Resumptions&) = delete;
  Resumptions& operator=(const Resumptions&) = delete;

  bool has_ready() const { return !ready_.empty(); }
  bool has_several_ready() const { return ready_.has_several(); }
  // When the next timer is due.
  Instant next_due() const { return timers_.empty() ? Instant::never() : timers_.front()->at_; }

  void add_ready(Resumption& r);
  void add_timer(Resumption& r, Instant at);
  void remove_timer(Resumption& r);

  // True when any timer was due.
  bool expire(Instant now);
  // Does what is ready, and what becomes so meanwhile, within limits. True when there was anything.
  bool run();

 private:
  void swap_places(std::size_t a, std::size_t b);
  void rise(std::size_t place);
  void sink(std::size_t place);

  ResumptionList ready_;
  std::vector<Resumption*> timers_;  // a binary heap, earliest first
};

}  // namespace verbena::detail
