// SPDX-License-Identifier: Apache-2.0
// What a message costs by its size, fitted to what was measured: LogGP with a cost per byte for each of its parts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tools/message_results.h"

namespace verbena::tools {

// fixed + per_byte * bytes, neither of them negative. Microseconds.
struct LinearCost {
  double fixed = 0, per_byte = 0;

  double of(std::uint32_t bytes) const { return fixed + per_byte * bytes; }
};

// Of one kind over one path, from one sender. Microseconds.
//
//   one message alone, one way:       overhead + latency
//   from one message to the next:     gap
//
// LogGP has one cost per byte. Here there are three: copies that follow one another while a message is alone
// overlap when many are on their way.
struct MessageModel {
  messaging::Kind kind{};
  PathChoice path = PathChoice::Auto;
  LinearCost overhead;  // o: of the sender's processor, what handing over takes
  LinearCost latency;   // L: from there until the receiver has it
  LinearCost gap;       // g and G: between messages that follow one another as fast as they go

  double one_way(std::uint32_t bytes) const { return overhead.of(bytes) + latency.of(bytes); }
  // 0 when the fit found no gap at all.
  double messages_per_second(std::uint32_t bytes) const { return gap.of(bytes) > 0 ? 1e6 / gap.of(bytes) : 0; }
  double bytes_per_second(std::uint32_t bytes) const { return messages_per_second(bytes) * bytes; }
  // Half of what large messages reach, messages of so many bytes reach: where the gap is as long as the bytes.
  double half_bandwidth_bytes() const { return gap.per_byte > 0 ? gap.fixed / gap.per_byte : 0; }
};

// What the model says of a row. Latency: microseconds; otherwise messages per second.
struct MessagePrediction {
  MessageTest test{};
  double measured = 0, predicted = 0;

  double error() const { return predicted / measured - 1; }
};

// The line that is least wrong in the sum of the squares of relative errors, and nowhere below 0. All times above 0.
// Errors: InvalidArgument: fewer than two sizes.
struct CostPoint {
  double bytes = 0, microseconds = 0;
};
Result<LinearCost> fit_cost(std::span<const CostPoint> points);

// Of `rows` those of that kind (as settled) and path that have one sender on one thread, a message at a time, and took
// part in something. Errors: InvalidArgument: fewer than two sizes with a latency, or with a bandwidth or rate.
Result<MessageModel> fit_message_model(std::span<const MessageRow> rows, const messaging::Kind& kind, PathChoice path);
// The model beside each of the rows it was fitted to.
std::vector<MessagePrediction> predictions(const MessageModel& model, std::span<const MessageRow> rows);
// The middle of the errors without their signs; 0 without predictions.
double typical_error(std::span<const MessagePrediction> all);

// A model of each kind and path in `rows` that has enough of them, in the order of their first rows.
std::vector<MessageModel> fit_all_models(std::span<const MessageRow> rows);

}  // namespace verbena::tools
