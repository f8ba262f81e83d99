// SPDX-License-Identifier: Apache-2.0
// The users whose processes share an address: this user, and those he names. All who share one have the same list, so
// that nobody shares an address with somebody he did not name, whoever let him in. Who holds its sockets can read,
// forge and hold up what goes to or from anybody there.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "verbena/base/result.h"

namespace verbena::soft::udp {

class AddressUsers {
 public:
  static constexpr std::size_t kMost = 64;  // as many as devices of an address

  AddressUsers() = default;  // this user alone
  // This user may be named or not. Errors: InvalidArgument for a number that stands for many users, and for too many.
  static Result<AddressUsers> with(const std::vector<std::uint32_t>& named);

  // Whether whom the kernel names by that number is one of them.
  bool include(uid_t user) const;
  // Ascending. This user is who the process runs as now: one that becomes another user shares with nobody who came
  // before.
  std::vector<std::uint32_t> numbers() const;
  // "this user", "users 0, 1001"
  std::string to_string() const;

  bool operator==(const AddressUsers& other) const { return numbers() == other.numbers(); }

 private:
  std::vector<std::uint32_t> named_;
};

// "users 0, 1001"
std::string describe_users(const std::vector<std::uint32_t>& numbers);

}  // namespace verbena::soft::udp
