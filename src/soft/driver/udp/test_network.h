// SPDX-License-Identifier: Apache-2.0
// Tests run in a network of their own where the system lets them: nobody else's sockets, interfaces to play
// with.
#pragma once

#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "soft/driver/descriptor.h"

namespace verbena::soft::udp::testing {

class TestNetwork {
 public:
  // Enters the network at its first call, from the only thread there is then.
  static const TestNetwork& enter() {
    static const TestNetwork network;
    return network;
  }
  // Otherwise the tests share the machine's loopback.
  bool is_private() const { return private_; }

  static bool set_mtu(const char* interface_name, int mtu) {
    ifreq request = request_for(interface_name);
    request.ifr_mtu = mtu;
    return control(SIOCSIFMTU, request);
  }
  // A second address of loopback's interface, "lo:1" say: one that is no loopback address.
  static bool add_address(const char* label, std::uint8_t last) {
    ifreq request = request_for(label);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(0x0a4d0000u | last);  // 10.77.0.last
    std::memcpy(&request.ifr_addr, &at, sizeof at);
    return control(SIOCSIFADDR, request);
  }
  static bool set_up(const char* interface_name) {
    ifreq request = request_for(interface_name);
    if (!control(SIOCGIFFLAGS, request)) return false;
    request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP | IFF_RUNNING);
    return control(SIOCSIFFLAGS, request);
  }

 private:
  TestNetwork() : private_(unshare_network() && set_up("lo")) {}

  static bool unshare_network() {
    if (::unshare(CLONE_NEWNET) == 0) return true;
    const std::string uid = "0 " + std::to_string(::getuid()) + " 1";
    const std::string gid = "0 " + std::to_string(::getgid()) + " 1";
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
    write_file("/proc/self/uid_map", uid);
    write_file("/proc/self/setgroups", "deny");
    write_file("/proc/self/gid_map", gid);
    return true;
  }
  static bool write_file(const char* path, const std::string& text) {
    const Descriptor file(::open(path, O_WRONLY | O_CLOEXEC));
    return file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  static ifreq request_for(const char* interface_name) {
    ifreq request{};
    std::strncpy(request.ifr_name, interface_name, IFNAMSIZ - 1);
    return request;
  }
  static bool control(unsigned long operation, ifreq& request) {
    const Descriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    return ::ioctl(socket.get(), operation, &request) == 0;
  }

  bool private_;
};

}  // namespace verbena::soft::udp::testing
