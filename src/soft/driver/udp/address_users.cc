// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/address_users.h"

#include <unistd.h>

#include <algorithm>

#include "base/this_user.h"

namespace verbena::soft::udp {

Result<AddressUsers> AddressUsers::with(const std::vector<std::uint32_t>& named) {
  const std::string what = "address_users (VERBENA_ADDRESS_USERS) ";
  for (const std::uint32_t user : named)
    if (!is_one_user(user))
      return Error(ErrorCode::InvalidArgument, what + std::to_string(user) +
                                                   ": the number stands for every user that this container does not "
                                                   "know");
  AddressUsers users;
  users.named_ = named;
  if (const std::size_t count = users.numbers().size(); count > kMost)
    return Error(ErrorCode::InvalidArgument, what + "and this user are " + std::to_string(count) + " users, " +
                                                 std::to_string(kMost) + " can share an address");
  return users;
}

bool AddressUsers::include(uid_t user) const {
  return is_this_user(user) || std::ranges::find(named_, user) != named_.end();
}

std::vector<std::uint32_t> AddressUsers::numbers() const {
  std::vector<std::uint32_t> all = named_;
  all.push_back(::geteuid());
  std::ranges::sort(all);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string AddressUsers::to_string() const {
  const std::vector<std::uint32_t> all = numbers();
  return all.size() == 1 ? "this user" : describe_users(all);
}

std::string describe_users(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return (numbers.size() == 1 ? "user " : "users ") + text;
}

}  // namespace verbena::soft::udp
