// SPDX-License-Identifier: Apache-2.0
// How many keep-alives of an engine are out at a time. After a while without turns those of all connections are due at
// once: together they would overrun the socket of a peer that is slow or had a pause, and again when they are repeated.
#pragma once

#include <cstdint>

#include "verbena/base/time.h"

namespace verbena {

class KeepAliveWindow {
 public:
  static constexpr std::uint32_t kMost = 128;  // datagrams of a few bytes, for which a socket of 212,992 has room
  // Who does not answer keeps its place no longer, so that many dead peers are found out soon.
  static constexpr Duration kPatience = Duration::milliseconds(32);

  // When the next may go; a time that is past: now.
  Instant opens_at() const { return out_ < kMost ? Instant{} : full_since_ + kPatience; }
  // One goes, at opens_at() or later. Its mark is given back once, with its answer or its end.
  std::uint64_t take(Instant now) {
    if (out_ == kMost) {
      out_ = 0;
      ++round_;
    }
    if (++out_ == kMost) full_since_ = now;
    return round_;
  }
  void give_back(std::uint64_t mark) {
    if (mark == round_) --out_;
  }

 private:
  std::uint32_t out_ = 0;
  std::uint64_t round_ = 1;
  Instant full_since_;
};

}  // namespace verbena
