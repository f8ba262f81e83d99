// SPDX-License-Identifier: Apache-2.0
// What traits_of() says of a kind is how that kind behaves.
#include <algorithm>

#include "../api/test_process.h"
#include "base/sanitizer.h"
#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::PassiveSide;
using messaging::traits_of;

class TraitsOf : public ::testing::TestWithParam<Way> {
 protected:
  static messaging::Traits traits() { return traits_of(GetParam().kind); }
};
INSTANTIATE_TEST_SUITE_P(Messaging, TraitsOf, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

// ---- A message that is kept.

// Keeps the first message, and gives the others back, each two in the wrong order.
class Keeper {
 public:
  static constexpr std::size_t kBytes = 512;

  Keeper(Ends& ends, Sender& sender) : ends_(ends), sender_(sender) {}
  // Until that many came, or nothing moves any more.
  void run(std::uint32_t most) {
    for (Quiet quiet(ends_); came_ < most && !quiet.is_long(); ends_.engine.run_once()) {
      for (; sender_.try_send(text_of_message(0, sent_, kBytes)); ++sent_) quiet.end();
      while (auto message = ends_.receiver->try_receive()) {
        quiet.end();
        take(std::move(*message));
      }
    }
    others_.clear();
  }
  bool first_is_whole() const { return is_message(first_, 0, kBytes); }
  void give_first_back() { first_.give_back(); }
  std::uint32_t sent() const { return sent_; }
  std::uint32_t came() const { return came_; }

 private:
  void take(Message message) {
    EXPECT_TRUE(is_message(message, came_, kBytes)) << came_;
    if (came_++ == 0) return void(first_ = std::move(message));
    others_.push_back(std::move(message));
    if (others_.size() < 2) return;
    others_.back().give_back();
    others_.clear();
  }

  Ends& ends_;
  Sender& sender_;
  Message first_;
  std::vector<Message> others_;
  std::uint32_t sent_ = 0, came_ = 0;
};

TEST_P(TraitsOf, a_kept_message_holds_back_those_behind_it_where_they_say_so_alone) {
  constexpr std::uint32_t kMost = 17;  // in flight: the depth at each end; a ring of 16 and its gap
  Ends ends(GetParam(), {.max_message_bytes = Keeper::kBytes, .depth = 8, .ring_bytes = 8192, .max_senders = 1});
  Sender sender = ends.connect();
  Keeper keeper(ends, sender);
  keeper.run(20 * kMost);
  EXPECT_TRUE(keeper.first_is_whole());
  if (traits().non_blocking) {
    EXPECT_GE(keeper.came(), 20 * kMost);
  } else {
    EXPECT_LE(keeper.sent(), kMost);
    EXPECT_EQ(keeper.came(), keeper.sent());
    EXPECT_EQ(sender.try_send(text_of_message(0, 0, Keeper::kBytes)).status, SendStatus::NoCredit);
  }
  keeper.give_first_back();
  keeper.run(40 * kMost);
  EXPECT_GE(keeper.came(), 40 * kMost);
}

// ---- A side that issues nothing.

TEST_P(TraitsOf, a_passive_side_posts_nothing_while_messages_pass_and_others_do) {
  constexpr std::uint32_t kMessages = kSanitized ? 300 : 1000;
  std::uint64_t by_sender = 0, by_receiver = 0;
  const StandardOptions here{.promises = true, .keeps = true, .posts = &by_sender};
  const StandardOptions there{.promises = true, .keeps = true, .posts = &by_receiver};
  Options options{.max_message_bytes = 600, .depth = 16, .ring_bytes = 16384, .max_senders = 1};
  options.connection.keep_alive = Duration::seconds(3600);
  Ends ends(must(open_standard(GetParam().path, here)), must(open_standard(GetParam().path, there)), GetParam(),
            options, 20, {.wait = WaitMode::Busy});
  Sender sender = ends.connect();
  ASSERT_EQ(sender.kind(), GetParam().kind);
  std::uint32_t sent = 0, got = 0;
  const auto size_of = [](std::uint32_t n) { return std::size_t{n} * 37 % 601; };
  const auto pass = [&](std::uint32_t end) {
    const auto both = [&] {
      while (sent < end && sender.try_send(text_of_message(0, sent, size_of(sent)))) ++sent;
      while (auto message = ends.receiver->try_receive()) {
        EXPECT_TRUE(is_message(*message, got, size_of(got))) << got;
        ++got;
      }
      return got == end;
    };
    ASSERT_TRUE(ends.engine.run_until(both, kPatience)) << got << " of " << sent;
  };
  pass(10);
  by_sender = by_receiver = 0;
  pass(10 + kMessages);
  EXPECT_EQ(by_sender == 0, traits().passive == PassiveSide::Sender) << by_sender;
  EXPECT_EQ(by_receiver == 0, traits().passive == PassiveSide::Receiver) << by_receiver;
}

// ---- A receiver that sleeps.

std::vector<Way> ways_that_wake() {
  std::vector<Way> all;
  for (const Way& way : every_way())
    if (traits_of(way.kind).interrupts) all.push_back(way);
  return all;
}

class Sleepers : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Sleepers, ::testing::ValuesIn(ways_that_wake()),
                         [](const auto& way) { return name_of(way.param); });

Options of_a_sleeper(const Way& way) {
  Options options{.kind = way.kind, .max_message_bytes = 256, .depth = 8, .max_senders = 1};
  options.connection.reliability.timeout = 20;
  options.connection.keep_alive = Duration::seconds(3600);  // nothing else wakes it
  return options;
}

// Sends a message, is idle for a while, and sends another; and so on.
constexpr std::uint32_t kIdleTimes = 4;
void send_now_and_then(const Way& way, Reception& reception, const std::function<void(const std::string&)>& say) {
  const std::string address = reception.hear();
  Device device = must(Device::open(OpenOptions{.path = way.path}));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  Sender sender = must(Sender::connect(engine, address, of_a_sleeper(way)));
  for (std::uint32_t n = 0; n < kIdleTimes; ++n) {
    must(sender.send(text_of_message(0, n, 200), kPatience));
    engine.run_until([] { return false; }, Duration::milliseconds(20));
  }
  must(sender.close(kPatience));
  say("closed");
}

TEST_P(Sleepers, a_receiver_sleeps_while_its_sender_is_idle_and_the_next_message_wakes_it) {
  constexpr std::uint64_t kFew = 20;  // who looks does so hundreds of times
  Reception reception;
  Process child([&](const auto& say) { send_now_and_then(GetParam(), reception, say); });
  Device device = must(open_standard(GetParam().path, {.promises = true, .keeps = true}));
  ProgressEngine engine = must(ProgressEngine::create(device, {.wait = WaitMode::Event}));
  Receiver receiver = must(Receiver::create(engine, of_a_sleeper(GetParam())));
  Listener listener = must(Listener::create(engine));
  listener.on_request([&] { must(receiver.accept(*listener.poll_request())); });
  reception.say(listener.address().to_string());
  const auto receive_one = [&](std::uint32_t n) -> Task<void> {
    EXPECT_TRUE(is_message(must(co_await receiver.async_receive(kPatience)), n, 200));
  };
  for (std::uint32_t n = 0; n < kIdleTimes; ++n) {
    const Instant patience_ends = engine.now() + kPatience;
    const std::uint64_t before = StandardContext::waits;
    if (n % 2 == 0)
      EXPECT_TRUE(is_message(must(receiver.receive(kPatience)), n, 200));
    else
      engine.run(receive_one(n));
    EXPECT_LE(StandardContext::waits - before, kFew);
    EXPECT_LT(engine.now(), patience_ends) << "nothing but its own deadline woke it";
  }
  expect_error(receiver.receive(kPatience), ErrorCode::Disconnected, "all senders have closed");
  EXPECT_EQ(child.hear(), "closed");
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace verbena
