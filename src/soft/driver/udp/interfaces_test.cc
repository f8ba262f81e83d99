// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "soft/driver/udp/test_network.h"

namespace verbena::soft::udp {
namespace {

using ::testing::HasSubstr;

const Gid kLocalhost = Gid::from_ipv4(127, 0, 0, 1);

TEST(Interfaces, lists_the_loopback_address_with_interface_and_mtu) {
  testing::TestNetwork::enter();
  const auto all = list_local_addresses();
  ASSERT_TRUE(all) << all.error().to_string();
  bool found = false;
  for (const LocalAddress& address : *all) {
    if (address.gid != kLocalhost) continue;
    found = true;
    EXPECT_EQ(address.interface_name, "lo");
    EXPECT_TRUE(address.loopback);
    EXPECT_TRUE(address.up);
    EXPECT_GE(address.mtu, 1'280u);
  }
  EXPECT_TRUE(found);
}

TEST(Interfaces, every_127_address_is_local_to_loopback) {
  testing::TestNetwork::enter();
  const auto local = find_local_address(Gid::from_ipv4(127, 3, 4, 5));
  ASSERT_TRUE(local) << local.error().to_string();
  EXPECT_EQ(local->gid, Gid::from_ipv4(127, 3, 4, 5));
  EXPECT_EQ(local->interface_name, "lo");
}

TEST(Interfaces, foreign_address_is_refused_with_the_list_of_ours) {
  const auto local = find_local_address(Gid::from_ipv4(192, 0, 2, 77));
  ASSERT_FALSE(local);
  EXPECT_EQ(local.error().code(), ErrorCode::AddressNotAvailable);
  EXPECT_THAT(local.error().context(), HasSubstr("192.0.2.77"));
  EXPECT_THAT(local.error().context(), HasSubstr("127.0.0.1 (lo"));
}

unsigned path_mtu_of(unsigned interface_mtu, const Gid& address = Gid::from_ipv4(192, 0, 2, 1)) {
  LocalAddress local;
  local.gid = address;
  local.mtu = interface_mtu;
  return path_mtu_for(local);
}

TEST(Interfaces, path_mtu_is_the_largest_that_leaves_80_bytes_for_headers) {
  EXPECT_EQ(path_mtu_of(65'536), 4'096u);
  EXPECT_EQ(path_mtu_of(9'000), 4'096u);
  EXPECT_EQ(path_mtu_of(4'176), 4'096u);
  EXPECT_EQ(path_mtu_of(4'175), 2'048u);
  EXPECT_EQ(path_mtu_of(2'128), 2'048u);
  EXPECT_EQ(path_mtu_of(2'127), 1'024u);
  EXPECT_EQ(path_mtu_of(1'500), 1'024u);
  EXPECT_EQ(path_mtu_of(1'103), 512u);
  EXPECT_EQ(path_mtu_of(336), 256u);
  EXPECT_EQ(path_mtu_of(335), 0u);
  EXPECT_EQ(path_mtu_of(0), 0u);
}

TEST(Interfaces, the_longest_packet_fits_whatever_the_mtu) {
  const Gid ipv4 = Gid::from_ipv4(192, 0, 2, 1), ipv6 = *Gid::parse("2001:db8::1");
  constexpr unsigned kUdp = 8, kBth = 12, kReth = 16, kImmediate = 4, kIcrc = 4;
  for (unsigned mtu = 1'280; mtu < 9'001; ++mtu)
    for (const Gid& address : {ipv4, ipv6}) {
      const unsigned ip = address == ipv4 ? 20 : 40;
      EXPECT_LE(ip + kUdp + kBth + kReth + kImmediate + path_mtu_of(mtu, address) + kIcrc, mtu) << address.to_string();
    }
  EXPECT_EQ(path_mtu_of(4'180, ipv6), 4'096u);
}

TEST(Resolve, takes_literal_addresses_without_asking_anybody) {
  EXPECT_EQ(resolve("192.0.2.1").value(), Gid::from_ipv4(192, 0, 2, 1));
  EXPECT_EQ(resolve("2001:db8::1").value().to_string(), "2001:db8::1");
  EXPECT_EQ(resolve("192.0.2.1", AddressFamily::Ipv4).value(), Gid::from_ipv4(192, 0, 2, 1));
}

TEST(Resolve, refuses_a_literal_of_the_other_family) {
  const auto gid = resolve("192.0.2.1", AddressFamily::Ipv6);
  ASSERT_FALSE(gid);
  EXPECT_EQ(gid.error().code(), ErrorCode::InvalidArgument);
  EXPECT_THAT(gid.error().context(), HasSubstr("IPv6"));
}

TEST(Resolve, knows_localhost) {
  const auto gid = resolve("localhost", AddressFamily::Ipv4);
  ASSERT_TRUE(gid) << gid.error().to_string();
  EXPECT_EQ(*gid, kLocalhost);
}

TEST(Resolve, names_the_host_it_could_not_find) {
  const auto gid = resolve("no-such-host.invalid");
  ASSERT_FALSE(gid);
  EXPECT_THAT(gid.error().context(), HasSubstr("no-such-host.invalid"));
  EXPECT_EQ(resolve("").error().code(), ErrorCode::InvalidArgument);
}

TEST(SourceAddress, of_a_loopback_destination_is_a_loopback_address) {
  testing::TestNetwork::enter();
  const auto source = source_address_for(Gid::from_ipv4(127, 0, 0, 9));
  ASSERT_TRUE(source) << source.error().to_string();
  EXPECT_EQ(source->bytes[12], 127);
}

TEST(SourceAddress, says_that_a_network_without_a_route_is_unreachable) {
  if (!testing::TestNetwork::enter().is_private())
    GTEST_SKIP() << "needs a network of its own without routes";
  const auto source = source_address_for(Gid::from_ipv4(192, 0, 2, 1));
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code(), ErrorCode::Unreachable);
  EXPECT_THAT(source.error().context(), HasSubstr("192.0.2.1"));
}

}  // namespace
}  // namespace verbena::soft::udp
