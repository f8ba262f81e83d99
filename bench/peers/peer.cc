// SPDX-License-Identifier: Apache-2.0
#include "peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace peer {

void die(std::string_view what) {
  std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(what.size()), what.data(), std::strerror(errno));
  std::exit(1);
}

void usage(std::string_view why) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(why.size()), why.data());
  std::exit(2);
}

double tick_ns = 0;

namespace {

#if defined(__x86_64__)
// Over 20 ms, of which some 50 ns are reading either clock.
double measure_tick() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kInvariant = 1u << 8;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0 || (d & kInvariant) == 0) return 0;
  const std::uint64_t start = monotonic_ns(), first = __builtin_ia32_rdtsc();
  std::uint64_t end = 0;
  while ((end = monotonic_ns()) - start < 20 * kMillisecond_ns) continue;
  return static_cast<double>(end - start) / static_cast<double>(__builtin_ia32_rdtsc() - first);
}
#else
double measure_tick() { return 0; }
#endif

}  // namespace

void settle_on(int cpu) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (tick_ns == 0) tick_ns = measure_tick();
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
}

double quantile(std::span<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

void report(std::string_view name, double value, std::string_view unit) {
  std::printf("%.*s\t%.6g\t%.*s\n", static_cast<int>(name.size()), name.data(), value,
              static_cast<int>(unit.size()), unit.data());
  std::fflush(stdout);
}

void report_latency(std::string_view name, std::vector<double>& samples_ns) {
  const std::span<double> kept = std::span<double>(samples_ns).subspan(samples_ns.size() / 10);
  report(std::string(name) + ".p50", quantile(kept, 0.5) / 1e3, "us");
  report(std::string(name) + ".p99", quantile(kept, 0.99) / 1e3, "us");
}

void report_ready(std::string_view where) {
  std::printf("ready\t%.*s\taddress\n", static_cast<int>(where.size()), where.data());
  std::fflush(stdout);
}

std::byte* touched_pages(std::size_t bytes, bool shared) {
  const int flags = MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE);
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (p == MAP_FAILED) die("mmap");
  std::memset(p, 1, bytes);
  return static_cast<std::byte*>(p);
}

Options::Options(std::span<char*> arguments, std::initializer_list<std::string_view> known) {
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    const std::string_view key = arguments[i];
    const bool is_known = key.starts_with("--") && std::ranges::find(known, key.substr(2)) != known.end();
    if (!is_known) usage("unknown option " + std::string(key));
    if (i + 1 == arguments.size()) usage("no value for " + std::string(key));
    values_[std::string(key.substr(2))] = arguments[i + 1];
  }
}

std::string Options::text(std::string_view key, std::string_view fallback) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string(fallback) : found->second;
}

std::size_t Options::number(std::string_view key, std::size_t fallback) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return fallback;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(found->second.c_str(), &end, 10);
  if (end == found->second.c_str() || *end != '\0') usage("not a number: " + found->second);
  return static_cast<std::size_t>(value);
}

int Options::integer(std::string_view key, int fallback) const {
  return std::atoi(text(key, std::to_string(fallback)).c_str());
}

Endpoint Endpoint::parse(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) usage("not ADDRESS:PORT: " + std::string(text));
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_port = htons(static_cast<std::uint16_t>(std::atoi(std::string(text.substr(colon + 1)).c_str())));
  if (inet_pton(AF_INET, std::string(text.substr(0, colon)).c_str(), &in.sin_addr) != 1) {
    usage("not an IPv4 address: " + std::string(text));
  }
  Endpoint e;
  std::memcpy(&e.storage, &in, sizeof in);
  e.length = sizeof in;
  return e;
}

Endpoint Endpoint::bound(int fd) {
  Endpoint e;
  e.length = sizeof e.storage;
  if (getsockname(fd, e.address(), &e.length) != 0) die("getsockname");
  return e;
}

std::string Endpoint::text() const {
  sockaddr_in in{};
  std::memcpy(&in, &storage, sizeof in);
  char name[INET_ADDRSTRLEN];
  if (inet_ntop(AF_INET, &in.sin_addr, name, sizeof name) == nullptr) die("inet_ntop");
  return std::string(name) + ":" + std::to_string(ntohs(in.sin_port));
}

void set_option(int fd, int level, int name, int value, std::string_view what) {
  if (setsockopt(fd, level, name, &value, sizeof value) != 0) die(what);
}

void set_receive_buffer(int fd, std::size_t bytes) {
  if (bytes != 0) set_option(fd, SOL_SOCKET, SO_RCVBUF, static_cast<int>(bytes), "SO_RCVBUF");
}

}  // namespace peer
