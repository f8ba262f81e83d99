// SPDX-License-Identifier: Apache-2.0
// By which path connections really go, which is not always what was asked for.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "verbena/async/progress_engine.h"

namespace verbena::tools {

struct PathTaken {
  std::string reason;  // "shared memory with ...", "RoCE, because ..."; anything else: it is not chosen yet

  bool is_local() const { return reason.starts_with("shared memory"); }
  bool is_known() const { return is_local() || reason.starts_with("RoCE"); }
  // "local", "roce", "undecided"
  std::string_view name() const;
};

// That of the queue pair; without one, of the first that the device tells of.
PathTaken path_taken(const Device& device, std::optional<Qpn> queue_pair = {});
// The same when it is chosen, which is soon after the ends have met: drives the engine until then, for 2 seconds at
// most.
PathTaken wait_path(ProgressEngine& engine, const Device& device, std::optional<Qpn> queue_pair = {});

}  // namespace verbena::tools
