// SPDX-License-Identifier: Apache-2.0
#include "tools/say.h"

#include "tools/report.h"

namespace verbena::tools {

int finish_output(int status) {
  // The stream remembers earlier failures, whose bytes fflush() no longer has.
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return status;
  say(stderr, "verbena: not all of the output could be written\n  Check the disk it goes to, or what reads it.\n");
  return status == kExitOk ? kExitFailure : status;
}

}  // namespace verbena::tools
