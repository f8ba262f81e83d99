// SPDX-License-Identifier: Apache-2.0
// Words for errors of operations: what was tried, with whom, what happened, what to look at.
#pragma once

#include <string>

#include "verbena/async/operation.h"
#include "verbena/device/queue_pair.h"

namespace verbena::describe {

struct Subject {
  SendOpcode opcode = SendOpcode::Send;
  bool is_receive = false;
  std::uint64_t bytes = 0;
  std::uint64_t remote_address = 0;
  RKey rkey{};
};

// "READ of 65536 bytes from 127.0.0.2:7471", "RECEIVE into 64 bytes from 127.0.0.1:50112".
std::string subject(const Subject& what, const std::string& peer);
// "the peer stopped answering (retry count exceeded: 8 periods of 67 ms without progress)".
// Of a peer that shared memory: "the peer stopped answering (its process ended, or gave the connection up)".
std::string outcome(const Completion& completion, const Subject& what, const ReliabilityOptions& reliability);
std::string refusal(PostStatus status);
std::string duration(Duration d);
// "0x00a1b2".
std::string qpn(Qpn number);

}  // namespace verbena::describe
