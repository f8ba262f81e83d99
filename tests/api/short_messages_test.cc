// SPDX-License-Identifier: Apache-2.0
// Short messages between processes of a host, of which who polls takes one and puts off the rest of his turn: what that
// must not do to anything else. Each end here is a device that only its polls drive.
#include <unistd.h>

#include <array>
#include <memory>

#include "test_pair.h"
#include "test_process.h"

namespace verbena {
namespace {

using test::must;

struct End {
  static constexpr std::uint32_t kBytes = 8192;
  explicit End(PathChoice path, Device* shared = nullptr)
      : own(shared != nullptr ? std::nullopt
                              : std::optional(must(Device::open({.path = path, .service_thread = false})))),
        device(shared != nullptr ? *shared : *own),
        memory(must(device.allocate_memory(kBytes))),
        completions(must(device.create_completion_queue(64))),
        pair(must(device.create_queue_pair(completions))) {}

  void connect(const End& peer, const ReliabilityOptions& options = {}) {
    must(pair.connect(peer.pair.address(), options));
  }
  void receive() {
    const ScatterGather to = memory.local(32, 8);
    ReceiveRequest request;
    request.local = {&to, 1};
    EXPECT_TRUE(pair.post_receive(request));
  }
  void send(SendFlags flags = SendFlags::Signaled) {
    const ScatterGather from = memory.local(0, 8);
    SendRequest request;
    request.flags = flags;
    request.local = {&from, 1};
    EXPECT_TRUE(pair.post_send(request));
  }
  void write(const RemoteMemory& there) {
    const ScatterGather from = memory.local();
    SendRequest request;
    request.opcode = SendOpcode::RdmaWrite;
    request.flags = SendFlags::Signaled;
    request.local = {&from, 1};
    request.remote_address = there.address;
    request.rkey = there.rkey;
    EXPECT_TRUE(pair.post_send(request));
  }
  std::uint64_t count(std::string_view name) const {
    for (const NamedCounter& counter : device.counters())
      if (counter.name == name) return counter.value;
    return 0;
  }
  std::optional<Completion> poll() { return completions.poll_one(); }

  std::optional<Device> own;
  Device& device;
  MemoryRegion memory;
  CompletionQueue completions;
  QueuePair pair;
};

// One message there, and all that follows of it.
void bring(End& from, End& to) {
  to.receive();
  from.send();
  bool sent = false, came = false;
  while (!sent || !came) {
    came = to.poll().has_value() || came;
    sent = from.poll().has_value() || sent;
  }
}

TEST(ShortMessages, a_request_whose_answer_waits_in_the_socket_has_not_timed_out) {
  End near(PathChoice::Auto), beside(PathChoice::Local), far(PathChoice::Roce);
  End to_far(PathChoice::Auto, &near.device);
  constexpr Duration kPeriod = Duration::microseconds(4'194);  // 4.096 us * 2^10
  const ReliabilityOptions impatient{.timeout = 10, .retry_count = 0};
  near.connect(beside), beside.connect(near);
  to_far.connect(far, impatient), far.connect(to_far);
  bring(beside, near);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 3; ++i) bring(beside, near), bring(near, beside);
    near.receive();
    beside.send();
    while (!near.poll()) continue;
    far.receive();
    to_far.send();
    while (!far.poll()) continue;
    for (int i = 0; i < 100; ++i) static_cast<void>(far.poll());  // the acknowledgement leaves
    ::usleep(static_cast<useconds_t>(2 * kPeriod.ns / 1000));
    std::optional<Completion> sent;
    while (!(sent = to_far.poll())) continue;
    ASSERT_EQ(sent->status, CompletionStatus::Success) << round;
    while (!beside.poll()) static_cast<void>(near.poll());
  }
}

TEST(ShortMessages, as_many_as_the_ring_holds_many_times_over_go_there_and_back) {
  End near(PathChoice::Local), beside(PathChoice::Local);
  near.connect(beside), beside.connect(near);
  for (int i = 0; i < 2000; ++i) bring(near, beside), bring(beside, near);
}

// A connected pair whose near end reaches the memory of the other; nothing where memory is not shared.
struct Reaching {
  End near{PathChoice::Local}, beside{PathChoice::Local};
  bool reaches = false;

  Reaching() {
    near.connect(beside), beside.connect(near);
    constexpr int kTries = 2000;
    for (int i = 0; i < kTries && !reaches; ++i) {
      near.write(beside.memory.remote());
      poll(near);
      reaches = near.count("direct_requests") != 0;
    }
  }
  void poll(End& end) {
    while (!end.poll()) static_cast<void>((&end == &near ? beside : near).poll());
  }
  // What is near has an answer to its SEND, of which nobody is to hear.
  void converse() {
    near.receive(), beside.receive();
    near.send(SendFlags::None);
    poll(beside);
    beside.send(SendFlags::None);
    while (!near.poll()) continue;
  }
};

// What the answer acknowledged is done, though nobody is to hear of it: the WRITE waits for nothing, nor for a poll.
TEST(ShortMessages, what_is_posted_behind_an_answer_goes_straight_to_memory_at_once) {
  Reaching ends;
  if (!ends.reaches) GTEST_SKIP() << "memory is not shared";
  for (int round = 0; round < 200; ++round) {
    ends.converse();
    const std::uint64_t before = ends.near.count("direct_requests");
    ends.near.write(ends.beside.memory.remote());
    ASSERT_EQ(ends.near.count("direct_requests"), before + 1) << "round " << round;
    ends.poll(ends.near);
  }
}

TEST(ShortMessages, what_is_gathered_behind_an_answer_goes_straight_to_memory_when_it_leaves) {
  Reaching ends;
  if (!ends.reaches) GTEST_SKIP() << "memory is not shared";
  ProgressEngine engine = must(ProgressEngine::create(ends.near.device));
  for (int round = 0; round < 200; ++round) {
    ends.converse();
    const std::uint64_t before = ends.near.count("direct_requests");
    {
      const ProgressEngine::Gathered together(engine);
      ends.near.write(ends.beside.memory.remote());
      ASSERT_EQ(ends.near.count("direct_requests"), before) << "round " << round;
    }
    ASSERT_EQ(ends.near.count("direct_requests"), before + 1) << "round " << round;
    ends.poll(ends.near);
  }
}

TEST(ShortMessages, what_is_no_request_behind_an_answer_is_carried_out_at_once_too) {
  Reaching ends;
  if (!ends.reaches) GTEST_SKIP() << "memory is not shared";
  const std::array<std::byte, 8> bytes{std::byte{7}};
  const RemoteMemory there = ends.beside.memory.remote();
  for (int round = 0; round < 200; ++round) {
    ends.converse();
    ASSERT_TRUE(ends.near.pair.try_write_now({bytes, there.address, there.rkey})) << "round " << round;
  }
}

// The rest of a turn that was put off is the parent's, and in the child what it would write to is not there.
TEST(ShortMessages, a_child_that_is_forked_behind_an_answer_ends_nothing_of_its_parent) {
  auto ends = std::make_unique<Reaching>();
  for (int round = 0; round < 20; ++round) {
    ends->converse();
    test::Process child([&](const auto&) {
      const RemoteMemory there = ends->beside.memory.remote();
      const std::array<std::byte, 8> bytes{};
      static_cast<void>(ends->near.pair.try_write_now({bytes, there.address, there.rkey}));
      for (int i = 0; i < 10; ++i) static_cast<void>(ends->near.poll());
      ends->near.send();
      ends.reset();
    });
    ASSERT_EQ(child.wait(), 0) << "round " << round;
  }
  ends->converse();
}

}  // namespace
}  // namespace verbena
