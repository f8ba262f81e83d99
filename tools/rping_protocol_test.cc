// SPDX-License-Identifier: Apache-2.0
#include "tools/rping_protocol.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace verbena::tools {
namespace {

std::vector<std::byte> filled(std::size_t size, std::uint64_t number) {
  std::vector<std::byte> bytes(size);
  fill_rping_payload(bytes, number);
  return bytes;
}

TEST(RpingAdvertisement, is_sixteen_bytes_in_network_order) {
  const RpingAdvertisement advertisement{0x0102030405060708, RKey{0x11121314}, 0x21222324};
  const auto bytes = advertisement.to_bytes();
  const std::vector<unsigned> wanted{1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24};
  ASSERT_EQ(bytes.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(std::to_integer<unsigned>(bytes[i]), wanted[i]) << i;
  const auto back = RpingAdvertisement::from_bytes(bytes);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, advertisement);
  EXPECT_EQ(back->memory(), (RemoteMemory{0x0102030405060708, 0x21222324, RKey{0x11121314}}));
}

TEST(RpingAdvertisement, refuses_every_other_length) {
  const std::vector<std::byte> bytes(64);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const auto parsed = RpingAdvertisement::from_bytes(std::span(bytes).first(size));
    EXPECT_EQ(parsed.has_value(), size == 16) << size;
    if (parsed) continue;
    EXPECT_EQ(parsed.error().code(), ErrorCode::ProtocolError);
  }
}

TEST(RpingPayload, is_what_rping_of_rdma_core_sends) {
  EXPECT_EQ(rping_text(filled(64, 0)), "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr");
  EXPECT_EQ(rping_text(filled(64, 2)), "rdma-ping-2: CDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrst");
  EXPECT_EQ(rping_text(filled(100, 1)),
            "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]");
  // 58 characters in the circle.
  EXPECT_EQ(rping_text(filled(32, 57)), "rdma-ping-57: zABCDEFGHIJKLMNOP");
  EXPECT_EQ(rping_text(filled(32, 58)), "rdma-ping-58: ABCDEFGHIJKLMNOPQ");
}

TEST(RpingPayload, ends_with_its_only_NUL) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{12345}, kMaxRpingCount}) {
    for (const std::size_t size : {std::size_t{kMinRpingBytes}, std::size_t{64}, std::size_t{kMaxRpingBytes}}) {
      const auto bytes = filled(size, number);
      EXPECT_EQ(rping_text(bytes).size(), size - 1);
      EXPECT_EQ(bytes.back(), std::byte{0});
      EXPECT_TRUE(check_rping_payload(bytes, number));
    }
  }
}

TEST(RpingPayload, is_recognised_byte_by_byte) {
  for (std::size_t at = 0; at < 64; ++at) {
    auto bytes = filled(64, 7);
    bytes[at] ^= std::byte{1};
    const auto checked = check_rping_payload(bytes, 7);
    ASSERT_FALSE(checked) << at;
    EXPECT_EQ(checked.error().code(), ErrorCode::CorruptData);
    EXPECT_NE(checked.error().context().find("byte " + std::to_string(at) + " "), std::string::npos);
  }
  EXPECT_FALSE(check_rping_payload(filled(64, 7), 8));
}

TEST(RpingPayload, is_shown_without_control_characters) {
  const std::vector<std::byte> bytes{std::byte{'a'}, std::byte{0x1b}, std::byte{0xff}, std::byte{'\\'}, std::byte{0},
                                     std::byte{'b'}};
  EXPECT_EQ(rping_text(bytes), "a..\\");
}

}  // namespace
}  // namespace verbena::tools
