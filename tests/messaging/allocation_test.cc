// SPDX-License-Identifier: Apache-2.0
// A message takes no memory from the heap, by whatever protocol, path and way of waiting.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "test_ends.h"

namespace {
thread_local std::size_t allocations = 0;
}

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace verbena {
namespace {

using namespace test;

class Allocation : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Allocation, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

constexpr std::uint32_t kMessages = 2000;
constexpr std::size_t kLongest = 900;
// Each once before any comes again.
constexpr std::size_t length_of(std::size_t message) { return message * 37 % (kLongest + 1); }

const Options kOptions{.max_message_bytes = 1000, .depth = 16, .max_senders = 1};

// As many messages, of which try_some(how many are left) sends some; what this thread allocated meanwhile.
template <class TrySome>
std::size_t allocated(Ends& ends, const TrySome& try_some) {
  const std::size_t before = allocations;
  for (std::size_t sent = 0, got = 0; got < kMessages;) {
    if (sent < kMessages) sent += try_some(kMessages - sent);
    if (ends.receiver->try_receive()) ++got;
  }
  return allocations - before;
}
// Buffers of the devices grow here and there, ever more seldom: sooner or later a round is as cheap as that.
template <class Round>
void expect_a_round_of(std::size_t most, const Round& round) {
  std::size_t least = round();
  for (int more = 0; more < 50 && least > most; ++more) least = std::min(least, round());
  EXPECT_LE(least, most);
}
template <class TrySome>
void expect_none(Ends& ends, const TrySome& try_some) {
  expect_a_round_of(0, [&] { return allocated(ends, try_some); });
}

TEST_P(Allocation, messages_that_are_polled_for_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  Sender sender = ends.connect();
  const std::vector<std::byte> text(kLongest);
  expect_none(ends, [&](std::size_t left) { return sender.try_send(std::span(text).first(length_of(left))).taken; });
}

TEST_P(Allocation, messages_of_a_batch_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  Sender sender = ends.connect();
  const std::vector<std::byte> text(kLongest);
  std::array<std::span<const std::byte>, 8> batch;
  expect_none(ends, [&](std::size_t left) {
    for (std::size_t i = 0; i < batch.size(); ++i) batch[i] = std::span(text).first(length_of(left + i));
    return sender.try_send_batch(std::span(batch).first(std::min(left, batch.size()))).taken;
  });
}

TEST_P(Allocation, messages_from_lent_memory_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  Sender sender = ends.connect();
  const MemoryRegion own = must(ends.client.allocate_memory(1000));
  expect_none(ends, [&](std::size_t left) {
    const LentMemory one = LentMemory::of(own, 0, static_cast<std::uint32_t>(length_of(left)));
    const std::array<LentMemory, 4> batch{one, one, one, one};
    return left % 3 == 0 ? sender.try_lend_batch(std::span(batch).first(std::min(left, batch.size()))).taken
                         : sender.try_lend(one).taken;
  });
}

TEST_P(Allocation, messages_that_are_reserved_and_committed_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  Sender sender = ends.connect();
  std::optional<messaging::Reservation> kept;
  expect_none(ends, [&](std::size_t left) {
    if (!kept) kept = sender.try_reserve(kLongest);
    const bool went = kept && sender.try_commit(*kept, static_cast<std::uint32_t>(length_of(left)));
    if (went) kept.reset();
    return static_cast<std::size_t>(went);
  });
}

class AllocationForPlaces : public Allocation {};
INSTANTIATE_TEST_SUITE_P(Messaging, AllocationForPlaces, ::testing::ValuesIn([] {
                           std::vector<Way> ways = every_way();
                           std::erase_if(ways, [](const Way& way) {
                             return way.kind.protocol != Protocol::DirectRead &&
                                    way.kind.protocol != Protocol::DirectWrite;
                           });
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(AllocationForPlaces, messages_to_places_of_the_program_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  const MemoryRegion own = must(ends.server.allocate_memory(64 * 1024));
  std::uint32_t given = 0;
  ends.receiver->on_place([&](messaging::PeerId, std::uint32_t) {
    return std::optional(LentMemory::of(own, std::uint64_t{given++ % 64} * 1024, 1024));
  });
  Sender sender = ends.connect();
  const std::vector<std::byte> text(kLongest);
  expect_none(ends, [&](std::size_t left) { return sender.try_send(std::span(text).first(length_of(left))).taken; });
  EXPECT_GE(given, kMessages);
}

TEST_P(Allocation, messages_that_callbacks_are_called_for_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  Sender sender = ends.connect();
  const std::vector<std::byte> text(kLongest);
  struct Counts {
    std::array<std::uint64_t, 8> of_many;  // more than a std::function keeps in itself
  } counts{};
  ends.receiver->on_message([counts](Message) mutable { ++counts.of_many[0]; });
  sender.on_freed([counts](messaging::MessageId) mutable { ++counts.of_many[1]; });
  const auto exchange = [&] {
    const std::size_t before = allocations;
    for (std::size_t n = 0; n < kMessages; ++n) must(sender.send(std::span(text).first(length_of(n))));
    ends.engine.run_until([&] { return sender.freed() == sender.counters().messages; });
    return allocations - before;
  };
  expect_a_round_of(0, exchange);
  ends.receiver->on_message(nullptr);
}

TEST_P(Allocation, messages_that_are_awaited_allocate_nothing_each) {
  Ends ends(GetParam(), kOptions);
  Sender sender = ends.connect();
  const std::vector<std::byte> text(kLongest);
  const auto send = [&]() -> Task<void> {
    for (std::size_t n = 0; n < kMessages; ++n)
      must(co_await sender.async_send(std::span(text).first(length_of(n))));
  };
  const auto receive = [&]() -> Task<void> {
    for (std::size_t n = 0; n < kMessages; ++n) must(co_await ends.receiver->async_receive());
  };
  const auto exchange = [&] {
    const std::size_t before = allocations;
    ends.engine.run(when_all(send(), receive()));
    return allocations - before;
  };
  expect_a_round_of(3, exchange);  // coroutines
}

}  // namespace
}  // namespace verbena
