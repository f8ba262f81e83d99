// SPDX-License-Identifier: Apache-2.0
#include "tools/report.h"

#include <cstdio>

#include "tools/safe_path.h"
#include "tools/say.h"

namespace verbena::tools {

std::string_view advice(const Error& error) {
  switch (error.code()) {
    case ErrorCode::NotFound: return "Check the spelling.";
    case ErrorCode::AlreadyExists: return "Choose another name, or replace it with --force.";
    case ErrorCode::AddressInUse:
      return "Another program has this address or port: end it, or choose another with --device or --port.";
    case ErrorCode::AddressNotAvailable: return "Choose an address of this machine; `verbena devices` lists them.";
    case ErrorCode::PermissionDenied: return "Check the rights of this user there.";
    case ErrorCode::ResourceExhausted:
      return "Free some space or memory, or raise the limit (`ulimit -a` shows them), and try again.";
    case ErrorCode::NotSupported:
      if (error.context().find("path=local") != std::string::npos)
        return "The other side runs elsewhere, or goes by packets alone (--path roce): leave --path local out.";
      return "Another device may be able to; `verbena devices -v` tells of each.";
    case ErrorCode::Unreachable:
      return "Check the address, that a verbena server runs there, and that UDP port 4791 is open between the two.";
    case ErrorCode::ConnectionRefused:
      return "Start the server there (`verbena serve` or `verbena ping -s`), or give the address and port it printed.";
    case ErrorCode::Rejected: return "The server is there and said no; its reason stands above.";
    case ErrorCode::ConnectionLost:
    case ErrorCode::Disconnected: return "Look at what the other side printed, and try again.";
    case ErrorCode::RetryExceeded:
    case ErrorCode::TimedOut:
    case ErrorCode::DeadlineExceeded:
      return "The other side was stopped or killed, or the network between is broken: check both, and try again.";
    case ErrorCode::ProtocolError: return "Check that both sides run the same version of verbena.";
    case ErrorCode::CorruptData: return "Try again; if it happens again, check memory and disks of both machines.";
    case ErrorCode::Internal: return "This is a defect of verbena; please report it.";
    default: return "";
  }
}

int report_error(std::string_view command, const Error& error) {
  return report_error(command, error, advice(error));
}

int report_error(std::string_view command, const Error& error, std::string_view what_to_do) {
  return report_failure(command, error.to_string(), what_to_do);
}

int report_failure(std::string_view command, std::string_view what, std::string_view what_to_do) {
  say(stderr, "verbena {}: {}\n", command, printable(what));
  if (!what_to_do.empty()) say(stderr, "  {}\n", what_to_do);
  return kExitFailure;
}

int report_usage(std::string_view command, std::string_view what) {
  say(stderr, "verbena {}: {}\n", command, printable(what));
  say(stderr, "  `verbena {} --help` shows how it is used.\n", command);
  return kExitUsage;
}

}  // namespace verbena::tools
