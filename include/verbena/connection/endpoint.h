// SPDX-License-Identifier: Apache-2.0
// Names of peers as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "verbena/base/gid.h"
#include "verbena/base/result.h"

namespace verbena {

// Host and port: "example.org:7471", "127.0.0.1:7471", "[2001:db8::1]:7471".
struct Endpoint {
  std::string host{};      // name or literal address, without brackets
  std::uint16_t port = 0;  // the RDMA service there, not a UDP port

  // InvalidArgument says what is missing or wrong.
  static Result<Endpoint> parse(std::string_view text);
  std::string to_string() const;
  // The address of the host; asks the resolver, and may block, when it is a name. NotFound when it has none. Of several
  // it is one of IPv4, or, where a device's own address is told, of the device's IP version, as far as there is one.
  Result<Gid> resolve() const;
  Result<Gid> resolve(const Gid& own) const;

  bool operator==(const Endpoint&) const = default;
};

// "verbena://host:port/path". The path starts with '/', or is empty.
struct Url {
  Endpoint endpoint{};
  std::string path{};

  static constexpr std::string_view kScheme = "verbena://";

  static bool looks_like_url(std::string_view text) { return text.substr(0, kScheme.size()) == kScheme; }
  static Result<Url> parse(std::string_view text);
  std::string to_string() const;

  bool operator==(const Url&) const = default;
};

}  // namespace verbena
