// SPDX-License-Identifier: Apache-2.0
// What the peer programs share: clock, pinning, order statistics, options, output lines.
// Standard output carries "metric<TAB>value<TAB>unit" lines and nothing else; words for people go to standard
// error.
#pragma once

#include <sys/socket.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace peer {

inline constexpr int kNearCpu = 0;
inline constexpr int kFarCpu = 1;
inline constexpr std::uint64_t kMillisecond_ns = 1'000'000;

inline std::uint64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(t.tv_nsec);
}
// ns per tick of the time stamp counter, measured by settle_on() where it has one pace; 0: there is none.
extern double tick_ns;
// By that counter where there is one: reading the clock takes a tenth of what is measured by it.
inline std::uint64_t now_ns() {
#if defined(__x86_64__)
  if (tick_ns != 0) return static_cast<std::uint64_t>(static_cast<double>(__builtin_ia32_rdtsc()) * tick_ns);
#endif
  return monotonic_ns();
}

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The compiler must have finished every store the pointee could see.
inline void keep(const void* p) { asm volatile("" : : "g"(p) : "memory"); }

// Prints `what` with the errno of the moment and ends the process with 1.
[[noreturn]] void die(std::string_view what);
// Prints `why` and ends the process with 2.
[[noreturn]] void usage(std::string_view why);

// Runs on `cpu` from now on (any when negative) and ends when the parent does.
void settle_on(int cpu);

// Sorts in place; q in [0, 1]; the span is not empty.
double quantile(std::span<double> values, double q);

void report(std::string_view name, double value, std::string_view unit);
// NAME.p50 and NAME.p99 in us of samples in ns; the first tenth is warm-up and left out.
void report_latency(std::string_view name, std::vector<double>& samples_ns);
// "ready<TAB>WHERE<TAB>address": what the client is to be given as --connect.
void report_ready(std::string_view where);

// Memory whose pages are there already, so that no fault falls into a measurement. Never unmapped before
// exit.
std::byte* touched_pages(std::size_t bytes, bool shared = false);

// ns per operation: the median of seven batches of at least 15 ms.
template <class Op>
double ns_per_operation(Op op) {
  std::uint64_t n = 1;
  for (;; n *= 2) {
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < n; i++) op();
    if (now_ns() - start > 15 * kMillisecond_ns) break;
  }
  double batch[7];
  for (double& b : batch) {
    const std::uint64_t start = now_ns();
    for (std::uint64_t i = 0; i < n; i++) op();
    b = static_cast<double>(now_ns() - start) / static_cast<double>(n);
  }
  return quantile(batch, 0.5);
}

// "--key value" pairs; a key that is not among the known ones ends the program.
class Options {
 public:
  Options(std::span<char*> arguments, std::initializer_list<std::string_view> known);

  [[nodiscard]] std::string text(std::string_view key, std::string_view fallback) const;
  [[nodiscard]] std::size_t number(std::string_view key, std::size_t fallback) const;
  [[nodiscard]] int integer(std::string_view key, int fallback) const;

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

// An IPv4 address and port, written "127.0.0.1:4000".
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t length = 0;

  static Endpoint parse(std::string_view text);
  // The address `fd` is bound to.
  static Endpoint bound(int fd);
  [[nodiscard]] std::string text() const;
  [[nodiscard]] const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] sockaddr* address() { return reinterpret_cast<sockaddr*>(&storage); }
};

void set_option(int fd, int level, int name, int value, std::string_view what);
// SO_RCVBUF as asked for (the kernel doubles it); 0 leaves the system's default.
void set_receive_buffer(int fd, std::size_t bytes);

}  // namespace peer
