// SPDX-License-Identifier: Apache-2.0
// What one software device is made with. Everything a peer can make it allocate is bounded here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/id_slot.h"
#include "soft/cm/types.h"
#include "soft/local/config.h"
#include "soft/roce/config.h"

namespace verbena::soft {

struct NicConfig {
  Gid address;
  std::uint32_t path_mtu = 1024;                    // largest path MTU, from the interface
  std::vector<std::uint16_t> source_ports{0xC000};  // data leaves from these; a queue pair keeps one
  IdSlot ids;  // queue pair numbers and communication ids are drawn from it
  std::uint16_t pkey = 0xffff;
  std::uint32_t max_queue_pairs = 16384;
  std::uint32_t max_completion_queues = 16384;
  std::uint32_t max_completion_entries = 1u << 22;
  std::uint32_t max_shared_receive_queues = 16384;
  std::uint32_t max_memory_regions = 1u << 20;
  std::uint32_t max_protection_domains = 16384;
  std::uint32_t max_requests = 32768;  // per queue
  std::uint32_t max_inline_bytes = 1024;
  std::uint8_t max_rd_atomic = 16;
  roce::Config transport;
  verbena::local::Config local;
  cm::ManagerConfig cm;  // local address, GUID and ids are filled in by the device
};

}  // namespace verbena::soft
