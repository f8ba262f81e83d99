// SPDX-License-Identifier: Apache-2.0
// A message takes no memory from the heap, by whatever protocol, path and way of waiting.
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

constexpr std::size_t kMessages = 2000;
constexpr std::size_t kGrowth = 100;  // of the device's buffers here and there, not one for each message

TEST_P(Allocation, messages_that_are_polled_for_allocate_nothing_each) {
  Ends ends(GetParam(), {.max_message_bytes = 1000, .depth = 16, .max_senders = 1});
  Sender sender = ends.connect();
  const std::vector<std::byte> text(700);
  const auto exchange = [&](std::size_t messages) {
    const std::size_t before = allocations;
    for (std::size_t sent = 0, got = 0; got < messages;) {
      if (sent < messages && sender.try_send(std::span(text).first(sent % 701))) ++sent;
      if (ends.receiver->try_receive()) ++got;
    }
    return allocations - before;
  };
  exchange(500);
  EXPECT_LE(exchange(kMessages), kGrowth);
}

TEST_P(Allocation, messages_that_are_awaited_allocate_nothing_each) {
  Ends ends(GetParam(), {.max_message_bytes = 1000, .depth = 16, .max_senders = 1});
  Sender sender = ends.connect();
  const std::vector<std::byte> text(700);
  const auto send = [&](std::size_t messages) -> Task<void> {
    for (std::size_t n = 0; n < messages; ++n)
      must(co_await sender.async_send(std::span(text).first(n % 701)));
  };
  const auto receive = [&](std::size_t messages) -> Task<void> {
    for (std::size_t n = 0; n < messages; ++n) must(co_await ends.receiver->async_receive());
  };
  const auto exchange = [&](std::size_t messages) {
    const std::size_t before = allocations;
    ends.engine.run(when_all(send(messages), receive(messages)));
    return allocations - before;
  };
  exchange(500);
  EXPECT_LE(exchange(kMessages), kGrowth);
}

}  // namespace
}  // namespace verbena
