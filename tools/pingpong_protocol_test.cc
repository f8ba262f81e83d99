// SPDX-License-Identifier: Apache-2.0
#include "tools/pingpong_protocol.h"

#include <gtest/gtest.h>

#include <string>

namespace verbena::tools {
namespace {

// As ibv_rc_pingpong sends it, NUL included.
const std::string kSample("0000:00001f:fb3b48:00000000000000000000ffff0a4e0001\0", 52);

std::string text_of(const PingpongAddress& address) {
  const auto wire = address.to_wire();
  return {wire.data(), wire.size()};
}

TEST(PingpongAddress, is_the_text_of_ibv_rc_pingpong) {
  const PingpongAddress address{0, Qpn{0x1f}, Psn{0xfb3b48}, Gid::from_ipv4(10, 78, 0, 1)};
  EXPECT_EQ(text_of(address), kSample);
  const auto parsed = PingpongAddress::from_wire(kSample);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, address);
  EXPECT_EQ(address.to_string(), "LID 0x0000, QPN 0x00001f, PSN 0xfb3b48, GID ::ffff:10.78.0.1");
}

TEST(PingpongAddress, carries_every_number_and_ipv6_addresses) {
  const PingpongAddress address{0xabcd, Qpn{0xffffff}, Psn{0}, *Gid::parse("fd77::11")};
  const auto parsed = PingpongAddress::from_wire(text_of(address));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, address);
  EXPECT_EQ(address.to_string(), "LID 0xabcd, QPN 0xffffff, PSN 0x000000, GID fd77::11");
}

TEST(PingpongAddress, takes_capital_digits) {
  const auto parsed = PingpongAddress::from_wire({"0000:00001F:FB3B48:00000000000000000000FFFF0A4E0001\0", 52});
  ASSERT_TRUE(parsed);
  EXPECT_EQ(*parsed, *PingpongAddress::from_wire(kSample));
}

TEST(PingpongAddress, refuses_a_character_that_does_not_belong_wherever_it_stands) {
  for (std::size_t at = 0; at < kSample.size(); ++at) {
    for (const char wrong : {'g', ' ', '-', '\n'}) {
      std::string text = kSample;
      text[at] = wrong;
      const auto parsed = PingpongAddress::from_wire(text);
      ASSERT_FALSE(parsed) << at;
      EXPECT_EQ(parsed.error().code(), ErrorCode::ProtocolError);
    }
  }
}

TEST(PingpongAddress, refuses_every_other_length) {
  for (std::size_t size = 0; size < kSample.size(); ++size)
    EXPECT_FALSE(PingpongAddress::from_wire(kSample.substr(0, size))) << size;
  EXPECT_FALSE(PingpongAddress::from_wire(kSample + '\0'));
}

}  // namespace
}  // namespace verbena::tools
