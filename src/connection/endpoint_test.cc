// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace verbena {
namespace {

TEST(Endpoint, names_and_addresses_parse_and_print_alike) {
  for (const char* text : {"127.0.0.1:7471", "node-7.example.org:1", "[2001:db8::1]:65535"}) {
    const auto endpoint = Endpoint::parse(text);
    ASSERT_TRUE(endpoint) << endpoint.error().to_string();
    EXPECT_EQ(endpoint->to_string(), text);
  }
  EXPECT_EQ(Endpoint::parse("[2001:db8::1]:9")->host, "2001:db8::1");
}

TEST(Endpoint, what_is_wrong_is_named) {
  const std::pair<const char*, const char*> cases[]{
      {"", "no port"},          {"host", "no port"},      {":7471", "no host"},         {"host:", "no port"},
      {"host:http", "'http'"},  {"host:0", "1 to 65535"}, {"host:65536", "1 to 65535"}, {"host:1x", "'1x'"},
      {"::1:7471", "brackets"}, {"[::1", "without"},      {"[::1]", "[host]:port"},     {"[host]:1", "IPv6"},
  };
  for (const auto& [text, words] : cases) {
    const auto endpoint = Endpoint::parse(text);
    ASSERT_FALSE(endpoint) << text;
    EXPECT_EQ(endpoint.error().code(), ErrorCode::InvalidArgument);
    EXPECT_THAT(endpoint.error().to_string(), ::testing::HasSubstr(words)) << text;
  }
}

// The system would see what stands before it.
TEST(Endpoint, a_zero_byte_is_part_of_no_address) {
  using std::string_view_literals::operator""sv;
  EXPECT_FALSE(Endpoint::parse("127.0.0.1\0.example.org:7471"sv));
  EXPECT_FALSE(Gid::parse("127.0.0.1\0x"sv));
  EXPECT_FALSE(Gid::parse("::1\0"sv));
}

TEST(Endpoint, literal_addresses_resolve_to_themselves) {
  EXPECT_EQ(*Endpoint::parse("127.0.0.9:1")->resolve(), Gid::from_ipv4(127, 0, 0, 9));
  EXPECT_EQ(Endpoint::parse("[2001:db8::9]:1")->resolve()->to_string(), "2001:db8::9");
}

TEST(Url, has_an_endpoint_and_a_path) {
  const auto url = Url::parse("verbena://10.0.0.1:7471/models/weights");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->endpoint, (Endpoint{"10.0.0.1", 7471}));
  EXPECT_EQ(url->path, "/models/weights");
  EXPECT_EQ(url->to_string(), "verbena://10.0.0.1:7471/models/weights");
  EXPECT_EQ(Url::parse("verbena://host:1")->path, "");
  EXPECT_EQ(Url::parse("verbena://[::1]:1/")->endpoint.host, "::1");
  EXPECT_FALSE(Url::parse("http://host:1/"));
  EXPECT_FALSE(Url::parse("verbena://host/"));
}

}  // namespace
}  // namespace verbena
