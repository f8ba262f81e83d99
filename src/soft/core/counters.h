// SPDX-License-Identifier: Apache-2.0
// What every transport counts, over all queue pairs of a device.
#pragma once

#include <cstdint>

#include "verbena/base/verbs.h"

namespace verbena::core {

struct Counters {
  std::uint64_t rcvd_rnr_err = 0;  // told by the peer that it had no receive
  std::uint64_t send_rnr_err = 0;  // told the peer so
  std::uint64_t ack_deferred = 0;  // acknowledgements that were owed and then coalesced
  std::uint64_t local_ack_timeout_err = 0;
  std::uint64_t retry_exceeded_err = 0;
  std::uint64_t retry_rnr_exceeded_err = 0;
  std::uint64_t access_violations = 0;
  std::uint64_t invalid_requests = 0;
  std::uint64_t memory_faults = 0;  // registered memory that was not mapped when a request came to it
  // Between processes of one host: WRITEs and READs of ours in memory that the peer granted, which it does
  // not count; regions of ours that a peer may have been copying to when they were taken back.
  std::uint64_t direct_requests = 0;
  std::uint64_t direct_bytes = 0;
  std::uint64_t regions_renewed = 0;
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

  // A request of ours that ended well.
  void count_sent(SendOpcode opcode, std::uint32_t bytes) {
    switch (opcode) {
      case SendOpcode::Send:
      case SendOpcode::SendWithImmediate:
        ++rdma_sends;
        break;
      case SendOpcode::RdmaWrite:
      case SendOpcode::RdmaWriteWithImmediate:
        ++rdma_writes, rdma_write_bytes += bytes;
        break;
      case SendOpcode::RdmaRead:
        ++rdma_reads, rdma_read_bytes += bytes;
        break;
      case SendOpcode::CompareAndSwap:
      case SendOpcode::FetchAndAdd:
        ++atomics;
        break;
    }
  }
};

}  // namespace verbena::core
