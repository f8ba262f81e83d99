// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/capture.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "soft/wire/ip.h"
#include "soft/wire/test_capture.h"

namespace verbena::soft {
namespace {

using Bytes = std::vector<std::byte>;

// The packets of a pcapng file in the order they were written.
std::vector<Bytes> packets_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>{stream}, {}};
  std::vector<Bytes> packets;
  constexpr std::uint32_t kEnhancedPacket = 6;
  for (std::size_t at = 0; at + 28 <= bytes.size();) {
    std::uint32_t kind = 0, size = 0, length = 0;
    std::memcpy(&kind, &bytes[at], 4);
    std::memcpy(&size, &bytes[at + 4], 4);
    std::memcpy(&length, &bytes[at + 20], 4);
    if (kind == kEnhancedPacket) {
      const auto packet = std::as_bytes(std::span{bytes}).subspan(at + 28, length);
      packets.emplace_back(packet.begin(), packet.end());
    }
    at += size;
  }
  return packets;
}

// A packet may be dropped before its ICRC was looked at (an unknown queue pair, say); it is captured as it was sent.
TEST(Capture, finds_the_identification_a_socket_does_not_show) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("capture_test." + std::to_string(::getpid()) + ".pcapng");
  const std::vector<Bytes> sent = wire::test::roce_datagrams("rxe-all.pcap");
  ASSERT_FALSE(sent.empty());
  std::unique_ptr<Capture> capture = std::move(*Capture::open(file, "test0"));
  for (const Bytes& bytes : sent) {
    wire::IpDatagram ip;
    ASSERT_EQ(wire::parse_ip(bytes, ip), wire::DropReason::None);
    capture->received({}, ip.path, std::nullopt, ip.payload, ip.payload.size());
  }
  capture.reset();

  const std::vector<Bytes> captured = packets_of(file);
  std::filesystem::remove(file);
  ASSERT_EQ(captured.size(), sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) {
    wire::IpDatagram before, after;
    ASSERT_EQ(wire::parse_ip(sent[i], before), wire::DropReason::None);
    ASSERT_EQ(wire::parse_ip(captured[i], after), wire::DropReason::None);
    EXPECT_EQ(after.identification, before.identification) << "packet " << i;
  }
}

TEST(Capture, says_at_its_end_that_the_file_is_incomplete) {
  std::unique_ptr<Capture> capture = std::move(*Capture::open("/dev/full", "test0"));
  const auto closed = capture->close();
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code(), ErrorCode::ResourceExhausted);
  EXPECT_EQ(closed.error().native(), ENOSPC);
  EXPECT_NE(closed.error().context().find("/dev/full is incomplete"), std::string::npos);
  EXPECT_TRUE(std::move(*Capture::open("/dev/null", "test0"))->close());
}

}  // namespace
}  // namespace verbena::soft
