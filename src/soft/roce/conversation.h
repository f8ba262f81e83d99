// SPDX-License-Identifier: Apache-2.0
// Whether an owed acknowledgement may wait for the peer's next request. Where each request is answered by data of ours,
// the peer knows by them that its requests came; an acknowledgement between two of them costs a packet each way and the
// peer nothing to do without. One for several requests is enough, unless the peer waits for it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "soft/roce/config.h"

namespace verbena::roce {

class Conversation {
 public:
  // Requests that are to be acknowledged; `first`: nothing else is. True when so many are that it must not wait.
  bool on_owed(Instant now, bool first, const Config& config, std::uint32_t requests) {
    if (first) {
      owed_ = 0;
      replied_ = worked_ = false;
      since_ = now;
    }
    if (replied_) worked_ = true;
    answered_ = false;
    asked_at_ = now;
    eager_ -= std::min(eager_, requests);
    owed_ += requests;
    return owed_ >= config.max_owed_acknowledgements;
  }
  // Data of ours left for that peer while an acknowledgement was owed, by this queue pair or another: where each
  // direction has its own, those are the answers. The first after a request tells the pace.
  void on_reply(Instant now, const Config& config) {
    if (answered_) return;
    pace_ = std::clamp(now - replied_at_, config.min_hold_time / 2, config.max_hold_time / 2) * 2;
    answered_ = replied_ = true;
    replied_at_ = now;
  }
  // Not where it would be due before the next request came and was answered: then it leaves with this answer. Nor for
  // long where the newest request is not answered: the peer may have no other to send before it hears of these.
  bool holds_back(Instant now, const Config& config) const {
    const bool may_be_answered = answered_ || now < asked_at_ + config.min_hold_time / 2;
    return replied_ && may_be_answered && eager_ == 0 && owed_ < config.max_held_acknowledgements &&
           now < replied_at_ + pace_ && replied_at_ + pace_ <= since_ + config.max_owed_ack_time;
  }
  // One that left for want of anything else, or in the middle of a stream of ours, shows that the next request did not
  // come: the peer may wait for it, or was held up itself. The next ones go at once; twice as many as the time before,
  // unless holding back worked meanwhile.
  void on_acknowledged(Instant now, bool alone) {
    if (!replied_ || eager_ != 0) return;
    if ((alone || answered_) && replied_at_ != now) {
      eager_ = patience_;
      patience_ = std::min(2 * patience_, kMostEager);
    } else if (worked_) {
      patience_ = kLeastEager;
    }
  }

 private:
  static constexpr std::uint32_t kLeastEager = 8, kMostEager = 4096;

  bool replied_ = false;   // since the first of those owed
  bool worked_ = false;    // a request came after that
  bool answered_ = false;  // the newest request
  std::uint32_t owed_ = 0;   // requests
  std::uint32_t eager_ = 0;  // requests left of those that are acknowledged at once
  std::uint32_t patience_ = kLeastEager;  // how many those will be the next time
  Instant since_;                         // the first of those owed
  Instant asked_at_;                      // the newest
  Instant replied_at_;
  Duration pace_;  // twice what passed between the last two replies, within bounds
};

}  // namespace verbena::roce
