// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/aeth.h"

#include <gtest/gtest.h>

namespace verbena::wire {
namespace {

TEST(Aeth, each_of_the_256_syndromes_has_a_kind) {
  for (unsigned syndrome = 0; syndrome < 256; ++syndrome) {
    AethKind expected = AethKind::Reserved;
    if (syndrome < 0x20) expected = AethKind::Ack;
    if (syndrome >= 0x20 && syndrome < 0x40) expected = AethKind::RnrNak;
    if (syndrome >= 0x60 && syndrome <= 0x64) expected = AethKind::Nak;
    EXPECT_EQ(aeth_kind(static_cast<std::uint8_t>(syndrome)), expected) << syndrome;
  }
}

TEST(Aeth, timer_code_0_is_the_longest_wait) {
  EXPECT_EQ(rnr_duration(0), Duration::microseconds(655'360));
  EXPECT_EQ(rnr_duration(1), Duration::microseconds(10));
  EXPECT_EQ(rnr_duration(12), Duration::microseconds(640));
  EXPECT_EQ(rnr_duration(25), Duration::microseconds(61'440));
  EXPECT_EQ(rnr_duration(31), Duration::microseconds(491'520));
}

TEST(Aeth, timer_codes_ascend_from_1_to_31_and_then_0) {
  for (std::uint8_t code = 1; code < 31; ++code)
    EXPECT_LT(rnr_duration(code), rnr_duration(static_cast<std::uint8_t>(code + 1)));
  EXPECT_LT(rnr_duration(31), rnr_duration(0));
}

TEST(Aeth, the_code_for_a_wait_is_the_shortest_that_is_long_enough) {
  for (std::uint8_t code = 0; code < 32; ++code) {
    EXPECT_EQ(rnr_timer_code(rnr_duration(code)), code);
    const std::uint8_t longer = rnr_timer_code(rnr_duration(code) + Duration::nanoseconds(1));
    EXPECT_EQ(longer, code == 0 ? 0 : (code + 1) % 32);
  }
  EXPECT_EQ(rnr_timer_code(Duration{0}), 1);
  EXPECT_EQ(rnr_timer_code(Duration::forever()), 0);
}

TEST(Aeth, only_the_low_five_bits_of_a_syndrome_are_its_code) {
  EXPECT_EQ(rnr_duration(rnr_syndrome(14)), rnr_duration(14));
  EXPECT_EQ(aeth_kind(rnr_syndrome(14)), AethKind::RnrNak);
}

TEST(Aeth, credit_codes_go_both_ways_and_31_is_not_limited) {
  EXPECT_FALSE(credits_of(kSyndromeAck).has_value());
  EXPECT_EQ(credits_of(0), 0u);
  EXPECT_EQ(credits_of(5), 6u);
  EXPECT_EQ(credits_of(30), 32768u);
  for (std::uint8_t code = 0; code < 31; ++code) EXPECT_EQ(credit_code(*credits_of(code)), code);
  EXPECT_EQ(credit_code(5), 4);
  EXPECT_EQ(credit_code(1'000'000), 30);
}

TEST(Aeth, naks_have_words) {
  EXPECT_EQ(to_string(NakCode::SequenceError), "PSN sequence error");
  EXPECT_EQ(to_string(NakCode::RemoteAccess), "remote access error");
}

}  // namespace
}  // namespace verbena::wire
