// SPDX-License-Identifier: Apache-2.0
// Two devices joined by a wire that a test may disturb, or by memory.
#pragma once

#include <functional>

#include "bench.h"
#include "rings.h"

namespace verbena::conformance {

// What becomes of one datagram on the wire.
enum class Fate { Deliver, Drop, Twice, Later };

class Pair {
 public:
  static constexpr std::size_t kMemoryBytes = 1 << 16;

  struct Side {
    Side(const Given& given, std::uint64_t seed);

    QueuePairState state() const { return made.queues->state(); }

    SeededRandom random;
    soft::Nic nic;
    core::PdId pd;
    core::CqId send_cq, receive_cq;
    soft::Nic::CreatedQp made;
    std::unique_ptr<Memory> memory;  // of kMemoryBytes, with all rights
    roce::Train train{roce::TrainLimits{}};
    bool stopped = false;
    bool polls = true;                        // its application looks at its completions
    std::vector<Completion> sends, receives;  // in the order polled
  };

  // `given` for both, but for the second side's own; first PSNs are swapped for it.
  explicit Pair(const Given& given = {}) : Pair(given, given) {}
  Pair(const Given& given, const Given& second);
  ~Pair();

  // Called for every datagram with the side it leaves (0 or 1); may change the bytes.
  std::function<Fate(int from, Bytes& datagram)> hook;

  // Called whenever a side had its turn or a datagram.
  std::function<void()> watch;

  Side& side(int i) { return *sides_[static_cast<std::size_t>(i)]; }
  void post(int from, const SendRequest& request);
  void post(int from, std::uint64_t id, SendOpcode opcode, std::vector<ScatterGather> local,
            std::uint64_t remote = 0, RKey rkey = {}, SendFlags flags = SendFlags::Signaled);
  void post_receive(int side, std::uint64_t id, std::vector<ScatterGather> local = {});
  // Brings a queue pair of each side, in RESET, to the states that were given, towards each other.
  void join(Qpn first, Qpn second);
  bool step(int side, QueuePairState to);  // asks for nothing but the state
  // The process of a side gets no processor, or gets it back; what reaches it meanwhile waits.
  void stop(int side);
  void resume(int side);

  // Carries datagrams and lets time pass until nothing is on the way and no deadline is left, at most for
  // `limit`.
  void run(Duration limit = Duration::seconds(60));
  // The same, and the clock stands at `time` from now.
  void pass(Duration time);
  // What happened at a side besides completions, since asked last.
  std::vector<AsyncEventType> events(int side);
  Instant now() const { return now_; }
  std::uint64_t carried() const { return carried_; }

 private:
  struct Flying {
    int from;
    wire::Path path;
    std::uint16_t identification;
    Bytes bytes;
  };
  bool turn(int side, soft::Nic::Acks acks);
  bool collect(int from, soft::Nic::Acks acks);
  bool deliver_all();
  bool settle_rings();
  void poll();

  const std::array<Given, 2> given_;
  Instant now_{1'000'000'000};
  std::unique_ptr<Rings> rings_;  // none: packets
  std::array<std::unique_ptr<Side>, 2> sides_;
  std::deque<Flying> wire_, later_, held_;  // held: for who is stopped
  std::uint64_t carried_ = 0;
};

}  // namespace verbena::conformance
