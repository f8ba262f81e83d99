// SPDX-License-Identifier: Apache-2.0
// What the kernel charges: waking a sleeper, entering and leaving.
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "limits.h"
#include "peer.h"

namespace peer {
namespace {

constexpr std::uint32_t kWakes = 10'000;
constexpr std::array<std::string_view, 3> kWakerNames = {"eventfd", "futex", "epoll"};
enum class WakerKind { EventFd, Futex, Epoll };

// One direction: a side that sleeps and a side that wakes it.
class Waker {
 public:
  explicit Waker(WakerKind kind) : kind_(kind), event_(eventfd(0, 0)), epoll_(epoll_create1(0)) {
    epoll_event interest{};
    interest.events = EPOLLIN;
    if (event_ < 0 || epoll_ < 0) die("eventfd");
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, event_, &interest) != 0) die("epoll_ctl");
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;
  ~Waker() {
    close(epoll_);
    close(event_);
  }

  void wake(std::uint32_t round) {
    if (kind_ == WakerKind::Futex) {
      word_.store(round);
      syscall(SYS_futex, &word_, FUTEX_WAKE, 1, nullptr, nullptr, 0);
      return;
    }
    const std::uint64_t one = 1;
    if (write(event_, &one, sizeof one) != sizeof one) die("eventfd write");
  }

  void wait(std::uint32_t round) {
    if (kind_ == WakerKind::Futex) {
      for (std::uint32_t seen = word_.load(); seen != round; seen = word_.load()) {
        syscall(SYS_futex, &word_, FUTEX_WAIT, seen, nullptr, nullptr, 0);
      }
      return;
    }
    epoll_event event{};
    if (kind_ == WakerKind::Epoll && epoll_wait(epoll_, &event, 1, -1) != 1) die("epoll_wait");
    std::uint64_t got = 0;
    if (read(event_, &got, sizeof got) != sizeof got) die("eventfd read");
  }

 private:
  WakerKind kind_;
  int event_;
  int epoll_;
  alignas(128) std::atomic<std::uint32_t> word_{0};
};

// What both sides use.
struct Wakers {
  explicit Wakers(WakerKind kind) : there(kind), back(kind) {}
  void answer(int cpu) {
    settle_on(cpu);
    for (std::uint32_t i = 1; i <= kWakes; i++) {
      there.wait(i);
      back.wake(i);
    }
  }

  Waker there, back;
};

void report_wakes(Wakers& wakers, const std::string& name) {
  std::vector<double> samples_ns(kWakes);
  for (std::uint32_t i = 1; i <= kWakes; i++) {
    const std::uint64_t start = now_ns();
    wakers.there.wake(i);
    wakers.back.wait(i);
    samples_ns[i - 1] = static_cast<double>(now_ns() - start);
  }
  report_latency(name, samples_ns);
}

void wake_on(WakerKind kind, int cpu) {
  const std::string name =
      std::string(kWakerNames[static_cast<std::size_t>(kind)]) + (cpu == kNearCpu ? ".1cpu" : ".2cpu") + ".rtt";
  Wakers among_threads(kind);
  std::thread sleeper([&] { among_threads.answer(cpu); });
  report_wakes(among_threads, "wake." + name);
  sleeper.join();

  // One processor that goes from one process to another changes address spaces, too.
  auto* const among_processes = new (touched_pages(sizeof(Wakers), true)) Wakers(kind);
  const pid_t child = fork();
  if (child < 0) die("fork");
  if (child == 0) {
    among_processes->answer(cpu);
    _exit(0);
  }
  report_wakes(*among_processes, "wake.process." + name);
  waitpid(child, nullptr, 0);
  among_processes->~Wakers();
}

// Per-packet costs on one thread, in bursts that fit any receive buffer.
void udp_calls(std::size_t size) {
  constexpr std::size_t kBurst = 16;
  constexpr std::size_t kRounds = 4000;
  const int in = socket(AF_INET, SOCK_DGRAM, 0);
  const int out = socket(AF_INET, SOCK_DGRAM, 0);
  const Endpoint any = Endpoint::parse("127.0.0.1:0");
  if (in < 0 || out < 0 || bind(in, any.address(), any.length) != 0) die("udp");
  const Endpoint to = Endpoint::bound(in);
  if (connect(out, to.address(), to.length) != 0) die("connect");
  std::vector<std::byte> buffer(size);
  std::vector<double> send_ns(kRounds);
  std::vector<double> recv_ns(kRounds);
  for (std::size_t r = 0; r < kRounds; r++) {
    const std::uint64_t start = now_ns();
    for (std::size_t i = 0; i < kBurst; i++) {
      if (send(out, buffer.data(), size, 0) < 0) die("send");
    }
    const std::uint64_t middle = now_ns();
    for (std::size_t i = 0; i < kBurst; i++) {
      if (recv(in, buffer.data(), size, MSG_DONTWAIT) < 0) die("recv");
    }
    send_ns[r] = static_cast<double>(middle - start) / kBurst;
    recv_ns[r] = static_cast<double>(now_ns() - middle) / kBurst;
  }
  report("syscall.udp.send." + std::to_string(size) + "B", quantile(send_ns, 0.5), "ns");
  report("syscall.udp.recv." + std::to_string(size) + "B", quantile(recv_ns, 0.5), "ns");
  close(in);
  close(out);
}

}  // namespace

void measure_wake() {
  for (const WakerKind kind : {WakerKind::EventFd, WakerKind::Futex, WakerKind::Epoll}) {
    wake_on(kind, kNearCpu);
    wake_on(kind, kFarCpu);
  }
}

void measure_syscall() {
  report("syscall.getppid", ns_per_operation([] { syscall(SYS_getppid); }), "ns");
  const int idle = epoll_create1(0);
  if (idle < 0) die("epoll_create1");
  epoll_event event{};
  report("syscall.epoll_wait.empty", ns_per_operation([&] { epoll_wait(idle, &event, 1, 0); }), "ns");
  close(idle);
  for (const std::size_t size : {std::size_t{64}, std::size_t{1024}, std::size_t{4096}}) udp_calls(size);
}

}  // namespace peer
