// SPDX-License-Identifier: Apache-2.0
// An address of a network of the test's own, and datagrams to it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "base/byte_order.h"
#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/shared_address.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/driver/udp/test_member.h"
#include "soft/driver/udp/test_network.h"
#include "soft/wire/mad.h"

namespace verbena::soft::udp::testing {

using ::testing::HasSubstr;

inline std::string answer_of_opening(const Gid& address) {
  const auto opened = SharedAddress::open(address);
  return opened ? std::string("in") : opened.error().to_string();
}

inline std::vector<std::byte> data_for(unsigned slot, std::size_t size) {
  std::vector<std::byte> bytes(size);
  store_be24(&bytes[5], slot << 18 | 0x1234);
  return bytes;
}

inline std::vector<std::byte> management(wire::CmAttribute attribute, std::uint32_t port) {
  std::vector<std::byte> bytes(280);
  store_be24(&bytes[5], 1);
  store_be16(&bytes[36], static_cast<std::uint16_t>(attribute));
  store_be64(&bytes[52], kTcp | port);
  return bytes;
}

class SharedAddressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!TestNetwork::enter().is_private()) GTEST_SKIP() << "needs a network of its own";
  }
  // Nothing may be left of a test: not the port, not a name.
  void TearDown() override {
    if (!TestNetwork::enter().is_private()) return;
    std::ifstream names("/proc/thread-self/net/unix"), sockets("/proc/thread-self/net/udp");
    std::stringstream text;
    text << names.rdbuf();
    EXPECT_THAT(text.str(), ::testing::Not(HasSubstr("@verbena")));
    text.str("");
    text << sockets.rdbuf();
    EXPECT_THAT(text.str(), ::testing::Not(HasSubstr(":12B7")));
  }
  void send(const std::vector<std::byte>& datagram) const {
    const Descriptor from = std::move(*make_udp_socket(address_));
    const SocketAddress to(address_, wire::kRocePort, 0);
    EXPECT_EQ(::sendto(from.get(), datagram.data(), datagram.size(), 0, &to.any, to.size),
              static_cast<ssize_t>(datagram.size()));
  }
  Member member() const { return Member(address_); }
  // So many processes come and go at once, each 25 times; `become` is the first thing that each does, with its number.
  void expect_all_get_in(
      std::uint32_t processes, const std::vector<std::uint32_t>& names = {},
      const std::function<bool(std::uint32_t)>& become = [](std::uint32_t) { return true; }) const {
    std::vector<pid_t> children;
    for (std::uint32_t i = 0; i < processes; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        if (!become(i)) ::_exit(1);
        for (int round = 0; round < 25; ++round) {
          auto shared = SharedAddress::open(address_, *AddressUsers::with(names));
          if (!shared || !(*shared)->announce(kTcp | (7'000 + i))) ::_exit(1);
        }
        ::_exit(0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = -1;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
  }

  const Gid address_ = Gid::from_ipv4(127, 0, 0, 1);
};

}  // namespace verbena::soft::udp::testing
