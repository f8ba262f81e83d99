// SPDX-License-Identifier: Apache-2.0
// Regions that a peer may reach by itself, and how that ends. Each side of a connection has a table of grants, which it
// alone writes, and a claim, which it alone writes too: what it is copying to or from at this moment.
//
//   who copies:  claim(slot, key); copy; release(slot, key): both true, or the copy does not count
//   the owner:   revoke(slot), fence(); while is_claimed(slot) somebody copies; clear(slot), or
//                cut(slot): it does not count
//   who reads:   stands(slot, key); copy; still_stands(slot, key): both true, or the copy does not count; nobody waits
//
// Either the one who copies sees that its grant is gone, or the owner sees the claim: between its store and its load
// each has a full fence. Where the owner's is a heavy one (fence.h), and the grant says so, it is for both. A slot
// holds the region's R_Key, which never comes back while anybody could remember it.
//
//     table: 0  number of revocations (8)
//            8 * (1 + slot)  R_Key, with bit 33 where the owner's fences are heavy, with bit 32 alone once it is
//                            revoked; 0: none
//     claim: 1 + slot, 0: none (8)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fence.h"
#include "base/shared_word.h"
#include "soft/local/ring_memory.h"
#include "verbena/base/ids.h"

namespace verbena::local {

inline constexpr std::uint32_t kMostGrants = 31;
inline constexpr std::uint32_t kGrantTableBytes = 4 * kLineBytes;
inline constexpr std::uint64_t kEnding = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kHeavy = std::uint64_t{1} << 33;

class GrantMemory {
 public:
  // `table`: kGrantTableBytes of shared memory, `claim`: 8 bytes; aligned, zero at first, on lines of their
  // writers.
  GrantMemory(std::byte* table, std::byte* claim) : table_(table), claim_(claim) {}

  std::uint64_t load_changes() const { return load_shared(table_); }
  void store_changes(std::uint64_t value) { store_shared(table_, value); }
  void store_grant(std::uint32_t slot, std::uint64_t key) { store_shared(place_of(slot), key); }
  std::uint64_t load_claim() const { return load_shared(claim_); }
  // The other side may take these away: false.
  bool try_load_grant(std::uint32_t slot, std::uint64_t& grant) const { return try_load_shared(place_of(slot), grant); }
  bool try_store_claim(std::uint64_t value) { return try_store_shared(claim_, value); }
  void fence() { full_fence(); }
  void light_fence() { verbena::light_fence(); }
  void heavy_fence() { verbena::heavy_fence(Reach::AllProcesses); }
  static bool has_heavy_fences() { return verbena::has_heavy_fences(Reach::AllProcesses); }

 private:
  std::byte* place_of(std::uint32_t slot) const { return table_ + 8 * (1 + std::size_t{slot}); }

  std::byte* table_;
  std::byte* claim_;
};

// The owner's side. One thread at a time.
template <class Memory>
class BasicGranter {
 public:
  explicit BasicGranter(Memory memory) : memory_(memory), heavy_(Memory::has_heavy_fences()) {}

  // Nothing: all slots are taken. The same region has one.
  std::optional<std::uint32_t> try_grant(RKey rkey) {
    std::optional<std::uint32_t> free;
    for (std::uint32_t slot = 0; slot < kMostGrants; ++slot) {
      if (granted_[slot] == rkey.value()) return slot;
      if (granted_[slot] == 0 && !free) free = slot;
    }
    if (!free) return std::nullopt;
    granted_[*free] = rkey.value();
    memory_.store_grant(*free, heavy_ ? kHeavy | rkey.value() : rkey.value());
    return free;
  }
  std::optional<std::uint32_t> slot_of(RKey rkey) const {
    for (std::uint32_t slot = 0; slot < kMostGrants; ++slot)
      if (granted_[slot] == rkey.value()) return slot;
    return std::nullopt;
  }
  std::optional<RKey> any_granted() const {
    for (const std::uint32_t key : granted_)
      if (key != 0) return RKey{key};
    return std::nullopt;
  }
  // Once fence() came after it no copy begins there; one that has begun counts if it ends before cut().
  void revoke(std::uint32_t slot) {
    const std::uint64_t ending = kEnding | granted_[slot];
    granted_[slot] = 0;
    memory_.store_grant(slot, ending);
    memory_.store_changes(++changes_);
  }
  // After that: nobody copies there any more.
  void clear(std::uint32_t slot) { memory_.store_grant(slot, 0); }
  // The same, and what is still copied does not count.
  void cut(std::uint32_t slot) {
    clear(slot);
    fence();
  }
  // For both sides: where that takes its time, of all that were revoked once.
  void fence() { heavy_ ? memory_.heavy_fence() : memory_.fence(); }
  // After that: whether a copy that began before goes on.
  bool is_claimed(std::uint32_t slot) const { return memory_.load_claim() == std::uint64_t{1} + slot; }

 private:
  Memory memory_;
  const bool heavy_;
  std::array<std::uint32_t, kMostGrants> granted_{};
  std::uint64_t changes_ = 0;
};

// The side that copies. One thread at a time.
template <class Memory>
class BasicClaimer {
 public:
  explicit BasicClaimer(Memory memory) : memory_(memory), reached_(Memory::has_heavy_fences()) {}

  // False: there is no such grant, and nothing may be copied.
  [[gnu::always_inline]] bool claim(std::uint32_t slot, RKey rkey) {
    std::uint64_t grant = 0;
    light_ = reached_ && memory_.try_load_grant(slot, grant) && (grant & kHeavy) != 0;
    if (!memory_.try_store_claim(std::uint64_t{1} + slot)) return false;
    fence();
    if (stands(slot, rkey)) return true;
    static_cast<void>(memory_.try_store_claim(0));
    return false;
  }
  // False: the owner waits no longer. True: it has what was copied.
  [[gnu::always_inline]] bool release(std::uint32_t slot, RKey rkey) {
    fence();
    std::uint64_t grant = 0;
    const bool there = memory_.try_load_grant(slot, grant);
    return memory_.try_store_claim(0) && there && (grant & ~(kEnding | kHeavy)) == rkey.value();
  }
  // Whether the peer has taken back something since this was last asked.
  bool must_look() {
    const std::uint64_t changes = memory_.load_changes();
    if (changes == seen_) return false;
    seen_ = changes;
    return true;
  }
  // After a copy from there without a claim: nothing was taken back before its end.
  bool still_stands(std::uint32_t slot, RKey rkey) {
    memory_.fence();
    return stands(slot, rkey);
  }
  [[gnu::always_inline]] bool stands(std::uint32_t slot, RKey rkey) const {
    std::uint64_t grant = 0;
    return memory_.try_load_grant(slot, grant) && (grant & ~kHeavy) == rkey.value();
  }

 private:
  void fence() { light_ ? memory_.light_fence() : memory_.fence(); }

  Memory memory_;
  const bool reached_;
  bool light_ = false;  // the owner fences for both, and reaches this process
  std::uint64_t seen_ = 0;
};

using Granter = BasicGranter<GrantMemory>;
using Claimer = BasicClaimer<GrantMemory>;

}  // namespace verbena::local
