// SPDX-License-Identifier: Apache-2.0
#include "connection/reject_reason.h"

#include <algorithm>

namespace verbena {

namespace {

// Numbers of the CM protocol.
enum Reason : int {
  kNoQueuePair = 1,
  kNoResources = 3,
  kTimeout = 4,
  kUnsupported = 5,
  kInvalidServiceId = 8,
  kStaleConnection = 10,
  kConsumer = 28,
};

// The bytes before the padding, when they are printable; else empty.
std::string text_in(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    const char c = static_cast<char>(b);
    if (c == '\0') break;
    if (c < ' ' || c > '~') return {};
    text += c;
  }
  return text;
}

}  // namespace

std::string reject_reason_text(int reason) {
  switch (reason) {
    case kNoQueuePair:
      return "no queue pair";
    case kNoResources:
      return "no resources";
    case kTimeout:
      return "timeout";
    case kUnsupported:
      return "request not supported";
    case kInvalidServiceId:
      return "no such service";
    case kStaleConnection:
      return "stale connection";
    case kRejectInvalidMtu:
      return "the path MTU is not one the device there takes";
    case kConsumer:
      return "refused by the application";
    default:
      return "reason " + std::to_string(reason);
  }
}

Error rejection_error(const std::string& peer, int reason, std::span<const std::byte> private_data, bool is_ourselves) {
  const std::string what = "connect to " + peer + ": ";
  const auto error = [&](ErrorCode code, const std::string& why) {
    return Error(code, what + why, reason, ErrorDomain::CmReject);
  };
  if (reason == kInvalidServiceId)
    return error(ErrorCode::ConnectionRefused,
                 is_ourselves ? "nobody listens on this port; the address is that of this program's own device: "
                                "the server is not running, or has another port or address"
                              : "the device is there, but nobody listens on this port");
  const std::string text = text_in(private_data), words = text.empty() ? "" : ": \"" + text + "\"";
  if (reason == kNoResources || reason == kNoQueuePair)
    return error(ErrorCode::ResourceExhausted, "the listener has no room for it now; try again later" + words);
  if (reason != kConsumer) return error(ErrorCode::Rejected, reject_reason_text(reason));
  return error(ErrorCode::Rejected, "the application there said no" + words);
}

Error given_up_error(const std::string& verb, const std::string& peer) {
  return Error(ErrorCode::ConnectionLost, verb + " " + peer + ": the peer has given up meanwhile");
}

}  // namespace verbena
