// SPDX-License-Identifier: Apache-2.0
// Several runs of one test of messages, and what they tell that one does not: by how much a test differs from itself.
#pragma once

#include <string>
#include <vector>

#include "tools/message_results.h"

namespace verbena::tools {

// Better is a larger number: 1 / microseconds, or messages per second.
double merit_of(const MessageRow& row);

// The one in the middle of the runs of a test, not none, which knows what all of them came to (MessageRow::merits). A
// run that was lucky, or met with what else the machine does, decides nothing.
MessageRow middle_of(std::vector<MessageRow> runs);
inline bool is_repeated(const MessageRow& row) { return row.merits.size() > 1; }
inline std::size_t run_count(const MessageRow& row) { return is_repeated(row) ? row.merits.size() : 1; }
// How much better the best of its runs was than the worst: 0.2 is 20 % better.
double spread_of(const MessageRow& row);
// What differs by more from one run to the next says little.
inline constexpr double kUnsteady = 0.2;
inline bool is_unsteady(const MessageRow& row) { return is_repeated(row) && spread_of(row) > kUnsteady; }
// "the best of 3 runs was 25 % better than the worst"
std::string spread_text(const MessageRow& row);

// The two are repeated, and differ by no more than the runs of one of them among themselves, nor by half: so much
// better is better, however noisy it was. Of five runs and more the best and the worst do not count.
bool are_alike(const MessageRow& one, const MessageRow& other);

}  // namespace verbena::tools
