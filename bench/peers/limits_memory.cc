// SPDX-License-Identifier: Apache-2.0
// Memory: copying, the cache line, shared memory and the memory of another process, and the CRC over it.
#include <signal.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "crc.h"
#include "limits.h"
#include "peer.h"

namespace peer {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::uint32_t kPings = 200'000;

std::string size_name(std::size_t bytes) {
  if (bytes < kKiB) return std::to_string(bytes) + "B";
  return bytes < kMiB ? std::to_string(bytes / kKiB) + "KiB" : std::to_string(bytes / kMiB) + "MiB";
}

double gigabytes_per_second(std::size_t bytes, double ns) { return static_cast<double>(bytes) / ns; }

// Two lines that change owner, each with a neighbour's width of its own, and a payload for either direction.
struct Lines {
  alignas(128) std::atomic<std::uint32_t> ping{0};
  alignas(128) std::atomic<std::uint32_t> pong{0};
  alignas(128) std::byte data[2][65536];
};

void spin_until(const std::atomic<std::uint32_t>& word, std::uint32_t value) {
  while (word.load(std::memory_order_acquire) != value) relax();
}

void echo_lines(Lines& lines, std::uint32_t rounds, std::size_t payload, std::byte* own) {
  for (std::uint32_t i = 1; i <= rounds; i++) {
    spin_until(lines.ping, i);
    if (payload != 0) {
      std::memcpy(own, lines.data[0], payload);
      std::memcpy(lines.data[1], own, payload);
    }
    lines.pong.store(i, std::memory_order_release);
  }
}

void drive_lines(Lines& lines, std::uint32_t rounds, std::size_t payload, std::byte* own,
                 const std::string& name) {
  std::vector<double> samples_ns(rounds);
  for (std::uint32_t i = 1; i <= rounds; i++) {
    const std::uint64_t start = now_ns();
    if (payload != 0) std::memcpy(lines.data[0], own, payload);
    lines.ping.store(i, std::memory_order_release);
    spin_until(lines.pong, i);
    if (payload != 0) std::memcpy(own, lines.data[1], payload);
    samples_ns[i - 1] = static_cast<double>(now_ns() - start);
  }
  report_latency(name, samples_ns);
}

void line_between_processes(std::size_t payload) {
  Lines& lines = *new (touched_pages(sizeof(Lines), true)) Lines;
  const std::uint32_t rounds = payload > 4 * kKiB ? kPings / 10 : kPings;
  std::byte* own = touched_pages(65536);
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    settle_on(kFarCpu);
    echo_lines(lines, rounds, payload, own);
    _exit(0);
  }
  drive_lines(lines, rounds, payload, own,
              payload == 0 ? "line.process.rtt" : "line.copy." + size_name(payload) + ".rtt");
  waitpid(child, nullptr, 0);
}

// A single-producer ring of slots; head and tail count slots since the start.
struct Ring {
  alignas(128) std::atomic<std::uint64_t> head{0};
  alignas(128) std::atomic<std::uint64_t> tail{0};
  std::byte* slots = nullptr;
  std::size_t chunk = 0;
  std::size_t stride = 0;
  std::uint64_t count = 0;
  std::uint64_t total = 0;
  std::uint64_t span = 1;  // chunks per message

  [[nodiscard]] std::byte* slot(std::uint64_t i) const { return slots + (i % count) * stride; }
};

void drain_ring(Ring& ring, std::byte* to) {
  for (std::uint64_t taken = 0; taken < ring.total;) {
    const std::uint64_t filled = ring.head.load(std::memory_order_acquire);
    if (filled == taken) relax();
    for (; taken < filled; taken++) {
      std::memcpy(to + (taken % ring.span) * ring.chunk, ring.slot(taken), ring.chunk);
      keep(to);
      // Small slots are given back by the batch: the line of the tail costs more than they do.
      const bool give_back = ring.chunk > 64 || taken + 1 == filled || taken % 32 == 31;
      if (give_back) ring.tail.store(taken + 1, std::memory_order_release);
    }
  }
}

void fill_ring(Ring& ring, const std::byte* from) {
  std::uint64_t freed = 0;
  for (std::uint64_t i = 0; i < ring.total; i++) {
    while (i - freed >= ring.count) {
      freed = ring.tail.load(std::memory_order_acquire);
      if (i - freed >= ring.count) relax();
    }
    std::memcpy(ring.slot(i), from + (i % ring.span) * ring.chunk, ring.chunk);
    ring.head.store(i + 1, std::memory_order_release);
  }
  while (ring.tail.load(std::memory_order_acquire) != ring.total) relax();
}

void ring_of(std::size_t message) {
  Ring& ring = *new (touched_pages(sizeof(Ring), true)) Ring;
  ring.chunk = message < 64 * kKiB ? message : 64 * kKiB;
  ring.stride = (ring.chunk + 63) & ~std::size_t{63};
  ring.count = ring.stride < 4 * kKiB ? 1024 : 512 * kKiB / ring.stride;
  ring.total = message == 8 ? 8'000'000 : 2048 * kMiB / ring.chunk;
  ring.span = message / ring.chunk;
  ring.slots = touched_pages(ring.count * ring.stride, true);
  std::byte* own = touched_pages(message + 64);
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    settle_on(kFarCpu);
    std::memset(own, 2, message);  // pages of its own
    drain_ring(ring, own);
    _exit(0);
  }
  const std::uint64_t start = now_ns();
  fill_ring(ring, own);
  const double ns = static_cast<double>(now_ns() - start);
  waitpid(child, nullptr, 0);
  if (message == 8) {
    report("ring.8B.rate", static_cast<double>(ring.total) / ns * 1e3, "M/s");
  } else {
    report("ring." + size_name(message),
           gigabytes_per_second(ring.chunk, ns / static_cast<double>(ring.total)), "GB/s");
  }
}

using VmCall = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

void vm_call(const std::string& name, VmCall call, pid_t child, iovec near, iovec far) {
  const double ns = ns_per_operation([&] {
    if (call(child, &near, 1, &far, 1, 0) != static_cast<ssize_t>(near.iov_len)) die(name);
  });
  report(name + "." + size_name(near.iov_len) + ".call", ns, "ns");
  if (near.iov_len > 8)
    report(name + "." + size_name(near.iov_len), gigabytes_per_second(near.iov_len, ns), "GB/s");
}

}  // namespace

void measure_memcpy() {
  std::byte* from = touched_pages(64 * kMiB);
  std::byte* to = touched_pages(64 * kMiB);
  for (const std::size_t size : {4 * kKiB, 64 * kKiB, kMiB, 64 * kMiB}) {
    const double ns = ns_per_operation([&] {
      std::memcpy(to, from, size);
      keep(to);
    });
    report("memcpy." + size_name(size), gigabytes_per_second(size, ns), "GB/s");
  }
}

void measure_line() {
  report("clock_gettime", ns_per_operation([] { now_ns(); }), "ns");
  {
    Lines& lines = *new (touched_pages(sizeof(Lines), true)) Lines;
    std::thread echo([&lines] {
      settle_on(kFarCpu);
      echo_lines(lines, kPings, 0, nullptr);
    });
    drive_lines(lines, kPings, 0, nullptr, "line.thread.rtt");
    echo.join();
  }
  for (const std::size_t payload : {std::size_t{0}, std::size_t{8}, 4 * kKiB, 64 * kKiB})
    line_between_processes(payload);
}

void measure_ring() {
  for (const std::size_t message : {std::size_t{8}, 4 * kKiB, 64 * kKiB, kMiB}) ring_of(message);
}

void measure_vm() {
  constexpr std::size_t kArea = 64 * kMiB;
  std::byte* area = touched_pages(kArea);
  int ready[2];
  if (pipe(ready) != 0) die("pipe");
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    settle_on(kFarCpu);
    std::memset(area, 2, kArea);  // pages of its own
    if (write(ready[1], "x", 1) != 1) _exit(1);
    for (;;) pause();
  }
  char mark = 0;
  if (read(ready[0], &mark, 1) != 1) die("child");
  std::byte* own = touched_pages(kArea);
  for (const std::size_t size : {std::size_t{8}, 4 * kKiB, 64 * kKiB, kMiB, kArea}) {
    vm_call("vm.readv", process_vm_readv, child, {own, size}, {area, size});
    vm_call("vm.writev", process_vm_writev, child, {own, size}, {area, size});
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

void measure_crc() {
  std::byte* from = touched_pages(64 * kKiB);
  std::byte* to = touched_pages(64 * kKiB);
  std::uint32_t crc = 0;
  for (const std::size_t size : {std::size_t{64}, kKiB, 4 * kKiB, 64 * kKiB}) {
    const double bare_ns = ns_per_operation([&] {
      crc = crc32(crc, from, size);
      keep(&crc);
    });
    const double copy_ns = ns_per_operation([&] {
      std::memcpy(to, from, size);
      keep(to);
      crc = crc32(crc, to, size);
      keep(&crc);
    });
    report("crc." + size_name(size) + ".call", bare_ns, "ns");
    report("crc." + size_name(size), gigabytes_per_second(size, bare_ns), "GB/s");
    report("crc.copy." + size_name(size), gigabytes_per_second(size, copy_ns), "GB/s");
  }
}

}  // namespace peer
