// SPDX-License-Identifier: Apache-2.0
#include "verbena/base/verbs.h"

#include <cerrno>

namespace verbena {

std::string_view to_string(PostStatus status) {
  switch (status) {
    case PostStatus::Ok:
      return "ok";
    case PostStatus::QueueFull:
      return "queue full";
    case PostStatus::WrongState:
      return "queue pair in wrong state";
    case PostStatus::TooManySegments:
      return "too many scatter/gather elements";
    case PostStatus::InlineTooLong:
      return "inline data too long";
    case PostStatus::InvalidRequest:
      return "invalid request";
    case PostStatus::SharedReceives:
      return "queue pair takes its receives from a shared receive queue";
  }
  return "unknown";
}

int to_errno(PostStatus status) {
  if (status == PostStatus::Ok) return 0;
  return status == PostStatus::QueueFull ? ENOMEM : EINVAL;
}

std::string_view to_string(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::Success:
      return "success";
    case CompletionStatus::LocalLengthError:
      return "local length error";
    case CompletionStatus::LocalQpOperationError:
      return "local QP operation error";
    case CompletionStatus::LocalProtectionError:
      return "local protection error";
    case CompletionStatus::Flushed:
      return "work request flushed";
    case CompletionStatus::BadResponse:
      return "bad response";
    case CompletionStatus::LocalAccessError:
      return "local access error";
    case CompletionStatus::RemoteInvalidRequest:
      return "remote invalid request";
    case CompletionStatus::RemoteAccessError:
      return "remote access error";
    case CompletionStatus::RemoteOperationError:
      return "remote operation error";
    case CompletionStatus::RetryExceeded:
      return "transport retry counter exceeded";
    case CompletionStatus::RnrRetryExceeded:
      return "RNR retry counter exceeded";
    case CompletionStatus::FatalError:
      return "fatal error";
    case CompletionStatus::GeneralError:
      return "general error";
  }
  return "unknown";
}

ErrorCode to_error_code(CompletionStatus status) {
  switch (status) {
    case CompletionStatus::LocalLengthError:
      return ErrorCode::LocalLengthError;
    case CompletionStatus::LocalProtectionError:
    case CompletionStatus::LocalAccessError:
      return ErrorCode::LocalProtectionError;
    case CompletionStatus::Flushed:
      return ErrorCode::Flushed;
    case CompletionStatus::BadResponse:
      return ErrorCode::BadResponse;
    case CompletionStatus::RemoteInvalidRequest:
      return ErrorCode::RemoteInvalidRequest;
    case CompletionStatus::RemoteAccessError:
      return ErrorCode::RemoteAccessError;
    case CompletionStatus::RemoteOperationError:
      return ErrorCode::RemoteOperationError;
    case CompletionStatus::RetryExceeded:
      return ErrorCode::RetryExceeded;
    case CompletionStatus::RnrRetryExceeded:
      return ErrorCode::RnrRetryExceeded;
    case CompletionStatus::LocalQpOperationError:
      return ErrorCode::InvalidArgument;
    case CompletionStatus::Success:
    case CompletionStatus::FatalError:
    case CompletionStatus::GeneralError:
      break;
  }
  return ErrorCode::Internal;
}

std::string_view to_string(CompletionOpcode opcode) {
  switch (opcode) {
    case CompletionOpcode::Send:
      return "SEND";
    case CompletionOpcode::RdmaWrite:
      return "WRITE";
    case CompletionOpcode::RdmaRead:
      return "READ";
    case CompletionOpcode::CompareAndSwap:
      return "COMPARE_AND_SWAP";
    case CompletionOpcode::FetchAndAdd:
      return "FETCH_AND_ADD";
    case CompletionOpcode::Receive:
      return "RECEIVE";
    case CompletionOpcode::ReceiveRdmaWithImmediate:
      return "RECEIVE_RDMA_WITH_IMMEDIATE";
  }
  return "unknown";
}

std::string_view to_string(QueuePairState state) {
  switch (state) {
    case QueuePairState::Reset:
      return "RESET";
    case QueuePairState::Init:
      return "INIT";
    case QueuePairState::Rtr:
      return "RTR";
    case QueuePairState::Rts:
      return "RTS";
    case QueuePairState::Sqd:
      return "SQD";
    case QueuePairState::Sqe:
      return "SQE";
    case QueuePairState::Error:
      return "ERR";
  }
  return "unknown";
}

std::string_view to_string(AsyncEventType type) {
  switch (type) {
    case AsyncEventType::CqError:
      return "CQ_ERR";
    case AsyncEventType::QpFatal:
      return "QP_FATAL";
    case AsyncEventType::QpRequestError:
      return "QP_REQ_ERR";
    case AsyncEventType::QpAccessError:
      return "QP_ACCESS_ERR";
    case AsyncEventType::CommEstablished:
      return "COMM_EST";
    case AsyncEventType::SqDrained:
      return "SQ_DRAINED";
    case AsyncEventType::DeviceFatal:
      return "DEVICE_FATAL";
    case AsyncEventType::PortActive:
      return "PORT_ACTIVE";
    case AsyncEventType::PortError:
      return "PORT_ERR";
    case AsyncEventType::SrqLimitReached:
      return "SRQ_LIMIT_REACHED";
    case AsyncEventType::LastWqeReached:
      return "QP_LAST_WQE_REACHED";
    case AsyncEventType::PeerEnded:
      return "PEER_ENDED";
    case AsyncEventType::PathRefused:
      return "PATH_REFUSED";
  }
  return "unknown";
}

}  // namespace verbena
