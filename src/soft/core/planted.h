// SPDX-License-Identifier: Apache-2.0
// Bugs that the simulator must find. In production planted() is constant false and the branch is gone; the
// test-only copy of the device is compiled with VERBENA_PLANTED_BUGS and obeys active_planted_bug.
#pragma once

#include <cstdint>

namespace verbena::core {

enum class PlantedBug : std::uint8_t {
  None,
  SkipReplayCheck,                   // execute a duplicate SEND or WRITE again
  AckBeforeStore,                    // acknowledge a WRITE and lose its last packet's data
  ForgetTailAfterRnr,                // after an RNR wait resend only the refused packet
  ReexecuteDuplicateAtomic,          // apply a duplicate atomic again
  AcceptGap,                         // take a packet from the future as the expected one
  NeverSendSequenceNak,              // and swallow the gap as if it had arrived
  CompleteReadOnAck,                 // let an ACK complete an outstanding READ
  IgnoreImpliedNak,                  // skip lost READ responses
  PsnWrapOffByOne,                   // lose one sequence number at the wrap
  MsnCountsPackets,                  // count packets, not messages
  RetransmitFromWrongPsn,            // go back one packet too few
  LoseUnsignaledError,               // an error of an unsignaled request makes no completion
  FlushInReverse,                    // flush completions out of order
  SkipFlush,                         // forget the receive queue when flushing
  CompleteTwice,                     // a retransmitted last packet completes its receive again
  RangeCheckOffByOne,                // let one byte beyond the region through
  StaleKeyAccepted,                  // a deregistered key keeps working
  WriteWithImmediateDropsImmediate,  // deliver zero instead of the immediate
  GhostAckAccepted,                  // an ACK for what was never sent completes it
  RnrConsumesReceive,                // an RNR NAK eats the receive that arrives meanwhile
  Count
};

#ifdef VERBENA_PLANTED_BUGS
inline PlantedBug active_planted_bug = PlantedBug::None;
inline bool planted(PlantedBug bug) { return active_planted_bug == bug; }
#else
constexpr bool planted(PlantedBug) { return false; }
#endif

}  // namespace verbena::core
