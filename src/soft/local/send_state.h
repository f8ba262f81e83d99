// SPDX-License-Identifier: Apache-2.0
// The sending half of a queue pair: where in the send queue we are. A request's number is its place there, counted from
// the first since RTS. What is acknowledged is retired; the requester moves `current` forward; going back after
// NotReady sets it to the request that was refused.
//
//     retired            current                 posted         requests in the send queue
//        |--- written -----|------ not yet --------|
#pragma once

#include <cstdint>

#include "soft/core/retries.h"

namespace verbena::local {

struct SendState {
  std::uint32_t first = 0;       // place of the request with number 0
  std::uint32_t current = 0;     // the next to write
  bool began = false;            // a part of it is written
  bool pulled = false;           // the peer fetches its payload: records name it
  bool direct = false;           // a part of it is copied: no record tells of it
  bool waits = false;            // it goes directly once nothing is before it (O-1)
  std::uint32_t detours = 0;     // requests since then that could have
  std::uint32_t written = 0;     // bytes of its payload
  std::uint32_t reads_out = 0;   // READ and atomic requests written and not answered
  std::uint32_t read_bytes = 0;  // of the oldest READ, stored

  bool failed = false;  // the request at failed_index cannot be sent; it fails when it is the oldest
  std::uint32_t failed_index = 0;
  CompletionStatus failed_status = CompletionStatus::Success;

  core::Retries retries;
  bool rnr_waiting = false;
  Instant rnr_until = Instant::never();
  Instant period_end = Instant::never();  // 4.096 us * 2^timeout without progress
  std::uint64_t consumed = 0;             // how far the peer had read when the period began

  // From now on the peer's silence counts. `code`: as in the attributes; 0: it never does.
  void begin_period(Instant now, std::uint8_t code, std::uint64_t consumed_now) {
    period_end = code == 0 ? Instant::never() : now + core::ack_timeout(code);
    consumed = consumed_now;
  }
};

}  // namespace verbena::local
