// SPDX-License-Identifier: Apache-2.0
#include "verbena/base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "verbena/base/result.h"

namespace verbena {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
      return "InvalidArgument";
    case ErrorCode::NotFound:
      return "NotFound";
    case ErrorCode::AlreadyExists:
      return "AlreadyExists";
    case ErrorCode::AddressInUse:
      return "AddressInUse";
    case ErrorCode::AddressNotAvailable:
      return "AddressNotAvailable";
    case ErrorCode::PermissionDenied:
      return "PermissionDenied";
    case ErrorCode::ResourceExhausted:
      return "ResourceExhausted";
    case ErrorCode::QueueFull:
      return "QueueFull";
    case ErrorCode::WrongState:
      return "WrongState";
    case ErrorCode::Busy:
      return "Busy";
    case ErrorCode::NotSupported:
      return "NotSupported";
    case ErrorCode::Unreachable:
      return "Unreachable";
    case ErrorCode::ConnectionRefused:
      return "ConnectionRefused";
    case ErrorCode::Rejected:
      return "Rejected";
    case ErrorCode::ConnectionLost:
      return "ConnectionLost";
    case ErrorCode::Disconnected:
      return "Disconnected";
    case ErrorCode::RetryExceeded:
      return "RetryExceeded";
    case ErrorCode::RnrRetryExceeded:
      return "RnrRetryExceeded";
    case ErrorCode::RemoteAccessError:
      return "RemoteAccessError";
    case ErrorCode::RemoteInvalidRequest:
      return "RemoteInvalidRequest";
    case ErrorCode::RemoteOperationError:
      return "RemoteOperationError";
    case ErrorCode::LocalProtectionError:
      return "LocalProtectionError";
    case ErrorCode::LocalLengthError:
      return "LocalLengthError";
    case ErrorCode::Flushed:
      return "Flushed";
    case ErrorCode::BadResponse:
      return "BadResponse";
    case ErrorCode::Cancelled:
      return "Cancelled";
    case ErrorCode::DeadlineExceeded:
      return "DeadlineExceeded";
    case ErrorCode::TimedOut:
      return "TimedOut";
    case ErrorCode::ProtocolError:
      return "ProtocolError";
    case ErrorCode::IoError:
      return "IoError";
    case ErrorCode::CorruptData:
      return "CorruptData";
    case ErrorCode::Internal:
      return "Internal";
  }
  return "Unknown";
}

namespace {

ErrorCode code_of_errno(int number) {
  switch (number) {
    case EINVAL:
      return ErrorCode::InvalidArgument;
    case ENOENT:
    case ENOTDIR:
    case ENODEV:
      return ErrorCode::NotFound;
    case EEXIST:
      return ErrorCode::AlreadyExists;
    case EADDRINUSE:
      return ErrorCode::AddressInUse;
    case EADDRNOTAVAIL:
      return ErrorCode::AddressNotAvailable;
    case EPERM:
    case EACCES:
      return ErrorCode::PermissionDenied;
    case ENOMEM:
    case ENOSPC:
    case EMFILE:
    case ENFILE:
    case EDQUOT:
      return ErrorCode::ResourceExhausted;
    case EBUSY:
      return ErrorCode::Busy;
    case EOPNOTSUPP:
    case ENOSYS:
      return ErrorCode::NotSupported;
    case ENETUNREACH:
    case EHOSTUNREACH:
      return ErrorCode::Unreachable;
    case ECONNREFUSED:
      return ErrorCode::ConnectionRefused;
    case ETIMEDOUT:
      return ErrorCode::TimedOut;
    default:
      return ErrorCode::IoError;
  }
}

}  // namespace

Error Error::from_errno(int number, std::string context) {
  return {code_of_errno(number), std::move(context), number, ErrorDomain::Errno};
}

std::string Error::to_string() const {
  std::string text{verbena::to_string(code_)};
  if (!context_.empty()) text += ": " + context_;
  switch (domain_) {
    case ErrorDomain::None:
      break;
    case ErrorDomain::Errno:
      text += " (errno " + std::to_string(native_) + ": " + std::strerror(native_) + ")";
      break;
    case ErrorDomain::WorkCompletion:
      text += " (wc status " + std::to_string(native_) + ")";
      break;
    case ErrorDomain::CmReject:
      text += " (reject reason " + std::to_string(native_) + ")";
      break;
  }
  return text;
}

void abort_on_bad_result_access(const Error* error) {
  if (error != nullptr)
    std::fprintf(stderr, "verbena: value of a failed Result taken: %s\n", error->to_string().c_str());
  else
    std::fprintf(stderr, "verbena: error of a successful Result taken\n");
  std::abort();
}

}  // namespace verbena
