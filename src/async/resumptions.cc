// SPDX-License-Identifier: Apache-2.0
#include "async/resumptions.h"

#include <utility>

#include "async/engine_state.h"

namespace verbena::detail {

namespace {

constexpr int kMostPerRun = 256;  // devices have their turn in between

}  // namespace

void Resumption::make_ready() { engine_->resume_soon(*this); }
void Resumption::make_ready_at(Instant at) { engine_->resume_at(*this, at); }
void Resumption::leave() {
  unlink();
  if (place_ != kNoPlace) engine_->forget_timer(*this);
}

Resumptions::~Resumptions() {
  for (Resumption* const r : timers_) r->place_ = Resumption::kNoPlace;
}

void Resumptions::add_ready(Resumption& r) {
  if (r.place_ != Resumption::kNoPlace) remove_timer(r);
  ready_.push_back(r);
}

bool Resumptions::run() {
  int left = kMostPerRun;
  for (; left > 0 && !ready_.empty(); --left) {
    Resumption& r = ready_.first();
    r.unlink();
    if (r.act_ != nullptr)
      r.act_(r);
    else
      r.who_.resume();
  }
  return left != kMostPerRun;
}

bool Resumptions::expire(Instant now) {
  bool any = false;
  while (next_due() <= now) {
    add_ready(*timers_.front());
    any = true;
  }
  return any;
}

// ---- The heap.

void Resumptions::add_timer(Resumption& r, Instant at) {
  if (r.place_ != Resumption::kNoPlace) remove_timer(r);
  r.at_ = at;
  r.place_ = timers_.size();
  timers_.push_back(&r);
  rise(r.place_);
}

void Resumptions::remove_timer(Resumption& r) {
  const std::size_t place = r.place_;
  swap_places(place, timers_.size() - 1);
  timers_.pop_back();
  r.place_ = Resumption::kNoPlace;
  if (place == timers_.size()) return;
  rise(place);
  sink(place);
}

void Resumptions::swap_places(std::size_t a, std::size_t b) {
  std::swap(timers_[a], timers_[b]);
  timers_[a]->place_ = a;
  timers_[b]->place_ = b;
}

void Resumptions::rise(std::size_t place) {
  for (std::size_t above = (place - 1) / 2; place != 0; place = above, above = (place - 1) / 2) {
    if (timers_[above]->at_ <= timers_[place]->at_) return;
    swap_places(above, place);
  }
}

void Resumptions::sink(std::size_t place) {
  for (;;) {
    std::size_t earliest = place;
    for (const std::size_t below : {2 * place + 1, 2 * place + 2})
      if (below < timers_.size() && timers_[below]->at_ < timers_[earliest]->at_) earliest = below;
    if (earliest == place) return;
    swap_places(earliest, place);
    place = earliest;
  }
}

}  // namespace verbena::detail
