// SPDX-License-Identifier: Apache-2.0
// The devices of one end of `verbena bench message`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/command.h"

namespace verbena::tools {

// One for each thread of a test, all on its path. The first has the address that the flags name, and keeps it whatever
// the path; the others, where the first is a loopback address that nobody named, further ones like it.
class MessageDevices {
 public:
  // Opens the first; `peer`, where there is one, is whom it shall lead to. Errors: those of open_device_towards().
  static Result<MessageDevices> open(const DeviceFlags& flags, const Endpoint* peer);

  // So many, on that path. Nothing that was made on them may be left. Errors: those of Device::open();
  // InvalidArgument (threads, and one address for all).
  Result<void> prepare(PathChoice path, std::uint32_t count);
  Device& at(std::uint32_t i) { return *devices_[i]; }
  // 0 after prepare() has failed.
  std::size_t count() const { return devices_.size(); }
  const Gid& address() const { return address_; }
  // "soft-lo"
  const std::string& name() const { return name_; }

 private:
  MessageDevices() = default;

  DeviceFlags flags_;  // of the first
  bool more_ = false;  // there are other addresses to take
  Gid address_;
  std::string name_;
  std::optional<PathChoice> path_;  // as they were opened; nothing: as the environment says
  std::vector<std::unique_ptr<Device>> devices_;
};

std::string_view to_string(PathChoice path);

}  // namespace verbena::tools
