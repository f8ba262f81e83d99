// SPDX-License-Identifier: Apache-2.0
#include "soft/core/dma.h"

#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/assert.h"
#include "base/cpu.h"
#include "base/fault_guard.h"
#include "base/shared_word.h"

namespace verbena::core {

namespace {

// Remote access races with the application by design, as a NIC's does. Under ThreadSanitizer the bytes come in by
// relaxed atomics, so that who reads too early still shows. It does not see them go out: a READ that is asked for
// again, as its answer was late, is answered with what is there by then, and nobody takes that answer.
//
// 8 bytes that are aligned where others see them move by one access: a copy of that fixed size is one.
constexpr std::size_t kWordBytes = 8;
bool is_aligned8(const std::byte* p) { return (reinterpret_cast<std::uintptr_t>(p) & 7) == 0; }

#ifdef VERBENA_THREAD_SANITIZER
void copy_in(std::byte* to, const std::byte* from, std::size_t n) {
  if (n == 8 && is_aligned8(to)) {
    std::uint64_t word;
    std::memcpy(&word, from, 8);
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(word, std::memory_order_relaxed);
  }
  for (std::size_t i = 0; i < n; ++i) std::atomic_ref(to[i]).store(from[i], std::memory_order_relaxed);
}
__attribute__((no_sanitize("thread"))) void copy_out(std::byte* to, const std::byte* from, std::size_t n) {
  if (n == 8 && is_aligned8(from)) {
    const std::uint64_t word = *reinterpret_cast<const volatile std::uint64_t*>(from);
    std::memcpy(to, &word, 8);
    return;
  }
  const volatile std::byte* each = from;  // no call of memcpy, which is seen
  for (std::size_t i = 0; i < n; ++i) to[i] = each[i];
}
void copy_past(std::byte* to, const std::byte* from, std::size_t n) { copy_in(to, from, n); }
void end_copies_past() {}
#else
#ifdef __SSE2__
constexpr std::size_t kLine = 64;

// Whole lines, of which each begins at a line's beginning where it is written. `put` stores 16 bytes.
template <class Put>
void copy_lines(std::byte* to, const std::byte* from, std::size_t n, Put put) {
  for (; n != 0; n -= kLine, to += kLine, from += kLine) {
    const auto* const in = reinterpret_cast<const __m128i*>(from);
    auto* const out = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(in), b = _mm_loadu_si128(in + 1);
    const __m128i c = _mm_loadu_si128(in + 2), d = _mm_loadu_si128(in + 3);
    put(out, a), put(out + 1, b), put(out + 2, c), put(out + 3, d);
  }
}
void copy_into_cache(std::byte* to, const std::byte* from, std::size_t n) {
  copy_lines(to, from, n, [](__m128i* out, __m128i in) { _mm_store_si128(out, in); });
}
void copy_past_cache(std::byte* to, const std::byte* from, std::size_t n) {
  copy_lines(to, from, n, [](__m128i* out, __m128i in) { _mm_stream_si128(out, in); });
}
// Half the stores.
[[gnu::target("avx")]] void copy_into_cache_by_halves(std::byte* to, const std::byte* from, std::size_t n) {
  for (; n != 0; n -= kLine, to += kLine, from += kLine) {
    const auto* const in = reinterpret_cast<const __m256i*>(from);
    auto* const out = reinterpret_cast<__m256i*>(to);
    const __m256i a = _mm256_loadu_si256(in), b = _mm256_loadu_si256(in + 1);
    _mm256_store_si256(out, a), _mm256_store_si256(out + 1, b);
  }
}
// All but what is left of the last line, which is still to be copied.
template <class Lines>
void copy_from_first_line(std::byte*& to, const std::byte*& from, std::size_t& n, Lines copy) {
  const std::size_t front = std::min(n, -reinterpret_cast<std::uintptr_t>(to) & (kLine - 1));
  std::memcpy(to, from, front);
  const std::size_t lines = (n - front) & ~(kLine - 1);
  copy(to + front, from + front, lines);
  to += front + lines, from += front + lines, n -= front + lines;
}

// What does not fit into the nearest cache memcpy() copies by one instruction, and nothing behind that begins before
// its end, though what is behind it waits for memory, too. Of more than this it does not matter.
constexpr std::size_t kLeastByLines = std::size_t{32} << 10;
constexpr std::size_t kMostByLines = std::size_t{128} << 10;
#endif

void copy(std::byte* to, const std::byte* from, std::size_t n) {
  if (n == 8) return static_cast<void>(std::memcpy(to, from, 8));
#ifdef __SSE2__
  if (n >= kLeastByLines && n <= kMostByLines) {
    copy_from_first_line(to, from, n, cpu::kHasAvx ? copy_into_cache_by_halves : copy_into_cache);
  }
#endif
  std::memcpy(to, from, n);
}
void copy_in(std::byte* to, const std::byte* from, std::size_t n) { copy(to, from, n); }
void copy_out(std::byte* to, const std::byte* from, std::size_t n) { copy(to, from, n); }

// By stores that do not read the line they fill. They are in no order before end_copies_past(), which follows even
// where one of them met memory that is not there: for whoever sees what is stored after it they are all done.
void copy_past(std::byte* to, const std::byte* from, std::size_t n) {
#ifdef __SSE2__
  copy_from_first_line(to, from, n, copy_past_cache);
#endif
  std::memcpy(to, from, n);
}
void end_copies_past() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}
#endif

void store(std::byte* to, std::span<const std::byte> from, bool publish) {
  const std::size_t n = from.size();
  shared_order::release();
  if (!publish) return copy_in(to, from.data(), n);
  if (n >= 8 && is_aligned8(to + n)) {
    if (n != 8) copy_in(to, from.data(), n - 8);
    std::uint64_t word;
    std::memcpy(&word, from.data() + n - 8, 8);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to + n - 8)).store(word, std::memory_order_release);
    return;
  }
  copy_in(to, from.data(), n - 1);
  std::atomic_ref(to[n - 1]).store(from[n - 1], std::memory_order_release);
}

void store(std::byte* to, std::span<const Piece> from, bool publish) {
  if (from.size() == 1) return store(to, {from[0].data, from[0].size}, publish);
  std::array<std::byte, kWordBytes> end;
  std::size_t left = 0;
  for (const Piece& piece : from) left += piece.size;
  const std::size_t gathered = publish && left >= kWordBytes ? kWordBytes : 0;
  std::byte* const tail = to + left - gathered;
  for (const Piece& piece : from) {
    left -= piece.size;
    const std::size_t of_end = gathered > left ? std::min(gathered - left, piece.size) : 0;
    const std::size_t front = piece.size - of_end;
    if (front != 0) store(to, {piece.data, front}, publish && left == 0 && of_end == 0);
    if (of_end != 0) copy_out(end.data() + (kWordBytes - left - of_end), piece.data + front, of_end);
    to += front;
  }
  if (gathered != 0) store(tail, end, true);
}

}  // namespace

bool dma_write(std::byte* to, std::span<const Piece> from, bool publish) {
  return fault_guard::run([=] { store(to, from, publish); });
}

bool dma_write_past_cache(std::byte* to, std::span<const Piece> from) {
  const bool whole = fault_guard::run([to, from]() mutable {
    shared_order::release();
    for (const Piece& piece : from) {
      if (piece.size != 0) copy_past(to, piece.data, piece.size);
      to += piece.size;
    }
  });
  end_copies_past();
  return whole;
}

// Few whole words go one by one, each of them guarded by the table: no context is saved, and what was just written word
// by word, as a frame is, is read as it was written.
bool dma_write(std::byte* to, std::span<const std::byte> from, bool publish) {
  constexpr std::size_t kMostByWords = 128;
  const std::size_t n = from.size();
  if (fault_guard::kCopiesWords && n <= kMostByWords && n % kWordBytes == 0 && is_aligned8(to)) {
    bool whole = true;
    for (std::size_t i = 0; i < n && whole; i += kWordBytes) whole = fault_guard::copy_word(to + i, from.data() + i);
    return whole;
  }
  return from.empty() || fault_guard::run([=] { store(to, from, publish); });
}

bool dma_read_bytes(std::byte* to, std::span<const std::byte> from) {
  const bool whole = from.empty() || fault_guard::run([=] { copy_out(to, from.data(), from.size()); });
  shared_order::acquire();
  return whole;
}

std::optional<std::uint64_t> dma_compare_swap(std::byte* at, std::uint64_t compare, std::uint64_t swap) {
  VERBENA_ASSERT(is_aligned8(at));
  std::uint64_t expected = compare;
  const auto swap_there = [&expected, at, swap] {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).compare_exchange_strong(expected, swap);
  };
  if (!fault_guard::run(swap_there)) return std::nullopt;
  return expected;
}

std::optional<std::uint64_t> dma_fetch_add(std::byte* at, std::uint64_t add) {
  VERBENA_ASSERT(is_aligned8(at));
  std::uint64_t before = 0;
  const auto add_there = [&before, at, add] {
    before = std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)).fetch_add(add);
  };
  if (!fault_guard::run(add_there)) return std::nullopt;
  return before;
}

}  // namespace verbena::core
