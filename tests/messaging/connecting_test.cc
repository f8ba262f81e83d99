// SPDX-License-Identifier: Apache-2.0
// What goes wrong while a sender connects, in virtual time: it dies, its receiver dies, the way between them is cut.
#include <stdexcept>

#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;

constexpr std::uint32_t kPartMessages = 12;
constexpr std::uint64_t kMeetingSeeds = kSanitized ? 3 : 12;

class Connecting : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Connecting, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

std::vector<std::byte> text_of_part(std::uint32_t sender, std::uint32_t n) {
  return text_of_message(sender, n, 10 + n * 97 % 900);
}

// What a sender is about: it connects, says all it has to say, and closes.
struct Part {
  VirtualWorld::Host& host;
  std::optional<Result<void>> end{};
  std::uint32_t got = 0;  // as its receiver took them
};

// A receiver with room for two senders, and as many parts as come.
class Meeting {
 public:
  Meeting(const Kind& kind, std::uint64_t seed)
      : random(seed * 131 + 3),
        world(seed, {.loss = seed % 3 == 0 ? 0.02 : 0, .response_timeout_code = 12}),
        home(world.add_host()) {
    options_ = {.kind = kind,
                .max_message_bytes = 1000,
                .depth = 4,
                .ring_bytes = 8192,
                .max_senders = 2,
                .connection = {.reliability = {.timeout = 8}, .keep_alive = Duration::milliseconds(3)}};
    home.engine().spawn(receive());
    EXPECT_TRUE(world.run_until([&] { return !address_.empty(); }, kPatience));
  }
  Part& add() { return parts_.emplace_back(Part{world.add_host()}); }
  void start(Part& part, std::uint32_t number) { part.host.engine().spawn(send(part, number)); }
  // Soon: before it is connected, or just after.
  Duration soon() { return Duration::microseconds(static_cast<std::int64_t>(random.below(150))); }
  std::size_t peers() const { return receiver_ == nullptr ? 0 : receiver_->peers(); }

  SeededRandom random;
  VirtualWorld world;
  VirtualWorld::Host& home;

 private:
  Task<void> receive() {
    Receiver receiver = must(Receiver::create(home.engine(), options_));
    receiver_ = &receiver;
    Listener listener = must(Listener::create(home.engine()));
    listener.on_request([&] {
      while (auto request = listener.poll_request()) static_cast<void>(receiver.accept(std::move(*request)));
    });
    address_ = listener.address().to_string();
    for (;;) {
      const auto message = co_await receiver.async_receive(kPatience);
      if (message)
        take(*message);
      else  // nobody is there
        co_await home.engine().sleep(Duration::microseconds(100));
    }
  }
  // The bytes say whose it is.
  void take(const Message& message) {
    for (std::uint32_t number = 0; Part& part : parts_) {
      if (is_message(message, part.got, text_of_part(number, part.got).size(), number)) {
        ++part.got;
        return;
      }
      ++number;
    }
    ADD_FAILURE() << "a message of nobody's, of " << message.bytes().size() << " bytes";
  }
  Task<void> send(Part& part, std::uint32_t number) {
    auto sender = co_await Sender::async_connect(part.host.engine(), address_, options_);
    if (!sender) {
      part.end = sender.error();
      co_return;
    }
    for (std::uint32_t n = 0; n < kPartMessages; ++n) {
      const auto text = text_of_part(number, n);
      if (const auto sent = co_await sender->async_send(text, kPatience); !sent) {
        part.end = sent.error();
        co_return;
      }
    }
    part.end = co_await sender->async_close(kPatience);
  }

  Options options_;
  std::string address_;
  Receiver* receiver_ = nullptr;
  std::deque<Part> parts_;
};

TEST_P(Connecting, a_sender_that_dies_meanwhile_leaves_no_seat_taken_and_the_others_alone) {
  for (std::uint64_t seed = 1; seed <= kMeetingSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Meeting meeting(GetParam().kind, seed);
    Part &honest = meeting.add(), &gone = meeting.add(), &next = meeting.add();
    meeting.world.after(meeting.soon(), [&] { meeting.start(honest, 0); });
    meeting.start(gone, 1);
    meeting.world.after(meeting.soon(), [&] { gone.host.crash(); });
    EXPECT_TRUE(meeting.world.run_until([&] { return honest.end.has_value(); }, kPatience));
    must(*honest.end);
    EXPECT_EQ(honest.got, kPartMessages);
    EXPECT_TRUE(meeting.world.run_until([&] { return meeting.peers() == 0; }, kPatience));
    meeting.start(next, 2);
    EXPECT_TRUE(meeting.world.run_until([&] { return next.end.has_value(); }, kPatience));
    must(*next.end);
    EXPECT_EQ(next.got, kPartMessages);
  }
}

TEST_P(Connecting, a_receiver_that_dies_meanwhile_ends_it_by_name) {
  for (std::uint64_t seed = 1; seed <= kMeetingSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Meeting meeting(GetParam().kind, seed);
    Part& part = meeting.add();
    meeting.start(part, 0);
    meeting.world.after(meeting.soon(), [&] { meeting.home.crash(); });
    EXPECT_TRUE(meeting.world.run_until([&] { return part.end.has_value(); }, kPatience));
    ASSERT_TRUE(part.end);
    if (*part.end) continue;  // it was quick
    EXPECT_THAT((std::array{ErrorCode::RetryExceeded, ErrorCode::ConnectionLost, ErrorCode::Disconnected,
                            ErrorCode::Unreachable, ErrorCode::TimedOut}),
                ::testing::Contains(part.end->error().code()))
        << part.end->error().to_string();
  }
}

TEST_P(Connecting, a_way_that_is_cut_for_a_while_costs_nothing) {
  for (std::uint64_t seed = 1; seed <= kMeetingSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Meeting meeting(GetParam().kind, seed);
    Part& part = meeting.add();
    meeting.start(part, 0);
    meeting.world.after(meeting.soon(), [&] {
      if (seed % 3 != 0) meeting.world.cut(part.host, meeting.home);
      if (seed % 3 != 1) meeting.world.cut(meeting.home, part.host);
      meeting.world.after(Duration::milliseconds(3), [&] { meeting.world.mend(); });
    });
    EXPECT_TRUE(meeting.world.run_until([&] { return part.end.has_value(); }, kPatience));
    ASSERT_TRUE(part.end);
    must(*part.end);
    EXPECT_EQ(part.got, kPartMessages);
  }
}

// Nobody answers at first, and the receiver's program gives it up: its task is destroyed, or an exception leaves
// through the call.
TEST_P(Connecting, a_receiver_that_gives_it_up_has_its_seat_free_again) {
  VirtualWorld world(3, {.delay = Duration::microseconds(5), .jitter = {}});
  auto &there = world.add_host(), &here = world.add_host();
  const Options options{
      .kind = GetParam().kind, .max_message_bytes = 256, .depth = 8, .ring_bytes = 4096, .max_senders = 1};
  Receiver receiver = must(Receiver::create(here.engine(), options));
  Listener listener = must(Listener::create(there.engine()));
  const std::string address = listener.address().to_string();
  std::size_t which = 9;
  const auto pause = [&]() -> Task<void> { co_await here.engine().sleep(Duration::milliseconds(5)); };
  const auto give_up = [&]() -> Task<void> {
    which = (co_await when_any(receiver.async_connect(address), pause())).index();
  };
  here.engine().spawn(give_up());
  EXPECT_TRUE(world.run_until([&] { return which != 9; }, kPatience));
  EXPECT_EQ(which, 1u);
  const auto fail = [&]() -> Task<void> {
    co_await pause();
    throw std::runtime_error("not today");
  };
  here.engine().spawn(fail());
  EXPECT_THROW(static_cast<void>(receiver.connect(address)), std::runtime_error);
  while (listener.poll_request()) continue;
  std::optional<Sender> sender;
  listener.on_request([&] {
    if (auto request = listener.poll_request())
      sender.emplace(must(Sender::accept(there.engine(), std::move(*request), options)));
  });
  EXPECT_EQ(must(receiver.connect(address)), 2u);
  EXPECT_EQ(receiver.peers(), 1u);
}

}  // namespace
}  // namespace verbena
