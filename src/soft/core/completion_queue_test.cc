// SPDX-License-Identifier: Apache-2.0
#include "soft/core/completion_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace verbena::core {
namespace {

using Pushed = CompletionQueue::Pushed;

Completion good(std::uint64_t id, std::uint32_t qpn = 7) {
  Completion completion;
  completion.id = id;
  completion.qpn = Qpn{qpn};
  return completion;
}
Completion bad(std::uint64_t id) {
  Completion completion = good(id);
  completion.status = CompletionStatus::Flushed;
  return completion;
}

std::vector<std::uint64_t> ids(CompletionQueue& cq) {
  std::array<Completion, 64> out;
  std::vector<std::uint64_t> list;
  const std::size_t n = cq.poll(out);
  for (std::size_t i = 0; i < n; ++i) list.push_back(out[i].id);
  return list;
}

TEST(CompletionQueue, gives_back_in_order_what_the_device_put_in) {
  CompletionQueue cq({1}, 4);
  EXPECT_TRUE(cq.looks_empty());
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(cq.push(good(i), false), Pushed::Stored);
  EXPECT_FALSE(cq.looks_empty());
  std::array<Completion, 3> out;
  ASSERT_EQ(cq.poll(out), 3u);
  EXPECT_EQ(out[0].id, 0u);
  EXPECT_EQ(out[2].id, 2u);
  EXPECT_EQ(ids(cq), std::vector<std::uint64_t>{3});
  EXPECT_TRUE(cq.looks_empty());
}

TEST(CompletionQueue, holds_as_many_as_asked_for_even_if_no_power_of_two) {
  CompletionQueue cq({1}, 5);
  EXPECT_GE(cq.capacity(), 5u);
  for (std::uint64_t i = 0; i < 5; ++i) EXPECT_EQ(cq.push(good(i), false), Pushed::Stored);
}

TEST(CompletionQueue, overrun_is_said_once_and_overwrites_nothing) {
  CompletionQueue cq({1}, 2);
  EXPECT_EQ(cq.push(good(0), false), Pushed::Stored);
  EXPECT_EQ(cq.push(good(1), false), Pushed::Stored);
  EXPECT_EQ(cq.push(good(2), false), Pushed::Overrun);
  EXPECT_EQ(cq.push(good(3), false), Pushed::Lost);
  EXPECT_EQ(ids(cq), (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(cq.push(good(4), false), Pushed::Lost) << "a broken queue stays broken";
  EXPECT_TRUE(cq.looks_empty());
}

TEST(CompletionQueue, unarmed_queue_raises_nothing) {
  CompletionQueue cq({1}, 8);
  EXPECT_EQ(cq.push(good(0), true), Pushed::Stored);
  EXPECT_EQ(cq.push(bad(1), false), Pushed::Stored);
}

TEST(CompletionQueue, one_event_per_arm) {
  CompletionQueue cq({1}, 8);
  cq.arm(false);
  EXPECT_EQ(cq.push(good(0), false), Pushed::Notify);
  EXPECT_EQ(cq.push(good(1), false), Pushed::Stored);
  cq.arm(false);
  cq.arm(false);
  EXPECT_EQ(cq.push(good(2), false), Pushed::Notify);
  EXPECT_EQ(cq.push(good(3), false), Pushed::Stored);
}

TEST(CompletionQueue, solicited_arm_wakes_for_solicited_and_for_failed_only) {
  CompletionQueue cq({1}, 8);
  cq.arm(true);
  EXPECT_EQ(cq.push(good(0), false), Pushed::Stored);
  EXPECT_EQ(cq.push(good(1), true), Pushed::Notify);
  cq.arm(true);
  EXPECT_EQ(cq.push(good(2), false), Pushed::Stored);
  EXPECT_EQ(cq.push(bad(3), false), Pushed::Notify);
  EXPECT_EQ(cq.push(bad(4), true), Pushed::Stored);
}

TEST(CompletionQueue, arm_for_all_is_not_weakened_by_a_later_solicited_arm) {
  CompletionQueue cq({1}, 8);
  cq.arm(false);
  cq.arm(true);
  EXPECT_EQ(cq.push(good(0), false), Pushed::Notify);
  cq.arm(true);
  cq.arm(false);
  EXPECT_EQ(cq.push(good(1), false), Pushed::Notify);
}

TEST(CompletionQueue, removal_takes_one_queue_pairs_completions_and_keeps_the_order_of_the_rest) {
  CompletionQueue cq({1}, 8);
  for (std::uint64_t round = 0; round < 3; ++round) {  // the ring wraps meanwhile
    for (std::uint64_t i = 0; i < 6; ++i)
      EXPECT_EQ(cq.push(good(i, i % 2 == 0 ? 7 : 9), false), Pushed::Stored);
    cq.remove(Qpn{7});
    EXPECT_EQ(ids(cq), (std::vector<std::uint64_t>{1, 3, 5}));
  }
  cq.remove(Qpn{9});
  EXPECT_TRUE(cq.looks_empty());
}

TEST(CompletionQueue, free_running_indices_survive_many_turns) {
  CompletionQueue cq({1}, 4);
  for (std::uint64_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(cq.push(good(i), false), Pushed::Stored);
    if (i % 3 == 2) {
      ASSERT_EQ(ids(cq), (std::vector<std::uint64_t>{i - 2, i - 1, i}));
    }
  }
}

TEST(CompletionQueue, threads_share_the_completions_without_loss_or_copy) {
  CompletionQueue cq({1}, 1024);
  constexpr std::uint64_t kAll = 40000;
  std::array<std::vector<std::uint64_t>, 2> seen;
  std::atomic<std::uint64_t> taken{0};
  const auto reader = [&](std::vector<std::uint64_t>& mine) {
    std::array<Completion, 8> out;
    while (taken.load() < kAll) {
      const std::size_t n = cq.poll(out);
      for (std::size_t i = 0; i < n; ++i) mine.push_back(out[i].id);
      taken += n;
      if (n == 0) std::this_thread::yield();
    }
  };
  std::thread a(reader, std::ref(seen[0])), b(reader, std::ref(seen[1]));
  for (std::uint64_t i = 0; i < kAll;) {
    if (i - taken.load() >= 1000)
      std::this_thread::yield();
    else if (cq.push(good(i), false) == Pushed::Stored)
      ++i;
    else
      FAIL();
  }
  a.join();
  b.join();
  std::vector<bool> once(kAll, false);
  for (const auto& mine : seen) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    for (const std::uint64_t id : mine) {
      EXPECT_FALSE(once[id]);
      once[id] = true;
    }
  }
  EXPECT_EQ(seen[0].size() + seen[1].size(), kAll);
}

TEST(EventQueue, gives_events_in_order_and_names_broken_queues_apart) {
  EventQueue events;
  events.completion({3});
  events.overrun({4});
  events.of_qp(AsyncEventType::CommEstablished, Qpn{5});
  auto event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Event::Kind::Completion);
  EXPECT_EQ(event->cq, CqId{3});
  event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::CqError);
  EXPECT_EQ(event->cq, CqId{4});
  event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::CommEstablished);
  EXPECT_EQ(event->qpn, Qpn{5});
  EXPECT_FALSE(events.poll());
  EXPECT_EQ(events.poll_broken(), CqId{4});
  EXPECT_FALSE(events.poll_broken());
}

}  // namespace
}  // namespace verbena::core
