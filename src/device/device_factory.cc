// SPDX-License-Identifier: Apache-2.0
#include "device/device_factory.h"

#include "device/device_state.h"

namespace verbena {

Result<Device> DeviceFactory::make(std::unique_ptr<provider::Context> context) {
  Device device{std::make_unique<DeviceState>(std::move(context))};
  auto domain = device.create_protection_domain();
  if (!domain) return domain.error();
  device.state_->domain.emplace(std::move(*domain));
  return device;
}

}  // namespace verbena
