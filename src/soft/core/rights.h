// SPDX-License-Identifier: Apache-2.0
// What each request needs to be allowed, by the peer's queue pair and by the region it names.
#pragma once

#include "verbena/base/verbs.h"

namespace verbena::core {

constexpr Access right_for(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::RdmaWrite:
    case SendOpcode::RdmaWriteWithImmediate:
      return Access::RemoteWrite;
    case SendOpcode::RdmaRead:
      return Access::RemoteRead;
    case SendOpcode::CompareAndSwap:
    case SendOpcode::FetchAndAdd:
      return Access::RemoteAtomic;
    case SendOpcode::Send:
    case SendOpcode::SendWithImmediate:
      break;
  }
  return Access::None;
}

}  // namespace verbena::core
