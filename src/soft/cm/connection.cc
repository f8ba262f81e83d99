// SPDX-License-Identifier: Apache-2.0
#include "soft/cm/connection.h"

namespace verbena::cm {

std::string_view to_string(State state) {
  switch (state) {
    case State::Idle:
      return "Idle";
    case State::ReqSent:
      return "ReqSent";
    case State::MraReqReceived:
      return "MraReqReceived";
    case State::RepReceived:
      return "RepReceived";
    case State::ReqReceived:
      return "ReqReceived";
    case State::MraReqSent:
      return "MraReqSent";
    case State::RepSent:
      return "RepSent";
    case State::MraRepReceived:
      return "MraRepReceived";
    case State::Established:
      return "Established";
    case State::DreqSent:
      return "DreqSent";
    case State::TimeWait:
      return "TimeWait";
    case State::RejectSent:
      return "RejectSent";
  }
  return "unknown";
}

std::string_view to_string(EventType type) {
  switch (type) {
    case EventType::ConnectRequest:
      return "ConnectRequest";
    case EventType::ConnectResponse:
      return "ConnectResponse";
    case EventType::Established:
      return "Established";
    case EventType::Rejected:
      return "Rejected";
    case EventType::Unreachable:
      return "Unreachable";
    case EventType::ConnectError:
      return "ConnectError";
    case EventType::Disconnected:
      return "Disconnected";
    case EventType::TimewaitExit:
      return "TimewaitExit";
  }
  return "unknown";
}

}  // namespace verbena::cm
