// SPDX-License-Identifier: Apache-2.0
#include "soft/local/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace verbena::local {
namespace {

class TestRing {
 public:
  explicit TestRing(std::uint32_t capacity)
      : lines_(new Line[ring_bytes(capacity) / kLineBytes]), capacity_(capacity) {}

  std::byte* base() { return reinterpret_cast<std::byte*>(lines_.get()); }
  RingMemory memory() { return {base(), capacity_}; }
  std::uint64_t& head() { return *reinterpret_cast<std::uint64_t*>(base()); }
  std::uint64_t& header(std::uint32_t offset) {
    return *reinterpret_cast<std::uint64_t*>(memory().data() + offset);
  }

 private:
  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes] = {};
  };
  std::unique_ptr<Line[]> lines_;
  std::uint32_t capacity_;
};

bool send(RingProducer& producer, std::uint16_t kind, const std::vector<std::uint8_t>& payload) {
  const auto at = producer.try_reserve(kind, static_cast<std::uint32_t>(payload.size()));
  if (at && !payload.empty()) std::memcpy(producer.memory().data() + *at, payload.data(), payload.size());
  return at.has_value();
}

std::vector<std::uint8_t> payload_of(RingConsumer& consumer, const Record& record) {
  std::vector<std::uint8_t> bytes(record.payload_bytes);
  if (!bytes.empty()) std::memcpy(bytes.data(), consumer.memory().data() + record.offset, bytes.size());
  return bytes;
}

TEST(Ring, nothing_is_seen_before_publish_and_all_of_a_batch_after) {
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  EXPECT_FALSE(consumer.peek());
  EXPECT_TRUE(send(producer, 1, {1, 2, 3}));
  EXPECT_TRUE(send(producer, 2, {}));
  EXPECT_FALSE(consumer.peek());
  producer.publish();
  const Record* record = consumer.peek();
  ASSERT_TRUE(record);
  EXPECT_EQ(consumer.peek(), record) << "a look is not a step";
  EXPECT_EQ(record->kind, 1);
  EXPECT_EQ(payload_of(consumer, *record), (std::vector<std::uint8_t>{1, 2, 3}));
  consumer.pop();
  record = consumer.peek();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, 2);
  EXPECT_EQ(record->payload_bytes, 0u);
  consumer.pop();
  EXPECT_FALSE(consumer.peek());
}

TEST(Ring, padding_behind_a_batch_is_passed_and_a_line_that_ends_with_a_record_tells_nothing) {
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  EXPECT_TRUE(send(producer, 1, {1, 2, 3}));
  EXPECT_TRUE(send(producer, 2, {4}));
  producer.publish();
  EXPECT_TRUE(send(producer, 3, std::vector<std::uint8_t>(RingMemory::kLine - kRecordHeaderBytes)));
  producer.publish();
  const auto next = [&consumer] {
    const Record* const record = consumer.peek();
    const std::uint16_t kind = record == nullptr ? kPaddingKind : record->kind;
    if (record != nullptr) consumer.pop();
    return kind;
  };
  EXPECT_EQ(next(), 1);
  EXPECT_FALSE(consumer.pass_padding()) << "a record follows";
  EXPECT_EQ(next(), 2);
  EXPECT_TRUE(consumer.pass_padding());
  EXPECT_FALSE(consumer.pass_padding());
  EXPECT_EQ(next(), 3);
  EXPECT_FALSE(consumer.pass_padding());
  EXPECT_EQ(next(), kPaddingKind);
  ring.header(2 * RingMemory::kLine) = 1;  // nonsense
  EXPECT_FALSE(consumer.pass_padding());
  EXPECT_EQ(consumer.state(), RingState::Open) << "it is found where it is looked at";
}

TEST(Ring, F20_a_full_ring_refuses_and_overwrites_nothing_until_released) {
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  std::uint16_t sent = 0;
  while (send(producer, static_cast<std::uint16_t>(sent + 1), {7, 7})) {
    producer.publish();
    ++sent;
  }
  EXPECT_EQ(sent, 7) << "a line is kept for the end";
  for (std::uint16_t i = 1; i <= sent; ++i) {
    ASSERT_TRUE(consumer.peek());
    EXPECT_EQ(consumer.peek()->kind, i);
    consumer.pop();
    EXPECT_FALSE(send(producer, 9, {})) << "popped is not released";
  }
  EXPECT_FALSE(consumer.peek());
  consumer.release();
  EXPECT_TRUE(send(producer, 9, {}));
}

TEST(Ring, what_was_reserved_and_discarded_is_passed_over) {
  TestRing ring(512);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  EXPECT_TRUE(send(producer, 1, {1}));
  const auto at = producer.try_reserve(2, 13);
  ASSERT_TRUE(at);
  producer.discard(*at, 13);
  EXPECT_TRUE(send(producer, 3, {3}));
  EXPECT_TRUE(producer.anything_reserved());
  producer.publish();
  EXPECT_FALSE(producer.anything_reserved());
  for (const unsigned kind : {1u, 3u}) {
    ASSERT_TRUE(consumer.peek());
    EXPECT_EQ(consumer.peek()->kind, kind);
    consumer.pop();
  }
  EXPECT_FALSE(consumer.peek());
  EXPECT_EQ(consumer.state(), RingState::Open);
}

TEST(Ring, a_record_fits_exactly_when_it_can_be_reserved) {
  TestRing ring(512);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    const auto bytes = static_cast<std::uint32_t>(random() % (max_payload_bytes(512) + 1));
    if (random() % 4 == 0) producer.refresh();
    const bool fits = producer.fits(bytes);
    const std::uint64_t consumed = producer.consumed();
    const bool reserved = producer.try_reserve(1, bytes).has_value();
    EXPECT_EQ(reserved, fits || (producer.consumed() != consumed && reserved));
    if (random() % 2 == 0) producer.publish();
    if (consumer.peek()) consumer.pop();
    if (random() % 2 == 0) consumer.release();
  }
}

TEST(Ring, the_longest_payload_finds_room_wherever_the_ends_stand) {
  for (std::uint32_t lead = 0; lead <= 512; lead += 8) {
    TestRing ring(512);
    RingProducer producer(ring.memory());
    RingConsumer consumer(ring.memory());
    for (const std::uint32_t bytes : {std::min(lead, max_payload_bytes(512)), max_payload_bytes(512)})
      for (int again = 0; again < 3; ++again) {
        const std::vector<std::uint8_t> payload(bytes, static_cast<std::uint8_t>(again + 1));
        ASSERT_TRUE(send(producer, 5, payload)) << lead;
        producer.publish();
        const auto record = consumer.peek();
        ASSERT_TRUE(record);
        EXPECT_EQ(payload_of(consumer, *record), payload);
        consumer.pop();
        EXPECT_FALSE(consumer.peek());
        consumer.release();
      }
  }
}

std::vector<std::uint64_t> words_of(const std::vector<std::uint8_t>& payload) {
  std::vector<std::uint64_t> words((payload.size() + 7) / 8);
  if (!payload.empty()) std::memcpy(words.data(), payload.data(), payload.size());
  return words;
}

TEST(Ring, what_is_put_at_once_is_what_is_reserved_and_published) {
  constexpr std::uint32_t kBytes = 2048, kLine = RingMemory::kLine, kMost = kMostLines * kLine - kRecordHeaderBytes;
  for (const std::uint32_t bytes : {0u, 1u, 8u, 17u, kLine - 16, kLine - 9, kLine - 8, kLine - 7, 200u, kMost - 8,
                                    kMost - 1, kMost, kMost + 1}) {
    TestRing ring(kBytes), other(kBytes);
    RingProducer producer(ring.memory()), same(other.memory());
    RingConsumer consumer(ring.memory()), twin(other.memory());
    std::vector<std::uint8_t> payload(bytes, 0xa5);
    payload.resize((bytes + 7) / 8 * 8);
    const std::uint64_t batch = (payload.size() + kRecordHeaderBytes + kLine - 1) / kLine * kLine;
    std::uint64_t tail = 0;
    for (int round = 0; round < 50; ++round) {
      SCOPED_TRACE(std::to_string(bytes) + " in round " + std::to_string(round));
      const auto reserve = [&payload, bytes](RingProducer& by) {
        const auto at = by.try_reserve(3, bytes);
        ASSERT_TRUE(at);
        std::copy(payload.begin(), payload.end(), reinterpret_cast<std::uint8_t*>(by.memory().data()) + *at);
        by.publish();
      };
      const bool put = producer.try_put(3, bytes, words_of(payload)), fits = same.fits(bytes);
      const bool is_cut = tail + batch > kBytes;  // by the end of the memory
      EXPECT_EQ(put, bytes <= kMost && fits && !is_cut);
      if (fits) tail = ((is_cut ? 0 : tail) + batch) % kBytes;
      if (fits) reserve(same);
      if (fits && !put) reserve(producer);
      EXPECT_EQ(std::memcmp(ring.base(), other.base(), ring_bytes(kBytes)), 0);
      EXPECT_EQ(producer.consumed(), same.consumed());
      if (round % 4 != 3) continue;
      for (RingConsumer* each : {&consumer, &twin}) {
        while (each->peek() != nullptr) each->pop();
        each->release();
      }
      if (round % 8 == 3) continue;  // it does not know yet that there is room
      producer.refresh();
      same.refresh();
    }
  }
}

TEST(Ring, nothing_is_put_at_once_behind_what_is_reserved) {
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  ASSERT_TRUE(send(producer, 1, {1}));
  EXPECT_FALSE(producer.try_put(2, 8, words_of({1, 2, 3, 4, 5, 6, 7, 8})));
  producer.publish();
  EXPECT_TRUE(producer.try_put(2, 8, words_of({1, 2, 3, 4, 5, 6, 7, 8})));
}

TEST(Ring, a_short_look_takes_a_record_of_that_kind_whole_and_leaves_any_other) {
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  std::array<std::uint64_t, 2> words{};
  EXPECT_TRUE(consumer.looks_empty());
  EXPECT_FALSE(consumer.peek_short(3, words));
  for (const std::size_t bytes : {0u, 1u, 8u, 9u, 16u, 17u})
    for (const std::uint16_t kind : std::initializer_list<std::uint16_t>{3, 4}) {
      const std::vector<std::uint8_t> payload(bytes, 0x5a);
      ASSERT_TRUE(send(producer, kind, payload));
      producer.publish();
      EXPECT_FALSE(consumer.looks_empty());
      const Record* const record = consumer.peek_short(3, words);
      ASSERT_EQ(record != nullptr, kind == 3 && bytes <= 16) << bytes;
      if (record != nullptr) {
        EXPECT_TRUE(std::equal(payload.begin(), payload.end(), reinterpret_cast<const std::uint8_t*>(words.data())));
        EXPECT_FALSE(consumer.peek_short(3, words)) << "it is at hand";
      }
      const Record* const whole = consumer.peek();
      ASSERT_NE(whole, nullptr);
      EXPECT_TRUE(record == nullptr || record == whole);
      EXPECT_EQ(payload_of(consumer, *whole), payload);
      consumer.pop();
      EXPECT_TRUE(consumer.pass_padding());
      EXPECT_TRUE(consumer.looks_empty());
      consumer.release();
      producer.refresh();
    }
}

TEST(Ring, F21_a_short_look_leaves_what_no_producer_writes_to_the_long_one) {
  for (const std::uint64_t word :
       {std::uint64_t{3} << 32 | 8, ~std::uint64_t{0}, RecordHeader{8, 3}.word() | std::uint64_t{1} << 63}) {
    TestRing ring(1024);
    RingConsumer consumer(ring.memory());
    std::array<std::uint64_t, 16> words{};
    ring.header(0) = word;
    EXPECT_FALSE(consumer.peek_short(3, words));
    EXPECT_EQ(consumer.state(), RingState::Open);
    EXPECT_FALSE(consumer.peek());
    EXPECT_EQ(consumer.state(), RingState::Corrupt);
    EXPECT_FALSE(consumer.peek_short(3, words));
  }
}

TEST(Ring, any_mixture_of_lengths_and_batches_arrives_as_it_was_sent) {
  std::mt19937 random(1);
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  std::deque<std::pair<std::uint16_t, std::vector<std::uint8_t>>> reserved, visible;
  for (int i = 0; i < 200'000; ++i) {
    switch (random() % 6) {
      case 0:
      case 1: {
        std::vector<std::uint8_t> payload(random() % 3 == 0 ? random() % (max_payload_bytes(1024) + 1) : random() % 33);
        for (auto& byte : payload) byte = static_cast<std::uint8_t>(random());
        const auto kind = static_cast<std::uint16_t>(1 + random() % 65535);
        if (send(producer, kind, payload)) reserved.emplace_back(kind, std::move(payload));
        break;
      }
      case 2: {
        std::vector<std::uint8_t> payload(random() % 33, static_cast<std::uint8_t>(i));
        const auto kind = static_cast<std::uint16_t>(1 + random() % 3);
        if (producer.try_put(kind, static_cast<std::uint32_t>(payload.size()), words_of(payload)))
          visible.emplace_back(kind, std::move(payload));
        break;
      }
      case 3: {
        std::array<std::uint64_t, 4> words{};
        const auto record = consumer.peek_short(2, words);
        if (!record) break;
        ASSERT_FALSE(visible.empty());
        EXPECT_EQ(visible.front().first, 2);
        EXPECT_EQ(visible.front().second.size(), record->payload_bytes);
        const auto* const bytes = reinterpret_cast<const std::uint8_t*>(words.data());
        EXPECT_TRUE(std::equal(visible.front().second.begin(), visible.front().second.end(), bytes));
        consumer.pop();
        visible.pop_front();
        break;
      }
      case 4:
        producer.publish();
        for (auto& record : reserved) visible.push_back(std::move(record));
        reserved.clear();
        break;
      default:
        const auto record = consumer.peek();
        ASSERT_EQ(record != nullptr, !visible.empty());
        if (record) {
          EXPECT_EQ(record->kind, visible.front().first);
          EXPECT_EQ(payload_of(consumer, *record), visible.front().second);
          consumer.pop();
          visible.pop_front();
        }
        if (random() % 2 == 0) consumer.release();
    }
  }
  EXPECT_EQ(producer.state(), RingState::Open);
  EXPECT_EQ(consumer.state(), RingState::Open);
}

TEST(Ring, two_threads_agree) {
  TestRing ring(4096);
  constexpr std::uint64_t kRecords = 200'000;
  std::thread other([&] {
    RingProducer producer(ring.memory());
    for (std::uint64_t i = 0; i < kRecords;) {
      if (i % 7 == 0 && producer.try_put(1, 8, {&i, 1})) {
        ++i;
        continue;
      }
      const auto at = producer.try_reserve(1, 8);
      if (!at) {
        producer.publish();
        std::this_thread::yield();
        continue;
      }
      std::memcpy(producer.memory().data() + *at, &i, 8);
      if (++i % 3 == 0 || i == kRecords) producer.publish();
    }
  });
  RingConsumer consumer(ring.memory());
  for (std::uint64_t i = 0; i < kRecords;) {
    std::uint64_t word = 0;
    if (i % 2 == 0 && consumer.peek_short(1, {&word, 1})) {
      if (word != i) ADD_FAILURE() << word << " instead of " << i;
      consumer.pop();
      ++i;
      continue;
    }
    const auto record = consumer.peek();
    if (!record) {
      consumer.release();
      std::this_thread::yield();
      continue;
    }
    std::uint64_t value;
    std::memcpy(&value, consumer.memory().data() + record->offset, 8);
    if (value != i) ADD_FAILURE() << value << " instead of " << i;
    consumer.pop();
    if (++i % 5 == 0) consumer.release();
  }
  other.join();
}

// What the peer may write where the next batch would begin, after `lines` batches of a line each that were read, and
// released or not.
struct Written {
  RingState state;
  bool seen;
  bool operator==(const Written&) const = default;
};
Written consumer_after(std::uint64_t word, int lines = 1, bool released = true) {
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  for (int i = 0; i < lines; ++i) {
    EXPECT_TRUE(send(producer, 1, {1}));
    producer.publish();
    EXPECT_TRUE(consumer.peek());
    consumer.pop();
    EXPECT_FALSE(consumer.peek());
  }
  if (released) consumer.release();
  const auto next = static_cast<std::uint32_t>(lines) * RingMemory::kLine;
  ring.header(next) = word;
  const bool seen = consumer.peek() != nullptr;
  const RingState state = consumer.state();
  ring.header(next) = RecordHeader{1, 1}.word();
  EXPECT_EQ(consumer.peek() != nullptr, state == RingState::Open) << "corrupt is for good";
  return {state, seen};
}

TEST(Ring, F21_what_no_producer_writes_is_corrupt) {
  constexpr std::uint32_t kLeft = 1024 - 2 * RingMemory::kLine - kRecordHeaderBytes;
  constexpr Written kNothing{RingState::Open, false}, kSeen{RingState::Open, true}, kCorrupt{RingState::Corrupt, false};
  EXPECT_EQ(consumer_after(0), kNothing);
  const std::uint64_t word = RecordHeader{1, 1}.word();
  EXPECT_EQ(consumer_after(word), kSeen);
  EXPECT_EQ(consumer_after(1), kCorrupt);  // not there, and not nothing
  for (int bit = 48; bit < 64; ++bit) EXPECT_EQ(consumer_after(word ^ std::uint64_t{1} << bit), kCorrupt) << bit;
  EXPECT_EQ(consumer_after(RecordHeader{0xffffffff, 1}.word()), kCorrupt);
  EXPECT_EQ(consumer_after(RecordHeader{kLeft, 1}.word(), 1), kSeen);
  // Over what was not released, and the line that is kept for the end.
  EXPECT_EQ(consumer_after(RecordHeader{kLeft, 1}.word(), 1, false), kSeen);
  EXPECT_EQ(consumer_after(RecordHeader{kLeft + 1, 1}.word(), 1, false), kCorrupt);
  EXPECT_EQ(consumer_after(RecordHeader{kLeft + 1, 1}.word(), 1), kSeen);
  // Over the end of the data.
  EXPECT_EQ(consumer_after(RecordHeader{512 - 8, 1}.word(), 4), kSeen);
  EXPECT_EQ(consumer_after(RecordHeader{512 - 7, 1}.word(), 4), kCorrupt);
}

// A consumer that is told of padding without end reads no more than a ring of it before it is to release.
TEST(Ring, F21_padding_without_end_ends) {
  TestRing ring(512);
  RingConsumer consumer(ring.memory());
  for (std::uint32_t at = 0; at < 512; at += 8) ring.header(at) = RecordHeader{0, kPaddingKind}.word();
  EXPECT_FALSE(consumer.peek());
  EXPECT_EQ(consumer.state(), RingState::Corrupt);
}

// Whatever the batches and wherever they end: what stood there a lap ago is not taken for a record.
TEST(Ring, old_payload_that_looks_like_a_record_is_never_one) {
  std::mt19937 random(7);
  TestRing ring(1024);
  RingProducer producer(ring.memory());
  RingConsumer consumer(ring.memory());
  const std::uint64_t forged = RecordHeader{0, 666}.word();
  for (int i = 0; i < 50'000; ++i) {
    for (std::uint32_t records = 1 + static_cast<std::uint32_t>(random() % 4); records-- > 0;) {
      const std::uint32_t words = static_cast<std::uint32_t>(random() % 24);
      const auto at = producer.try_reserve(1, words * 8);
      for (std::uint32_t word = 0; at && word < words; ++word)
        std::memcpy(producer.memory().data() + *at + word * std::size_t{8}, &forged, 8);
    }
    producer.publish();
    while (const Record* const record = consumer.peek()) {
      ASSERT_EQ(record->kind, 1) << i;
      consumer.pop();
      if (random() % 8 == 0) break;
    }
    if (random() % 3 != 0) consumer.release();
  }
  EXPECT_EQ(consumer.state(), RingState::Open);
}

TEST(Ring, F21_what_no_consumer_writes_is_corrupt) {
  for (const unsigned long long head : {576ull, 4ull, ~0ull, ~0ull << 3}) {
    TestRing ring(512);
    RingProducer producer(ring.memory());
    while (send(producer, 1, {1})) producer.publish();
    ring.head() = head;
    EXPECT_FALSE(send(producer, 1, {1}));
    EXPECT_EQ(producer.state(), RingState::Corrupt);
    ring.head() = 384;
    EXPECT_FALSE(send(producer, 1, {1})) << "corrupt is for good";
  }
}

}  // namespace
}  // namespace verbena::local
