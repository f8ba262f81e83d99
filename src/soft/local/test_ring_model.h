// SPDX-License-Identifier: Apache-2.0
// All that can happen between a producer and a consumer of a ring, one shared access at a time, the code of the ring
// itself being what runs. Stores go through a buffer and reach memory later: plain ones in any order, a release store
// after all before it. That allows all that x86 does, and more. Each sleeps when it has nothing to do: the consumer
// over an empty ring, the producer over a full one. Either may die between any two accesses; what it stored still
// arrives, and then the kernel tells the other.
//
// A step repeats the operation at hand from its beginning with the values it loaded before, and makes one access more.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "soft/local/ring.h"
#include "soft/local/wake.h"

namespace verbena::local::model {

inline constexpr std::uint32_t kDataWords = 16;
inline constexpr std::size_t kHead = 0, kSleeping = 1, kRoomSleeping = 2, kData = 3;
inline constexpr std::size_t kMaxRecords = 8;

enum Thread : std::uint8_t { kProducer, kConsumer };

// What is broken on purpose, so that the model proves it would see it.
struct Faults {
  bool no_fence = false;          // announce() and must_wake() without their fences
  bool plain_first = false;       // the first header of a batch is stored like payload
  bool no_end = false;            // and no 0 behind it
  bool early_release = false;     // the consumer gives room back before it read
  bool no_second_look = false;    // the consumer sleeps without looking again
  bool late_payload = false;      // the producer writes payload after publish()
  bool no_room_look = false;      // the producer sleeps without looking for room again
  bool early_room_wake = false;   // the consumer looks whether the producer sleeps before it gives room back
  bool late_room_wake = false;    // and only when it gave back more than there is
};

// How records that go alone in a line are sent and taken.
enum class Ways : std::uint8_t { Long, Short, ShortToLong, LongToShort };
inline bool puts_short(Ways ways) { return ways == Ways::Short || ways == Ways::ShortToLong; }
inline bool takes_short(Ways ways) { return ways == Ways::Short || ways == Ways::LongToShort; }

struct Access {
  struct Entry {
    std::uint64_t value;
    std::uint8_t at;
    bool release;
  };
  struct Buffer {
    std::array<Entry, 12> entries;
    std::uint64_t count;
  };
  struct Log {
    std::array<std::uint64_t, 24> values;
    std::uint64_t count;
  };
};

// The step at hand.
struct Step {
  std::array<std::uint64_t, kData + kDataWords>* memory = nullptr;
  Access::Buffer* buffer = nullptr;
  Access::Log* log = nullptr;
  const Faults* faults = nullptr;
  std::size_t at = 0;
  bool performed = false;  // the one new access
  bool suspended = false;  // more would follow
  bool blocked = false;    // cannot be made now

  // Whether the access at hand is to be made; otherwise `replayed` is its value.
  bool begin(std::uint64_t& replayed);
  std::uint64_t load(std::size_t where);
  void store(std::size_t where, std::uint64_t value, bool release);
  void fence();
};
Step& current();

template <std::size_t kSleepingWord>
class MemoryWith {
 public:
  static constexpr std::uint32_t kLine = 16;
  std::uint32_t capacity() const { return kDataWords * 8; }
  std::uint64_t load_head() const { return current().load(kHead); }
  void store_head(std::uint64_t value) { current().store(kHead, value, true); }
  void expect(std::uint32_t /*offset*/) const {}
  std::uint64_t load_header(std::uint32_t offset) const { return current().load(kData + offset / 8); }
  bool try_store(std::uint32_t offset, std::uint64_t value) {
    value == 0 ? store_header(offset, value) : publish_header(offset, value);
    return true;
  }
  bool try_load(std::uint32_t offset, std::uint64_t& value) const { return value = load_header(offset), true; }
  void store_header(std::uint32_t offset, std::uint64_t value) {
    if (value != 0 || !current().faults->no_end) current().store(kData + offset / 8, value, false);
  }
  void publish_header(std::uint32_t offset, std::uint64_t value) {
    current().store(kData + offset / 8, value, !current().faults->plain_first);
  }
  std::uint64_t load_sleeping() const { return current().load(kSleepingWord); }
  void store_sleeping(std::uint64_t value) { current().store(kSleepingWord, value, false); }
  void fence() {
    if (!current().faults->no_fence) current().fence();
  }
  bool operator==(const MemoryWith&) const = default;
};
using Memory = MemoryWith<kSleeping>;          // the consumer's wake word
using RoomMemory = MemoryWith<kRoomSleeping>;  // the producer's

// What the producer sends: payload bytes of each record (0, 8 or 24), and whether its batch ends with it.
struct Message {
  std::uint32_t payload_bytes;
  bool last_of_batch;
};

struct Outcome {
  std::string violation;  // empty: none
  std::uint64_t states = 0;
  std::uint64_t ends = 0;      // states in which nothing more can happen
  std::uint64_t sleeps = 0;    // steps with which the consumer woke from a real sleep
  std::uint64_t refusals = 0;  // steps in which the ring was full
  std::uint64_t waits = 0;     // steps with which the producer woke from a real sleep
};

// Who may die, at any step.
enum class Mortal : std::uint8_t { Nobody, Producer, Consumer };

// Walks through all of it.
Outcome explore(const std::vector<Message>& messages, const Faults& faults, Mortal mortal, Ways ways = Ways::Long);

}  // namespace verbena::local::model
