// SPDX-License-Identifier: Apache-2.0
#include "device/queue_pair_steps.h"

namespace verbena::queue_pair_steps {

using Mask = AttributeMask;

Result<void> to_init(provider::Context& context, Qpn qpn, QueuePairType type, Access access) {
  QueuePairAttributes a;
  a.state = QueuePairState::Init;
  a.access = access;
  const Mask own = type == QueuePairType::UnreliableDatagram ? Mask::Qkey : Mask::Access;
  return context.modify_qp(qpn, a, Mask::State | Mask::PkeyIndex | Mask::Port | own);
}

Result<void> to_rtr(provider::Context& context, Qpn qpn, QueuePairType type, const Remote& remote,
                    const ReliabilityOptions& options) {
  QueuePairAttributes a;
  a.state = QueuePairState::Rtr;
  if (type == QueuePairType::UnreliableDatagram) return context.modify_qp(qpn, a, Mask::State);
  a.address.destination = remote.gid;
  a.address.traffic_class = remote.traffic_class;
  a.address.flow_label = remote.flow_label;
  a.path_mtu = remote.path_mtu;
  a.destination = remote.qpn;
  a.rq_psn = remote.psn;
  a.max_dest_rd_atomic = options.max_dest_rd_atomic;
  a.min_rnr_timer = options.min_rnr_timer;
  Mask mask = Mask::State | Mask::Address | Mask::PathMtu | Mask::DestinationQpn | Mask::RqPsn;
  if (type == QueuePairType::ReliableConnected) mask = mask | Mask::MaxDestRdAtomic | Mask::MinRnrTimer;
  return context.modify_qp(qpn, a, mask);
}

Result<void> to_rts(provider::Context& context, Qpn qpn, QueuePairType type, Psn first,
                    const ReliabilityOptions& options) {
  QueuePairAttributes a;
  a.state = QueuePairState::Rts;
  a.sq_psn = first;
  a.timeout = options.timeout;
  a.retry_count = options.retry_count;
  a.rnr_retry = options.rnr_retry;
  a.max_rd_atomic = options.max_rd_atomic;
  Mask mask = Mask::State | Mask::SqPsn;
  if (type == QueuePairType::ReliableConnected)
    mask = mask | Mask::Timeout | Mask::RetryCount | Mask::RnrRetry | Mask::MaxRdAtomic;
  return context.modify_qp(qpn, a, mask);
}

Result<void> to_error(provider::Context& context, Qpn qpn) {
  QueuePairAttributes a;
  a.state = QueuePairState::Error;
  return context.modify_qp(qpn, a, Mask::State);
}

}  // namespace verbena::queue_pair_steps
