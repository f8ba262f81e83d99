// SPDX-License-Identifier: Apache-2.0
// The faults of the network, one by one: F1 loss, F2 chosen losses, F3 reordering, F4 duplication and replay,
// F5 corruption, F6 delay, F26 wraps.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/run.h"

namespace verbena::sim {
namespace {

constexpr std::uint64_t kSeeds = 12;

// Busy, valid work between two nodes that nobody kills.
Options busy(std::uint64_t seed) {
  Options o;
  o.seed = seed;
  o.queues.path_mtu = 256;
  o.queues.timeout = 14;
  o.queues.near_wrap = seed % 2 == 0;
  o.work.pairs = 2;
  o.work.operations = 300;
  o.work.late_receive = seed % 3 == 0 ? 0.5 : 0;
  o.transport.initial_retransmission_time = Duration::milliseconds(1);
  return o;
}

std::uint64_t count(const RunResult& result, CompletionStatus status) {
  return result.coverage.statuses[static_cast<std::size_t>(status)];
}

// Every promise is kept and nothing ends with an error.
void expect_clean(const Options& options) {
  const RunResult result = run(options);
  EXPECT_TRUE(result.ok()) << result.failed_oracle << ": " << result.detail << '\n' << to_string(options);
  EXPECT_EQ(count(result, CompletionStatus::RetryExceeded), 0u) << to_string(options);
  EXPECT_EQ(count(result, CompletionStatus::RnrRetryExceeded), 0u) << to_string(options);
}

TEST(Faults, f1_loss_of_any_rate_up_to_30_percent_fails_nothing) {
  for (const double loss : {0.001, 0.01, 0.05, 0.1, 0.3})
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Options o = busy(seed);
      o.network.loss = loss;
      expect_clean(o);
    }
}

TEST(Faults, f1_bursts_of_loss_fail_nothing) {
  for (const double begin : {0.005, 0.02, 0.05})
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Options o = busy(seed);
      o.network.burst_begin = begin;
      o.network.burst_end = 0.3;
      expect_clean(o);
    }
}

// One message on a quiet link, with chosen packets lost.
Options one_message(SendOpcode opcode, std::uint32_t packets) {
  Options o;
  o.seed = 7;
  o.queues.path_mtu = 256;
  o.queues.near_wrap = true;
  o.queues.timeout = 14;
  o.transport.ack_request_interval = 4;
  const bool atomic = opcode >= SendOpcode::CompareAndSwap;
  o.work.script = {{opcode, atomic ? 8 : packets * 256 - 3, SendFlags::Signaled}};
  return o;
}

constexpr SendOpcode kOpcodes[] = {SendOpcode::RdmaWrite,  SendOpcode::RdmaWriteWithImmediate,
                                   SendOpcode::Send,       SendOpcode::SendWithImmediate,
                                   SendOpcode::RdmaRead,   SendOpcode::CompareAndSwap,
                                   SendOpcode::FetchAndAdd};

void expect_recovery(Options o, std::vector<std::uint64_t> lose, Duration limit) {
  o.network.lose = std::move(lose);
  const RunResult result = run(o);
  std::string lost;
  for (const std::uint64_t ordinal : o.network.lose) lost += " " + std::to_string(ordinal);
  EXPECT_TRUE(result.ok()) << result.failed_oracle << ": " << result.detail << "; lost:" << lost;
  EXPECT_EQ(count(result, CompletionStatus::Success),
            result.completions - count(result, CompletionStatus::Flushed));
  EXPECT_EQ(count(result, CompletionStatus::RetryExceeded), 0u) << "lost:" << lost;
  EXPECT_LE(result.virtual_time, limit) << "lost:" << lost;
}

// A single loss costs one retransmission time at most, two losses two, the second of them doubled.
TEST(Faults, f2_every_loss_of_up_to_two_packets_of_a_short_message_is_recovered) {
  const Duration slack = Duration::milliseconds(3);
  for (const SendOpcode opcode : kOpcodes) {
    const std::uint32_t most = opcode >= SendOpcode::CompareAndSwap ? 1 : 8;
    for (std::uint32_t packets = 1; packets <= most; ++packets) {
      const Options o = one_message(opcode, packets);
      const Duration wait = o.transport.initial_retransmission_time;
      const RunResult calm = run(o);
      ASSERT_TRUE(calm.ok()) << calm.failed_oracle << ": " << calm.detail;
      const std::uint64_t last = calm.packets + 3;
      for (std::uint64_t i = 0; i < last; ++i) {
        expect_recovery(o, {i}, wait + slack);
        for (std::uint64_t j = i + 1; j < last; ++j) expect_recovery(o, {i, j}, wait * 3 + slack);
      }
    }
  }
}

TEST(Faults, f2_every_single_loss_of_a_message_of_sixteen_packets_is_recovered) {
  for (const SendOpcode opcode : {SendOpcode::RdmaWrite, SendOpcode::Send, SendOpcode::RdmaRead}) {
    const Options o = one_message(opcode, 16);
    const std::uint64_t last = run(o).packets + 2;
    for (std::uint64_t i = 0; i < last; ++i)
      expect_recovery(o, {i}, o.transport.initial_retransmission_time + Duration::milliseconds(1));
  }
}

TEST(Faults, f3_reordering_of_any_depth_harms_nothing) {
  for (const std::int64_t microseconds : {1, 10, 100, 1000})
    for (const double rate : {0.05, 0.5})
      for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        Options o = busy(seed);
        o.network.reorder = rate;
        o.network.reorder_delay = Duration::microseconds(microseconds);
        expect_clean(o);
      }
}

TEST(Faults, f4_duplicates_and_replays_have_no_effect) {
  for (const double rate : {0.05, 0.5})
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Options o = busy(seed);
      o.network.duplicate = rate;
      o.network.max_duplicates = 5;
      o.network.replay = rate / 5;
      o.network.replay_delay = Duration::milliseconds(3);
      o.network.loss = seed % 2 == 0 ? 0.05 : 0;
      expect_clean(o);
    }
}

// A READ or atomic asked for again is no further one: the peer sends the next when it has the first answer.
TEST(Faults, f4_duplicates_of_reads_and_atomics_do_not_count_against_the_responders_limit) {
  for (std::uint64_t seed = 1; seed <= 3 * kSeeds; ++seed) {
    Options o = busy(seed);
    o.work.weights = {1, 0, 1, 0, 4, 4, 4};
    o.queues.rd_atomic = 1;
    o.network.duplicate = 0.3;
    o.network.loss = 0.1;
    o.host.max_poll_delay = Duration::microseconds(20);
    expect_clean(o);
  }
}

TEST(Faults, f4_packets_of_an_earlier_life_do_not_reach_the_next) {
  std::uint64_t lives = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    Options o = busy(seed);
    o.network.replay = 0.3;
    o.network.replay_delay = Duration::milliseconds(2);
    o.work.kill = 0.02;
    o.work.operations = 2000;
    const RunResult result = run(o);
    EXPECT_TRUE(result.ok()) << result.failed_oracle << ": " << result.detail;
    lives += result.connections;
  }
  EXPECT_GT(lives, 3 * kSeeds);
}

TEST(Faults, f5_damaged_datagrams_have_no_effect) {
  for (const double rate : {0.01, 0.1, 0.3})
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Options o = busy(seed);
      o.network.corrupt = rate;
      o.ipv6 = seed % 2 == 0;
      expect_clean(o);
    }
}

// Whatever bit of whatever packet is flipped: the packet is as good as lost. Byte 4 is outside the ICRC, and
// reserved.
TEST(Faults, f5_every_single_bit_flip_in_every_kind_of_packet_is_detected) {
  for (const SendOpcode opcode : kOpcodes) {
    Options o = one_message(opcode, 3);
    if (opcode < SendOpcode::CompareAndSwap) o.work.script[0].length = 2 * 256 + 5;
    o.queues.near_wrap = false;
    std::vector<std::size_t> bytes;
    run(o, [&](const PacketRecord& record) { bytes.push_back(record.datagram.size()); });
    for (std::uint64_t packet = 0; packet < bytes.size(); ++packet)
      for (std::size_t bit = 0; bit < bytes[packet] * 8; ++bit) {
        const bool payload = bit > 60 * 8 && bit + 64 < bytes[packet] * 8;
        if (bit / 8 == 4 || (payload && bit % 61 != 0)) continue;
        o.network.flip = NetworkOptions::Flip{packet, static_cast<std::uint32_t>(bit)};
        const RunResult result = run(o);
        ASSERT_TRUE(result.ok()) << "packet " << packet << " bit " << bit << ": " << result.failed_oracle
                                 << ": " << result.detail;
        ASSERT_EQ(count(result, CompletionStatus::RetryExceeded), 0u)
            << "packet " << packet << " bit " << bit;
      }
  }
}

TEST(Faults, f6_delays_of_a_hundred_round_trips_repeat_no_effect_and_kill_nothing) {
  for (const bool orderly : {true, false})
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Options o = busy(seed);
      o.network.jitter = orderly ? o.network.delay * 200 : Duration{};
      o.network.reorder = orderly ? 0 : 0.2;
      o.network.reorder_delay = o.network.delay * 200;
      expect_clean(o);
    }
}

TEST(Faults, f26_wraps_of_sequence_numbers_and_time_are_invisible) {
  for (const std::int64_t wrap : {std::int64_t{0}, std::int64_t{1} << 31, std::int64_t{1} << 32,
                                  std::int64_t{1} << 53, std::int64_t{1} << 62})
    for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
      Options o = busy(seed);
      o.start = Instant{wrap - 500'000};
      o.queues.near_wrap = true;
      o.work.operations = 600;
      o.work.max_packets = 16;
      o.network.loss = 0.02;
      expect_clean(o);
    }
}

// Found among many.
TEST(Faults, seeds_that_once_failed_pass) {
  // A packet that asks for no acknowledgement meets no receive; a copy of it does, and is acknowledged meanwhile.
  constexpr std::uint64_t kAcknowledgedWhileNotReady = 773'079'768;
  const RunResult result = run(options_for_seed(kAcknowledgedWhileNotReady));
  EXPECT_TRUE(result.ok()) << result.failed_oracle << ": " << result.detail;
}

}  // namespace
}  // namespace verbena::sim
