// SPDX-License-Identifier: Apache-2.0
// What the models of the rings share: loads that can be stopped between any two, and the inside of the
// algorithms, so that states can be told apart.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "messaging/ring/fetch_plan.h"
#include "messaging/ring/reader.h"
#include "messaging/ring/shared_reader.h"
#include "messaging/ring/shared_writer.h"
#include "messaging/ring/writer.h"

namespace verbena::ring {

// A step repeats the operation at hand from its beginning with the values it loaded before, and makes one
// load more.
struct Loads {
  std::vector<std::uint64_t> log;
  std::size_t at = 0;
  bool performed = false;  // the one new load
  bool suspended = false;  // more would follow: what the operation did is void
  bool stepwise = true;    // otherwise it makes all loads at once

  std::uint64_t load(std::uint64_t truth) {
    if (!stepwise) return truth;
    if (at < log.size()) return log[at++];
    if (performed) suspended = true;
    if (suspended) return 0;
    log.push_back(truth);
    ++at;
    performed = true;
    return truth;
  }
};

// A state as a string of numbers.
class Key {
 public:
  void add(std::uint64_t value) { text_.append(reinterpret_cast<const char*>(&value), sizeof value); }
  template <class Range>
  void add_all(const Range& values) {
    add(values.size());
    for (const auto& value : values) add(static_cast<std::uint64_t>(value));
  }
  std::size_t hash() const { return std::hash<std::string_view>{}(text_); }

 private:
  std::string text_;
};

// Every state that can be reached from a first one, each once. `Outcome` has a violation, and counts the states.
template <class State, class Outcome>
class StateSpace {
 protected:
  // `leave` meets all that may follow; where it is false nothing does, and `end` judges. Up to the first violation.
  template <class Leave, class End>
  Outcome walk(const State& first, Leave&& leave, End&& end) {
    meet(first);
    while (!open_.empty() && outcome_.violation.empty()) {
      const State state = open_.back();
      open_.pop_back();
      if (!leave(state)) end(state);
    }
    return outcome_;
  }
  // True when it is another state than the one it came from.
  bool meet(const State& state, std::size_t from = 0) {
    const std::size_t key = state.key();
    if (key == from) return false;
    if (met_.insert(key).second) {
      ++outcome_.states;
      open_.push_back(state);
    }
    return true;
  }
  void fail(const char* what) {
    if (outcome_.violation.empty()) outcome_.violation = what;
  }

  Outcome outcome_;

 private:
  std::vector<State> open_;
  std::unordered_set<std::size_t> met_;
};

// Looks like the word of a message, and is different for each word of each message.
inline std::uint64_t payload_word(std::size_t message, std::size_t index) {
  return message_word(static_cast<std::uint32_t>(message % 8 * 16 + index));
}

// Who may die, at any step.
enum class Death : std::uint8_t { Nobody, OfWriter, OfReader };

struct Inspect {
  static void digest(const Writer& writer, Key& key) {
    for (const std::uint64_t value :
         {writer.position_, writer.head_, writer.published_, std::uint64_t{writer.messages_}})
      key.add(value);
  }
  template <class Memory>
  static void digest(const BasicReader<Memory>& reader, Key& key) {
    for (const std::uint64_t value :
         {reader.table_.head_, reader.table_.end_, reader.available_, reader.told_,
          reader.table_.passed() - reader.told_passed_})
      key.add(value);
    key.add(static_cast<std::uint64_t>(reader.fault_));
    key.add_all(reader.table_.entries_);
  }
  static void digest(const SharedWriter& writer, Key& key) {
    for (const std::uint64_t value : {static_cast<std::uint64_t>(writer.step_), writer.begun_, writer.frame_,
                                      writer.position_, writer.next_, writer.head_})
      key.add(value);
  }
  template <class Memory>
  static void digest(const BasicSharedReader<Memory>& reader, Key& key) {
    for (const std::uint64_t value : {reader.table_.head_, reader.table_.end_, reader.search_end_, reader.tail_})
      key.add(value);
    key.add_all(reader.table_.entries_);
    for (const auto& arrival : reader.arrived_)
      key.add(arrival.units), key.add(arrival.units == 0 ? 0 : arrival.position), key.add(arrival.sender);
    for (const auto& sender : reader.senders_)
      key.add(static_cast<std::uint64_t>(sender.state)), key.add(sender.arrived), key.add(sender.due);
  }
  static void digest(const FetchPlan& plan, Key& key) {
    for (const std::uint64_t value : {plan.told_, plan.whole_, plan.asked_, plan.tail_, std::uint64_t{plan.count_}})
      key.add(value);
    for (std::size_t i = 0; i < plan.count_; ++i)
      key.add(plan.whole_with_[(plan.oldest_ + i) % FetchPlan::kMostSpans]);
  }
  static std::uint64_t tail(const FetchPlan& plan) { return plan.tail_; }
  template <class Memory>
  static std::uint64_t told(const BasicReader<Memory>& reader) {
    return reader.told_;
  }
  static void rebind(Writer& writer, std::span<std::byte> image) { writer.image_ = image; }
};

}  // namespace verbena::ring
