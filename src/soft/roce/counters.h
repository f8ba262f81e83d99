// SPDX-License-Identifier: Apache-2.0
// What the packet transport counted, over all queue pairs of a device.
#pragma once

#include <cstdint>

namespace verbena::roce {

struct Counters {
  std::uint64_t sent_pkts = 0;
  std::uint64_t sent_bytes = 0;  // of UDP payload
  std::uint64_t duplicate_request = 0;
  std::uint64_t out_of_seq_request = 0;
  std::uint64_t rcvd_rnr_err = 0;  // RNR NAKs received
  std::uint64_t send_rnr_err = 0;  // RNR NAKs sent
  std::uint64_t rcvd_seq_err = 0;  // sequence NAKs received
  std::uint64_t send_seq_err = 0;  // sequence NAKs sent
  std::uint64_t implied_nak_seq_err = 0;
  std::uint64_t ack_deferred = 0;  // acknowledgements that were owed and then coalesced
  std::uint64_t local_ack_timeout_err = 0;
  std::uint64_t adaptive_retransmissions = 0;
  std::uint64_t retry_exceeded_err = 0;
  std::uint64_t retry_rnr_exceeded_err = 0;
  std::uint64_t retransmitted_pkts = 0;
  std::uint64_t ghost_acks = 0;
  std::uint64_t access_violations = 0;
  std::uint64_t invalid_requests = 0;
  std::uint64_t memory_faults = 0;  // registered memory that was not mapped when a request came to it
  std::uint64_t responses_dropped = 0;
  std::uint64_t atomic_replays = 0;
  // Messages executed, by operation, and their payload.
  std::uint64_t rdma_sends = 0;   // SENDs sent and acknowledged
  std::uint64_t rdma_recvs = 0;   // SENDs received
  std::uint64_t rdma_writes = 0;  // WRITEs sent and acknowledged
  std::uint64_t rdma_write_bytes = 0;
  std::uint64_t rdma_reads = 0;  // READs requested and answered
  std::uint64_t rdma_read_bytes = 0;
  std::uint64_t atomics = 0;        // atomics requested and answered
  std::uint64_t served_writes = 0;  // WRITEs of peers executed here
  std::uint64_t served_write_bytes = 0;
  std::uint64_t served_reads = 0;
  std::uint64_t served_read_bytes = 0;
  std::uint64_t served_atomics = 0;
};

}  // namespace verbena::roce
