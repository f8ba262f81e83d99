// SPDX-License-Identifier: Apache-2.0
// The peer of a ring writes anything, at any time: every load may give what the input says instead of what is there.
// Neither end ever leaves the data, works without end, or comes back from being corrupt.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/assert.h"
#include "soft/local/ring.h"
#include "soft/local/wake.h"

namespace verbena::local {
namespace {

constexpr std::uint32_t kCapacity = 512;

struct Peer {
  std::span<const std::uint8_t> input;
  std::array<std::uint64_t, kCapacity / 8> data{};
  std::uint64_t head = 0, sleeping = 0;
  std::uint64_t loads = 0;

  std::uint8_t next() {
    if (input.empty()) return 0;
    const std::uint8_t byte = input.front();
    input = input.subspan(1);
    return byte;
  }
  // Mostly the truth, or near it: plain noise would be refused at the first look.
  std::uint64_t seen(std::uint64_t truth) {
    ++loads;
    const std::uint8_t how = next();
    if (how < 0x60) return truth;
    if (how < 0xa0) return truth + (how - 0x60u) * 8;
    if (how < 0xc0) return RecordHeader{how, static_cast<std::uint16_t>(how & 3)}.word();
    if (how < 0xe0) return truth - (how - 0xc0u) * 8;
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | next();
    return value;
  }
};

class HostileMemory {
 public:
  static constexpr std::uint32_t kLine = kLineBytes;
  explicit HostileMemory(Peer& peer) : peer_(&peer) {}

  std::uint32_t capacity() const { return kCapacity; }
  std::uint64_t load_head() const { return peer_->seen(peer_->head); }
  void store_head(std::uint64_t value) { peer_->head = value; }
  bool try_store_head(std::uint64_t value) { return store_head(value), next(); }
  std::uint64_t load_header(std::uint32_t offset) const { return peer_->seen(at(offset)); }
  void expect(std::uint32_t /*offset*/) const {}
  bool try_load(std::uint32_t offset, std::uint64_t& value) const { return value = load_header(offset), next(); }
  bool try_store(std::uint32_t offset, std::uint64_t value) { return store_header(offset, value), next(); }
  void store_header(std::uint32_t offset, std::uint64_t value) { at(offset) = value; }
  void publish_header(std::uint32_t offset, std::uint64_t value) { at(offset) = value; }
  std::uint64_t load_sleeping() const { return peer_->seen(peer_->sleeping); }
  void store_sleeping(std::uint64_t value) { peer_->sleeping = value; }
  void fence() {}

 private:
  // Seldom it is gone.
  bool next() const { return peer_->next() < 0xf8; }
  std::uint64_t& at(std::uint32_t offset) const {
    VERBENA_ASSERT(offset % 8 == 0 && offset < kCapacity);
    return peer_->data[offset / 8];
  }
  Peer* peer_;
};

void check_inside(std::uint32_t offset, std::uint32_t bytes) {
  VERBENA_ASSERT(offset % 8 == 0 && offset <= kCapacity && bytes <= kCapacity - offset);
}

void run(std::span<const std::uint8_t> input) {
  Peer peer{.input = input};
  const HostileMemory memory(peer);
  BasicRingProducer<HostileMemory> producer(memory);
  BasicRingConsumer<HostileMemory> consumer(memory);
  BasicSleeper<HostileMemory> sleeper(memory);
  BasicWaker<HostileMemory> waker(memory);
  bool producer_was_corrupt = false, consumer_was_corrupt = false;
  while (!peer.input.empty()) {
    const std::uint8_t what = peer.next();
    const std::uint64_t before = peer.loads;
    switch (what % 7) {
      case 0:
        if (const auto at = producer.try_reserve(1 + what % 7, what % (max_payload_bytes(kCapacity) + 1)))
          check_inside(*at, what % (max_payload_bytes(kCapacity) + 1));
        break;
      case 1:
        producer.publish();
        if (waker.must_wake() && what % 2 == 0) sleeper.withdraw();
        break;
      case 2:
        if (const auto record = consumer.peek()) {
          VERBENA_ASSERT(record->kind != kPaddingKind && !consumer_was_corrupt);
          check_inside(record->offset, record->payload_bytes);
          VERBENA_ASSERT(consumer.peek() == record);
          if (what % 2 == 0) consumer.pop();
          if (what % 4 == 0) consumer.pass_padding();
        }
        break;
      case 3:
        if (what % 2 == 0)
          consumer.release();
        else
          VERBENA_ASSERT(consumer.try_release() || consumer.state() == RingState::Corrupt);
        break;
      case 4: {
        std::array<std::uint64_t, 9> words{};
        const bool put = producer.try_put(1 + what % 3, what % 73, words);
        VERBENA_ASSERT(!put || producer.state() == RingState::Open);
        break;
      }
      case 5: {
        std::array<std::uint64_t, 4> words{};
        if (const auto record = consumer.peek_short(1 + what % 3, words)) {
          VERBENA_ASSERT(record->payload_bytes <= sizeof words && consumer.peek() == record);
          check_inside(record->offset, record->payload_bytes);
          if (what % 2 == 0) consumer.pop();
          if (what % 4 == 0) consumer.pass_padding();
        }
        break;
      }
      default:
        sleeper.announce();
    }
    VERBENA_ASSERT(peer.loads - before <= 2 * kCapacity / 8 + 4);
    VERBENA_ASSERT(!producer_was_corrupt || producer.state() == RingState::Corrupt);
    VERBENA_ASSERT(!consumer_was_corrupt || consumer.state() == RingState::Corrupt);
    producer_was_corrupt = producer.state() == RingState::Corrupt;
    consumer_was_corrupt = consumer.state() == RingState::Corrupt;
  }
}

}  // namespace
}  // namespace verbena::local

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  verbena::local::run({data, size});
  return 0;
}
