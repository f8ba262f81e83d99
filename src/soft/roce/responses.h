// SPDX-License-Identifier: Apache-2.0
// What the responder has yet to say, in the order of the requests: READ data, atomic results,
// acknowledgements.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "soft/roce/link.h"

namespace verbena::roce {

struct Response {
  enum class Kind : std::uint8_t { Acknowledge, Nak, Read, Atomic };
  Kind kind = Kind::Acknowledge;
  std::uint8_t syndrome = wire::kSyndromeAck;
  bool prompt = false;  // Acknowledge: must not wait
  Psn psn;              // of the (next) response packet
  std::uint32_t msn = 0;
  std::uint64_t value = 0;  // Atomic: original
  std::uint64_t va = 0;     // Read: what is left
  RKey rkey;
  std::uint32_t length = 0;
  bool began = false;  // Read: the first packet is out
  bool filled = false;  // Read: a train with its packets
  bool again = false;  // answers a duplicate: the requester may have the first answer already
  Instant since;       // Acknowledge: owed since; Read: when its latest packet left
};

// A bounded queue that takes memory when it is first used. An acknowledgement is only ever last: whatever follows says
// as much.
class ResponseQueue {
 public:
  void reset() { *this = {}; }
  // For at least so many.
  void make_room(std::size_t capacity) { capacity_ = std::max(capacity_, capacity); }
  bool empty() const { return count_ == 0; }
  bool full() const { return count_ == capacity_; }
  std::size_t size() const { return count_; }
  Response& front() { return ring_[head_]; }
  const Response& front() const { return ring_[head_]; }
  Response& back() { return at(count_ - 1); }
  void pop() {
    head_ = place_of(1);
    --count_;
  }
  void clear() { count_ = 0; }

  // False when there is no room.
  bool push(const Response& response) {
    if (!empty() && back().kind == Response::Kind::Acknowledge) --count_;
    if (full()) return false;
    if (count_ == ring_.size()) grow();
    ++count_;
    back() = response;
    return true;
  }
  // Puts the answer to a duplicate in the place of everything from its PSN on, which the requester asks for again.
  // The acknowledgement or NAK that stood last stays: the duplicate may come from the network, not from the requester.
  void replay(const Response& response) {
    const bool keeps = !empty() && !back().psn.is_before(response.psn) && !is_fetch(back().kind);
    const Response last = keeps ? back() : Response{};
    while (!empty() && !back().psn.is_before(response.psn)) --count_;
    push(response);
    if (keeps) push(last);
  }
  // READs and atomics that the requester cannot have an answer to.
  std::size_t pending_fetches() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < count_; ++i) {
      const Response& response = at(i);
      const bool fetch = response.kind == Response::Kind::Read || response.kind == Response::Kind::Atomic;
      n += fetch && !response.again ? 1 : 0;
    }
    return n;
  }

 private:
  // The i-th place from the front on, i at most the size of the ring: a division would take as long as all else here.
  std::size_t place_of(std::size_t i) const {
    const std::size_t place = head_ + i;
    return place < ring_.size() ? place : place - ring_.size();
  }
  Response& at(std::size_t i) { return ring_[place_of(i)]; }
  const Response& at(std::size_t i) const { return ring_[place_of(i)]; }

  static bool is_fetch(Response::Kind kind) { return kind == Response::Kind::Read || kind == Response::Kind::Atomic; }

  void grow() {
    constexpr std::size_t kFirst = 4;
    std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(head_), ring_.end());
    head_ = 0;
    ring_.resize(std::min(capacity_, std::max(kFirst, 2 * ring_.size())));
  }

  std::vector<Response> ring_;
  std::size_t capacity_ = 0;
  std::size_t head_ = 0, count_ = 0;
};

}  // namespace verbena::roce
