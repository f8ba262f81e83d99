// SPDX-License-Identifier: Apache-2.0
#include "verbena/base/gid.h"

#include <arpa/inet.h>

#include <cstring>

namespace verbena {

Result<Gid> Gid::parse(std::string_view text) {
  const std::string copy{text};
  const bool whole = copy.find('\0') == std::string::npos;  // which would end it for the system
  in_addr four{};
  if (whole && inet_pton(AF_INET, copy.c_str(), &four) == 1) {
    std::uint8_t b[4];
    std::memcpy(b, &four, 4);
    return from_ipv4(b[0], b[1], b[2], b[3]);
  }
  Gid gid;
  if (whole && inet_pton(AF_INET6, copy.c_str(), gid.bytes.data()) == 1) return gid;
  return Error{ErrorCode::InvalidArgument, "'" + copy + "' is not an IPv4 or IPv6 address"};
}

std::string Gid::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_ipv4())
    inet_ntop(AF_INET, bytes.data() + 12, text, sizeof text);
  else
    inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

}  // namespace verbena
