// SPDX-License-Identifier: Apache-2.0
// What a responder still has to say, in the order of the requests: the READs and atomics it answers, and behind them
// one number up to which all is done, or why it is not. Bounded, whatever the peer does.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "soft/local/message.h"
#include "verbena/base/time.h"

namespace verbena::local {

// The answer to a READ or atomic.
struct Fetch {
  bool atomic = false;
  std::uint32_t number = 0;
  std::uint32_t length = 0;  // READ: what is left
  std::uint64_t address = 0;
  RKey rkey;
  std::uint64_t value = 0;  // atomic: the one before
};

class Answers {
 public:
  void clear() {
    const std::size_t most = max_fetches_;
    *this = {};
    max_fetches_ = most;
  }
  // From now on. What is to be answered stays.
  void limit_fetches(std::size_t most) { max_fetches_ = most; }

  bool can_fetch() const { return count_ < max_fetches_; }
  // Its answer says as much as what was owed before it.
  void push(const Fetch& fetch) {
    if (ring_.size() < max_fetches_) {
      std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(head_), ring_.end());
      head_ = 0;
      ring_.resize(max_fetches_);
    }
    ring_[(head_ + count_++) % ring_.size()] = fetch;
    settle();
  }
  bool any_fetch() const { return count_ != 0; }
  Fetch& fetch() { return ring_[head_]; }
  const Fetch& fetch() const { return ring_[head_]; }
  void pop_fetch() {
    head_ = (head_ + 1) % ring_.size();
    --count_;
  }

  // All up to `number` is done: an acknowledgement is owed. Returns whether one was before.
  bool owe(Instant now, std::uint32_t number) {
    number_ = number;
    if (owed_ == 0) since_ = now;
    return owed_++ != 0;
  }
  void settle() {
    owed_ = 0;
    due_ = false;
  }
  std::uint32_t owed() const { return owed_; }
  // What is owed waits no longer.
  void make_due() { due_ = owed_ != 0; }
  bool due() const { return due_; }
  // Nothing but an acknowledgement: a request of ours may carry it.
  bool is_only_owed() const { return owed_ != 0 && count_ == 0 && !says_no(); }
  std::uint32_t number() const { return number_; }
  Instant since() const { return since_; }

  // Not this one; all before it is done.
  void say_no(RecordKind kind, std::uint8_t code, std::uint32_t number) {
    no_ = kind;
    code_ = code;
    number_ = number;
    settle();
  }
  bool says_no() const { return no_ != RecordKind::Acknowledge; }
  void said_no() { no_ = RecordKind::Acknowledge; }

  bool empty() const { return count_ == 0 && owed_ == 0 && !says_no(); }
  // Behind the fetches.
  Response last() const {
    Response response;
    response.kind = no_;
    response.code = says_no() ? code_ : std::uint8_t{0};
    response.number = number_;
    return response;
  }

 private:
  std::vector<Fetch> ring_;  // from the first fetch on
  std::size_t max_fetches_ = 0;
  std::size_t head_ = 0, count_ = 0;
  RecordKind no_ = RecordKind::Acknowledge;  // or NotReady, Refuse
  std::uint8_t code_ = 0;
  std::uint32_t number_ = 0;
  std::uint32_t owed_ = 0;  // requests since the last answer
  bool due_ = false;
  Instant since_;
};

}  // namespace verbena::local
