// SPDX-License-Identifier: Apache-2.0
#include "soft/core/attribute_rules.h"

#include <array>

namespace verbena::core {

namespace {

using M = AttributeMask;
using S = QueuePairState;

struct Step {
  S from, to;
  M required, optional;
};

constexpr M kAlways = M::State | M::CurrentState;

// Reliable connected. Steps to RESET and ERR are allowed from anywhere and bring nothing.
constexpr std::array kRcSteps{
    Step{S::Reset, S::Init, M::PkeyIndex | M::Port | M::Access, M::None},
    Step{S::Init, S::Init, M::None, M::PkeyIndex | M::Port | M::Access},
    Step{S::Init, S::Rtr,
         M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic | M::MinRnrTimer,
         M::PkeyIndex | M::Access},
    Step{S::Rtr, S::Rts, M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout,
         M::Access | M::MinRnrTimer},
    Step{S::Rts, S::Rts, M::None, M::Access | M::MinRnrTimer},
    Step{S::Rts, S::Sqd, M::None, M::SqDrainedEvent},
    Step{S::Sqd, S::Rts, M::None, M::Access | M::MinRnrTimer},
    Step{S::Sqd, S::Sqd, M::None,
         M::PkeyIndex | M::Port | M::Access | M::Address | M::MaxRdAtomic | M::MaxDestRdAtomic |
             M::MinRnrTimer | M::RetryCount | M::RnrRetry | M::Timeout},
};

std::string name_of(M bit) {
  switch (bit) {
    case M::State:
      return "STATE";
    case M::CurrentState:
      return "CUR_STATE";
    case M::SqDrainedEvent:
      return "EN_SQD_ASYNC_NOTIFY";
    case M::Access:
      return "ACCESS_FLAGS";
    case M::PkeyIndex:
      return "PKEY_INDEX";
    case M::Port:
      return "PORT";
    case M::Qkey:
      return "QKEY";
    case M::Address:
      return "AV";
    case M::PathMtu:
      return "PATH_MTU";
    case M::Timeout:
      return "TIMEOUT";
    case M::RetryCount:
      return "RETRY_CNT";
    case M::RnrRetry:
      return "RNR_RETRY";
    case M::RqPsn:
      return "RQ_PSN";
    case M::MaxRdAtomic:
      return "MAX_QP_RD_ATOMIC";
    case M::AlternatePath:
      return "ALT_PATH";
    case M::MinRnrTimer:
      return "MIN_RNR_TIMER";
    case M::SqPsn:
      return "SQ_PSN";
    case M::MaxDestRdAtomic:
      return "MAX_DEST_RD_ATOMIC";
    case M::PathMigration:
      return "PATH_MIG_STATE";
    case M::Capabilities:
      return "CAP";
    case M::DestinationQpn:
      return "DEST_QPN";
    case M::None:
      break;
  }
  return "bit " + std::to_string(static_cast<std::uint32_t>(bit));
}

std::string names_of(M mask) {
  std::string text;
  for (std::uint32_t bit = 1; bit != 0; bit <<= 1)
    if (any(mask & static_cast<M>(bit))) text += (text.empty() ? "" : ", ") + name_of(static_cast<M>(bit));
  return text;
}

Error invalid(S from, S to, const std::string& what) {
  return {ErrorCode::InvalidArgument, "modify queue pair " + std::string(to_string(from)) + " to " +
                                          std::string(to_string(to)) + ": " + what};
}

bool is_path_mtu(std::uint32_t bytes) {
  return bytes == 256 || bytes == 512 || bytes == 1024 || bytes == 2048 || bytes == 4096;
}

// First value out of range among those present, or an empty string.
std::string bad_value(M mask, const QueuePairAttributes& v, const AttributeLimits& limits) {
  const auto has = [mask](M bit) { return any(mask & bit); };
  if (has(M::PathMtu) && (!is_path_mtu(v.path_mtu) || v.path_mtu > limits.path_mtu))
    return "PATH_MTU " + std::to_string(v.path_mtu) +
           " is not 256, 512, 1024, 2048 or 4096 up to this device's " + std::to_string(limits.path_mtu);
  if (has(M::MaxRdAtomic) && v.max_rd_atomic > limits.max_rd_atomic)
    return "MAX_QP_RD_ATOMIC " + std::to_string(v.max_rd_atomic) + " is above this device's " +
           std::to_string(limits.max_rd_atomic);
  if (has(M::MaxDestRdAtomic) && v.max_dest_rd_atomic > limits.max_dest_rd_atomic)
    return "MAX_DEST_RD_ATOMIC " + std::to_string(v.max_dest_rd_atomic) + " is above this device's " +
           std::to_string(limits.max_dest_rd_atomic);
  if (has(M::MinRnrTimer) && v.min_rnr_timer > 31) return "MIN_RNR_TIMER is above 31";
  if (has(M::Timeout) && v.timeout > 31) return "TIMEOUT is above 31";
  if (has(M::RetryCount) && v.retry_count > 7) return "RETRY_CNT is above 7";
  if (has(M::RnrRetry) && v.rnr_retry > 7) return "RNR_RETRY is above 7";
  if (has(M::Port) && v.port != 1) return "PORT is not 1, the only one";
  if (has(M::PkeyIndex) && v.pkey_index != 0) return "PKEY_INDEX is not 0, the only one";
  if (has(M::Address) && v.address.destination.is_zero()) return "AV has no destination GID";
  if (has(M::Access) && !includes(Access::All, v.access)) return "ACCESS_FLAGS has unknown bits";
  return {};
}

}  // namespace

Result<void> check_transition(QueuePairType type, S from, S to, M mask, const QueuePairAttributes& values,
                              const AttributeLimits& limits) {
  if (type != QueuePairType::ReliableConnected)
    return Error{ErrorCode::NotSupported,
                 "modify queue pair: only reliable connected queue pairs exist here"};
  if (any(mask & M::CurrentState) && values.current_state != from)
    return invalid(from, to, "CUR_STATE says " + std::string(to_string(values.current_state)));
  const M brought = mask & ~kAlways;
  if (to == S::Reset || to == S::Error) {
    if (any(brought)) return invalid(from, to, "takes no attributes, got " + names_of(brought));
    return {};
  }
  for (const Step& step : kRcSteps) {
    if (step.from != from || step.to != to) continue;
    if (const M missing = step.required & ~brought; any(missing))
      return invalid(from, to, "missing " + names_of(missing));
    if (const M extra = brought & ~(step.required | step.optional); any(extra))
      return invalid(from, to, "not allowed in this step: " + names_of(extra));
    if (const std::string bad = bad_value(mask, values, limits); !bad.empty()) return invalid(from, to, bad);
    return {};
  }
  return invalid(from, to, "there is no such step");
}

}  // namespace verbena::core
