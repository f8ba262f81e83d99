// SPDX-License-Identifier: Apache-2.0
// Regions of the peer that this process reaches by itself, and those it asked for: one copy, and the peer's
// processor takes no part.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "soft/local/grants.h"
#include "verbena/base/verbs.h"

namespace verbena::local {

struct PeerRegion {
  RKey rkey;
  std::uint64_t iova = 0, length = 0;
  Access access = Access::None;  // what it grants, of RemoteRead, RemoteWrite and RemoteAtomic
  std::uint32_t slot = 0;        // of the peer's grants
  std::byte* base =
      nullptr;  // where it is mapped here; nullptr: it is not, and is read by PeerMemory::pull()
  std::uint64_t address = 0;  // in the peer's own memory

  bool covers(std::uint64_t va, std::uint64_t bytes) const { return holds(va, iova, bytes); }
  // The peer's own address of bytes that are mapped and may be read here; null: they are not.
  const std::byte* mapped(std::uint64_t at, std::uint64_t bytes) const {
    return base != nullptr && includes(access, Access::RemoteRead) && holds(at, address, bytes) ? base + (at - address)
                                                                                                : nullptr;
  }

 private:
  // In subtract form: nothing here can wrap.
  bool holds(std::uint64_t at, std::uint64_t from, std::uint64_t bytes) const {
    return at >= from && at - from <= length && bytes <= length - (at - from);
  }
};

// What a region's owner tells one peer of it. The descriptor is the driver's affair.
struct Grant {
  std::uint32_t slot = 0;
  std::uint64_t iova = 0, length = 0;
  Access access = Access::None;
  std::uint64_t address = 0;  // in its own memory
  int file = -1;              // that holds the region from its beginning; -1: none
};

// The driver's: fetches regions and keeps the mappings.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  // Asks the peer. The answer comes by Transport::handle_region(), never from inside.
  virtual void ask(RKey rkey) = 0;
  // It is not used any more.
  virtual void drop(RKey rkey) = 0;
  // Our own: what the peer was granted is taken back from it, and none of its copies goes on.
  virtual void take_back_all() = 0;
};

// One connection's. A key is asked for when it is named the second time; one that was refused, as the peer may not
// have been ready, after some more, ever twice as many. The oldest of those that are not open is forgotten when there
// are too many. Keys of payload, which the peer chooses, get few of its grants and displace little.
class PeerRegions {
 public:
  // What is known of it, or nothing. `source`: asked when it is time.
  const PeerRegion* find(RKey rkey, RegionSource& source) {
    if (entries_[last_].region.rkey != rkey && !look_up(rkey)) return nullptr;
    Entry& entry = entries_[last_];
    if (entry.state == State::Open) [[likely]] return &entry.region;
    note_use(entry, source);
    return nullptr;
  }
  // Likewise, of a payload that the peer named; `first`: in a message it had not been named in.
  const PeerRegion* find_payload(RKey rkey, bool first, RegionSource& source) {
    Payload* known = nullptr;
    for (Payload& payload : payloads_)
      if (payload.rkey == rkey) known = &payload;
    if (known == nullptr) return first ? note_payload(rkey) : nullptr;
    const bool there = entries_[last_].region.rkey == rkey || is_known(rkey);
    if (known->asked) return there ? find(rkey, source) : nullptr;
    if (!first) return nullptr;
    known->asked = true;
    if (!there) find(rkey, source);  // seen
    return find(rkey, source);
  }
  // `region` is open, or refused for now.
  void handle_answer(const PeerRegion& region, bool open) {
    for (Entry& entry : entries_) {
      if (entry.state != State::Asked || entry.region.rkey != region.rkey) continue;
      entry.region = region;
      entry.state = open ? State::Open : State::Refused;
      entry.left = entry.patience;
      entry.patience = std::min(2 * entry.patience, kMostPatience);
    }
  }
  bool is_asked(RKey rkey) const {
    for (const Entry& entry : entries_)
      if (entry.state == State::Asked && entry.region.rkey == rkey) return true;
    return false;
  }
  void drop(RKey rkey, RegionSource& source) {
    for (Entry& entry : entries_) {
      if (entry.state == State::Free || entry.region.rkey != rkey) continue;
      if (entry.state == State::Open) source.drop(rkey);
      entry = {};
    }
    for (Payload& payload : payloads_)
      if (payload.rkey == rkey) payload = {};
  }
  // Of open ones those that `stands` says no of.
  template <class F>
  void drop_unless(F&& stands, RegionSource& source) {
    for (const Entry& entry : entries_)
      if (entry.state == State::Open && !stands(entry.region)) drop(entry.region.rkey, source);
  }
  void clear() { *this = {}; }

 private:
  static constexpr std::size_t kMostPayloads = 8;
  // In which the peer's payload lies. One that was asked for stays.
  struct Payload {
    RKey rkey{};
    bool asked = false;
  };
  enum class State : std::uint8_t { Free, Seen, Asked, Refused, Open };
  static constexpr std::uint32_t kMostPatience = 1u << 20;
  struct Entry {
    PeerRegion region{};
    State state = State::Free;
    std::uint32_t left = 1;       // times that it is named until it is asked for
    std::uint32_t patience = 16;  // `left` when it is refused
  };

  const PeerRegion* note_payload(RKey rkey) {
    for (std::size_t tries = 0; tries < kMostPayloads; ++tries) {
      Payload& payload = payloads_[next_payload_];
      next_payload_ = (next_payload_ + 1) % kMostPayloads;
      if (payload.asked) continue;
      payload.rkey = rkey;
      break;
    }
    return nullptr;
  }
  bool is_known(RKey rkey) {
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      if (entries_[i].state == State::Free || entries_[i].region.rkey != rkey) continue;
      last_ = i;
      return true;
    }
    return false;
  }
  static void note_use(Entry& entry, RegionSource& source) {
    if (entry.state == State::Asked || --entry.left != 0) return;
    entry.state = State::Asked;
    source.ask(entry.region.rkey);
  }
  // False: it was not known, and is from now on if there is room.
  [[gnu::noinline]] bool look_up(RKey rkey) {
    if (is_known(rkey)) return true;
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      Entry& entry = entries_[next_];
      const std::size_t at = next_;
      next_ = (next_ + 1) % entries_.size();
      if (entry.state == State::Open || entry.state == State::Asked) continue;
      entry = {};
      entry.region.rkey = rkey;
      entry.state = State::Seen;
      last_ = at;
      break;
    }
    return false;
  }

  std::array<Entry, 2 * kMostGrants> entries_{};
  std::size_t last_ = 0;  // found last: mostly named again
  std::size_t next_ = 0;  // to be replaced
  std::array<Payload, kMostPayloads> payloads_{};
  std::size_t next_payload_ = 0;
};

}  // namespace verbena::local
