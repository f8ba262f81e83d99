// SPDX-License-Identifier: Apache-2.0
// A device over UDP sockets: opens them, chooses the address, and pumps.
#pragma once

#include <memory>
#include <string>

#include "soft/driver/host_device.h"
#include "soft/driver/udp/interfaces.h"
#include "verbena/base/device_info.h"

namespace verbena::soft {

struct UdpDeviceOptions {
  Gid address;                             // zero: the first free address of 127/8
  std::string pcap_file;                   // empty: no capture
  std::uint32_t receive_buffer_bytes = 0;  // 0: as much as one gets
  std::uint32_t path_mtu = 0;              // 0: from the interface; otherwise no more than that
  PathChoice path = PathChoice::Auto;
  bool pull = true;       // see OpenOptions
  std::string local_dir;  // likewise; empty: none
  std::vector<std::uint32_t> local_users;  // likewise
  std::vector<std::uint32_t> address_users;  // likewise
  bool service_thread = true;
  bool single_threaded = false;  // see OpenOptions
  NicConfig nic;  // address, path MTU and source ports are filled in
};

struct UdpDevice {
  udp::LocalAddress local;
  std::unique_ptr<HostDevice> device;
};

// Shares the address with other processes of this user and of those named. Errors: as AddressUsers::with and
// SharedAddress::open; unless all go by packets also those of local::MeetingFolder::open; with PathChoice::Local what
// is in the way of offering shared memory.
Result<UdpDevice> open_udp_device(const UdpDeviceOptions& options);

}  // namespace verbena::soft
