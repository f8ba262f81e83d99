// SPDX-License-Identifier: Apache-2.0
// The values that programs exchange, byte for byte.
#include <gtest/gtest.h>

#include "device/wire_bytes.h"
#include "verbena/device/queue_pair.h"
#include "verbena/device/remote_memory.h"

namespace verbena {
namespace {

TEST(RemoteMemoryBytes, have_the_documented_layout) {
  const auto bytes = RemoteMemory{0x0102030405060708, 0x1112131415161718, RKey{0x21222324}}.to_bytes();
  EXPECT_EQ(bytes[0], std::byte{0x08});
  EXPECT_EQ(bytes[8], std::byte{0x18});
  EXPECT_EQ(bytes[16], std::byte{0x24});
  EXPECT_EQ(bytes[20], std::byte{'V'});
  EXPECT_EQ(bytes[21], std::byte{1});
  EXPECT_EQ(bytes[22], std::byte{0x62});
  EXPECT_EQ(bytes[23], std::byte{0xad});
}

TEST(RemoteMemoryBytes, notice_any_damaged_bit) {
  const auto whole = RemoteMemory{0x1000, 0x2000, RKey{7}}.to_bytes();
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(RemoteMemory::from_bytes(bytes)) << bit;
  }
}

TEST(RemoteMemoryBytes, may_be_followed_by_padding) {
  std::array<std::byte, 56> padded{};
  const RemoteMemory memory{0x1000, 0x2000, RKey{7}};
  const auto bytes = memory.to_bytes();
  std::copy(bytes.begin(), bytes.end(), padded.begin());
  EXPECT_EQ(*RemoteMemory::from_bytes(padded), memory);
}

TEST(RemoteMemoryRange, stays_inside) {
  const RemoteMemory memory{0xffff'ffff'ffff'f000, 0x1000, RKey{7}};
  EXPECT_EQ(*memory.sub_range(0x10, 0x20), (RemoteMemory{0xffff'ffff'ffff'f010, 0x20, RKey{7}}));
  EXPECT_TRUE(memory.sub_range(0x1000, 0));
  EXPECT_FALSE(memory.sub_range(0x1000, 1));
  EXPECT_FALSE(memory.sub_range(0x1001, 0));
  EXPECT_FALSE(memory.sub_range(1, ~std::uint64_t{0}));
}

TEST(QueuePairAddressBytes, come_back_whole_and_are_no_remote_memory) {
  const QueuePairAddress address{Gid::from_ipv4(127, 0, 0, 1), Qpn{0x123456}, Psn{0xabcdef}, 4096};
  const auto bytes = address.to_bytes();
  EXPECT_EQ(*QueuePairAddress::from_bytes(bytes), address);
  EXPECT_FALSE(RemoteMemory::from_bytes(bytes));
}

TEST(QueuePairAddressBytes, are_refused_when_a_number_is_none_of_a_queue_pair) {
  const QueuePairAddress good{Gid::from_ipv4(127, 0, 0, 1), Qpn{0x123456}, Psn{0xabcdef}, 4096};
  const auto expect_refused = [](std::array<std::byte, QueuePairAddress::kWireBytes> bytes, const char* field) {
    wire_bytes::seal(bytes, 'Q');
    const auto address = QueuePairAddress::from_bytes(bytes);
    ASSERT_FALSE(address) << field;
    EXPECT_EQ(address.error().code(), ErrorCode::CorruptData);
    EXPECT_NE(address.error().to_string().find(field), std::string::npos) << address.error().to_string();
  };
  auto bytes = good.to_bytes();
  bytes[19] = std::byte{1};
  expect_refused(bytes, "queue pair number 17970262 has more than 24 bits");
  bytes = good.to_bytes();
  bytes[23] = std::byte{1};
  expect_refused(bytes, "first PSN 28036591 has more than 24 bits");
  QueuePairAddress bad = good;
  bad.qpn = kGsiQpn;
  expect_refused(bad.to_bytes(), "queue pair number 1 ");
  bad = good;
  bad.mtu = 4097;
  expect_refused(bad.to_bytes(), "MTU 4097");
  bad = good;
  bad.gid = {};
  expect_refused(bad.to_bytes(), "GID");
  bad = good;
  bad.mtu = 0;  // not told
  EXPECT_EQ(*QueuePairAddress::from_bytes(bad.to_bytes()), bad);
}

}  // namespace
}  // namespace verbena
