// SPDX-License-Identifier: Apache-2.0
// Queue pairs in SQD: what is said there, what may be changed, and what waits.
#include <unistd.h>

#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

struct End {
  explicit End(PathChoice path)
      : device(must(Device::open({.path = path, .service_thread = false}))),
        memory(must(device.allocate_memory(4096))),
        completions(must(device.create_completion_queue(16))),
        pair(must(device.create_queue_pair(completions))) {}

  void modify(AttributeMask mask, QueuePairAttributes values) { must(pair.modify(values, mask)); }
  void enter(QueuePairState state, bool says = false) {
    const auto tells = says ? AttributeMask::SqDrainedEvent : AttributeMask::None;
    QueuePairAttributes values;
    values.state = state;
    values.sq_drained_event = says;
    modify(AttributeMask::State | tells, values);
  }
  void change(AttributeMask mask, QueuePairAttributes values) {
    enter(QueuePairState::Sqd);
    values.state = QueuePairState::Sqd;
    modify(AttributeMask::State | mask, values);
    enter(QueuePairState::Rts);
  }
  void post(SendOpcode opcode, const RemoteMemory& there = {}) {
    const ScatterGather local = memory.local(0, 8);
    SendRequest request;
    request.opcode = opcode;
    request.flags = SendFlags::Signaled;
    request.local = {&local, 1};
    request.remote_address = there.address;
    request.rkey = there.rkey;
    EXPECT_TRUE(pair.post_send(request));
  }
  CompletionStatus outcome(End& peer) {
    for (;;) {
      static_cast<void>(peer.completions.poll_one());
      if (const auto completion = completions.poll_one()) return completion->status;
    }
  }
  std::uint64_t refusals() const { return test::counter(device, "send_rnr_err"); }
  int drained_events() {
    int count = 0;
    while (const auto event = device.poll_event()) count += event->async == AsyncEventType::SqDrained ? 1 : 0;
    return count;
  }

  Device device;
  MemoryRegion memory;
  CompletionQueue completions;
  QueuePair pair;
};

class Drained : public ::testing::TestWithParam<PathChoice> {
 protected:
  End near{GetParam()}, far{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Paths, Drained, ::testing::Values(PathChoice::Auto, PathChoice::Roce, PathChoice::Local),
                         [](const auto& path) {
                           if (path.param == PathChoice::Auto) return "auto";
                           return path.param == PathChoice::Local ? "local" : "roce";
                         });

// Where both paths are possible the peer decides, and here it has said nothing yet.
TEST_P(Drained, what_waits_for_a_peer_that_is_not_there_waits_on_in_sqd) {
  constexpr ReliabilityOptions kImpatient{.timeout = 8, .retry_count = 0};  // 1 ms
  must(near.pair.connect(far.pair.address(), kImpatient));
  near.post(SendOpcode::Send);
  near.enter(QueuePairState::Sqd);
  ::usleep(20'000);
  for (int i = 0; i < 100; ++i) static_cast<void>(near.completions.poll_one());
  EXPECT_EQ(must(near.pair.query()).state, near.pair.state());
}

TEST_P(Drained, is_said_once) {
  must(near.pair.connect(far.pair.address()));
  near.enter(QueuePairState::Sqd, true);
  for (int i = 0; i < 100; ++i) static_cast<void>(near.completions.poll_one());
  EXPECT_EQ(near.drained_events(), 1);
  must(far.pair.connect(near.pair.address()));
  for (int i = 0; i < 2000; ++i) {
    static_cast<void>(near.completions.poll_one());
    static_cast<void>(far.completions.poll_one());
  }
  EXPECT_EQ(near.drained_events(), 0);
  near.enter(QueuePairState::Rts);
  near.enter(QueuePairState::Sqd, true);
  EXPECT_EQ(near.drained_events(), 1);
  near.enter(QueuePairState::Rts);
  near.enter(QueuePairState::Sqd);
  EXPECT_EQ(near.drained_events(), 0) << "nobody asked for it this time";
}

// Each refusal asks for the shortest wait there is.
TEST_P(Drained, how_often_a_receive_is_asked_for_can_be_changed) {
  const auto refusals_after = [this](std::uint8_t before, std::uint8_t then) {
    must(near.pair.connect(far.pair.address(), {.rnr_retry = before}));
    must(far.pair.connect(near.pair.address(), {.min_rnr_timer = 1}));
    QueuePairAttributes values;
    values.rnr_retry = then;
    near.change(AttributeMask::RnrRetry, values);
    const std::uint64_t told = far.refusals();
    near.post(SendOpcode::Send);
    EXPECT_EQ(near.outcome(far), CompletionStatus::RnrRetryExceeded);
    near.enter(QueuePairState::Reset);
    far.enter(QueuePairState::Reset);
    return far.refusals() - told;
  };
  EXPECT_EQ(refusals_after(0, 3), 4u);
  EXPECT_EQ(refusals_after(3, 0), 1u);
  EXPECT_EQ(refusals_after(2, 2), 3u);
}

TEST_P(Drained, r082_how_many_reads_are_served_from_then_on_can_be_changed) {
  must(near.pair.connect(far.pair.address()));
  must(far.pair.connect(near.pair.address(), {.max_dest_rd_atomic = 0}));
  const auto change = [this](std::uint8_t most) {
    QueuePairAttributes values;
    values.max_dest_rd_atomic = most;
    far.change(AttributeMask::MaxDestRdAtomic, values);
  };
  for (const std::uint8_t most : std::initializer_list<std::uint8_t>{4, 16, 1}) {
    change(most);
    for (int i = 0; i < 40; ++i) {
      near.post(SendOpcode::RdmaRead, far.memory.remote());
      ASSERT_EQ(near.outcome(far), CompletionStatus::Success) << int{most} << " " << i;
    }
  }
  change(0);
  near.post(SendOpcode::RdmaRead, far.memory.remote());
  EXPECT_EQ(near.outcome(far), CompletionStatus::RemoteInvalidRequest);
}

}  // namespace
}  // namespace verbena
