// SPDX-License-Identifier: Apache-2.0
// What tests of message protocols together say, as one HTML page: it needs nothing beside itself, and is well-formed
// XML.
#pragma once

#include <string>
#include <vector>

#include "tools/message_results.h"

namespace verbena::tools {

// A test that did not come to its end, and why; printable.
struct MessageFailure {
  MessageTest test{};
  std::string why;
};

struct MessageReport {
  std::string local, remote;  // addresses, printable
  std::vector<MessageRow> rows;
  std::vector<MessageFailure> failures;
  std::string incomplete{};  // why there are no more of them; empty: these are all
};

std::string message_page(const MessageReport& report);

}  // namespace verbena::tools
