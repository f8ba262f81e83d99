// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <unordered_set>

#include "soft/local/test_ring_model.h"

namespace verbena::local::model {

static Step* step_at_hand = nullptr;
Step& current() { return *step_at_hand; }

bool Step::begin(std::uint64_t& replayed) {
  replayed = 0;
  if (at < log->count) {
    replayed = log->values[at++];
    return false;
  }
  if (performed || blocked) suspended = true;
  if (suspended) return false;
  return true;
}

std::uint64_t Step::load(std::size_t where) {
  std::uint64_t value = 0;
  if (!begin(value)) return value;
  value = (*memory)[where];
  for (std::size_t i = 0; i < buffer->count; ++i)
    if (buffer->entries[i].at == where) value = buffer->entries[i].value;
  log->values.at(log->count++) = value;
  ++at;
  performed = true;
  return value;
}

void Step::store(std::size_t where, std::uint64_t value, bool release) {
  std::uint64_t none;
  if (!begin(none)) return;
  if (buffer->count == buffer->entries.size()) {
    blocked = true;
    return;
  }
  buffer->entries[buffer->count++] = {value, static_cast<std::uint8_t>(where), release};
  log->values.at(log->count++) = 0;
  ++at;
  performed = true;
}

void Step::fence() {
  std::uint64_t none;
  if (!begin(none)) return;
  if (buffer->count != 0) {
    blocked = true;
    return;
  }
  log->values.at(log->count++) = 0;
  ++at;
  performed = true;
}

namespace {

enum class Producing : std::uint64_t {
  Reserve,
  Publish,
  LatePayload,
  Look,
  Signal,
  Announce,
  SecondLook,
  Sleep,
  Done,
};
enum class Consuming : std::uint64_t {
  Look,
  Read,
  Pop,
  Release,
  RoomLook,
  RoomSignal,
  Announce,
  SecondLook,
  SecondRelease,
  SecondRoomLook,
  SecondRoomSignal,
  Sleep,
  Done,
};

struct ProducerState {
  BasicRingProducer<Memory> ring{Memory{}};
  BasicWaker<Memory> waker{Memory{}};
  BasicSleeper<RoomMemory> sleeper{RoomMemory{}};
  Producing phase = Producing::Reserve;
  std::uint64_t reserved = 0;   // records
  std::uint64_t published = 0;  // records
};

struct ConsumerState {
  BasicRingConsumer<Memory> ring{Memory{}};
  BasicSleeper<Memory> sleeper{Memory{}};
  BasicWaker<RoomMemory> waker{RoomMemory{}};
  std::uint64_t room_told = 0;  // as Transport::gave_room() counts
  Consuming phase = Consuming::Look;
  Record at_hand;
  std::uint64_t received = 0;
};

struct State {
  std::array<std::uint64_t, kData + kDataWords> memory{};
  std::array<Access::Buffer, 2> buffers{};
  std::array<Access::Log, 2> logs{};
  ProducerState producer;
  ConsumerState consumer;
  std::array<std::uint32_t, kMaxRecords> offsets{};
  std::uint64_t signalled = 0;
  std::uint64_t room_signalled = 0;
  Mortal dead = Mortal::Nobody;
  std::array<std::uint8_t, 7> zero{};  // a state is its bytes
  std::uint64_t hung_up = 0;
};

// A payload tells its record, and no header does.
std::uint64_t payload_of(std::uint64_t record) { return 0xffff'0000'0000'0000 + record; }
std::uint16_t kind_of(std::uint64_t record) { return static_cast<std::uint16_t>(record + 1); }

class Explorer {
 public:
  Explorer(const std::vector<Message>& messages, const Faults& faults, Mortal mortal, Ways ways)
      : messages_(messages), faults_(faults), mortal_(mortal), ways_(ways) {}

  Outcome run() {
    State first;
    std::memset(static_cast<void*>(&first), 0, sizeof first);
    new (&first) State;
    meet(first);
    while (!open_.empty() && outcome_.violation.empty()) {
      const State state = open_.back();
      open_.pop_back();
      if (!leave(state)) end(state);
    }
    return outcome_;
  }

 private:
  void fail(const char* what) {
    if (outcome_.violation.empty()) outcome_.violation = what;
  }

  void meet(const State& state) {
    check(state);
    const std::string_view bytes(reinterpret_cast<const char*>(&state), sizeof state);
    const std::uint64_t hash = std::hash<std::string_view>{}(bytes);
    if (!met_.insert(hash).second) return;
    ++outcome_.states;
    open_.push_back(state);
  }

  // All that can happen next. False when nothing can.
  bool leave(const State& state) {
    bool any = false;
    for (const Thread thread : {kProducer, kConsumer}) {
      for (std::size_t i = 0; i < state.buffers[thread].count; ++i) any |= flush(state, thread, i);
      any |= step(state, thread);
    }
    const bool works = mortal_ == Mortal::Producer ? state.producer.phase != Producing::Done
                                                   : state.consumer.phase != Consuming::Done;
    if (mortal_ != Mortal::Nobody && state.dead == Mortal::Nobody && works) {
      State next = state;
      next.dead = mortal_;
      meet(next);
      any = true;
    }
    const Thread dead = state.dead == Mortal::Producer ? kProducer : kConsumer;
    if (state.dead != Mortal::Nobody && state.hung_up == 0 && state.buffers[dead].count == 0) {
      State next = state;
      next.hung_up = 1;
      meet(next);
      any = true;
    }
    return any;
  }

  bool flush(const State& state, Thread thread, std::size_t chosen) {
    const Access::Buffer& buffer = state.buffers[thread];
    if (buffer.entries[chosen].release && chosen != 0) return false;
    for (std::size_t i = 0; i < chosen; ++i)
      if (buffer.entries[i].at == buffer.entries[chosen].at) return false;
    State next = state;
    Access::Buffer& after = next.buffers[thread];
    next.memory[after.entries[chosen].at] = after.entries[chosen].value;
    for (std::size_t i = chosen; i + 1 < after.count; ++i) after.entries[i] = after.entries[i + 1];
    after.entries[--after.count] = {};
    meet(next);
    return true;
  }

  bool step(const State& state, Thread thread) {
    if (state.dead == (thread == kProducer ? Mortal::Producer : Mortal::Consumer)) return false;
    if (thread == kProducer && state.producer.phase == Producing::Done) return false;
    if (thread == kConsumer && state.consumer.phase == Consuming::Done) return false;
    State next = state;
    Step at_hand{&next.memory, &next.buffers[thread], &next.logs[thread], &faults_};
    step_at_hand = &at_hand;
    const bool went = thread == kProducer ? produce(next) : consume(next);
    if (!went || at_hand.blocked) return false;
    if (at_hand.suspended) {
      next.producer = state.producer;
      next.consumer = state.consumer;
      next.offsets = state.offsets;
      next.signalled = state.signalled;
      next.room_signalled = state.room_signalled;
    } else {
      next.logs[thread] = {};
    }
    if (std::memcmp(static_cast<const void*>(&next), &state, sizeof next) == 0) return false;  // tried in vain
    meet(next);
    return true;
  }

  bool produce(State& state) {
    ProducerState& own = state.producer;
    switch (own.phase) {
      case Producing::Reserve:
        reserve(state);
        break;
      case Producing::Publish:
        own.ring.publish();
        own.published = own.reserved;
        own.phase = faults_.late_payload ? Producing::LatePayload : Producing::Look;
        break;
      case Producing::LatePayload:
        write_payload(state, own.published - 1);
        own.phase = Producing::Look;
        break;
      case Producing::Look:
        own.phase = own.waker.must_wake() ? Producing::Signal : after_batch(own);
        break;
      case Producing::Signal:
        state.signalled = 1;
        own.phase = after_batch(own);
        break;
      case Producing::Announce:
        own.sleeper.announce();
        own.phase = faults_.no_room_look ? Producing::Sleep : Producing::SecondLook;
        break;
      case Producing::SecondLook:
        own.ring.refresh();
        if (own.ring.fits(messages_[own.reserved].payload_bytes)) {
          own.sleeper.withdraw();
          own.phase = Producing::Reserve;
        } else {
          own.phase = Producing::Sleep;
        }
        break;
      case Producing::Sleep:
        return wake_producer(state);
      case Producing::Done:
        break;
    }
    return true;
  }

  Producing after_batch(const ProducerState& own) const {
    return own.reserved == messages_.size() ? Producing::Done : Producing::Reserve;
  }

  void reserve(State& state) {
    ProducerState& own = state.producer;
    const Message& message = messages_[own.reserved];
    if (puts_short(ways_) && own.reserved == own.published && message.last_of_batch && put(own)) return;
    const std::optional<std::uint32_t> at = own.ring.try_reserve(kind_of(own.reserved), message.payload_bytes);
    if (!at) {
      ++outcome_.refusals;
      own.phase = own.reserved != own.published ? Producing::Publish : Producing::Announce;
      return;
    }
    state.offsets[own.reserved] = *at;
    if (!faults_.late_payload) write_payload(state, own.reserved);
    ++own.reserved;
    if (message.last_of_batch) own.phase = Producing::Publish;
  }

  bool put(ProducerState& own) {
    std::array<std::uint64_t, 3> payload;
    payload.fill(payload_of(own.reserved));
    if (messages_[own.reserved].payload_bytes > sizeof payload) return false;
    if (!own.ring.try_put(kind_of(own.reserved), messages_[own.reserved].payload_bytes, payload)) return false;
    own.published = ++own.reserved;
    own.phase = Producing::Look;
    return true;
  }

  void write_payload(State& state, std::uint64_t record) {
    for (std::uint32_t word = 0; word < messages_[record].payload_bytes / 8; ++word)
      current().store(kData + state.offsets[record] / 8 + word, payload_of(record), false);
  }

  bool consume(State& state) {
    ConsumerState& own = state.consumer;
    switch (own.phase) {
      case Consuming::Look:
        if (takes_short(ways_) && own.received < messages_.size() && take_short(own)) break;
        if (const auto record = own.ring.peek())
          take(own, *record);
        else
          own.phase = own.received == messages_.size() || state.hung_up == 2 ? Consuming::Done : Consuming::Release;
        break;
      case Consuming::Read:
        read(state);
        break;
      case Consuming::Pop:
        if (!faults_.early_release) own.ring.pop();
        own.phase = Consuming::Look;
        break;
      case Consuming::Release:
      case Consuming::SecondRelease:
        release(state);
        break;
      case Consuming::RoomLook:
        own.phase = own.waker.must_wake() ? Consuming::RoomSignal : Consuming::Announce;
        break;
      case Consuming::SecondRoomLook:
        own.phase = own.waker.must_wake() ? Consuming::SecondRoomSignal : Consuming::Sleep;
        break;
      case Consuming::RoomSignal:
      case Consuming::SecondRoomSignal:
        state.room_signalled = 1;
        own.phase = own.phase == Consuming::RoomSignal ? Consuming::Announce : Consuming::Sleep;
        break;
      case Consuming::Announce:
        own.sleeper.announce();
        own.phase = faults_.no_second_look ? Consuming::Sleep : Consuming::SecondLook;
        break;
      case Consuming::SecondLook:
        if (own.ring.peek()) {
          own.sleeper.withdraw();
          own.phase = Consuming::Look;
        } else {
          own.phase = Consuming::SecondRelease;
        }
        break;
      case Consuming::Sleep:
        return wake(state);
      case Consuming::Done:
        break;
    }
    return true;
  }

  // The producer is looked after when a quarter of the ring was given back.
  void release(State& state) {
    ConsumerState& own = state.consumer;
    const bool first = own.phase == Consuming::Release;
    if (faults_.early_room_wake && first && own.waker.must_wake()) state.room_signalled = 1;
    own.ring.release();
    const std::uint64_t enough = faults_.late_room_wake ? kDataWords * 8 + 1 : kDataWords * 8 / 4;
    if (faults_.early_room_wake || own.ring.released() - own.room_told < enough) {
      own.phase = first ? Consuming::Announce : Consuming::Sleep;
      return;
    }
    own.room_told = own.ring.released();
    own.phase = first ? Consuming::RoomLook : Consuming::SecondRoomLook;
  }

  bool wake_producer(State& state) {
    if (state.room_signalled == 0 && state.hung_up == 0) return false;
    ++outcome_.waits;
    state.room_signalled = 0;
    state.producer.sleeper.withdraw();
    state.producer.phase = state.hung_up == 0 ? Producing::Reserve : Producing::Done;
    return true;
  }

  bool take_short(ConsumerState& own) {
    std::array<std::uint64_t, 3> payload;
    payload.fill(payload_of(own.received));
    const std::array<std::uint64_t, 3> expected = payload;
    const Record* const record = own.ring.peek_short(kind_of(own.received), payload);
    if (current().suspended || current().blocked || record == nullptr) return false;
    if (record->payload_bytes != messages_[own.received].payload_bytes || payload != expected)
      fail("a short record with torn payload");
    own.ring.pop();
    own.ring.pass_padding();
    ++own.received;
    return true;
  }

  void take(ConsumerState& own, const Record& record) {
    own.at_hand = record;
    own.phase = Consuming::Read;
    if (!faults_.early_release) return;
    own.ring.pop();
    own.ring.release();
  }

  bool wake(State& state) {
    if (state.signalled == 0 && state.hung_up == 0) return false;
    ++outcome_.sleeps;
    state.signalled = 0;
    if (state.hung_up == 1) state.hung_up = 2;  // seen: one more look, and that is all
    state.consumer.sleeper.withdraw();
    state.consumer.phase = Consuming::Look;
    return true;
  }

  void read(State& state) {
    ConsumerState& own = state.consumer;
    const Record record = own.at_hand;
    const std::uint64_t number = own.received;
    bool whole = true;
    for (std::uint32_t word = 0; word < record.payload_bytes / 8; ++word)
      whole &= current().load(kData + record.offset / 8 + word) == payload_of(number);
    if (current().suspended || current().blocked) return;
    if (number >= messages_.size() || record.kind != kind_of(number) ||
        record.payload_bytes != messages_[number].payload_bytes)
      return fail("a record that was not the next one sent");
    if (!whole) return fail("a record with torn payload");
    ++own.received;
    own.phase = Consuming::Pop;
  }

  void check(const State& state) {
    if (state.producer.ring.state() != RingState::Open) fail("the producer thinks the ring is corrupt");
    if (state.consumer.ring.state() != RingState::Open) fail("the consumer thinks the ring is corrupt");
    // What is put at once may be seen before the producer has counted it.
    const std::uint64_t uncounted = puts_short(ways_) ? 1 : 0;
    if (state.consumer.received > state.producer.reserved + uncounted) fail("a record from nowhere");
  }

  // Whatever stopped, and wherever: all that was published has come, and nobody sleeps over work.
  void end(const State& state) {
    ++outcome_.ends;
    if (state.dead != Mortal::Producer && state.producer.phase != Producing::Done)
      return fail("the producer sleeps, and nobody will wake it");
    if (state.dead == Mortal::Consumer) return;
    if (state.consumer.phase != Consuming::Done) return fail("the consumer sleeps, and nobody will wake it");
    if (state.consumer.received < state.producer.published) fail("a published record is lost");
  }

  const std::vector<Message>& messages_;
  const Faults faults_;
  const Mortal mortal_;
  const Ways ways_;
  Outcome outcome_;
  std::vector<State> open_;
  std::unordered_set<std::uint64_t> met_;
};

}  // namespace

Outcome explore(const std::vector<Message>& messages, const Faults& faults, Mortal mortal, Ways ways) {
  return Explorer(messages, faults, mortal, ways).run();
}

namespace {

// Where the ring goes round again, padding stands where payload was.
const std::vector<Message> kSingles = {{24, true}, {0, true}, {24, true}, {24, true}, {24, true}};
const std::vector<Message> kBatches = {{24, false}, {0, true}, {0, false}, {24, false}, {8, true}, {24, true}};
// Just enough for a full ring and a wrap: with a death at every step there is much to walk through.
const std::vector<Message> kFewSingles = {{24, true}, {0, true}, {24, true}, {24, true}, {0, true}};
const std::vector<Message> kFewBatches = {{24, false}, {0, true}, {0, false}, {24, true}, {24, true}};

TEST(RingModel, every_interleaving_delivers_each_record_once_whole_and_in_order) {
  for (const auto& messages : {kSingles, kBatches}) {
    const Outcome outcome = explore(messages, {}, Mortal::Nobody);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.ends, 0u);
    EXPECT_GT(outcome.sleeps, 0u);
    EXPECT_GT(outcome.refusals, 0u) << "the ring never was full";
    EXPECT_GT(outcome.waits, 0u) << "the producer never slept";
  }
}

// With shorts among them that go alone.
const std::vector<Message> kShorts = {{24, true}, {8, true}, {24, true}, {24, true}, {8, true}};
const std::vector<Message> kFewShorts = {{24, true}, {8, true}, {24, true}, {8, true}, {0, true}};
const std::vector<Message> kManyShorts = {{24, true}, {8, true}, {24, true}, {24, true}, {8, true}, {0, true}};

TEST(RingModel, the_short_ways_and_the_long_ones_understand_each_other_in_every_interleaving) {
  for (const Ways ways : {Ways::Short, Ways::ShortToLong, Ways::LongToShort}) {
    const Outcome outcome = explore(kShorts, {}, Mortal::Nobody, ways);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.ends, 0u);
    EXPECT_GT(outcome.sleeps, 0u);
    EXPECT_GT(outcome.refusals, 0u) << "the ring never was full";
  }
}

TEST(RingModel, who_dies_on_a_short_way_leaves_a_whole_record_or_none) {
  for (const Mortal mortal : {Mortal::Producer, Mortal::Consumer})
    EXPECT_EQ(explore(kFewShorts, {}, mortal, Ways::Short).violation, "");
}

TEST(RingModel, what_is_broken_on_purpose_on_a_short_way_is_seen) {
  for (const Ways ways : {Ways::Short, Ways::ShortToLong}) {
    EXPECT_NE(explore(kManyShorts, {.plain_first = true}, Mortal::Nobody, ways).violation, "");
    EXPECT_NE(explore(kManyShorts, {.no_end = true}, Mortal::Nobody, ways).violation, "");
  }
}

TEST(RingModel, a_producer_that_dies_anywhere_leaves_whole_batches_and_wakes_the_consumer) {
  for (const auto& messages : {kFewSingles, kFewBatches}) {
    const Outcome outcome = explore(messages, {}, Mortal::Producer);
    EXPECT_EQ(outcome.violation, "");
  }
}

TEST(RingModel, a_consumer_that_dies_anywhere_breaks_nothing_and_wakes_the_producer) {
  for (const auto& messages : {kFewSingles, kFewBatches}) {
    const Outcome outcome = explore(messages, {}, Mortal::Consumer);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.waits, 0u);
  }
}

constexpr const char* kConsumerSleeps = "the consumer sleeps, and nobody will wake it";
constexpr const char* kProducerSleeps = "the producer sleeps, and nobody will wake it";

TEST(RingModel, what_is_broken_on_purpose_is_seen) {
  const auto seen = [](const Faults& faults) { return explore(kFewSingles, faults, Mortal::Nobody).violation; };
  EXPECT_NE(seen({.no_fence = true}), "");
  EXPECT_EQ(seen({.no_second_look = true}), kConsumerSleeps);
  EXPECT_NE(seen({.plain_first = true}), "");
  EXPECT_NE(seen({.no_end = true}), "");
  EXPECT_NE(seen({.late_payload = true}), "");
  EXPECT_NE(seen({.early_release = true}), "");
  EXPECT_EQ(seen({.no_room_look = true}), kProducerSleeps);
  EXPECT_EQ(seen({.early_room_wake = true}), kProducerSleeps);
  EXPECT_EQ(seen({.late_room_wake = true}), kProducerSleeps);
}

}  // namespace
}  // namespace verbena::local::model
