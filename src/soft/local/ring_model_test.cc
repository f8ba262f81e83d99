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

enum class Producing : std::uint64_t { Reserve, Publish, LatePayload, Look, Signal, Done };
enum class Consuming : std::uint64_t { Look, Read, Pop, Release, Announce, SecondLook, SecondRelease, Sleep, Done };

struct ProducerState {
  BasicRingProducer<Memory> ring{Memory{}};
  BasicWaker<Memory> waker{Memory{}};
  Producing phase = Producing::Reserve;
  std::uint64_t reserved = 0;   // records
  std::uint64_t published = 0;  // records
};

struct ConsumerState {
  BasicRingConsumer<Memory> ring{Memory{}};
  BasicSleeper<Memory> sleeper{Memory{}};
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
  std::uint64_t crashed = 0;
  std::uint64_t hung_up = 0;
};

// A payload tells its record, and no header does.
std::uint64_t payload_of(std::uint64_t record) { return 0xffff'0000'0000'0000 + record; }
std::uint16_t kind_of(std::uint64_t record) { return static_cast<std::uint16_t>(record + 1); }

class Explorer {
 public:
  Explorer(const std::vector<Message>& messages, const Faults& faults, bool crashes)
      : messages_(messages), faults_(faults), crashes_(crashes) {}

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
    if (crashes_ && state.crashed == 0 && state.producer.phase != Producing::Done) {
      State next = state;
      next.crashed = 1;
      meet(next);
      any = true;
    }
    if (state.crashed == 1 && state.hung_up == 0 && state.buffers[kProducer].count == 0) {
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
    if (thread == kProducer && (state.crashed != 0 || state.producer.phase == Producing::Done)) return false;
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
    const std::optional<std::uint32_t> at = own.ring.try_reserve(kind_of(own.reserved), message.payload_bytes);
    if (!at) {
      ++outcome_.refusals;
      if (own.reserved != own.published) own.phase = Producing::Publish;
      return;
    }
    state.offsets[own.reserved] = *at;
    if (!faults_.late_payload) write_payload(state, own.reserved);
    ++own.reserved;
    if (message.last_of_batch) own.phase = Producing::Publish;
  }

  void write_payload(State& state, std::uint64_t record) {
    if (messages_[record].payload_bytes != 0)
      current().store(kData + state.offsets[record] / 8, payload_of(record), false);
  }

  bool consume(State& state) {
    ConsumerState& own = state.consumer;
    switch (own.phase) {
      case Consuming::Look:
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
        own.ring.release();
        own.phase = own.phase == Consuming::Release ? Consuming::Announce : Consuming::Sleep;
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
    std::uint64_t value = 0;
    if (record.payload_bytes != 0) value = current().load(kData + record.offset / 8);
    if (current().suspended || current().blocked) return;
    if (number >= messages_.size() || record.kind != kind_of(number) ||
        record.payload_bytes != messages_[number].payload_bytes)
      return fail("a record that was not the next one sent");
    if (record.payload_bytes != 0 && value != payload_of(number)) return fail("a record with torn payload");
    ++own.received;
    own.phase = Consuming::Pop;
  }

  void check(const State& state) {
    if (state.producer.ring.state() != RingState::Open) fail("the producer thinks the ring is corrupt");
    if (state.consumer.ring.state() != RingState::Open) fail("the consumer thinks the ring is corrupt");
    if (state.consumer.received > state.producer.reserved) fail("a record from nowhere");
  }

  // Whatever stopped, and wherever: all that was published has come, and nobody sleeps over work.
  void end(const State& state) {
    ++outcome_.ends;
    if (state.consumer.phase != Consuming::Done) return fail("the consumer sleeps, and nobody will wake it");
    if (state.crashed == 0 && state.producer.phase != Producing::Done) fail("the producer waits for ever");
    if (state.consumer.received < state.producer.published) fail("a published record is lost");
  }

  const std::vector<Message>& messages_;
  const Faults faults_;
  const bool crashes_;
  Outcome outcome_;
  std::vector<State> open_;
  std::unordered_set<std::uint64_t> met_;
};

}  // namespace

Outcome explore(const std::vector<Message>& messages, const Faults& faults, bool crashes) {
  return Explorer(messages, faults, crashes).run();
}

namespace {

const std::vector<Message> kSingles = {{8, true}, {0, true}, {8, true}, {8, true}, {8, true}, {8, true}};
const std::vector<Message> kBatches = {{8, false}, {0, true}, {0, false}, {8, false}, {8, true}, {8, true}};

TEST(RingModel, every_interleaving_delivers_each_record_once_whole_and_in_order) {
  for (const auto& messages : {kSingles, kBatches}) {
    const Outcome outcome = explore(messages, {}, false);
    EXPECT_EQ(outcome.violation, "");
    EXPECT_GT(outcome.ends, 0u);
    EXPECT_GT(outcome.sleeps, 0u);
    EXPECT_GT(outcome.refusals, 0u) << "the ring never was full";
  }
}

TEST(RingModel, a_producer_that_dies_anywhere_leaves_whole_batches_and_wakes_the_consumer) {
  for (const auto& messages : {kSingles, kBatches}) {
    const Outcome outcome = explore(messages, {}, true);
    EXPECT_EQ(outcome.violation, "");
  }
}

TEST(RingModel, what_is_broken_on_purpose_is_seen) {
  EXPECT_EQ(explore(kSingles, {.no_fence = true}, false).violation, "the consumer sleeps, and nobody will wake it");
  EXPECT_EQ(explore(kSingles, {.no_second_look = true}, false).violation,
            "the consumer sleeps, and nobody will wake it");
  EXPECT_NE(explore(kSingles, {.plain_tail = true}, false).violation, "");
  EXPECT_NE(explore(kSingles, {.late_payload = true}, false).violation, "");
  EXPECT_NE(explore(kSingles, {.early_release = true}, false).violation, "");
}

}  // namespace
}  // namespace verbena::local::model
