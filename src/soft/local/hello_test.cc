// SPDX-License-Identifier: Apache-2.0
#include "soft/local/hello.h"

#include <gtest/gtest.h>

#include "soft/local/grants.h"

#include <gtest/gtest.h>

namespace verbena::local {
namespace {

constexpr Hello kHello{4096, {Gid::from_ipv4(127, 0, 0, 1), Qpn{0x11}}, {Gid::from_ipv4(127, 0, 0, 2), Qpn{0xffffff}}};

std::array<std::byte, kHelloBytes> bytes_of(const Hello& hello) {
  std::array<std::byte, kHelloBytes> bytes;
  emit(hello, bytes);
  return bytes;
}

Error refusal_with(std::size_t at, unsigned value) {
  auto bytes = bytes_of(kHello);
  bytes.at(at) = static_cast<std::byte>(value);
  auto hello = parse_hello(bytes);
  EXPECT_FALSE(hello) << at;
  return hello ? Error{ErrorCode::Internal, ""} : hello.error();
}

TEST(Hello, comes_back_as_it_was_sent) {
  const auto parsed = parse_hello(bytes_of(kHello));
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(*parsed, kHello);
}

TEST(Hello, another_version_is_named) {
  const Error error = refusal_with(8, kVersion + 1);
  EXPECT_EQ(error.code(), ErrorCode::NotSupported);
  EXPECT_NE(error.context().find("by version 7, this process by version 6"), std::string::npos)
      << error.to_string();
}

TEST(Hello, what_does_not_go_together_is_refused) {
  EXPECT_EQ(refusal_with(0, 'v').code(), ErrorCode::ProtocolError);
  EXPECT_EQ(refusal_with(12, 71).code(), ErrorCode::ProtocolError);
  EXPECT_EQ(refusal_with(17, 0xff).code(), ErrorCode::ProtocolError);  // another segment size
  EXPECT_EQ(refusal_with(24, 1).code(), ErrorCode::ProtocolError);     // no power of two
  EXPECT_EQ(refusal_with(25, 0).code(), ErrorCode::ProtocolError);     // no ring
  EXPECT_EQ(refusal_with(25, 0x20).code(), ErrorCode::ProtocolError);  // another ring, not another segment
  EXPECT_EQ(refusal_with(27, 0x80).code(), ErrorCode::ProtocolError);
  EXPECT_EQ(refusal_with(28, 1).code(), ErrorCode::ProtocolError);
  EXPECT_EQ(refusal_with(67, 1).code(), ErrorCode::ProtocolError);  // QPN over 24 bits
  const auto bytes = bytes_of(kHello);
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(parse_hello(std::span(bytes).first(length))) << length;
}

TEST(Hello, its_answer_comes_back_as_it_was_sent_or_is_refused) {
  std::array<std::byte, kAnswerBytes> bytes;
  for (const Answer answer : {Answer::Accept, Answer::Roce, Answer::Unknown, Answer::Crossed}) {
    emit(answer, bytes);
    const auto parsed = parse_answer(bytes);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(*parsed, answer);
  }
  for (const std::size_t at : {0u, 8u, 12u, 15u}) {
    auto broken = bytes;
    broken[at] ^= std::byte{0x10};
    EXPECT_FALSE(parse_answer(broken)) << at;
  }
  EXPECT_FALSE(parse_answer(std::span(bytes).first(15)));
}

constexpr Want kWant{kHello.from, kHello.to, RKey{0x1234567}};
constexpr Lend kLend{RKey{5}, kMostGrants - 1, Access::RemoteRead | Access::RemoteWrite, 0x10000,
                     4096,   0x7f00};

TEST(Hello, a_wish_for_a_region_comes_back_as_it_was_sent_or_is_refused) {
  std::array<std::byte, kWantBytes> bytes;
  emit(kWant, bytes);
  ASSERT_TRUE(is_want(bytes));
  EXPECT_EQ(*parse_want(bytes), kWant);
  for (const std::size_t at : {0u, 8u, 51u, 55u}) {
    auto broken = bytes;
    broken[at] ^= std::byte{0x10};
    EXPECT_FALSE(parse_want(broken)) << at;
  }
  for (std::size_t length = 0; length < bytes.size(); ++length)
    EXPECT_FALSE(parse_want(std::span(bytes).first(length))) << length;
  EXPECT_FALSE(is_want(bytes_of(kHello)));
}

TEST(Hello, a_lent_region_comes_back_as_it_was_sent_or_is_refused) {
  std::array<std::byte, kLendBytes> bytes;
  emit(kLend, bytes);
  EXPECT_EQ(*parse_lend(bytes), kLend);
  for (const std::size_t at : {0u, 8u, 16u, 20u, 23u}) {
    auto broken = bytes;
    broken[at] ^= std::byte{0x40};
    EXPECT_FALSE(parse_lend(broken)) << at;
  }
  for (Lend lend : {kLend, kLend, kLend}) {
    static int which = 0;
    (which == 0 ? lend.length : which == 1 ? lend.iova : lend.address) = which == 0 ? 0 : ~std::uint64_t{0};
    ++which;
    emit(lend, bytes);
    EXPECT_FALSE(parse_lend(bytes)) << which;
  }
  emit(Lend{RKey{5}}, bytes);
  EXPECT_EQ(parse_lend(bytes)->access, Access::None) << "a refusal needs no more";
  EXPECT_FALSE(parse_lend(std::span(bytes).first(kLendBytes - 1)));
}

TEST(Hello, the_parts_of_a_segment_do_not_touch) {
  for (std::uint32_t capacity = kMinRingCapacity; capacity <= kMaxRingCapacity; capacity *= 2) {
    const SegmentLayout layout = layout_of(capacity);
    EXPECT_GE(layout.acceptor_wake, layout.opener_wake + kWriterBytes);
    EXPECT_GE(layout.opener_claim, layout.acceptor_wake + kWriterBytes);
    EXPECT_GE(layout.acceptor_claim, layout.opener_claim + kWriterBytes);
    EXPECT_GE(layout.opener_grants, layout.acceptor_claim + kWriterBytes);
    EXPECT_GE(layout.acceptor_grants, layout.opener_grants + kGrantTableBytes);
    EXPECT_GE(layout.opener_ring, layout.acceptor_grants + kGrantTableBytes);
    EXPECT_GE(layout.acceptor_ring, layout.opener_ring + ring_bytes(capacity));
    EXPECT_GE(layout.bytes, layout.acceptor_ring + ring_bytes(capacity));
    EXPECT_EQ(layout.acceptor_ring % kLineBytes, 0u);
  }
}

}  // namespace
}  // namespace verbena::local
