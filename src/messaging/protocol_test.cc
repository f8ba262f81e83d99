// SPDX-License-Identifier: Apache-2.0
#include "verbena/messaging/protocol.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "messaging/offer.h"
#include "messaging/rate_limiter.h"

namespace verbena::messaging {
namespace {

TEST(Kind, every_kind_has_a_name_that_is_read_back) {
  for (const Protocol protocol : all_protocols())
    for (int choices = 0; choices < 24; ++choices) {
      Kind kind{.protocol = protocol};
      if (protocol == Protocol::BufferedWrite) {
        kind.commit = static_cast<Commit>(choices % 3);
        kind.acknowledge = static_cast<Acknowledge>(choices / 3 % 2);
        kind.ring = static_cast<RingMemory>(choices / 6 % 2);
      }
      if (protocol == Protocol::DirectRead) kind.fenced = choices % 2 != 0;
      const auto read = parse_kind(to_string(kind));
      ASSERT_TRUE(read) << to_string(kind);
      EXPECT_EQ(*read, kind) << to_string(kind);
    }
  EXPECT_EQ(to_string(*parse_kind("buffered-write/double-mapped/reversed/read")),
            "buffered-write/reversed/read/double-mapped");
  EXPECT_FALSE(parse_kind("send-receive/"));
  EXPECT_FALSE(parse_kind("buffered-write/offset/"));
  // Defaults have names, too, which none needs to say.
  for (const char* name : {"buffered-write/immediate", "buffered-write/send", "buffered-write/plain",
                           "buffered-write/immediate/send/plain", "shared-write/plain", "buffered-read/plain"}) {
    const auto read = parse_kind(name);
    ASSERT_TRUE(read) << name;
    EXPECT_EQ(*read, Kind{.protocol = read->protocol}) << name;
    EXPECT_EQ(to_string(*read) + "/", std::string(name).substr(0, to_string(*read).size() + 1));
  }
}

TEST(Kind, a_name_that_is_none_is_refused_with_the_word_that_is_wrong) {
  for (const char* text : {"", "send", "send-receive/fenced", "direct-read/offset", "direct-read/plain",
                           "buffered-read/send", "a/b"}) {
    const auto read = parse_kind(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::InvalidArgument);
    EXPECT_NE(read.error().to_string().find(text), std::string::npos);
  }
}

TEST(Kind, a_name_that_chooses_twice_is_refused_with_both_choices) {
  struct {
    const char *text, *why;
  } const kNames[] = {{"buffered-write/immediate/offset", "\"immediate\" and \"offset\" exclude each other"},
                      {"buffered-write/offset/immediate", "\"offset\" and \"immediate\" exclude each other"},
                      {"buffered-write/reversed/read/offset", "\"reversed\" and \"offset\" exclude each other"},
                      {"buffered-write/immediate/immediate", "\"immediate\" stands there twice"},
                      {"buffered-write/send/read", "\"send\" and \"read\" exclude each other"},
                      {"buffered-write/read/read", "\"read\" stands there twice"},
                      {"buffered-read/double-mapped/double-mapped", "\"double-mapped\" stands there twice"},
                      {"direct-read/fenced/fenced", "\"fenced\" stands there twice"}};
  for (const auto& [text, why] : kNames) {
    const auto read = parse_kind(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), ErrorCode::InvalidArgument);
    EXPECT_NE(read.error().to_string().find(why), std::string::npos) << read.error().to_string();
  }
}

TEST(Kind, where_a_device_promises_no_order_inside_a_write_another_commit_is_taken) {
  const Kind reversed{
      .protocol = Protocol::BufferedWrite, .commit = Commit::Reversed, .acknowledge = Acknowledge::Read};
  EXPECT_TRUE(traits_of(reversed).order_in_write);
  const Kind other = without_order_in_write(reversed);
  EXPECT_FALSE(traits_of(other).order_in_write);
  EXPECT_EQ(to_string(other), "buffered-write/offset/read");
  EXPECT_EQ(traits_of(other).passive, PassiveSide::Receiver) << "who issues nothing goes on to issue nothing";
  EXPECT_EQ(to_string(without_order_in_write(*parse_kind("buffered-write/reversed/double-mapped"))),
            "buffered-write/double-mapped");
  for (const char* name : {"send-receive", "buffered-write/offset", "buffered-write/read", "buffered-read"})
    EXPECT_EQ(to_string(without_order_in_write(*parse_kind(name))), name);
}

bool gives(const Traits& t, const Requirements& w) {
  return (w.order_in_write || !t.order_in_write) && (!w.large_without_copy || t.zero_copy) &&
         (!w.receiver_sleeps || t.interrupts) && (!w.idle_sender || t.passive == PassiveSide::Sender) &&
         (!w.idle_receiver || t.passive == PassiveSide::Receiver) && (!w.hold_messages || t.non_blocking) &&
         (!w.distrust || t.isolates_senders) && (w.senders <= 8 || !w.little_memory || t.shares_memory);
}

std::vector<Kind> every_kind() {
  std::vector<Kind> all;
  for (const Protocol protocol : all_protocols())
    for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed})
      for (const Acknowledge acknowledge : {Acknowledge::Send, Acknowledge::Read})
        all.push_back({protocol, commit, acknowledge});
  return all;
}

TEST(Recommend, what_is_recommended_gives_what_was_asked_for_and_what_is_refused_nothing_gives) {
  std::set<std::string> recommended;
  for (int wishes = 0; wishes < 1 << 10; ++wishes)
    for (const std::uint32_t senders : {1u, 8u, 9u, 64u}) {
      const auto has = [&](int bit) { return (wishes >> bit & 1) != 0; };
      const Requirements w{has(0), has(1), has(2), senders, has(3), has(4), has(5), has(6), has(7), has(8), has(9)};
      const std::string text = std::to_string(wishes) + " for " + std::to_string(senders);
      const auto it = recommend(w);
      if (!it) {
        EXPECT_NE(it.error().to_string().find("exclude each other"), std::string::npos);
        for (const Kind& kind : every_kind())
          EXPECT_FALSE(gives(traits_of(kind), w)) << to_string(kind) << " " << text;
        continue;
      }
      recommended.insert(to_string(it->kind));
      EXPECT_TRUE(gives(traits_of(it->kind), w)) << to_string(it->kind) << " " << text;
      EXPECT_EQ(it->reason.find(to_string(it->kind.protocol)), 0u) << text;
    }
  EXPECT_EQ(recommended.size(), 11u) << "one that is never recommended";
}

TEST(Recommend, preferences_decide_among_those_that_give_it) {
  const auto kind = [](const Requirements& w) { return to_string(recommend(w)->kind); };
  EXPECT_EQ(kind({}), "send-receive");
  EXPECT_EQ(kind({.lowest_latency = true}), "buffered-write/reversed");
  EXPECT_EQ(kind({.lowest_latency = true, .receiver_sleeps = true}), "send-receive");
  EXPECT_EQ(kind({.lowest_latency = true, .order_in_write = false}), "send-receive");
  EXPECT_EQ(kind({.lowest_latency = true, .large_without_copy = true}), "direct-write");
  EXPECT_EQ(kind({.large_without_copy = true}), "direct-read");
  EXPECT_EQ(kind({.many_small = true}), "buffered-write/reversed");
  EXPECT_EQ(kind({.many_small = true, .order_in_write = false}), "buffered-write/offset");
  EXPECT_EQ(kind({.many_small = true, .receiver_sleeps = true}), "buffered-write");
  EXPECT_EQ(kind({.many_small = true, .senders = 64, .little_memory = true}), "shared-write");
  EXPECT_EQ(kind({.many_small = true, .senders = 64, .little_memory = true, .distrust = true}), "shared-receive");
  EXPECT_EQ(kind({.senders = 64, .little_memory = true}), "shared-receive");
  EXPECT_EQ(kind({.senders = 64}), "shared-receive");
  EXPECT_EQ(kind({.senders = 8}), "send-receive");
  EXPECT_EQ(kind({.many_small = true, .senders = 64}), "shared-write");
  EXPECT_EQ(kind({.lowest_latency = true, .senders = 64}), "buffered-write/reversed");
  EXPECT_EQ(kind({.idle_receiver = true, .order_in_write = false}), "buffered-write/offset/read");
}

TEST(Recommend, a_refusal_names_what_excludes_each_other) {
  const auto why = [](const Requirements& w) { return recommend(w).error().to_string(); };
  EXPECT_NE(why({.idle_receiver = true, .idle_sender = true}).find("idle_receiver and idle_sender exclude"),
            std::string::npos);
  EXPECT_NE(why({.large_without_copy = true, .idle_sender = true, .order_in_write = false})
                .find("idle_sender and large_without_copy exclude"),
            std::string::npos);
  EXPECT_NE(why({.senders = 64, .little_memory = true, .idle_receiver = true})
                .find("idle_receiver and little_memory for many senders exclude"),
            std::string::npos);
  EXPECT_NE(why({.senders = 0}).find("no senders"), std::string::npos);
}

TEST(RateLimiter, a_burst_goes_at_once_and_the_rest_at_the_rate) {
  RateLimiter limiter({.messages_per_second = 1000, .burst = 4});
  Instant now{1'000'000'000};
  int went = 0;
  for (; limiter.allows(now); ++went) limiter.take(now, 100);
  EXPECT_EQ(went, 4);
  EXPECT_EQ(limiter.next(), now + Duration::milliseconds(1));
  for (const Instant end = now + Duration::seconds(1); now < end; now = limiter.next(), ++went)
    limiter.take(now, 100);
  EXPECT_NEAR(went, 1004, 1);
}

TEST(RateLimiter, bytes_count_too) {
  RateLimiter limiter({.bytes_per_second = 1'000'000});
  const Instant now{5};
  limiter.take(now, 1000);
  EXPECT_FALSE(limiter.allows(now));
  EXPECT_EQ(limiter.next(), now + Duration::milliseconds(1));
}

}  // namespace
}  // namespace verbena::messaging
