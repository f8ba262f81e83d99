// SPDX-License-Identifier: Apache-2.0
#include "soft/core/work_queues.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/test_processors.h"

namespace verbena::core {
namespace {

QueuePairCapabilities small() {
  QueuePairCapabilities capabilities;
  capabilities.max_send_requests = 4;
  capabilities.max_receive_requests = 4;
  capabilities.max_send_segments = 2;
  capabilities.max_receive_segments = 2;
  capabilities.max_inline_bytes = 16;
  return capabilities;
}

SendRequest send_of(std::uint64_t id, std::span<const ScatterGather> local = {}) {
  SendRequest request;
  request.id = id;
  request.local = local;
  return request;
}

ReceiveRequest receive_of(std::uint64_t id, std::span<const ScatterGather> local = {}) { return {id, local}; }

TEST(SendQueue, hands_out_what_was_posted_in_order) {
  SendQueue queue(small());
  const ScatterGather sges[2] = {{0x1000, 10, LKey{1}}, {0x2000, 20, LKey{2}}};
  SendRequest request = send_of(7, sges);
  request.opcode = SendOpcode::RdmaWriteWithImmediate;
  request.flags = SendFlags::Signaled | SendFlags::Fence;
  request.remote_address = 0x1122334455667788;
  request.rkey = RKey{0xabcdef01};
  request.immediate = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  const SendRequest list[2] = {request, send_of(8)};
  const PostResult result = queue.post(list);
  ASSERT_TRUE(result);
  EXPECT_EQ(result.posted, 2u);
  ASSERT_EQ(queue.posted() - queue.retired(), 2u);
  const SendWqe& wqe = queue.at(queue.retired());
  EXPECT_EQ(wqe.id, 7u);
  EXPECT_EQ(wqe.opcode, SendOpcode::RdmaWriteWithImmediate);
  EXPECT_EQ(wqe.flags, SendFlags::Signaled | SendFlags::Fence);
  EXPECT_EQ(wqe.remote_address, 0x1122334455667788u);
  EXPECT_EQ(wqe.rkey, RKey{0xabcdef01});
  EXPECT_EQ(wqe.immediate, request.immediate);
  EXPECT_EQ(wqe.length, 30u);
  EXPECT_FALSE(wqe.started);
  const auto stored = queue.sges(queue.retired());
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[1].address, 0x2000u);
  EXPECT_EQ(stored[1].length, 20u);
  EXPECT_EQ(stored[1].lkey, LKey{2});
  EXPECT_EQ(queue.at(queue.retired() + 1).id, 8u);
}

TEST(SendQueue, full_queue_refuses_and_keeps_those_before) {
  SendQueue queue(small());
  std::array<SendRequest, 6> list;
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = send_of(i);
  const PostResult result = queue.post(list);
  EXPECT_EQ(result.status, PostStatus::QueueFull);
  EXPECT_EQ(result.posted, 4u);
  for (std::uint32_t i = 0; i < 4; ++i) EXPECT_EQ(queue.at(queue.retired() + i).id, i);
  EXPECT_EQ(queue.post(std::span(list).last(1)).status, PostStatus::QueueFull);
  queue.retire_oldest();
  EXPECT_TRUE(queue.post(std::span(list).last(1)));
  EXPECT_EQ(queue.at(queue.retired() + 3).id, 5u);
}

TEST(SendQueue, capacity_is_rounded_up_and_survives_many_turns) {
  QueuePairCapabilities capabilities = small();
  capabilities.max_send_requests = 5;
  SendQueue queue(capabilities);
  for (std::uint64_t turn = 0; turn < 1000; ++turn) {
    const SendRequest one = send_of(turn);
    ASSERT_TRUE(queue.post({&one, 1}));
    if (queue.posted() - queue.retired() < 8) continue;
    const SendRequest extra = send_of(0);
    ASSERT_EQ(queue.post({&extra, 1}).status, PostStatus::QueueFull);
    ASSERT_EQ(queue.at(queue.retired()).id, turn - 7);
    queue.retire_oldest();
  }
}

TEST(SendQueue, more_segments_than_made_for_are_refused) {
  SendQueue queue(small());
  const std::array<ScatterGather, 3> sges{};
  const SendRequest list[3] = {send_of(1), send_of(2, sges), send_of(3)};
  const PostResult result = queue.post(list);
  EXPECT_EQ(result.status, PostStatus::TooManySegments);
  EXPECT_EQ(result.posted, 1u);
  EXPECT_EQ(queue.posted() - queue.retired(), 1u);
}

TEST(SendQueue, inline_data_is_copied_at_post_from_any_memory) {
  SendQueue queue(small());
  char first[] = "hello";
  char second[] = "world";
  const ScatterGather sges[2] = {{reinterpret_cast<std::uint64_t>(first), 5, LKey{}},
                                 {reinterpret_cast<std::uint64_t>(second), 5, LKey{}}};
  SendRequest request = send_of(1, sges);
  request.flags = SendFlags::Inline;
  ASSERT_TRUE(queue.post({&request, 1}));
  std::memset(first, 'x', 5);
  std::memset(second, 'x', 5);
  const auto data = queue.inline_data(queue.retired());
  ASSERT_EQ(data.size(), 10u);
  EXPECT_EQ(std::memcmp(data.data(), "helloworld", 10), 0);
}

TEST(SendQueue, inline_data_longer_than_the_limit_is_refused) {
  SendQueue queue(small());
  std::array<char, 17> bytes{};
  ScatterGather sge{reinterpret_cast<std::uint64_t>(bytes.data()), 17, LKey{}};
  SendRequest request = send_of(1, {&sge, 1});
  request.flags = SendFlags::Inline;
  EXPECT_EQ(queue.post({&request, 1}).status, PostStatus::InlineTooLong);
  sge.length = 16;
  EXPECT_TRUE(queue.post({&request, 1}));
}

TEST(SendQueue, inline_lengths_that_add_up_past_32_bits_are_refused) {
  SendQueue queue(small());
  const ScatterGather sges[2] = {{0, 0xfffffff8, LKey{}}, {0, 16, LKey{}}};
  SendRequest request = send_of(1, sges);
  request.flags = SendFlags::Inline;
  EXPECT_FALSE(queue.post({&request, 1}));
}

TEST(SendQueue, inline_read_and_atomic_are_refused) {
  for (const SendOpcode opcode :
       {SendOpcode::RdmaRead, SendOpcode::CompareAndSwap, SendOpcode::FetchAndAdd}) {
    SendQueue queue(small());
    std::uint64_t word = 0;
    const ScatterGather sge{reinterpret_cast<std::uint64_t>(&word), 8, LKey{}};
    SendRequest request = send_of(1, {&sge, 1});
    request.opcode = opcode;
    EXPECT_TRUE(queue.post({&request, 1}));
    request.flags = SendFlags::Inline;
    EXPECT_EQ(queue.post({&request, 1}).status, PostStatus::InvalidRequest);
  }
}

TEST(SendQueue, atomic_takes_exactly_eight_bytes) {
  for (const std::uint32_t length : {0u, 7u, 8u, 9u, 16u}) {
    SendQueue queue(small());
    const ScatterGather sge{0x1000, length, LKey{}};
    SendRequest request = send_of(1, {&sge, 1});
    request.opcode = SendOpcode::FetchAndAdd;
    EXPECT_EQ(static_cast<bool>(queue.post({&request, 1})), length == 8);
  }
}

TEST(SendQueue, message_of_2_to_the_31_is_taken_and_one_byte_more_is_not) {
  SendQueue queue(small());
  ScatterGather sges[2] = {{0, 0x80000000, LKey{}}, {0, 0, LKey{}}};
  const SendRequest request = send_of(1, sges);
  EXPECT_TRUE(queue.post({&request, 1}));
  EXPECT_EQ(queue.at(queue.retired()).length, 0x80000000u);
  sges[1].length = 1;
  EXPECT_EQ(queue.post({&request, 1}).status, PostStatus::InvalidRequest);
}

TEST(SendQueue, unknown_operation_is_refused) {
  SendQueue queue(small());
  SendRequest request = send_of(1);
  request.opcode = static_cast<SendOpcode>(7);
  EXPECT_EQ(queue.post({&request, 1}).status, PostStatus::InvalidRequest);
}

TEST(SendQueue, threads_may_post_while_the_device_retires) {
  QueuePairCapabilities capabilities = small();
  capabilities.max_send_requests = 64;
  SendQueue queue(capabilities);
  constexpr std::uint64_t kEach = 20000;
  const auto poster = [&queue](std::uint64_t first) {
    for (std::uint64_t i = 0; i < kEach;) {
      const SendRequest request = send_of(first + i);
      if (queue.post({&request, 1}))
        ++i;
      else
        std::this_thread::yield();
    }
  };
  std::thread a(poster, 0), b(poster, kEach);
  std::uint64_t next_a = 0, next_b = kEach;
  while (next_a + next_b != 3 * kEach) {
    if (queue.posted() == queue.retired()) {
      std::this_thread::yield();
      continue;
    }
    const std::uint64_t id = queue.at(queue.retired()).id;
    std::uint64_t& expected = id < kEach ? next_a : next_b;
    EXPECT_EQ(id, expected);
    ++expected;
    queue.retire_oldest();
  }
  a.join();
  b.join();
}

TEST(SendQueue, clear_forgets_everything) {
  SendQueue queue(small());
  const SendRequest list[3] = {send_of(1), send_of(2), send_of(3)};
  ASSERT_TRUE(queue.post(list));
  queue.clear();
  EXPECT_EQ(queue.posted(), queue.retired());
}

TEST(SendWqe, knows_its_last_sequence_number_across_the_wrap) {
  SendWqe wqe;
  wqe.first_psn = Psn{0xfffffe};
  wqe.packets = 4;
  EXPECT_EQ(wqe.last_psn(), Psn{1});
}

TEST(ReceiveQueue, hands_out_each_request_once_in_order) {
  ReceiveQueue queue(4, 2);
  const ScatterGather sges[2] = {{0x1000, 10, LKey{1}}, {0x2000, 20, LKey{2}}};
  const ReceiveRequest list[2] = {receive_of(1, sges), receive_of(2)};
  ASSERT_TRUE(queue.post(list));
  std::array<ScatterGather, 2> out;
  ReceiveWqe wqe;
  ASSERT_TRUE(queue.take(wqe, out));
  EXPECT_EQ(wqe.id, 1u);
  EXPECT_EQ(wqe.length, 30u);
  EXPECT_EQ(wqe.sge_count, 2u);
  EXPECT_EQ(out[1].address, 0x2000u);
  ASSERT_TRUE(queue.take(wqe, out));
  EXPECT_EQ(wqe.id, 2u);
  EXPECT_EQ(wqe.sge_count, 0u);
  EXPECT_FALSE(queue.take(wqe, out));
  EXPECT_TRUE(queue.empty());
}

TEST(ReceiveQueue, full_queue_and_too_many_segments_are_refused) {
  ReceiveQueue queue(4, 2);
  std::array<ReceiveRequest, 5> list;
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = receive_of(i);
  const PostResult full = queue.post(list);
  EXPECT_EQ(full.status, PostStatus::QueueFull);
  EXPECT_EQ(full.posted, 4u);
  queue.clear();
  EXPECT_TRUE(queue.empty());
  const std::array<ScatterGather, 3> sges{};
  const ReceiveRequest wide[2] = {receive_of(8), receive_of(9, sges)};
  const PostResult refused = queue.post(wide);
  EXPECT_EQ(refused.status, PostStatus::TooManySegments);
  EXPECT_EQ(refused.posted, 1u);
}

TEST(ReceiveQueue, request_that_was_not_taken_can_be_withdrawn) {
  ReceiveQueue queue(4, 2);
  std::array<ScatterGather, 2> out;
  ReceiveWqe wqe;
  const auto take = [&] { return queue.take(wqe, out) ? wqe.id : 0; };
  for (std::uint64_t id = 1; id <= 4; ++id) {
    const ScatterGather sge{id * 0x1000, 10, LKey{static_cast<std::uint32_t>(id)}};
    const ReceiveRequest request = receive_of(id, {&sge, 1});
    ASSERT_TRUE(queue.post({&request, 1}));
  }
  EXPECT_EQ(take(), 1u);
  EXPECT_FALSE(queue.withdraw(1)) << "it was taken";
  EXPECT_TRUE(queue.withdraw(2));
  EXPECT_FALSE(queue.withdraw(2));
  EXPECT_EQ(queue.size(), 2u);
  const ReceiveRequest more[2] = {receive_of(5), receive_of(6)};
  EXPECT_TRUE(queue.post(more)) << "its place is free";
  EXPECT_TRUE(queue.withdraw(6));
  EXPECT_EQ(take(), 3u);
  EXPECT_EQ(out[0].address, 0x3000u);
  EXPECT_EQ(out[0].lkey, LKey{3});
  EXPECT_EQ(take(), 4u);
  EXPECT_EQ(take(), 5u);
  EXPECT_EQ(take(), 0u);
}

TEST(ReceiveQueue, what_stays_keeps_its_order_wherever_a_request_is_withdrawn) {
  for (std::uint64_t withdrawn = 1; withdrawn <= 8; ++withdrawn) {
    ReceiveQueue queue(8, 1);
    std::array<ScatterGather, 1> out;
    ReceiveWqe wqe;
    for (std::uint64_t id = 1; id <= 8; ++id) {
      const ScatterGather sge{id * 0x1000, 10, LKey{}};
      const ReceiveRequest request = receive_of(id, {&sge, 1});
      ASSERT_TRUE(queue.post({&request, 1}));
    }
    EXPECT_TRUE(queue.withdraw(withdrawn));
    const ReceiveRequest last = receive_of(9);
    EXPECT_TRUE(queue.post({&last, 1}));
    EXPECT_FALSE(queue.post({&last, 1}));
    for (std::uint64_t id = 1; id <= 8; ++id) {
      if (id == withdrawn) continue;
      ASSERT_TRUE(queue.take(wqe, out));
      EXPECT_EQ(wqe.id, id);
      EXPECT_EQ(out[0].address, id * 0x1000);
    }
    ASSERT_TRUE(queue.take(wqe, out));
    EXPECT_EQ(wqe.id, 9u);
    EXPECT_TRUE(queue.empty());
  }
}

// Either who posts is told that it is closed, or the device, which looks after it closed it, sees what was posted.
TEST(ReceiveQueue, who_posts_alone_and_the_device_that_closes_do_not_miss_each_other) {
  constexpr int kTurns = 2000;
  testing::end_a_thread_on_each_processor();
  std::atomic<ReceiveQueue*> shared{nullptr};
  std::atomic<int> untold{-1};  // requests whose poster was not told
  std::thread poster([&] {
    for (int turn = 0; turn < kTurns; ++turn) {
      ReceiveQueue* queue = nullptr;
      while ((queue = shared.exchange(nullptr)) == nullptr) std::this_thread::yield();
      int count = 0;
      for (bool closed = false; !closed; count += closed ? 0 : 1) {
        const ReceiveRequest request = receive_of(1);
        if (!queue->post({&request, 1}, &closed)) break;
      }
      untold = count;
    }
  });
  for (int turn = 0; turn < kTurns; ++turn) {
    ReceiveQueue queue(4096, 1, Posters::OneThread);
    shared = &queue;
    for (int i = 0; i < turn % 100 * 10 || queue.empty(); ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    queue.close();
    const int seen = static_cast<int>(queue.size());
    int count = -1;
    while ((count = untold.exchange(-1)) == -1) std::this_thread::yield();
    EXPECT_LE(count, seen) << "turn " << turn;
  }
  poster.join();
}

TEST(ReceiveQueue, queue_of_none_takes_none) {
  ReceiveQueue queue(0, 2);
  const ReceiveRequest request = receive_of(1);
  EXPECT_EQ(queue.post({&request, 1}).status, PostStatus::QueueFull);
  std::array<ScatterGather, 2> out;
  ReceiveWqe wqe;
  EXPECT_FALSE(queue.take(wqe, out));
  EXPECT_TRUE(queue.empty());
}

TEST(ReceiveQueue, room_of_a_request_is_counted_in_64_bits) {
  ReceiveQueue queue(4, 2);
  const ScatterGather sges[2] = {{0, 0xffffffff, LKey{}}, {0, 0xffffffff, LKey{}}};
  const ReceiveRequest request = receive_of(1, sges);
  ASSERT_TRUE(queue.post({&request, 1}));
  std::array<ScatterGather, 2> out;
  ReceiveWqe wqe;
  ASSERT_TRUE(queue.take(wqe, out));
  EXPECT_EQ(wqe.length, 0x1fffffffeu);
}

}  // namespace
}  // namespace verbena::core
