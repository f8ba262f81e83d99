// SPDX-License-Identifier: Apache-2.0
// Whether one process can copy from another's memory is found out by doing it. Each side of a connection names a word
// of its own memory and what stands there; the other reads it and says whether that worked.
//
//     0  address of the cookie, 0: there is none   8  the cookie's value   16  1: this side can read the other's
//    24  1: what is read from this side counts no more
//
// Who takes memory back stores the last word before it gives the memory to the program; who copied loads it after.
// Either it is seen there, or nothing that was copied had been changed yet.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fence.h"

namespace verbena::local {

struct CookieAt {
  std::uint64_t address = 0;
  std::uint64_t value = 0;
};

// One side's words, which it alone writes.
class PullWords {
 public:
  // `line`: aligned shared memory, zero at first.
  explicit PullWords(std::byte* line) : words_(reinterpret_cast<std::uint64_t*>(line)) {}

  void offer(const CookieAt& cookie) const {
    word(0).store(cookie.address, std::memory_order_relaxed);
    word(1).store(cookie.value, std::memory_order_relaxed);
  }
  CookieAt offered() const {
    return {word(0).load(std::memory_order_relaxed), word(1).load(std::memory_order_relaxed)};
  }
  void say_can_pull() const { word(2).store(1, std::memory_order_relaxed); }
  bool can_pull() const { return word(2).load(std::memory_order_relaxed) == 1; }
  void refuse() const { word(3).store(1, std::memory_order_seq_cst); }
  // Before a copy, which is then not made.
  bool has_refused() const { return word(3).load(std::memory_order_relaxed) != 0; }
  // After a copy, which the processor must not do later.
  bool refuses() const {
    full_fence();
    return word(3).load(std::memory_order_seq_cst) != 0;
  }

 private:
  std::atomic_ref<std::uint64_t> word(std::size_t index) const {
    return std::atomic_ref<std::uint64_t>(words_[index]);
  }

  std::uint64_t* words_;
};

}  // namespace verbena::local
