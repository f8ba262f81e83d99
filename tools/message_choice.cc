// SPDX-License-Identifier: Apache-2.0
#include "tools/message_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/progress.h"
#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

using Row = const MessageRow*;

std::string name_of(Row row) { return messaging::to_string(row->kind); }

// The rows that a wish is about, each kind once, the best first.
struct Contest {
  std::vector<Row> rows;

  Contest(std::span<const MessageRow> all, PathChoice path, bool (*enters)(const MessageRow&)) {
    for (const MessageRow& row : all)
      if (row.test.path == path && is_measured(row) && enters(row)) rows.push_back(&row);
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

bool is_alone(const MessageRow& row) { return row.test.senders == 1 && row.test.threads == 1; }
bool is_latency(const MessageRow& row) { return row.test.measure == MessageMeasure::Latency && row.typical > 0; }
bool is_stream(const MessageRow& row) { return row.test.measure != MessageMeasure::Latency; }
std::int64_t size_of(const MessageRow& row) { return row.test.size; }

std::string rate_text(const MessageRow& row) {
  return fmt::format("{:.3g} million messages/s", row.messages_per_second() * 1e-6);
}
std::string bandwidth_text(const MessageRow& row) { return fmt::format("{:.3g} GB/s", row.bytes_per_second() * 1e-9); }
std::string memory_text(const MessageRow& row) { return format_bytes(static_cast<double>(row.receiver_bytes)); }
std::string latency_text(const MessageRow& row) { return fmt::format("{:.2f} µs", row.typical); }

MeasuredChoice choice(const Contest& contest, std::string_view of_what, std::string (*text)(const MessageRow&)) {
  const Row best = contest.rows.front();
  std::string reason = fmt::format("{}: {} {}", name_of(best), text(*best), of_what);
  if (contest.rows.size() > 1)
    reason += fmt::format("; next is {} with {}", name_of(contest.rows[1]), text(*contest.rows[1]));
  return {*best, std::move(reason)};
}

MeasuredChoice fastest(Contest contest) {
  contest.keep_largest([](const MessageRow& row) { return -size_of(row); });
  contest.rank([](const MessageRow& row) { return row.typical; });
  return choice(contest, fmt::format("for {} bytes, one way", contest.rows.front()->test.size), latency_text);
}

MeasuredChoice most_messages(Contest contest) {
  contest.keep_largest([](const MessageRow& row) { return -size_of(row); });
  contest.rank([](const MessageRow& row) { return -row.messages_per_second(); });
  return choice(contest, fmt::format("of {} bytes", contest.rows.front()->test.size), rate_text);
}

MeasuredChoice most_bytes(Contest contest) {
  contest.keep_largest(size_of);
  contest.rank([](const MessageRow& row) { return -row.bytes_per_second(); });
  return choice(contest, fmt::format("in messages of {} bytes", contest.rows.front()->test.size), bandwidth_text);
}

MeasuredChoice least_memory(Contest contest) {
  contest.keep_largest([](const MessageRow& row) { return std::int64_t{row.test.senders}; });
  // Rates of messages of one size alone can be compared.
  contest.keep_largest([](const MessageRow& row) { return -size_of(row); });
  contest.rank([](const MessageRow& row) { return -row.messages_per_second(); });
  const double half = contest.rows.front()->messages_per_second() / 2;
  std::erase_if(contest.rows, [&](Row row) { return row->messages_per_second() < half; });
  contest.rank([](const MessageRow& row) { return row.receiver_bytes; });
  const MessageTest& test = contest.rows.front()->test;
  return choice(contest, fmt::format("of {} bytes from {} senders", test.size, test.senders),
                [](const MessageRow& row) { return memory_text(row) + " at the receiver for " + rate_text(row); });
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
  const auto enters = [](MessageWish of) -> bool (*)(const MessageRow&) {
    if (of == MessageWish::Latency) return [](const MessageRow& row) { return is_latency(row); };
    if (of == MessageWish::ManySenders)
      return [](const MessageRow& row) { return is_stream(row) && row.test.senders > 1 && row.test.threads == 1; };
    return [](const MessageRow& row) { return is_stream(row) && is_alone(row); };
  };
  Contest contest(rows, path, enters(wish));
  if (contest.rows.empty())
    return Error(ErrorCode::NotFound, fmt::format("nothing was measured over {} that tells of {}", words_for(path),
                                                  to_string(wish)));
  switch (wish) {
    case MessageWish::Latency: return fastest(std::move(contest));
    case MessageWish::SmallMessages: return most_messages(std::move(contest));
    case MessageWish::LargeBandwidth: return most_bytes(std::move(contest));
    case MessageWish::ManySenders: break;
  }
  return least_memory(std::move(contest));
}

}  // namespace verbena::tools
