// SPDX-License-Identifier: Apache-2.0
#include "soft/roce/send_window.h"

#include <gtest/gtest.h>

namespace verbena::roce {
namespace {

constexpr std::uint32_t kMtu = 1024;
constexpr Instant kStart{1'000'000};

Config config_of(std::uint32_t initial = 16) {
  Config config;
  config.initial_window_packets = initial;
  config.max_window_bytes = 64 * kMtu;
  config.min_retransmission_time = Duration::microseconds(10);
  config.initial_retransmission_time = Duration::milliseconds(5);
  return config;
}

SendWindow window_of(const Config& config, std::uint32_t max_packets = 64, std::uint32_t spread = 0) {
  SendWindow window;
  window.reset(config, kMtu, max_packets, spread);
  return window;
}

// One that was sent at a time and answered after another.
void sample(SendWindow& window, std::uint32_t psn, Duration round_trip) {
  window.on_sent(Psn{psn}, kStart);
  window.on_answer(Psn{psn + 1}, kStart + round_trip);
}

TEST(SendWindow, begins_as_configured_and_never_above_its_most) {
  EXPECT_EQ(window_of(config_of(16)).packets(), 16u);
  EXPECT_EQ(window_of(config_of(16), 8).packets(), 8u);
}

TEST(SendWindow, grows_by_what_is_acknowledged_up_to_its_most) {
  SendWindow window = window_of(config_of(16), 40);
  window.on_acknowledged(10, Psn{10});
  EXPECT_EQ(window.packets(), 26u);
  window.on_acknowledged(100, Psn{110});
  EXPECT_EQ(window.packets(), 40u);
}

TEST(SendWindow, is_halved_by_a_loss_once_in_a_round) {
  SendWindow window = window_of(config_of(32));
  window.on_loss(Psn{100});
  EXPECT_EQ(window.packets(), 16u);
  window.on_loss(Psn{100});
  EXPECT_EQ(window.packets(), 16u) << "of the same round";
  window.on_acknowledged(1, Psn{99});
  window.on_loss(Psn{120});
  EXPECT_EQ(window.packets(), 16u) << "one is still out of those that were then";
  window.on_acknowledged(1, Psn{100});
  window.on_loss(Psn{120});
  EXPECT_EQ(window.packets(), 8u);
  for (std::uint32_t end = 200; end < 300; ++end) {
    window.on_acknowledged(0, Psn{end});
    window.on_loss(Psn{end + 1});
  }
  EXPECT_EQ(window.packets(), 1u) << "never less";
}

// What is out is bounded by bytes, too: half of more than those would be no less than before.
TEST(SendWindow, is_halved_from_what_its_bytes_let_out) {
  Config config = config_of(48);
  config.max_window_bytes = 16 * kMtu;
  SendWindow window = window_of(config);
  EXPECT_EQ(window.full_packets(), 16u);
  window.on_loss(Psn{100});
  EXPECT_EQ(window.packets(), 8u);
}

TEST(SendWindow, grows_by_one_in_a_round_once_it_lost) {
  SendWindow window = window_of(config_of(32), 18);
  window.on_loss(Psn{100});
  ASSERT_EQ(window.packets(), 9u);
  std::uint32_t psn = 100;
  const auto acknowledge = [&](std::uint32_t packets) { window.on_acknowledged(packets, Psn{psn += packets}); };
  acknowledge(8);
  EXPECT_EQ(window.packets(), 9u);
  acknowledge(1);
  EXPECT_EQ(window.packets(), 10u);
  acknowledge(9);
  EXPECT_EQ(window.packets(), 10u);
  for (int round = 0; round < 40; ++round) acknowledge(window.packets());
  EXPECT_EQ(window.packets(), 18u) << "and no further";
}

TEST(SendWindow, waits_for_the_smoothed_round_trip_and_four_times_its_variation) {
  SendWindow window = window_of(config_of());
  EXPECT_EQ(window.retransmission_time(), Duration::milliseconds(5));
  sample(window, 1, Duration::microseconds(800));  // SRTT 800, RTTVAR 400
  EXPECT_EQ(window.retransmission_time(), Duration::microseconds(2400));
  sample(window, 2, Duration::microseconds(800));  // RTTVAR 300
  EXPECT_EQ(window.retransmission_time(), Duration::microseconds(2000));
  sample(window, 3, Duration::microseconds(1600));  // RTTVAR 300 + (800 - 300) / 4, SRTT 800 + 800 / 8
  EXPECT_EQ(window.retransmission_time(), Duration::microseconds(900 + 4 * 425));
}

TEST(SendWindow, waits_no_less_than_the_minimum) {
  SendWindow window = window_of(config_of());
  for (std::uint32_t psn = 1; psn < 100; ++psn) sample(window, psn, Duration::nanoseconds(100));
  EXPECT_EQ(window.retransmission_time(), Duration::microseconds(10));
}

TEST(SendWindow, takes_one_sample_at_a_time_and_not_before_it_is_answered) {
  SendWindow window = window_of(config_of());
  window.on_sent(Psn{5}, kStart);
  window.on_sent(Psn{6}, kStart + Duration::microseconds(700));
  window.on_answer(Psn{5}, kStart + Duration::microseconds(1));  // 5 is the next that is expected
  EXPECT_EQ(window.retransmission_time(), Duration::milliseconds(5));
  window.on_answer(Psn{7}, kStart + Duration::microseconds(800));
  EXPECT_EQ(window.retransmission_time(), Duration::microseconds(2400)) << "of the first";
  window.on_answer(Psn{8}, kStart + Duration::seconds(1));
  EXPECT_EQ(window.retransmission_time(), Duration::microseconds(2400)) << "nothing was timed";
}

// Karn: whether the first or the second was answered nobody knows.
TEST(SendWindow, takes_no_sample_over_a_loss) {
  SendWindow window = window_of(config_of());
  window.on_sent(Psn{5}, kStart);
  window.on_loss(Psn{6});
  window.on_answer(Psn{6}, kStart + Duration::microseconds(800));
  EXPECT_EQ(window.retransmission_time(), Duration::milliseconds(5));
  window.on_sent(Psn{6}, kStart);
  window.on_loss(Psn{7});  // in the same round
  window.on_answer(Psn{7}, kStart + Duration::microseconds(800));
  EXPECT_EQ(window.retransmission_time(), Duration::milliseconds(5));
}

TEST(SendWindow, waits_twice_as_long_after_each_expiry_until_something_is_acknowledged) {
  SendWindow window = window_of(config_of());
  for (int i = 0; i < 40; ++i) {
    EXPECT_EQ(window.retransmission_time(), Duration::milliseconds(5) * (std::int64_t{1} << std::min(i, 16))) << i;
    window.on_expiry();
  }
  window.on_acknowledged(1, Psn{1});
  EXPECT_EQ(window.retransmission_time(), Duration::milliseconds(5));
}

TEST(SendWindow, q029_a_spread_lengthens_each_wait_by_less_than_an_eighth) {
  EXPECT_EQ(window_of(config_of(), 64, 0).retransmission_time(), Duration::milliseconds(5));
  const Duration longest = window_of(config_of(), 64, 255).retransmission_time();
  EXPECT_GT(longest, Duration::milliseconds(5) * 11 / 10);
  EXPECT_LT(longest, Duration::milliseconds(5) * 9 / 8);
}

}  // namespace
}  // namespace verbena::roce
