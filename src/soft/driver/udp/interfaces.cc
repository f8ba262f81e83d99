// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/wire/path.h"

namespace verbena::soft::udp {
namespace {

// Room for IP, UDP, BTH, the longest extended headers (RETH and an immediate), pad and ICRC. Of IPv4 what the kernel's
// Soft-RoCE subtracts, which has room to spare there, and 4 bytes too few for IPv6.
constexpr unsigned kHeaderRoomIpv4 = 80, kHeaderRoomIpv6 = 84;

unsigned mtu_of(int fd, const char* interface_name) {
  ifreq request{};
  std::strncpy(request.ifr_name, interface_name, IFNAMSIZ - 1);
  if (::ioctl(fd, SIOCGIFMTU, &request) != 0) return 0;
  return static_cast<unsigned>(request.ifr_mtu);
}

ErrorCode code_of_lookup(int status) {
  switch (status) {
    case EAI_NONAME:
    case EAI_NODATA:
      return ErrorCode::NotFound;
    case EAI_AGAIN:
      return ErrorCode::TimedOut;
    case EAI_MEMORY:
      return ErrorCode::ResourceExhausted;
    case EAI_ADDRFAMILY:
    case EAI_FAMILY:
      return ErrorCode::NotSupported;
    default:
      return ErrorCode::IoError;
  }
}

std::string_view name_of(AddressFamily family) {
  switch (family) {
    case AddressFamily::Ipv4:
      return "IPv4 address";
    case AddressFamily::Ipv6:
      return "IPv6 address";
    case AddressFamily::Any:
      break;
  }
  return "address";
}

bool fits(const Gid& gid, AddressFamily family) {
  return family == AddressFamily::Any || (family == AddressFamily::Ipv4) == gid.is_ipv4();
}

}  // namespace

Result<std::vector<LocalAddress>> list_local_addresses(LinkLocal link_local) {
  ifaddrs* head = nullptr;
  if (::getifaddrs(&head) != 0) return Error::from_errno(errno, "list this machine's addresses (getifaddrs)");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(head, &::freeifaddrs);
  const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::vector<LocalAddress> found;
  for (const ifaddrs* entry = head; entry != nullptr; entry = entry->ifa_next) {
    const Gid gid = gid_of(entry->ifa_addr);
    if (gid.is_zero()) continue;
    if (link_local == LinkLocal::Skip && is_link_local(gid)) continue;
    LocalAddress address;
    address.gid = gid;
    address.interface_name = entry->ifa_name;
    address.interface_index = ::if_nametoindex(entry->ifa_name);
    address.mtu = mtu_of(socket.get(), entry->ifa_name);
    address.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    address.up = (entry->ifa_flags & IFF_UP) != 0;
    found.push_back(std::move(address));
  }
  return found;
}

Result<LocalAddress> find_local_address(const Gid& address) {
  auto all = list_local_addresses(LinkLocal::Include);
  if (!all) return std::move(all).error();
  const bool on_loopback_net = address.is_ipv4() && address.is_loopback();
  for (LocalAddress& candidate : *all) {
    if (candidate.gid == address) return std::move(candidate);
    if (on_loopback_net && candidate.loopback && candidate.gid.is_ipv4()) {
      candidate.gid = address;
      return std::move(candidate);
    }
  }
  return Error(
      ErrorCode::AddressNotAvailable,
      address.to_string() + " is not an address of this machine; it has " + describe_local_addresses(),
      EADDRNOTAVAIL, ErrorDomain::Errno);
}

std::string describe_local_addresses() {
  const auto all = list_local_addresses();
  if (!all) return "no addresses we may read (" + all.error().to_string() + ")";
  std::string text;
  for (const LocalAddress& address : *all) {
    if (!text.empty()) text += ", ";
    text += address.gid.to_string() + " (" + address.interface_name + (address.up ? ")" : ", down)");
  }
  return text.empty() ? "no address at all" : text;
}

unsigned path_mtu_for(const LocalAddress& local) {
  const unsigned room = local.gid.is_ipv4() ? kHeaderRoomIpv4 : kHeaderRoomIpv6;
  for (unsigned path_mtu = 4096; path_mtu >= 256; path_mtu /= 2)
    if (local.mtu >= path_mtu + room) return path_mtu;
  return 0;
}

Result<Gid> resolve(const std::string& host, AddressFamily family) {
  if (host.empty()) return Error(ErrorCode::InvalidArgument, "resolve a host: the name is empty");
  if (auto literal = Gid::parse(host)) {
    if (fits(*literal, family)) return *literal;
    return Error(ErrorCode::InvalidArgument, host + " is not an " + std::string(name_of(family)));
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_family = family == AddressFamily::Ipv4   ? AF_INET
                    : family == AddressFamily::Ipv6 ? AF_INET6
                                                    : AF_UNSPEC;
  addrinfo* head = nullptr;
  const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &head);
  const int number = status == EAI_SYSTEM ? errno : 0;
  const std::string what = "resolve host '" + host + "'";
  if (number != 0) return Error::from_errno(number, what);
  if (status != 0) return Error(code_of_lookup(status), what + ": " + ::gai_strerror(status));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(head, &::freeaddrinfo);
  for (const addrinfo* entry = head; entry != nullptr; entry = entry->ai_next) {
    const Gid gid = gid_of(entry->ai_addr);
    if (!gid.is_zero() && fits(gid, family)) return gid;
  }
  return Error(ErrorCode::NotFound, what + ": it has no " + std::string(name_of(family)));
}

Result<Gid> source_address_for(const Gid& destination) {
  const std::string what = "find the address to reach " + destination.to_string() + " from";
  const Descriptor socket(::socket(family_of(destination), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno(errno, what);
  const SocketAddress to(destination, wire::kRocePort, 0);
  if (::connect(socket.get(), &to.any, to.size) != 0) return Error::from_errno(errno, what);
  SocketAddress from;
  if (::getsockname(socket.get(), &from.any, &from.size) != 0) return Error::from_errno(errno, what);
  return from.gid();
}

}  // namespace verbena::soft::udp
