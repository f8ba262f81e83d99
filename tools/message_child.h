// SPDX-License-Identifier: Apache-2.0
// The other end of `verbena bench message`, as a child of this process.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tools/tcp_link.h"

namespace verbena::tools {

// This very program with other words, which prints where it listens. In a process group of its own: signals of the
// terminal are this program's affair. What it prints further is lost.
class MessageChild {
 public:
  // Errors: IoError and its kin (it did not start, or said something else), TimedOut, Cancelled.
  static Result<MessageChild> start(const std::vector<std::string>& words, Duration patience,
                                    const StopQuestion& stopped);
  MessageChild(MessageChild&& other) noexcept;
  MessageChild& operator=(MessageChild&& other) = delete;
  // Ends it, if it has not by itself within a moment.
  ~MessageChild();

  const Endpoint& address() const { return address_; }

 private:
  explicit MessageChild(pid_t pid) : pid_(pid) {}
  bool wait_end(Duration patience);

  pid_t pid_;
  Endpoint address_;
};

}  // namespace verbena::tools
