// SPDX-License-Identifier: Apache-2.0
// An open device as the upper layers see it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>

#include "base/assert.h"
#include "device/environment.h"
#include "provider/provider.h"
#include "verbena/device/protection_domain.h"

namespace verbena {

class Device;

class DeviceState {
 public:
  explicit DeviceState(std::unique_ptr<provider::Context> opened) : context_(std::move(opened)) {}
  ~DeviceState() {
    VERBENA_REQUIRE(!has_engine.load(), "destroys a Device before the ProgressEngine that it is attached to");
    VERBENA_REQUIRE(context_->objects() == 0, "destroys a Device before the memory or queues that were made with it");
  }

  provider::Context& context() { return *context_; }
  // Where it is now.
  Device* owner = nullptr;
  // Set once, when the device is opened.
  std::optional<ProtectionDomain> domain;
  // Whether an engine drives the device and takes its events.
  std::atomic<bool> has_engine{false};

 private:
  // The domain goes first.
  struct DropDomain {
    std::optional<ProtectionDomain>* domain;
    ~DropDomain() { domain->reset(); }
  };
  std::unique_ptr<provider::Context> context_;
  DropDomain drop_domain_{&domain};

 public:
  // With VERBENA_COUNTERS. Ends first: it reads what the context counted.
  std::unique_ptr<CounterFile> counter_file;
};

}  // namespace verbena
