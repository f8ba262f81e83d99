// SPDX-License-Identifier: Apache-2.0
#include "tools/message_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/message_runs.h"
#include "tools/progress.h"
#include "tools/safe_path.h"
#include "verbena/messaging/protocol.h"

namespace verbena::tools {

namespace {

constexpr std::uint64_t kLittle = 8;  // a part of the memory of who has most

using Row = const MessageRow*;

std::string name_of(Row row) { return messaging::to_string(row->kind); }

bool enters(const MessageRow& row, MessageWish wish) {
  const MessageTest& test = row.test;
  if (wish == MessageWish::Latency) return test.is_latency() && row.typical > 0 && test.is_alone();
  if (wish == MessageWish::ManySenders) return !test.is_latency() && test.senders > 1 && test.threads == 1;
  return !test.is_latency() && test.is_alone();
}

// The rows that a wish is about, each kind once, the best first.
struct Contest {
  std::vector<Row> rows;
  Row largest = nullptr;  // in memory, of many senders
  std::size_t alike = 1;  // so many of the first no number tells apart

  Contest(std::span<const MessageRow> all, PathChoice path, MessageWish wish) {
    for (const MessageRow& row : all)
      if (row.test.path == path && is_measured(row) && enters(row, wish)) rows.push_back(&row);
  }
  // Those whose measure is the largest that any has.
  template <class Measure>
  void keep_largest(Measure measure) {
    std::int64_t most = INT64_MIN;
    for (const Row row : rows) most = std::max(most, measure(*row));
    std::erase_if(rows, [&](Row row) { return measure(*row) != most; });
  }
  template <class Cost>
  void rank(Cost cost) {
    std::ranges::stable_sort(rows, {}, [&](Row row) { return cost(*row); });
    std::vector<Row> once;
    for (const Row row : rows)
      if (std::ranges::none_of(once, [&](Row other) { return other->kind == row->kind; })) once.push_back(row);
    rows = std::move(once);
  }
};

std::string rate_text(const MessageRow& row) {
  return fmt::format("{:.3g} million messages/s", row.messages_per_second() * 1e-6);
}
std::string bandwidth_text(const MessageRow& row) { return fmt::format("{:.3g} GB/s", row.bytes_per_second() * 1e-9); }
std::string memory_text(const MessageRow& row) { return format_bytes(static_cast<double>(row.receiver_bytes)); }
std::string latency_text(const MessageRow& row) { return fmt::format("{:.2f} µs", row.typical); }

// What a program would want that has such a wish alone.
messaging::Requirements requirements_of(MessageWish wish) {
  messaging::Requirements wanted;
  wanted.lowest_latency = wish == MessageWish::Latency;
  wanted.many_small = wish == MessageWish::SmallMessages;
  wanted.large_without_copy = wish == MessageWish::LargeBandwidth;
  return wanted;
}

// Those of the contest that no number tells from the best come first; of them the one to take.
void prefer_simple(Contest& contest, MessageWish wish) {
  auto& rows = contest.rows;
  const Row best = rows.front();
  const auto end = std::stable_partition(rows.begin(), rows.end(), [&](Row row) {
    return row == best || are_alike(*row, *best);
  });
  contest.alike = static_cast<std::size_t>(end - rows.begin());
  const auto recommended = messaging::recommend(requirements_of(wish));
  const auto is_recommended = [&](Row row) { return recommended && row->kind == recommended->kind; };
  auto taken = std::find_if(rows.begin(), end, is_recommended);
  if (wish == MessageWish::ManySenders)
    taken = std::ranges::min_element(rows.begin(), end, {}, &MessageRow::receiver_bytes);
  else if (taken == end)
    taken = std::min_element(rows.begin(), end);  // where they stand, the plainest first
  std::rotate(rows.begin(), taken, taken + 1);
}

MeasuredChoice choice(const Contest& contest, std::string_view of_what, std::string (*text)(const MessageRow&)) {
  const auto& rows = contest.rows;
  MeasuredChoice made{*rows.front(), fmt::format("{}: {} {}", name_of(rows.front()), text(*rows.front()), of_what), {}};
  for (std::size_t i = 1; i < contest.alike; ++i) {
    made.reason += fmt::format("{} {} with {}", i == 1 ? "; within the noise of these runs:" : ",", name_of(rows[i]),
                               text(*rows[i]));
    made.alike.push_back(*rows[i]);
  }
  if (contest.alike < 2 && rows.size() > 1)
    made.reason += fmt::format("; next is {} with {}", name_of(rows[1]), text(*rows[1]));
  if (is_unsteady(*rows.front())) made.reason += "; unsteady: " + spread_text(*rows.front());
  return made;
}

// Those that a wish is about, the best first.
void hold(Contest& contest, MessageWish wish) {
  if (contest.rows.empty()) return;
  if (wish == MessageWish::ManySenders)
    contest.keep_largest([](const MessageRow& row) { return std::int64_t{row.test.senders}; });
  // Rates of messages of one size alone can be compared.
  if (wish == MessageWish::LargeBandwidth)
    contest.keep_largest([](const MessageRow& row) { return std::int64_t{row.test.size}; });
  else
    contest.keep_largest([](const MessageRow& row) { return -std::int64_t{row.test.size}; });
  if (wish == MessageWish::ManySenders) {
    const auto [least, most] = std::ranges::minmax_element(contest.rows, {}, &MessageRow::receiver_bytes);
    const std::uint64_t little = std::max((*most)->receiver_bytes / kLittle, (*least)->receiver_bytes);
    contest.largest = *most;
    std::erase_if(contest.rows, [&](Row row) { return row->receiver_bytes > little; });
  }
  // By then single runs have chosen those, and tell nothing more.
  if (std::ranges::any_of(contest.rows, [](Row row) { return is_repeated(*row); }))
    std::erase_if(contest.rows, [](Row row) { return !is_repeated(*row); });
  contest.rank([](const MessageRow& row) { return -merit_of(row); });
}

}  // namespace

std::string_view to_string(MessageWish wish) {
  switch (wish) {
    case MessageWish::Latency: return "lowest latency";
    case MessageWish::SmallMessages: return "most small messages";
    case MessageWish::LargeBandwidth: return "most bytes in large messages";
    case MessageWish::ManySenders: return "many senders, little memory";
  }
  return "?";
}

std::string_view words_for(PathChoice path) {
  switch (path) {
    case PathChoice::Roce: return "packets";
    case PathChoice::Local: return "shared memory";
    case PathChoice::Auto: break;
  }
  return "any path";
}

std::string words_for_path(const MessageRow& row) {
  return row.test.path == PathChoice::Auto ? printable(row.path.reason) : std::string(words_for(row.test.path));
}

bool is_measured(const MessageRow& row) { return row.messages > 0 && row.elapsed.ns > 0; }

Result<MeasuredChoice> recommend_measured(std::span<const MessageRow> rows, MessageWish wish, PathChoice path) {
  Contest contest(rows, path, wish);
  if (contest.rows.empty())
    return Error(ErrorCode::NotFound, fmt::format("nothing was measured over {} that tells of {}", words_for(path),
                                                  to_string(wish)));
  hold(contest, wish);
  prefer_simple(contest, wish);
  const MessageTest& test = contest.rows.front()->test;
  switch (wish) {
    case MessageWish::Latency: return choice(contest, fmt::format("for {} bytes, one way", test.size), latency_text);
    case MessageWish::SmallMessages: return choice(contest, fmt::format("of {} bytes", test.size), rate_text);
    case MessageWish::LargeBandwidth:
      return choice(contest, fmt::format("in messages of {} bytes", test.size), bandwidth_text);
    case MessageWish::ManySenders: break;
  }
  MeasuredChoice made =
      choice(contest, fmt::format("of {} bytes from {} senders", test.size, test.senders),
             [](const MessageRow& row) { return memory_text(row) + " at the receiver for " + rate_text(row); });
  const Row largest = contest.largest;
  if (made.row.receiver_bytes <= largest->receiver_bytes / kLittle)
    made.reason += fmt::format("; the fastest of those with at most an eighth of the {} of {}", memory_text(*largest),
                               name_of(largest));
  else
    made.reason += "; the least memory of all";
  return made;
}

std::vector<std::size_t> contenders(std::span<const MessageRow> rows, MessageWish wish, PathChoice path) {
  Contest contest(rows, path, wish);
  hold(contest, wish);
  if (contest.rows.size() < 2) return {};
  contest.rows.resize(std::min(contest.rows.size(), kContenders));
  std::vector<std::size_t> indices;
  for (const Row row : contest.rows) indices.push_back(static_cast<std::size_t>(row - rows.data()));
  return indices;
}

}  // namespace verbena::tools
