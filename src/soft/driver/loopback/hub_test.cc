// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/loopback/hub.h"

#include "soft/driver/loopback/test_device_pair.h"

namespace verbena::soft::loopback {
namespace {

std::unique_ptr<HostDevice> device_on(Hub& hub, std::uint8_t last) {
  NicConfig config;
  config.address = Gid::from_ipv4(192, 0, 2, last);
  config.path_mtu = 4096;
  return std::move(hub.open(config, std::make_unique<SeededRandom>(last), {}).value());
}

TEST(Hub, joins_two_devices_of_one_process) {
  Hub hub;
  const auto a = device_on(hub, 1), b = device_on(hub, 2);
  test::exercise(*a, *b);
}

TEST(Hub, gives_an_address_once) {
  Hub hub;
  const auto a = device_on(hub, 1);
  NicConfig config;
  config.address = Gid::from_ipv4(192, 0, 2, 1);
  const auto again = hub.open(config, std::make_unique<SeededRandom>(1), {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), ErrorCode::AddressInUse);
}

}  // namespace
}  // namespace verbena::soft::loopback
