// SPDX-License-Identifier: Apache-2.0
#include "tools/say.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "tools/report.h"

namespace verbena::tools {

namespace {

bool reader_has_gone() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace

int finish_output(int status) {
  // The stream remembers earlier failures, whose bytes fflush() no longer has.
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return status;
  if (status == kExitOk && reader_has_gone()) {
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  say(stderr, "verbena: not all of the output could be written\n  Check the disk it goes to, or what reads it.\n");
  return status == kExitOk ? kExitFailure : status;
}

}  // namespace verbena::tools
