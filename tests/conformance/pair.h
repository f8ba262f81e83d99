// SPDX-License-Identifier: Apache-2.0
// Two devices joined by a wire that a test may disturb.
#pragma once

#include <functional>

#include "bench.h"

namespace verbena::conformance {

// What becomes of one datagram on the wire.
enum class Fate { Deliver, Drop, Twice, Later };

class Pair {
 public:
  static constexpr std::size_t kMemoryBytes = 1 << 16;

  struct Side {
    Side(const Given& given, std::uint64_t seed);

    SeededRandom random;
    soft::Nic nic;
    core::PdId pd;
    core::CqId send_cq, receive_cq;
    soft::Nic::CreatedQp made;
    std::unique_ptr<Memory> memory;  // of kMemoryBytes, with all rights
    roce::Train train{roce::TrainLimits{}};
    std::vector<Completion> sends, receives;  // in the order polled
  };

  // `given` for both; first PSNs are swapped for the second side.
  explicit Pair(const Given& given = {});
  ~Pair();

  // Called for every datagram with the side it leaves (0 or 1); may change the bytes.
  std::function<Fate(int from, Bytes& datagram)> hook;

  Side& side(int i) { return *sides_[static_cast<std::size_t>(i)]; }
  void post(int from, const SendRequest& request);
  void post(int from, std::uint64_t id, SendOpcode opcode, std::vector<ScatterGather> local,
            std::uint64_t remote = 0, Key rkey = {}, SendFlags flags = SendFlags::Signaled);
  void post_receive(int side, std::uint64_t id, std::vector<ScatterGather> local = {});

  // Carries datagrams and lets time pass until nothing is on the way and no deadline is left, at most for
  // `limit`.
  void run(Duration limit = Duration::seconds(60));
  Instant now() const { return now_; }
  std::uint64_t carried() const { return carried_; }

 private:
  struct Flying {
    int from;
    wire::Path path;
    std::uint16_t identification;
    Bytes bytes;
  };
  bool collect(int from, soft::Nic::Acks acks);
  bool deliver_all();
  void poll();

  Instant now_{1'000'000'000};
  std::array<std::unique_ptr<Side>, 2> sides_;
  std::deque<Flying> wire_, later_;
  std::uint64_t carried_ = 0;
};

}  // namespace verbena::conformance
