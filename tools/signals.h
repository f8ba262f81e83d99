// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM as a question to ask.
#pragma once

#include <csignal>

#include "verbena/async/progress_engine.h"

namespace verbena::tools {

// While one lives, the signals set a flag and wake the engine; a second signal ends the process as usual. There is one
// at a time.
class StopSignals {
 public:
  explicit StopSignals(ProgressEngine& engine);
  // Where no engine is waited in.
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals();

  bool requested() const;

 private:
  struct sigaction old_int_ {}, old_term_ {};
};

}  // namespace verbena::tools
