// SPDX-License-Identifier: Apache-2.0
// The three steps that bring a queue pair into service, with the attributes each type wants.
#pragma once

#include "provider/provider.h"
#include "verbena/device/queue_pair.h"

namespace verbena::queue_pair_steps {

Result<void> to_init(provider::Context& context, Qpn qpn, QueuePairType type, Access access);

// Where the peer is, and how to talk to it.
struct Remote {
  Gid gid;
  Qpn qpn;
  Psn psn;                 // of the first packet it sends
  std::uint32_t path_mtu;  // bytes
  std::uint8_t traffic_class = 0;
  std::uint32_t flow_label = 0;
};
Result<void> to_rtr(provider::Context& context, Qpn qpn, QueuePairType type, const Remote& remote,
                    const ReliabilityOptions& options);
Result<void> to_rts(provider::Context& context, Qpn qpn, QueuePairType type, Psn first,
                    const ReliabilityOptions& options);
Result<void> to_error(provider::Context& context, Qpn qpn);

}  // namespace verbena::queue_pair_steps
