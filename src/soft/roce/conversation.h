// SPDX-License-Identifier: Apache-2.0
// Whether an owed acknowledgement may wait for the peer's next request. Where each request is answered by data of ours,
// the peer knows by them that its requests came; an acknowledgement between two of them costs a packet each way and the
// peer nothing to do without. One for several requests is enough, unless the peer waits for it.
#pragma once

#include <cstdint>

#include "soft/roce/config.h"

namespace verbena::roce {

class Conversation {
 public:
  void on_owed() {
    ++owed_;
    if (eager_ != 0) --eager_;
  }
  // Data of ours left while an acknowledgement was owed.
  void on_reply(Instant now) {
    replied_ = true;
    replied_at_ = now;
  }
  bool holds_back(Instant now, const Config& config) const {
    return replied_ && eager_ == 0 && owed_ < config.max_held_acknowledgements &&
           now < replied_at_ + config.max_hold_time;
  }
  // One that left before it had to shows that no request came: the peer may have waited for it. The next ones go at
  // once.
  void on_acknowledged(const Config& config) {
    if (replied_ && eager_ == 0 && owed_ < config.max_held_acknowledgements) eager_ = kEagerRequests;
    replied_ = false;
    owed_ = 0;
  }

 private:
  static constexpr std::uint32_t kEagerRequests = 64;

  bool replied_ = false;
  Instant replied_at_;
  std::uint32_t owed_ = 0;   // requests since the last acknowledgement
  std::uint32_t eager_ = 0;  // requests left of those that are acknowledged at once
};

}  // namespace verbena::roce
