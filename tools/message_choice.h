// SPDX-License-Identifier: Apache-2.0
// Which message protocol to take, by what was measured.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/message_results.h"

namespace verbena::tools {

enum class MessageWish : std::uint8_t {
  Latency,         // one small message at a time, soonest
  SmallMessages,   // the most small messages a second
  LargeBandwidth,  // the most bytes a second in large messages
  ManySenders,     // many senders, little memory at the receiver
};
inline constexpr MessageWish kMessageWishes[] = {MessageWish::Latency, MessageWish::SmallMessages,
                                                 MessageWish::LargeBandwidth, MessageWish::ManySenders};
// "lowest latency"
std::string_view to_string(MessageWish wish);
// "packets", "shared memory", "any path"
std::string_view words_for(PathChoice path);
// The same of a row; where it was not asked for, what was taken, and why. Printable.
std::string words_for_path(const MessageRow& row);

// A row in which something went.
bool is_measured(const MessageRow& row);

struct MeasuredChoice {
  MessageRow row{};    // that decided
  std::string reason;  // the numbers, and those of the next best; for people
  std::vector<MessageRow> alike;  // others that the runs do not tell from it, the best first
};
// The best of the rows over that path. Latencies are compared at the smallest size measured, small messages at the
// smallest and large ones at the largest that a single sender was measured at; many senders at the largest number of
// them: the fastest of the kinds whose receivers have at most an eighth of the memory of that which has most, or else
// the least of all. Where some were run several times, these alone count; of those that are alike it is the one that
// messaging::recommend() names, or the first of the rows; of many senders the one with the least memory.
// Errors: NotFound: no row measures such.
Result<MeasuredChoice> recommend_measured(std::span<const MessageRow> rows, MessageWish wish, PathChoice path);

// By single runs, those that may be the best, which run again before one is chosen: indices of the rows. None where
// there is nothing to choose.
inline constexpr std::size_t kContenders = 3;
std::vector<std::size_t> contenders(std::span<const MessageRow> rows, MessageWish wish, PathChoice path);

}  // namespace verbena::tools
