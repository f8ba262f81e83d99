// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_control.h"

#include <gtest/gtest.h>

#include <optional>

#include "tools/test_must.h"

namespace verbena::tools {
namespace {

class TwoEnds : public testing::Test {
 protected:
  static constexpr Duration kPatience = Duration::seconds(60);
  static bool never() { return false; }

  TwoEnds() {
    auto listener = must(TcpListener::create(Gid::from_ipv4(127, 0, 0, 1), 0));
    auto client = must(TcpLink::connect(Endpoint{"127.0.0.1", listener.port()}, kPatience, never));
    here_.emplace(must(listener.accept(never)), never, kPatience);
    there_.emplace(std::move(client), never, kPatience);
  }

  std::optional<BenchControl> here_;
  std::optional<BenchControl> there_;
};

// Who leaves with something unread resets the connection: what it said before is still there to be read.
TEST_F(TwoEnds, why_the_other_end_left_is_told_also_behind_what_it_said_before) {
  ASSERT_TRUE(here_->send({{"unread", 1}}));
  ASSERT_TRUE(there_->send({{"before", 1}}));
  ASSERT_TRUE(there_->send({{"before", 2}}));
  there_->send_error(Error(ErrorCode::Cancelled, "interrupted"));
  there_.reset();
  const auto sent = here_->send({{"more", 2}});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), ErrorCode::Rejected) << sent.error().to_string();
  EXPECT_NE(sent.error().context().find("interrupted"), std::string::npos) << sent.error().to_string();
}

// Likewise where what was said just before is not acknowledged yet.
TEST_F(TwoEnds, why_the_other_end_left_is_told_after_a_conversation) {
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    ASSERT_TRUE(here_->send({{"turn", turn}}));
    ASSERT_TRUE(there_->receive());
    ASSERT_TRUE(there_->send({{"turn", turn}}));
    ASSERT_TRUE(here_->receive());
  }
  ASSERT_TRUE(here_->send({{"unread", 1}}));
  ASSERT_TRUE(there_->send({{"before", 1}}));
  there_->send_error(Error(ErrorCode::Cancelled, "interrupted"));
  there_.reset();
  const auto sent = here_->send({{"more", 2}});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), ErrorCode::Rejected) << sent.error().to_string();
}

TEST_F(TwoEnds, who_leaves_without_a_word_is_gone) {
  ASSERT_TRUE(here_->send({{"unread", 1}}));
  ASSERT_TRUE(there_->send({{"before", 1}}));
  there_.reset();
  const auto sent = here_->send({{"more", 2}});
  ASSERT_FALSE(sent);
  EXPECT_EQ(sent.error().code(), ErrorCode::ConnectionLost) << sent.error().to_string();
}

}  // namespace
}  // namespace verbena::tools
