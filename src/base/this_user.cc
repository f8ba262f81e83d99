// SPDX-License-Identifier: Apache-2.0
#include "base/this_user.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace verbena {

namespace {

// Of users this namespace does not know.
uid_t number_of_strangers() {
  static const uid_t number = [] {
    uid_t told = 65534;
    std::ifstream("/proc/sys/kernel/overflowuid") >> told;
    return told;
  }();
  return number;
}

bool knows_all_users() {
  constexpr std::uint64_t kAll = 0xffff'ffff;
  std::uint64_t inside = 1, outside = 1, count = 0;
  std::ifstream("/proc/self/uid_map") >> inside >> outside >> count;
  return inside == 0 && outside == 0 && count == kAll;
}

}  // namespace

bool is_one_user(uid_t uid) {
  constexpr auto kNobody = static_cast<uid_t>(-1);
  return uid != kNobody && (uid != number_of_strangers() || knows_all_users());
}

bool is_this_user(uid_t uid) { return uid == ::geteuid() && is_one_user(uid); }

}  // namespace verbena
