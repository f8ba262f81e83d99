// SPDX-License-Identifier: Apache-2.0
#include "tools/message_devices.h"

#include <utility>

namespace verbena::tools {

std::string_view to_string(PathChoice path) {
  switch (path) {
    case PathChoice::Auto: break;
    case PathChoice::Roce: return "roce";
    case PathChoice::Local: return "local";
  }
  return "auto";
}

Result<MessageDevices> MessageDevices::open(const DeviceFlags& flags, const Endpoint* peer) {
  auto first = peer == nullptr ? open_device(flags) : open_device_towards(flags, *peer);
  if (!first) return std::move(first).error();
  MessageDevices all;
  all.flags_ = flags;
  all.address_ = first->address();
  all.name_ = first->info().name;
  all.flags_.device = all.address_.to_string();
  all.more_ = flags.device.empty() && flags.pcap.empty() && all.address_.is_ipv4() && all.address_.bytes[12] == 127;
  all.path_ = parse_path_choice(flags.path);
  all.devices_.push_back(std::make_unique<Device>(std::move(*first)));
  return all;
}

Result<void> MessageDevices::prepare(PathChoice path, std::uint32_t count) {
  if (count > 1 && !more_)
    return Error(ErrorCode::InvalidArgument,
                 "--threads: each thread takes an address of its own, and " + address_.to_string() +
                     " is one; leave --device and --pcap out at both ends, on one machine");
  if (path_ != path) devices_.clear();
  path_ = path;
  while (devices_.size() < count) {
    DeviceFlags next{.device = "", .pcap = "", .path = std::string(to_string(path))};
    if (devices_.empty()) {
      next.device = flags_.device;
      next.pcap = flags_.pcap;
    }
    auto device = open_device(next);
    if (!device) return std::move(device).error();
    devices_.push_back(std::make_unique<Device>(std::move(*device)));
  }
  return {};
}

}  // namespace verbena::tools
