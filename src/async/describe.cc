// SPDX-License-Identifier: Apache-2.0
#include "async/describe.h"

#include <array>
#include <cstdio>

namespace verbena::describe {

namespace {

std::string hex(std::uint64_t value) {
  std::array<char, 24> text;
  std::snprintf(text.data(), text.size(), "0x%llx", static_cast<unsigned long long>(value));
  return text.data();
}

const char* name_of(const Subject& what) {
  if (what.is_receive) return "RECEIVE";
  switch (what.opcode) {
    case SendOpcode::RdmaWrite:
      return "WRITE";
    case SendOpcode::RdmaWriteWithImmediate:
      return "WRITE with immediate";
    case SendOpcode::Send:
      return "SEND";
    case SendOpcode::SendWithImmediate:
      return "SEND with immediate";
    case SendOpcode::RdmaRead:
      return "READ";
    case SendOpcode::CompareAndSwap:
      return "COMPARE_AND_SWAP";
    case SendOpcode::FetchAndAdd:
      return "FETCH_AND_ADD";
  }
  return "operation";
}

std::string remote_range(const Subject& what) {
  return "[" + hex(what.remote_address) + ", +" + std::to_string(what.bytes) + ") with rkey " +
         hex(what.rkey.value());
}

std::string bytes_text(std::uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::string retry_text(const ReliabilityOptions& reliability) {
  if (reliability.timeout == 0) return "retry count exceeded";
  const Duration period = Duration::nanoseconds(std::int64_t{4096} << reliability.timeout);
  return "retry count exceeded: " + std::to_string(reliability.retry_count + 1) + " periods of " +
         duration(period) + " without progress";
}

}  // namespace

std::string qpn(Qpn number) {
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "0x%06x", number.value());
  return text.data();
}

std::string duration(Duration d) {
  if (d.ns >= 10'000'000'000) return std::to_string(d.ns / 1'000'000'000) + " s";
  if (d.ns >= 1'000'000) return std::to_string(d.ns / 1'000'000) + " ms";
  return std::to_string(d.ns / 1'000) + " us";
}

std::string subject(const Subject& what, const std::string& peer) {
  const std::string name = name_of(what);
  if (what.is_receive) return name + " into " + bytes_text(what.bytes) + " from " + peer;
  if (what.opcode == SendOpcode::RdmaRead) return name + " of " + bytes_text(what.bytes) + " from " + peer;
  if (what.opcode == SendOpcode::CompareAndSwap || what.opcode == SendOpcode::FetchAndAdd)
    return name + " at " + peer;
  return name + " of " + bytes_text(what.bytes) + " to " + peer;
}

std::string outcome(const Completion& completion, const Subject& what, const ReliabilityOptions& reliability) {
  switch (completion.status) {
    case CompletionStatus::LocalLengthError:
      return what.is_receive ? "the message is longer than this buffer; receive into more room or send less"
                             : "the lengths of the request do not fit this queue pair";
    case CompletionStatus::LocalProtectionError:
    case CompletionStatus::LocalAccessError:
      return "local key, range or permission is wrong; every segment must lie inside a live region of this "
             "connection's protection domain, with LocalWrite where bytes arrive";
    case CompletionStatus::RemoteAccessError:
      return "the peer refuses " + remote_range(what) +
             "; the key is wrong or stale, the range is outside its region, or the region lacks the "
             "permission";
    case CompletionStatus::RemoteInvalidRequest:
      return "the peer calls the request invalid; the message is longer than the receive it met, or the "
             "peer's queue "
             "pair does not allow this operation";
    case CompletionStatus::RemoteOperationError:
      return "the peer failed on its own side, or its receive had a bad local key";
    case CompletionStatus::RetryExceeded:
      return "the peer stopped answering (" +
             (completion.vendor_error == kVendorPeerEnded ? "its process ended, or gave the connection up"
                                                          : retry_text(reliability)) +
             ")";
    case CompletionStatus::RnrRetryExceeded:
      return "the peer had no receive for it (" + std::to_string(reliability.rnr_retry) +
             " tries after the first); it must start receives before messages arrive";
    case CompletionStatus::BadResponse:
      return "the peer answered what no peer should";
    default:
      return std::string(to_string(completion.status));
  }
}

std::string refusal(PostStatus status) {
  switch (status) {
    case PostStatus::QueueFull:
      return "the queue is full; wait for earlier operations, or connect with deeper queues";
    case PostStatus::WrongState:
      return "the connection is not established";
    case PostStatus::TooManySegments:
      return "more segments than the queue was made for";
    case PostStatus::InlineTooLong:
      return "more bytes than the queue copies inline; use registered memory";
    case PostStatus::InvalidRequest:
      return "opcode, flags or lengths do not go together";
    case PostStatus::SharedReceives:
      return "receives come from a shared queue; post there";
    case PostStatus::Ok:
      break;
  }
  return "";
}

}  // namespace verbena::describe
