// SPDX-License-Identifier: Apache-2.0
// The numbers of `verbena bench message` as a table.
#pragma once

#include <string>

#include "tools/message_results.h"

namespace verbena::tools {

// Both end with a newline. Times are in microseconds, GB are 10^9 bytes, memory is what is registered at each end.
std::string message_header(MessageMeasure measure);
std::string message_line(const MessageRow& row);

}  // namespace verbena::tools
