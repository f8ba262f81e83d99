// SPDX-License-Identifier: Apache-2.0
// ThreadSanitizer knows memory by its address. Where both ends of a connection are in one process, memory that they
// share is there at two addresses, and a release at one with an acquire at the other is no order to it. Who releases
// or acquires in such memory says so here: to ThreadSanitizer alone, and at one place for all.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/fault_guard.h"
#include "base/sanitizer.h"

#ifdef VERBENA_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace verbena::shared_order {

#ifdef VERBENA_THREAD_SANITIZER
inline char place;
inline void release() { __tsan_release(&place); }
inline void acquire() { __tsan_acquire(&place); }
#else
inline void release() {}
inline void acquire() {}
#endif

}  // namespace verbena::shared_order

namespace verbena {

// 8 bytes, aligned, that somebody else writes too.
inline std::uint64_t load_shared(const std::byte* at) {
  auto* word = reinterpret_cast<std::uint64_t*>(const_cast<std::byte*>(at));
  const std::uint64_t value = std::atomic_ref<std::uint64_t>(*word).load(std::memory_order_acquire);
  shared_order::acquire();
  return value;
}
inline void store_shared(std::byte* at, std::uint64_t value) {
  shared_order::release();
  std::atomic_ref<std::uint64_t>(*reinterpret_cast<std::uint64_t*>(at)).store(value, std::memory_order_release);
}

// The same of a word that may not be there: false.
#ifdef VERBENA_GUARDED_PLACES
[[nodiscard]] inline bool try_load_shared(const std::byte* at, std::uint64_t& value) {
  return fault_guard::load_word(at, value);
}
[[nodiscard]] inline bool try_store_shared(std::byte* at, std::uint64_t value) {
  return fault_guard::store_word(at, value);
}
#else
namespace shared_order {

#ifdef VERBENA_THREAD_SANITIZER
// Its own atomics, if they fault, leave a lock of its taken.
[[gnu::no_sanitize("thread")]] inline std::uint64_t load(const std::byte* at) {
  return *reinterpret_cast<const volatile std::uint64_t*>(at);
}
[[gnu::no_sanitize("thread")]] inline void store(std::byte* at, std::uint64_t value) {
  *reinterpret_cast<volatile std::uint64_t*>(at) = value;
}
#else
inline std::uint64_t load(const std::byte* at) { return load_shared(at); }
inline void store(std::byte* at, std::uint64_t value) { store_shared(at, value); }
#endif

}  // namespace shared_order

[[nodiscard]] inline bool try_load_shared(const std::byte* at, std::uint64_t& value) {
  const bool there = fault_guard::run([&] { value = shared_order::load(at); });
  shared_order::acquire();
  return there;
}
[[nodiscard]] inline bool try_store_shared(std::byte* at, std::uint64_t value) {
  shared_order::release();
  return fault_guard::run([=] { shared_order::store(at, value); });
}
#endif

}  // namespace verbena
