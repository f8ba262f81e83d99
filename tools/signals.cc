// SPDX-License-Identifier: Apache-2.0
#include "tools/signals.h"

#include <atomic>
#include <cerrno>

namespace verbena::tools {

namespace {

std::atomic<bool> stop_requested{false};
std::atomic<ProgressEngine*> engine_to_wake{nullptr};

void handle_signal(int) {
  const int saved = errno;
  stop_requested.store(true);
  if (ProgressEngine* engine = engine_to_wake.load()) engine->wake();
  errno = saved;
}

}  // namespace

StopSignals::StopSignals(ProgressEngine& engine) : StopSignals() { engine_to_wake.store(&engine); }

StopSignals::StopSignals() {
  stop_requested.store(false);
  struct sigaction action {};
  action.sa_handler = handle_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &old_int_);
  ::sigaction(SIGTERM, &action, &old_term_);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &old_int_, nullptr);
  ::sigaction(SIGTERM, &old_term_, nullptr);
  engine_to_wake.store(nullptr);
}

bool StopSignals::requested() const { return stop_requested.load(); }

}  // namespace verbena::tools
