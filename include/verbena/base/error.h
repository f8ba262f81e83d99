// SPDX-License-Identifier: Apache-2.0
// Errors are values: what went wrong, the native number behind it, and a sentence with operation and peer.
#pragma once

#include <string>
#include <string_view>

namespace verbena {

// Every error a user can meet. doc/errors.md says of each what happened, likely causes and what to check.
enum class ErrorCode {
  InvalidArgument = 1,   // an argument is outside what the call accepts
  NotFound,              // no such device, object, file or key
  AlreadyExists,         // the name or object is already there
  AddressInUse,          // the address or port belongs to somebody else
  AddressNotAvailable,   // the address is not one of this machine's
  PermissionDenied,      // the system or the peer does not allow it
  ResourceExhausted,     // a quota, a table or memory is full
  QueueFull,             // the work queue has no room; poll completions first
  WrongState,            // the object is not in a state that allows this
  Busy,                  // somebody else has this one
  NotSupported,          // this device cannot do that
  Unreachable,           // no answer from the peer's address
  ConnectionRefused,     // the peer answers, and nobody listens for this service
  Rejected,              // the peer's application said no
  ConnectionLost,        // an established connection ended without being asked to
  Disconnected,          // the peer closed the connection
  RetryExceeded,         // the peer stopped answering
  RnrRetryExceeded,      // the peer never posted a receive
  RemoteAccessError,     // the peer refuses the key, range or permission
  RemoteInvalidRequest,  // the peer says the request is malformed or not allowed there
  RemoteOperationError,  // the peer failed on its own side
  LocalProtectionError,  // local key, range or permission is wrong
  LocalLengthError,      // the message is longer than the buffer meant for it
  Flushed,               // the queue pair left service before this request ran
  BadResponse,           // the peer answered what no peer should
  Cancelled,             // cancelled by its owner
  DeadlineExceeded,      // the deadline passed first
  TimedOut,              // a wait ended without result
  ProtocolError,         // bytes from the peer that break the protocol
  IoError,               // a file, socket or system call failed
  CorruptData,           // data arrived that fails its check
  Internal,              // a broken promise inside Verbena: please report
};

// Whose number Error::native is.
enum class ErrorDomain { None, Errno, WorkCompletion, CmReject };

std::string_view to_string(ErrorCode code);

// One error. Cheap to move; copied only on slow paths.
class Error {
 public:
  Error(ErrorCode code, std::string context, int native = 0, ErrorDomain domain = ErrorDomain::None)
      : code_(code), domain_(domain), native_(native), context_(std::move(context)) {}

  // From errno; picks the code that fits, e.g. EADDRINUSE -> AddressInUse.
  static Error from_errno(int number, std::string context);

  ErrorCode code() const { return code_; }
  ErrorDomain domain() const { return domain_; }
  // Number in domain(): an errno, an ibv_wc_status, a CM reject reason. 0 with ErrorDomain::None.
  int native() const { return native_; }
  // Operation and peer, in words.
  const std::string& context() const { return context_; }
  // "AddressInUse: bind 127.0.0.1:4791 (errno 98: Address already in use)"
  std::string to_string() const;

 private:
  ErrorCode code_;
  ErrorDomain domain_;
  int native_;
  std::string context_;
};

}  // namespace verbena
