// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <cstring>
#include <string>
#include <string_view>

// In the place of the system's resolver: "both.test" has addresses of both IP versions, "four.test" one of IPv4.
extern "C" int getaddrinfo(const char* name, const char*, const addrinfo*, addrinfo** found) {
  static sockaddr_in four{};
  static sockaddr_in6 six{};
  static addrinfo of_four{}, of_six{};
  four.sin_family = AF_INET;
  of_four.ai_family = AF_INET;
  six.sin6_family = AF_INET6;
  of_six.ai_family = AF_INET6;
  ::inet_pton(AF_INET, "192.0.2.1", &four.sin_addr);
  ::inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
  of_four.ai_addr = reinterpret_cast<sockaddr*>(&four);
  of_six.ai_addr = reinterpret_cast<sockaddr*>(&six);
  of_six.ai_next = &of_four;
  if (std::strcmp(name, "both.test") == 0)
    *found = &of_six;
  else if (std::strcmp(name, "four.test") == 0)
    *found = &of_four;
  else
    return EAI_NONAME;
  return 0;
}
extern "C" void freeaddrinfo(addrinfo*) noexcept {}

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
      {"verbena://host:1/", "a URL"},
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

TEST(Endpoint, a_name_resolves_to_an_address_of_the_device_s_ip_version) {
  const Endpoint both{"both.test", 1}, four{"four.test", 1};
  EXPECT_EQ(both.resolve()->to_string(), "192.0.2.1");
  EXPECT_EQ(both.resolve(Gid::from_ipv4(127, 0, 0, 1))->to_string(), "192.0.2.1");
  EXPECT_EQ(both.resolve(*Gid::parse("::1"))->to_string(), "2001:db8::1");
  EXPECT_EQ(four.resolve(*Gid::parse("::1"))->to_string(), "192.0.2.1");
  EXPECT_EQ((Endpoint{"none.test", 1}.resolve().error().code()), ErrorCode::NotFound);
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
