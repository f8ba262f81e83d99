// SPDX-License-Identifier: Apache-2.0
// This machine's addresses, their MTUs, and names of hosts.
#pragma once

#include <string>
#include <vector>

#include "verbena/base/gid.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp {

struct LocalAddress {
  Gid gid;
  std::string interface_name;
  unsigned interface_index = 0;
  unsigned mtu = 0;  // of the interface, in bytes, IP header included
  bool loopback = false;
  bool up = false;
};

enum class LinkLocal { Skip, Include };
enum class AddressFamily { Any, Ipv4, Ipv6 };

// In the kernel's order of interfaces.
Result<std::vector<LocalAddress>> list_local_addresses(LinkLocal link_local = LinkLocal::Skip);

// The entry a device on `address` would use. Every 127/8 address belongs to the loopback interface.
// AddressNotAvailable names the addresses that are ours.
Result<LocalAddress> find_local_address(const Gid& address);

// "127.0.0.1 (lo), 192.0.2.1 (eth0)"; addresses of interfaces that are down say so.
std::string describe_local_addresses();

// Largest RoCE path MTU (256 … 4096, payload bytes) whose packets fit its interface: MTU - 80 >= path MTU, or MTU - 84
// of IPv6. 0 when not even 256 fits.
unsigned path_mtu_for(const LocalAddress& local);

// A literal address or a host name; the first address of the wanted family.
Result<Gid> resolve(const std::string& host, AddressFamily family = AddressFamily::Any);

// The address the kernel would send from to reach `destination`.
Result<Gid> source_address_for(const Gid& destination);

}  // namespace verbena::soft::udp
