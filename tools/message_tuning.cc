// SPDX-License-Identifier: Apache-2.0
#include "tools/message_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "tools/message_kinds.h"
#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

using messaging::Acknowledge, messaging::Commit, messaging::Kind, messaging::Protocol, messaging::RingMemory;

constexpr std::array<std::uint32_t, 5> kWindows{4, 16, 64, 256, 1024};
constexpr std::array<std::uint32_t, 4> kBatches{1, 4, 16, 64};
constexpr std::array<std::uint64_t, 5> kRings{64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
// Usual values, and what one test may register for messages in flight and move.
constexpr std::uint32_t kUsualWindow = 64;
constexpr std::uint32_t kMostInline = 1024;  // longer ones are not tried
constexpr std::uint64_t kMostInFlight = 256 << 20, kMostMoved = 256 << 20;

// A few hundred milliseconds' worth on a machine of today.
std::uint64_t iterations_of(MessageMeasure goal, std::uint32_t size, std::uint32_t senders) {
  const std::uint64_t messages = goal == MessageMeasure::Latency ? 5000 : 100'000;
  const std::uint64_t fitting = kMostMoved / std::max<std::uint32_t>(size, 1);
  return std::max<std::uint64_t>(std::min(messages, fitting) / senders, 16);
}

messaging::Requirements requirements_of(const TuneSettings& settings) {
  messaging::Requirements wanted;
  wanted.lowest_latency = settings.goal == MessageMeasure::Latency;
  wanted.many_small = settings.goal == MessageMeasure::Rate;
  wanted.large_without_copy = settings.goal == MessageMeasure::Bandwidth;
  wanted.senders = settings.senders;
  wanted.receiver_sleeps = settings.sleeping;
  return wanted;
}

class Search {
 public:
  Search(const TuneSettings& settings, const TuneRun& run, const std::function<bool()>& over)
      : settings_(settings), run_(run), over_(over) {}

  TuneOutcome work() {
    for (int round = 0; round < 2 && !outcome_.error; ++round) {
      const auto before = best_;
      for (const Kind& kind : kinds_to_tune(settings_)) try_kind(kind);
      if (!best_) break;
      if (settings_.goal != MessageMeasure::Latency) {
        try_each(kWindows, &MessageTest::window);
        try_each(kBatches, &MessageTest::batch);
      }
      try_inline();
      if (has_ring(best_test().kind)) {
        try_each(kRings, &MessageTest::ring_bytes);
        MessageTest twice = best_test();
        twice.kind.ring = RingMemory::DoubleMapped;
        consider(twice);
      }
      if (before == best_) break;
    }
    if (best_ && !outcome_.error) decide();
    finish();
    return std::move(outcome_);
  }

 private:
  const MessageTest& best_test() const { return outcome_.steps[*best_].test; }
  double merit_of_step(std::size_t step) const { return merit_of(*outcome_.steps[step].row); }

  void try_kind(const Kind& kind) {
    MessageTest test = best_ ? best_test() : first_test(settings_, kind);
    const RingMemory ring = test.kind.ring;
    test.kind = kind;
    if (has_ring(kind)) test.kind.ring = ring;
    consider(test);
  }
  template <class Values, class Member>
  void try_each(const Values& values, Member member) {
    for (const auto value : values) {
      MessageTest test = best_test();
      test.*member = value;
      consider(test);
    }
  }
  // Of messages of one size: all of them, or none.
  void try_inline() {
    MessageTest test = best_test();
    if (!goes_inline(test.kind) || test.size > std::min(kMostInline, settings_.most_inline)) return;
    test.inline_bytes = test.size <= test.inline_bytes ? 0 : std::bit_ceil(test.size);
    consider(test);
  }
  bool sensible(const MessageTest& test) const {
    if (test.batch > test.window) return false;
    if (std::uint64_t{test.window} * test.senders * test.size > kMostInFlight) return false;
    return !has_ring(test.kind) || (test.ring_bytes >= least_ring(test.size) &&
                                    test.ring_bytes * test.senders <= std::max(kMostInFlight, kUsualRing));
  }
  bool takes_less(const MessageTest& one, const MessageTest& other) const {
    return one.window <= other.window && one.batch <= other.batch && one.ring_bytes <= other.ring_bytes &&
           one.inline_bytes == other.inline_bytes && one.kind == other.kind;
  }

  void consider(const MessageTest& test) {
    if (outcome_.error || !sensible(test)) return;
    for (const TuneStep& step : outcome_.steps)
      if (key_of(step.test) == key_of(test)) return;
    TuneStep step{test, {}, {}};
    auto row = measure(test);
    if (outcome_.error) return;
    if (row) step.row = std::move(*row);
    else step.why = printable(row.error().to_string());
    outcome_.steps.push_back(std::move(step));
    if (!row) return;
    const std::size_t now = outcome_.steps.size() - 1;
    if (!best_ || is_better(now)) best_ = now;
  }
  Result<MessageRow> measure(const MessageTest& test) {
    auto row = run_(test);
    if (!row && over_()) outcome_.error = row.error();
    return row;
  }
  bool is_better(std::size_t step) const {
    const double ratio = merit_of_step(step) / merit_of_step(*best_);
    // Less memory for as much is better, too.
    return ratio > kWorthwhile || (ratio > 1 && takes_less(outcome_.steps[step].test, best_test()));
  }

  // The best of many single runs is mostly luck, so these do not count again. In turn: what slows the machine for a
  // while slows them all.
  void decide() {
    std::vector<std::size_t> again = best_steps();
    for (std::size_t i = again.size(); i-- > 0;)
      if (const auto usual = usual_of(again[i]); usual && std::ranges::find(again, *usual) == again.end())
        again.push_back(*usual);
    std::vector<std::vector<MessageRow>> rows(again.size());
    std::optional<Error> failed;
    for (std::size_t round = 0; round < kRepeats; ++round)
      for (std::size_t i = 0; i < again.size() && !outcome_.error; ++i)
        if (auto row = measure(outcome_.steps[again[i]].test)) rows[i].push_back(std::move(*row));
        else failed = row.error();
    for (std::size_t i = 0; i < again.size(); ++i) {
      if (!rows[i].empty()) outcome_.steps[again[i]].row = middle_of(std::move(rows[i]));
    }
    std::erase_if(again, [this](std::size_t step) { return !outcome_.steps[step].repeated(); });
    if (again.empty() && !outcome_.error)
      outcome_.error = Error(failed->code(), "none of what went best went again: " + failed->to_string());
    if (again.empty()) return;
    if (!outcome_.steps[*best_].repeated()) best_ = again.front();  // it does not go any more
    for (const std::size_t step : again)
      if (is_better(step)) best_ = step;
    prefer_simple(again);
  }
  void prefer_simple(std::vector<std::size_t> steps) {
    std::ranges::sort(steps);
    std::erase_if(steps, [this](std::size_t step) {
      return step != *best_ && !are_alike(*outcome_.steps[step].row, *outcome_.steps[*best_].row);
    });
    const auto recommended = messaging::recommend(requirements_of(settings_));
    const auto taken = std::ranges::find_if(steps, [&](std::size_t step) {
      return recommended && outcome_.steps[step].test.kind == recommended->kind;
    });
    best_ = taken == steps.end() ? steps.front() : *taken;
    // What needs no words, where these gain nothing.
    if (const auto usual = usual_of(*best_);
        usual && outcome_.steps[*usual].repeated() && merit_of_step(*usual) >= merit_of_step(*best_))
      best_ = *usual;
    for (const std::size_t step : steps)
      if (step != *best_) outcome_.alike.push_back(*outcome_.steps[step].row);
  }
  // Those that did most, and the one to keep.
  std::vector<std::size_t> best_steps() const {
    std::vector<std::size_t> steps;
    for (std::size_t i = 0; i < outcome_.steps.size(); ++i)
      if (outcome_.steps[i].row) steps.push_back(i);
    std::ranges::stable_sort(steps, std::ranges::greater{}, [this](std::size_t step) { return merit_of_step(step); });
    steps.resize(std::min(steps.size(), kBestRepeated));
    if (std::ranges::find(steps, *best_) == steps.end()) steps.push_back(*best_);
    return steps;
  }
  // What the defaults of its kind did.
  std::optional<std::size_t> usual_of(std::size_t step) const {
    Kind kind = outcome_.steps[step].test.kind;
    kind.ring = RingMemory::Plain;
    const std::string usual = key_of(first_test(settings_, kind));
    for (std::size_t i = 0; i < outcome_.steps.size(); ++i)
      if (outcome_.steps[i].row && key_of(outcome_.steps[i].test) == usual) return i;
    return std::nullopt;
  }
  static std::string key_of(const MessageTest& test) {
    return fmt::format("{} {}", messaging::to_string(test.kind), settings_text(test));
  }

  void finish() {
    if (outcome_.error) return;
    if (!best_) {
      const std::string first = outcome_.steps.empty() ? "none fits" : outcome_.steps.front().why;
      outcome_.error = Error(ErrorCode::NotFound, "no message protocol does it: " + first);
      return;
    }
    outcome_.best = *outcome_.steps[*best_].row;
    outcome_.usual = *outcome_.steps[usual_of(*best_).value_or(*best_)].row;
  }

  const TuneSettings& settings_;
  const TuneRun& run_;
  const std::function<bool()>& over_;
  TuneOutcome outcome_;
  std::optional<std::size_t> best_;  // of the steps
};

bool names_inline(const MessageTest& test) {
  return goes_inline(test.kind) && test.inline_bytes != MessageTest{}.inline_bytes;
}

std::string code_of(const Kind& kind) {
  constexpr std::pair<Protocol, std::string_view> kNames[] = {
      {Protocol::SendReceive, "SendReceive"},     {Protocol::SharedReceive, "SharedReceive"},
      {Protocol::DirectWrite, "DirectWrite"},     {Protocol::BufferedWrite, "BufferedWrite"},
      {Protocol::SharedWrite, "SharedWrite"},     {Protocol::DirectRead, "DirectRead"},
      {Protocol::BufferedRead, "BufferedRead"}};
  std::string text = "{";
  for (const auto& [protocol, name] : kNames)
    if (protocol == kind.protocol) text += fmt::format(".protocol = messaging::Protocol::{}", name);
  if (kind.protocol == Protocol::BufferedWrite) {
    constexpr std::string_view kCommits[] = {"Immediate", "Offset", "Reversed"};
    if (kind.commit != Commit::Immediate)
      text += fmt::format(", .commit = messaging::Commit::{}", kCommits[static_cast<std::size_t>(kind.commit)]);
    if (kind.acknowledge == Acknowledge::Read) text += ", .acknowledge = messaging::Acknowledge::Read";
  }
  if (has_ring(kind) && kind.ring == RingMemory::DoubleMapped) text += ", .ring = messaging::RingMemory::DoubleMapped";
  if (kind.protocol == Protocol::DirectRead && kind.fenced) text += ", .fenced = true";
  return text + "}";
}

}  // namespace

std::vector<Kind> kinds_to_tune(const TuneSettings& settings) {
  std::vector<Kind> all = plain_kinds();
  if (settings.sleeping) std::erase_if(all, [](const Kind& kind) { return !traits_of(kind).interrupts; });
  return all;
}

MessageTest first_test(const TuneSettings& settings, const Kind& kind) {
  MessageTest test;
  test.kind = kind;
  test.path = settings.path;
  test.measure = settings.goal;
  test.size = settings.size;
  test.senders = settings.senders;
  const std::uint64_t each = std::max<std::uint64_t>(std::uint64_t{settings.size} * settings.senders, 1);
  test.window = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(std::bit_floor(kMostInFlight / each), 1,
                                                                     kUsualWindow));
  test.ring_bytes = std::max(kUsualRing, least_ring(settings.size));
  test.iterations = iterations_of(settings.goal, settings.size, settings.senders);
  return test;
}

TuneOutcome tune(const TuneSettings& settings, const TuneRun& run, const std::function<bool()>& over) {
  return Search(settings, run, over).work();
}

std::string options_code(const MessageTest& test) {
  std::string text = fmt::format("messaging::Options options{{.kind = {},\n", code_of(test.kind));
  const auto member = [&](std::string_view name, std::uint64_t value) {
    text += fmt::format("{:27}.{} = {},\n", "", name, value);
  };
  member("max_message_bytes", std::max<std::uint32_t>(test.size, 1));
  member("depth", test.window);
  if (has_ring(test.kind)) member("ring_bytes", test.ring_bytes);
  member("max_senders", test.senders);
  if (goes_inline(test.kind)) member("inline_bytes", test.inline_bytes);
  text.replace(text.size() - 2, 2, "};\n");
  return text + (test.batch > 1 ? fmt::format("// {} messages at once: sender.try_send_batch(messages)\n", test.batch)
                                : "// one message at a time: sender.try_send(message)\n");
}

const TuneStep* doubt_about(const TuneOutcome& outcome) {
  constexpr double kFarBetter = 1.5;
  const TuneStep* found = nullptr;
  double most = kFarBetter * merit_of(outcome.best);
  for (const TuneStep& step : outcome.steps) {
    if (!step.row || step.repeated() || merit_of(*step.row) <= most) continue;
    found = &step;
    most = merit_of(*step.row);
  }
  return found;
}

std::string settings_text(const MessageTest& test) {
  std::string text = fmt::format("window {}", test.window);
  if (test.batch > 1) text += fmt::format(", batches of {}", test.batch);
  if (has_ring(test.kind)) text += fmt::format(", ring of {} KiB", test.ring_bytes / 1024);
  if (names_inline(test))
    text += test.inline_bytes == 0 ? ", nothing inline" : fmt::format(", inline up to {} bytes", test.inline_bytes);
  return text;
}

std::string result_text(const MessageRow& row) {
  switch (row.test.measure) {
    case MessageMeasure::Latency: return fmt::format("{:.2f} µs one way", row.typical);
    case MessageMeasure::Bandwidth: return fmt::format("{:.3g} GB/s", row.bytes_per_second() * 1e-9);
    case MessageMeasure::Rate: break;
  }
  return fmt::format("{:.3g} million messages/s", row.messages_per_second() * 1e-6);
}

}  // namespace verbena::tools
