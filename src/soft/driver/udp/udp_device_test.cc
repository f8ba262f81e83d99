// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/udp_device.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "soft/driver/loopback/test_device_pair.h"

namespace verbena::soft {
namespace {

TEST(UdpDevice, moves_bytes_over_the_standard_port_of_two_loopback_addresses) {
  const auto a = open_udp_device({}), b = open_udp_device({});
  ASSERT_TRUE(a) << a.error().to_string();
  ASSERT_TRUE(b) << b.error().to_string();
  EXPECT_NE(a->local.gid, b->local.gid);
  test::exercise(*a->device, *b->device);
}

TEST(UdpDevice, writes_what_it_sends_and_receives_into_a_capture) {
  const std::string file = ::testing::TempDir() + "udp_device_test." + std::to_string(::getpid()) + ".pcapng";
  {
    UdpDeviceOptions options;
    options.pcap_file = file;
    const auto a = open_udp_device(options), b = open_udp_device({});
    ASSERT_TRUE(a && b);
    test::exercise(*a->device, *b->device);
    EXPECT_EQ(a->device->capture_failure(), "");
  }
  std::FILE* f = std::fopen(file.c_str(), "rb");
  ASSERT_NE(f, nullptr);
  std::fseek(f, 0, SEEK_END);
  EXPECT_GT(std::ftell(f), 2 << 20);
  std::fclose(f);
  std::remove(file.c_str());
}

TEST(UdpDevice, says_why_a_capture_cannot_be_written) {
  UdpDeviceOptions options;
  options.pcap_file = "/nonexistent/capture.pcapng";
  const auto a = open_udp_device(options);
  ASSERT_FALSE(a);
  EXPECT_EQ(a.error().code(), ErrorCode::IoError);  // NotFound is said of devices alone
  EXPECT_EQ(a.error().native(), ENOENT);
}

}  // namespace
}  // namespace verbena::soft
