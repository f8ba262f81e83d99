// SPDX-License-Identifier: Apache-2.0
// The processes that share an address with this one, as far as it is told of their end. One thread at a time.
#pragma once

#include <sys/types.h>

#include <map>

#include "soft/driver/descriptor.h"

namespace verbena::soft::udp {

class Companions {
 public:
  // `events`: an epoll descriptor, whose owner sees the descriptors of those who ended there; it outlives this.
  explicit Companions(int events) : events_(events) {}

  // Nothing happens when the process has ended already, is watched already, or cannot be watched: then its end goes
  // unnoticed here.
  void watch(pid_t process);
  // Whether the descriptor, which the epoll descriptor showed, was of one who ended. It is watched no more.
  bool take_end(int descriptor);

 private:
  static constexpr std::size_t kMost = 128;  // twice as many as there are places

  const int events_;
  std::map<pid_t, Descriptor> watched_;
};

}  // namespace verbena::soft::udp
