// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace verbena {

namespace {

Error malformed(std::string_view text, const std::string& why) {
  return Error(ErrorCode::InvalidArgument, "address '" + std::string(text) + "': " + why);
}

Gid gid_of(const addrinfo& info) {
  Gid gid;
  if (info.ai_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, info.ai_addr, sizeof address);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(&address.sin_addr);
    return Gid::from_ipv4(bytes[0], bytes[1], bytes[2], bytes[3]);
  }
  sockaddr_in6 address;
  std::memcpy(&address, info.ai_addr, sizeof address);
  std::memcpy(gid.bytes.data(), &address.sin6_addr, gid.bytes.size());
  return gid;
}

}  // namespace

Result<Endpoint> Endpoint::parse(std::string_view text) {
  if (text.find('\0') != std::string_view::npos) return malformed(text, "a zero byte");
  if (text.find("://") != std::string_view::npos) return malformed(text, "a URL; write host:port");
  Endpoint endpoint;
  std::string_view port;
  if (!text.empty() && text.front() == '[') {
    const std::size_t close = text.find(']');
    if (close == std::string_view::npos) return malformed(text, "'[' without ']'");
    endpoint.host = text.substr(1, close - 1);
    if (close + 1 >= text.size() || text[close + 1] != ':')
      return malformed(text, "no port; write [host]:port");
    port = text.substr(close + 2);
    if (endpoint.host.find(':') == std::string::npos)
      return malformed(text, "brackets are for IPv6 addresses");
  } else {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return malformed(text, "no port; write host:port");
    endpoint.host = text.substr(0, colon);
    port = text.substr(colon + 1);
    if (endpoint.host.find(':') != std::string::npos)
      return malformed(text, "write an IPv6 address in brackets, [address]:port");
  }
  if (endpoint.host.empty()) return malformed(text, "no host");
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc{} || end != port.data() + port.size() || number == 0 || number > 65535)
    return malformed(text, "'" + std::string(port) + "' is no port; 1 to 65535");
  endpoint.port = static_cast<std::uint16_t>(number);
  return endpoint;
}

std::string Endpoint::to_string() const {
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

// IPv4 is what most RoCE networks speak.
Result<Gid> Endpoint::resolve() const { return resolve(Gid::from_ipv4(0, 0, 0, 0)); }

Result<Gid> Endpoint::resolve(const Gid& own) const {
  if (auto literal = Gid::parse(host)) return literal;
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
  if (status != 0)
    return Error(ErrorCode::NotFound, "resolve host '" + host + "': " + ::gai_strerror(status));
  const int wanted = own.is_ipv4() ? AF_INET : AF_INET6;
  const addrinfo* best = found;
  while (best != nullptr && best->ai_family != wanted) best = best->ai_next;
  const Gid gid = gid_of(best != nullptr ? *best : *found);
  ::freeaddrinfo(found);
  return gid;
}

Result<Url> Url::parse(std::string_view text) {
  if (!looks_like_url(text))
    return Error(ErrorCode::InvalidArgument, "URL '" + std::string(text) + "': must begin with verbena://");
  const std::string_view rest = text.substr(kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  auto endpoint = Endpoint::parse(rest.substr(0, slash));
  if (!endpoint) return endpoint.error();
  return Url{std::move(*endpoint), std::string(rest.substr(slash))};
}

std::string Url::to_string() const { return std::string(kScheme) + endpoint.to_string() + path; }

}  // namespace verbena
