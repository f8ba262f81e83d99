// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/aeth.h"

#include <gtest/gtest.h>

#include "base/rnr_timer.h"

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
