// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_common.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"

namespace verbena::tools {

std::string_view bench_advice(const Error& error) {
  switch (error.code()) {
    case ErrorCode::InvalidArgument:
      return "Run the same test at both ends, with flags that fit, the same where both need them.";
    case ErrorCode::ConnectionRefused:
      return "Start the server there with the same words, without HOST, or give its TCP port with -p.";
    case ErrorCode::Unreachable:
      return "Check the address, and that the TCP port of -p and UDP port 4791 are open between the two.";
    case ErrorCode::ProtocolError: return "Check that the other side is `verbena bench` of the same version.";
    case ErrorCode::Rejected:
    case ErrorCode::ConnectionLost: return "Look at what the other side printed, and try again.";
    case ErrorCode::Cancelled: return "";
    default: return advice(error);
  }
}

void warn_of_frequency() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  std::string governor;
  if (!(file >> governor) || governor == "performance") return;
  say(stderr, "verbena bench: the processor's frequency changes (governor {}), and so will the numbers; -F silences "
              "this\n", printable(governor));
}

Result<void> check_writable(const std::string& name) {
  if (name.empty()) return {};
  std::error_code error;
  const std::filesystem::path path(name);
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  if (std::filesystem::is_directory(path, error)) return Error::from_errno(EISDIR, "write " + name);
  if (::access(std::filesystem::exists(path, error) ? path.c_str() : parent.c_str(), W_OK) != 0)
    return Error::from_errno(errno, "write " + name);
  return {};
}

Result<void> check_results(const std::vector<std::string>& names) {
  std::set<std::filesystem::path> seen;
  for (const std::string& name : names) {
    if (auto fits = check_writable(name); !fits) return fits;
    std::error_code error;
    if (name.empty() || std::filesystem::is_character_file(name, error)) continue;
    if (!seen.insert(std::filesystem::weakly_canonical(std::filesystem::absolute(name, error), error)).second)
      return Error(ErrorCode::InvalidArgument, "two flags name the same file, " + name);
  }
  return {};
}

Result<void> write_file(const std::string& name, const std::string& text) {
  errno = 0;
  std::ofstream file(name, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return {};
  return Error::from_errno(errno == 0 ? EIO : errno, "write " + name);
}

}  // namespace verbena::tools
