// SPDX-License-Identifier: Apache-2.0
#include "soft/counters.h"

namespace verbena::soft {

namespace {

struct Field {
  std::string_view name;
  std::uint64_t Counters::*member;
};

constexpr Field kFields[] = {
    {"sent_pkts", &Counters::sent_pkts},
    {"rcvd_pkts", &Counters::rcvd_pkts},
    {"sent_bytes", &Counters::sent_bytes},
    {"rcvd_bytes", &Counters::rcvd_bytes},
    {"sent_cm_pkts", &Counters::sent_cm_pkts},
    {"rcvd_cm_pkts", &Counters::rcvd_cm_pkts},
    {"duplicate_request", &Counters::duplicate_request},
    {"out_of_seq_request", &Counters::out_of_seq_request},
    {"rcvd_rnr_err", &Counters::rcvd_rnr_err},
    {"send_rnr_err", &Counters::send_rnr_err},
    {"rcvd_seq_err", &Counters::rcvd_seq_err},
    {"send_seq_err", &Counters::send_seq_err},
    {"implied_nak_seq_err", &Counters::implied_nak_seq_err},
    {"ack_deferred", &Counters::ack_deferred},
    {"local_ack_timeout_err", &Counters::local_ack_timeout_err},
    {"adaptive_retransmissions", &Counters::adaptive_retransmissions},
    {"retry_exceeded_err", &Counters::retry_exceeded_err},
    {"retry_rnr_exceeded_err", &Counters::retry_rnr_exceeded_err},
    {"retransmitted_pkts", &Counters::retransmitted_pkts},
    {"ghost_acks", &Counters::ghost_acks},
    {"access_violations", &Counters::access_violations},
    {"invalid_requests", &Counters::invalid_requests},
    {"memory_faults", &Counters::memory_faults},
    {"direct_requests", &Counters::direct_requests},
    {"direct_bytes", &Counters::direct_bytes},
    {"regions_renewed", &Counters::regions_renewed},
    {"responses_dropped", &Counters::responses_dropped},
    {"atomic_replays", &Counters::atomic_replays},
    {"icrc_solved", &Counters::icrc_solved},
    {"rdma_sends", &Counters::rdma_sends},
    {"rdma_recvs", &Counters::rdma_recvs},
    {"rdma_writes", &Counters::rdma_writes},
    {"rdma_write_bytes", &Counters::rdma_write_bytes},
    {"rdma_reads", &Counters::rdma_reads},
    {"rdma_read_bytes", &Counters::rdma_read_bytes},
    {"atomics", &Counters::atomics},
    {"served_writes", &Counters::served_writes},
    {"served_write_bytes", &Counters::served_write_bytes},
    {"served_reads", &Counters::served_reads},
    {"served_read_bytes", &Counters::served_read_bytes},
    {"served_atomics", &Counters::served_atomics},
};

}  // namespace

std::vector<Counters::Named> Counters::list() const {
  std::vector<Named> all;
  for (const Field& field : kFields) all.push_back({field.name, this->*field.member});
  for (std::size_t i = 1; i < dropped.size(); ++i)
    all.push_back({wire::to_string(static_cast<wire::DropReason>(i)), dropped[i]});
  return all;
}

}  // namespace verbena::soft
