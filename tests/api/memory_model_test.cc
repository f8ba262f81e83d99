// SPDX-License-Identifier: Apache-2.0
// What a program that polls written memory may rely on: doc/memory-model.md.
#include <atomic>
#include <thread>

#include "base/shared_word.h"
#include "test_pair.h"

namespace verbena {
namespace {

using test::must;

constexpr std::size_t kSlots = 4;
constexpr std::uint64_t kModelMessages = 400;

std::byte expected_byte(std::uint64_t number, std::size_t at) {
  return static_cast<std::byte>(number * 31 + at * 7 + (at >> 8));
}

// The owner of the memory: a thread that knows nothing of the device and polls. Slots of `bytes`, whose last eight are
// the number of the message.
struct Reader {
  std::span<std::byte> memory;
  std::size_t bytes;
  std::atomic<std::uint64_t> consumed{0};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<bool> given_up{false};

  // An acquire load. One message may come by the peer's device, the next by the writer itself, in a mapping that
  // ThreadSanitizer takes for other memory.
  std::uint64_t tail_of(std::uint64_t number) const {
    return load_shared(memory.data() + (number % kSlots + 1) * bytes - 8);
  }
  void check(std::uint64_t number) {
    const std::byte* const slot = memory.data() + number % kSlots * bytes;
    for (std::size_t i = 0; i + 8 < bytes; ++i)
      if (slot[i] != expected_byte(number, i)) ++wrong;
  }
  void run() {
    for (std::uint64_t next = 1; next <= kModelMessages && !given_up;) {
      // A later message that is there proves every earlier one.
      const bool ahead = next < kModelMessages && tail_of(next + 1) == next + 1;
      if (!ahead && tail_of(next) != next) {
        std::this_thread::yield();
        continue;
      }
      check(next);
      consumed.store(next++, std::memory_order_release);
    }
  }
};

class Polling : public ::testing::TestWithParam<std::size_t> {};

TEST_P(Polling, the_tail_of_a_write_proves_it_and_all_before_it_under_contention) {
  const std::size_t bytes = GetParam();
  test::Pair pair{{.wait = WaitMode::Busy}};  // what it waits for is another thread
  Connection near = pair.connect(), noise = pair.connect();
  MemoryRegion slots = must(pair.server.allocate_memory(kSlots * bytes));
  MemoryRegion elsewhere = must(pair.server.allocate_memory(1 << 16));
  MemoryRegion own = must(pair.client.allocate_memory(kSlots * bytes));
  MemoryRegion idle = must(pair.client.allocate_memory(1 << 16));
  Reader reader{slots.bytes(), bytes};
  std::thread owner([&] { reader.run(); });
  Operation disturbing;
  disturbing.on_done([](Operation& done) {
    if (done.result()) done.submit();
  });
  noise.read(disturbing, idle.local(), elsewhere.remote());
  std::array<Operation, kSlots> writes;
  for (std::uint64_t number = 1; number <= kModelMessages; ++number) {
    const std::size_t at = number % kSlots * bytes;
    Operation& write = writes[number % kSlots];
    pair.engine.run_until([&] {
      return near.closed() ||
             (!write.in_flight() && reader.consumed.load(std::memory_order_acquire) + kSlots >= number);
    });
    if (near.closed()) break;
    for (std::size_t i = 0; i + 8 < bytes; ++i) own.bytes()[at + i] = expected_byte(number, i);
    std::memcpy(own.data() + at + bytes - 8, &number, 8);
    near.write(write, own.local(at, static_cast<std::uint32_t>(bytes)), must(slots.remote(at, bytes)));
  }
  EXPECT_FALSE(near.closed()) << near.explain().back();
  reader.given_up = near.closed();
  for (Operation& write : writes) must(write.wait());
  owner.join();
  EXPECT_EQ(reader.wrong.load(), 0u);
}

// One packet, some, and many; none a multiple of a packet.
INSTANTIATE_TEST_SUITE_P(Sizes, Polling, ::testing::Values(std::size_t{64}, std::size_t{9000}, std::size_t{100'000}));

// Where the range does not end at a multiple of eight, the last byte is what is stored last.
TEST(PollingBytes, the_last_byte_of_a_write_proves_it) {
  constexpr std::size_t kBytes = 5003;
  test::Pair pair{{.wait = WaitMode::Busy}};  // what it waits for is another thread
  Connection near = pair.connect();
  MemoryRegion memory = must(pair.server.allocate_memory(kBytes)), own = must(pair.client.allocate_memory(kBytes));
  std::atomic<unsigned> consumed{0}, wrong{0};
  constexpr unsigned kRounds = 200;
  std::thread owner([&] {
    for (unsigned round = 1; round <= kRounds; ++round) {
      const std::atomic_ref<std::byte> last(memory.bytes()[kBytes - 1]);
      while (last.load(std::memory_order_acquire) != static_cast<std::byte>(round)) std::this_thread::yield();
      for (const std::byte b : memory.bytes()) wrong += b != static_cast<std::byte>(round) ? 1u : 0u;
      consumed.store(round, std::memory_order_release);
    }
  });
  for (unsigned round = 1; round <= kRounds; ++round) {
    std::fill(own.bytes().begin(), own.bytes().end(), static_cast<std::byte>(round));
    must(near.write(own.local(), memory.remote()).wait());
    pair.engine.run_until([&] { return consumed.load(std::memory_order_acquire) == round; });
  }
  owner.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace verbena
