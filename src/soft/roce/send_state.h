// SPDX-License-Identifier: Apache-2.0
// The sending half of a queue pair: where in the send queue and in PSN space we are.
// The requester moves `next` forward, the completer moves `unacked` forward, going back sets next to unacked.
//
//     retired            current                 posted         requests in the send queue
//        |---- sent -------|------ not yet --------|
//     unacked             next           highest                sequence numbers
#pragma once

#include <cstdint>

#include "soft/core/retries.h"
#include "soft/roce/send_window.h"
#include "verbena/base/verbs.h"

namespace verbena::roce {

struct SendState {
  Psn unacked;                       // oldest not acknowledged
  Psn next;                          // of the next packet
  Psn highest;                       // one past the last PSN ever sent
  std::uint32_t current = 0;         // send queue index that `next` belongs to
  std::uint32_t current_packet = 0;  // packet of that request
  std::uint32_t bytes_begun = 0;     // of all requests begun, modulo 2^32
  std::uint32_t trains_begun = 0;    // modulo 2^32
  std::uint32_t reads_out = 0;       // READ and atomic requests between unacked and next
  std::uint32_t since_ack_request = 0;
  Psn resumed_at;             // where sending last started again
  bool nak_answered = false;  // went back for a NAK, said or implied, since the last progress or expiry
  SendWindow window;

  bool failed = false;  // the request at failed_index cannot be sent; it fails when it is the oldest
  std::uint32_t failed_index = 0;
  CompletionStatus failed_status = CompletionStatus::Success;

  core::Retries retries;
  bool rnr_waiting = false;
  bool rnr_only_one = false;  // planted bug ForgetTailAfterRnr
  Instant rnr_until = Instant::never();
  Instant retransmit_at = Instant::never();  // adaptive, inside a period
  Instant period_end = Instant::never();     // 4.096 us * 2^timeout without progress

  std::uint32_t in_flight() const { return (next.value() - unacked.value()) & Psn::kMask; }
  bool anything_sent() const { return highest != unacked; }
};

}  // namespace verbena::roce
