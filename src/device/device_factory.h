// SPDX-License-Identifier: Apache-2.0
// Devices of contexts that no provider opened: those of simulated worlds.
#pragma once

#include <memory>

#include "provider/provider.h"
#include "verbena/device/device.h"

namespace verbena {

class DeviceFactory {
 public:
  static Result<Device> make(std::unique_ptr<provider::Context> context);
};

}  // namespace verbena
