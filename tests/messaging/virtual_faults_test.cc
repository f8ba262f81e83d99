// SPDX-License-Identifier: Apache-2.0
// Several senders at one receiver, in virtual time, under every fault there is: a network that loses, doubles,
// reorders, damages and forges, buffers that overflow, processes that stop for a while and that die, ways that are cut
// for a while and for good, queue pairs that are killed.
#include <array>
#include <functional>

#include "../scenario/virtual_world.h"
#include "base/sanitizer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

constexpr std::uint32_t kSenders = 3;
constexpr std::uint32_t kEndless = 1u << 30;  // messages: it sends until nothing goes any more
constexpr std::uint32_t kLongest = 5000;      // bytes, five packets
constexpr std::uint64_t kSeeds = kSanitized ? 2 : 8;

class UnderFaults : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, UnderFaults, ::testing::ValuesIn([] {
                           std::vector<Way> all;
                           for (const Way& way : every_way())
                             if (way.path == PathChoice::Roce) all.push_back(way);
                           return all;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

std::size_t bytes_of_message(std::uint32_t n) { return n * 613 % (kLongest + 1); }

// A sender: what it shall do, what it did, and what came of it.
struct Seat {
  std::uint32_t number = 0;
  VirtualWorld::Host* host = nullptr;
  std::uint32_t messages = 40;
  std::uint32_t sent = 0, got = 0;
  std::optional<Result<void>> end;   // as the sender learnt it
  std::optional<Result<void>> told;  // as the receiver did
};

// A receiver and its senders, each on a host of its own. They own their ends, as processes do: what a crash leaves
// is destroyed with the world. They send by every way there is.
class Program {
 public:
  Program(const Kind& kind, std::uint64_t seed, const WorldOptions& network)
      : random_(seed * 31 + 7), world_(seed, {.response_timeout_code = 12}), home_(world_.add_host()) {
    const Options options{.kind = kind,
                          .max_message_bytes = kLongest,
                          .depth = static_cast<std::uint32_t>(kSenders + random_.below(20)),
                          .ring_bytes = 32768,
                          .max_senders = kSenders,
                          // A peer that is silent for 8 ms is given up, one that should speak is asked.
                          .connection = {.reliability = {.timeout = 8}, .keep_alive = Duration::milliseconds(3)}};
    Receiver receiver = must(Receiver::create(home_.engine(), options));
    receiver.on_peer_end([this](messaging::PeerId peer, const Result<void>& how) {
      EXPECT_FALSE(seats_.at(peer).told) << "sender " << peer << " ended twice";
      seats_.at(peer).told = how;
    });
    Listener listener = must(Listener::create(home_.engine()));
    listener.on_request([&] { EXPECT_EQ(must(receiver.accept(*listener.poll_request())), connected_++); });
    for (std::uint32_t i = 0; i < kSenders; ++i) {
      seats_[i].number = i;
      seats_[i].host = &world_.add_host();
      senders_.push_back(must(Sender::connect(seats_[i].host->engine(), listener.address().to_string(), options)));
    }
    receiver_.emplace(std::move(receiver));
    world_.change_network(network);
  }
  VirtualWorld& world() { return world_; }
  VirtualWorld::Host& home() { return home_; }
  SeededRandom& random() { return random_; }
  Seat& seat(std::size_t i) { return seats_[i]; }
  const std::optional<Error>& receivers_end() const { return receivers_end_; }
  // Everybody but `gone`, the receiver too, came to its end.
  bool is_over(const Seat* gone = nullptr) const {
    return receivers_end_ && std::all_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
             return seat.end.has_value() || &seat == gone;
           });
  }
  // f() happens at some moment soon after a message of that sender was taken, the n-th of it.
  void strike(const Seat& at, std::uint32_t n, std::function<void()> f) {
    struck_ = &at;
    strike_at_ = n;
    strike_ = std::move(f);
  }
  // Until done(), or nobody is patient any more.
  bool run(const std::function<bool()>& done) {
    home_.engine().spawn(receive(std::move(*receiver_)));
    for (Seat& seat : seats_) seat.host->engine().spawn(send(std::move(senders_[seat.number]), seat));
    return world_.run_until(done, kPatience);
  }
  // Messages that found no receive, at any end.
  std::uint64_t times_without_receive() const {
    std::uint64_t times = test::times_without_receive(home_.device());
    for (const Seat& seat : seats_) times += test::times_without_receive(seat.host->device());
    return times;
  }
  // All that it had to say has arrived, both sides are content.
  void expect_well(const Seat& seat) const {
    SCOPED_TRACE("sender " + std::to_string(seat.number));
    EXPECT_EQ(seat.got, seat.messages);
    ASSERT_TRUE(seat.end);
    must(*seat.end);
    ASSERT_TRUE(seat.told);
    must(*seat.told);
  }

 private:
  // Two messages lent in turn: what lies there is overwritten as soon as it may be.
  struct Lending {
    explicit Lending(Device& device) : memory(must(device.allocate_memory(2 * kLongest))) {}
    MemoryRegion memory;
    std::array<messaging::MessageId, 2> ids{};
    std::size_t next = 0;
  };
  Task<void> send(Sender sender, Seat& me) {
    SeededRandom choices(random_.next_u64());
    Lending lending(me.host->device());
    while (me.sent < me.messages) {
      const std::uint32_t went = try_to_send(sender, me, choices);
      me.sent += went;
      if (went == 0) {  // or there is no room
        Result<messaging::MessageId> sent = 0;
        if (choices.chance(0.5))
          sent = co_await wait_and_send(sender, me);
        else
          sent = co_await wait_and_lend(sender, me, lending);
        if (!sent) {
          me.end = sent.error();
          co_return;
        }
        ++me.sent;
      }
      if (choices.chance(0.1)) co_await me.host->engine().sleep(pause(choices));
    }
    me.end = co_await sender.async_close(kPatience);
  }
  static std::vector<std::byte> text_of(const Seat& seat, std::uint32_t message) {
    return text_of_message(seat.number, message, bytes_of_message(message));
  }
  // By batches and in reserved memory. How many went; the rest is for who waits.
  static std::uint32_t try_to_send(Sender& sender, const Seat& me, SeededRandom& choices) {
    if (choices.chance(0.5)) return 0;
    if (choices.chance(0.5)) {
      const auto text = text_of(me, me.sent);
      auto reserved = sender.try_reserve(static_cast<std::uint32_t>(text.size()));
      if (!reserved) return 0;
      std::ranges::copy(text, reserved->bytes().begin());
      return sender.try_commit(*reserved, static_cast<std::uint32_t>(text.size())).taken;
    }
    const auto most = static_cast<std::uint32_t>(1 + choices.below(5));
    std::vector<std::vector<std::byte>> texts;
    for (std::uint32_t n = me.sent; n < me.messages && texts.size() < most; ++n) texts.push_back(text_of(me, n));
    const std::vector<std::span<const std::byte>> batch(texts.begin(), texts.end());
    return static_cast<std::uint32_t>(sender.try_send_batch(batch).taken);
  }
  static Task<Result<messaging::MessageId>> wait_and_send(Sender& sender, const Seat& me) {
    const auto text = text_of(me, me.sent);
    co_return co_await sender.async_send(text, kPatience);
  }
  static Task<Result<messaging::MessageId>> wait_and_lend(Sender& sender, const Seat& me, Lending& lending) {
    const std::size_t which = lending.next++ % lending.ids.size();
    if (const auto freed = co_await sender.async_freed(lending.ids[which], kPatience); !freed) co_return freed.error();
    const auto text = text_of(me, me.sent);
    std::ranges::copy(text, lending.memory.bytes().begin() + static_cast<std::ptrdiff_t>(which * kLongest));
    const auto lent = co_await sender.async_lend(
        LentMemory::of(lending.memory, which * kLongest, static_cast<std::uint32_t>(text.size())), kPatience);
    if (lent) lending.ids[which] = *lent;
    co_return lent;
  }
  Task<void> receive(Receiver receiver) {
    SeededRandom pauses(random_.next_u64());
    Message held;
    for (;;) {
      auto message = co_await receiver.async_receive(held.empty() ? kPatience : Duration::microseconds(100));
      if (!message && message.error().code() == ErrorCode::DeadlineExceeded && !held.empty()) {
        held = {};
        continue;
      }
      if (!message) {
        receivers_end_ = message.error();
        co_return;
      }
      take(*message);
      if (pauses.chance(0.2))
        held = std::move(*message);
      else if (pauses.chance(0.5))
        held = {};
      if (pauses.chance(0.1)) co_await home_.engine().sleep(pause(pauses));
    }
  }
  static Duration pause(SeededRandom& random) {
    return Duration::microseconds(static_cast<std::int64_t>(random.below(100)));
  }
  void take(const Message& message) {
    Seat& from = seats_.at(message.peer());
    EXPECT_LT(from.got, from.messages);
    EXPECT_TRUE(is_message(message, from.got, bytes_of_message(from.got), from.number))
        << "message " << from.got << " of sender " << from.number;
    if (++from.got != strike_at_ || &from != struck_) return;
    world_.after(pause(random_), std::move(strike_));
  }

  SeededRandom random_;
  std::uint32_t connected_ = 0;
  std::array<Seat, kSenders> seats_;
  std::optional<Error> receivers_end_;
  const Seat* struck_ = nullptr;
  std::uint32_t strike_at_ = 0;
  std::function<void()> strike_;
  VirtualWorld world_;
  VirtualWorld::Host& home_;
  std::vector<Sender> senders_;
  std::optional<Receiver> receiver_;
};

// What passes is not noticed: all senders end well.
void expect_all_well(Program& program) {
  EXPECT_TRUE(program.run([&] { return program.is_over(); }));
  for (std::size_t i = 0; i < kSenders; ++i) program.expect_well(program.seat(i));
  ASSERT_TRUE(program.receivers_end());
  expect_error(*program.receivers_end(), ErrorCode::Disconnected, "all senders have closed");
  EXPECT_EQ(program.times_without_receive(), 0u);
}

// An error that says what is the case, and comes from no clock of the program's.
void expect_named(const std::optional<Result<void>>& end) {
  ASSERT_TRUE(end);
  ASSERT_FALSE(*end);
  EXPECT_THAT((std::array{ErrorCode::RetryExceeded, ErrorCode::ConnectionLost, ErrorCode::Disconnected}),
              ::testing::Contains(end->error().code()))
      << end->error().to_string();
}

TEST_P(UnderFaults, a_network_that_loses_costs_no_message) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01 * static_cast<double>(seed)});
    expect_all_well(program);
    lost += program.world().lost();
  }
  EXPECT_GT(lost, 10u);
}

// One that had closed stood behind the gap of another, and its receiver had no quiet moment until that one wrote.
TEST(SharedWriteUnderFaults, seed_4_a_closed_sender_behind_anothers_gap_does_not_keep_its_receiver_awake) {
  Program program({.protocol = Protocol::SharedWrite}, 4, {.loss = 0.04});
  expect_all_well(program);
}

TEST_P(UnderFaults, a_network_that_doubles_and_replays_doubles_no_message) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01, .duplicate = 0.2, .replay = Duration::microseconds(500)});
    expect_all_well(program);
  }
}

TEST_P(UnderFaults, a_network_that_reorders_reorders_no_message) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    const auto most = static_cast<std::int64_t>(20 * seed);
    Program program(GetParam().kind, seed, {.jitter = Duration::microseconds(most)});
    expect_all_well(program);
  }
}

TEST_P(UnderFaults, a_network_that_damages_damages_no_message) {
  std::uint64_t corrupted = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.corrupt = 0.01 * static_cast<double>(seed)});
    expect_all_well(program);
    corrupted += program.world().corrupted();
  }
  EXPECT_GT(corrupted, 10u);
}

TEST_P(UnderFaults, a_network_that_loses_in_bursts_costs_no_message) {
  std::uint64_t lost = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.burst = 0.003 * static_cast<double>(seed)});
    expect_all_well(program);
    lost += program.world().lost();
  }
  EXPECT_GT(lost, 10u);
}

TEST_P(UnderFaults, datagrams_that_a_device_must_ignore_change_no_message) {
  std::uint64_t forged = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01, .hostile = 0.05 * static_cast<double>(seed)});
    expect_all_well(program);
    forged += program.world().forged();
  }
  EXPECT_GT(forged, 50u);
}

TEST_P(UnderFaults, acknowledgements_for_what_was_never_sent_free_no_message) {
  std::uint64_t forged = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.02, .ghost = 0.1 * static_cast<double>(seed)});
    expect_all_well(program);
    forged += program.world().forged();
  }
  EXPECT_GT(forged, 10u);
}

TEST_P(UnderFaults, receive_buffers_that_overflow_cost_no_message) {
  std::uint64_t overflowed = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.room = 5 + seed});
    expect_all_well(program);
    overflowed += program.world().overflowed();
  }
  EXPECT_GT(overflowed, 10u);
}

// So long that a process or a way that is back by then was not given up.
Duration a_while(SeededRandom& random) {
  return Duration::microseconds(static_cast<std::int64_t>(500 + random.below(4000)));
}

TEST_P(UnderFaults, a_process_that_stops_for_a_while_loses_no_message) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01, .duplicate = 0.02});
    const Seat& at = program.seat(seed % kSenders);
    VirtualWorld::Host& host = seed % 2 == 0 ? program.home() : *at.host;
    program.strike(at, 10, [&] {
      host.pause();
      program.world().after(a_while(program.random()), [&] { host.resume(); });
    });
    expect_all_well(program);
  }
}

// One direction or both, of one sender or of all.
void cut_off(Program& program, const Seat& seat, std::uint64_t seed) {
  if (seed % 3 != 0) program.world().cut(*seat.host, program.home());
  if (seed % 3 != 1) program.world().cut(program.home(), *seat.host);
}

TEST_P(UnderFaults, ways_that_are_cut_for_a_while_lose_no_message) {
  std::uint64_t cut = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01});
    const Seat& at = program.seat(seed % kSenders);
    program.strike(at, 10, [&] {
      for (std::size_t i = 0; i < kSenders; ++i)
        if (seed % 2 == 0 || i == at.number) cut_off(program, program.seat(i), seed);
      program.world().after(a_while(program.random()), [&] { program.world().mend(); });
    });
    expect_all_well(program);
    cut += program.world().cut_off();
  }
  EXPECT_GT(cut, 10u);
}

// Of the one that is gone came whole messages in order, the receiver says why no more; of the others came everything.
void expect_the_others_well(Program& program, const Seat& gone) {
  for (std::size_t i = 0; i < kSenders; ++i)
    if (i != gone.number) program.expect_well(program.seat(i));
  expect_named(gone.told);
}

TEST_P(UnderFaults, a_way_that_is_cut_for_good_ends_one_sender_by_name) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01, .duplicate = 0.02, .replay = Duration::milliseconds(1)});
    Seat& gone = program.seat(seed % kSenders);
    gone.messages = kEndless;
    const auto strike_at = static_cast<std::uint32_t>(5 + 4 * seed);
    program.strike(gone, strike_at, [&] { cut_off(program, gone, seed); });
    EXPECT_TRUE(program.run([&] { return program.is_over(); }));
    // What was on its way when it was given up may come now.
    program.world().mend();
    program.world().run_until([] { return false; }, Duration::milliseconds(20));
    expect_the_others_well(program, gone);
    EXPECT_GE(gone.got, strike_at);
    expect_named(gone.end);
  }
}

TEST_P(UnderFaults, a_sender_that_crashes_leaves_a_prefix_and_the_others_alone) {
  for (std::uint64_t seed = 1; seed <= 2 * kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = seed % 2 == 0 ? 0.01 : 0});
    Seat& gone = program.seat(seed % kSenders);
    gone.messages = kEndless;
    const auto strike_at = static_cast<std::uint32_t>(2 + 2 * seed);
    program.strike(gone, strike_at, [&] { gone.host->crash(); });
    EXPECT_TRUE(program.run([&] { return program.is_over(&gone); }));
    expect_the_others_well(program, gone);
    EXPECT_GE(gone.got, strike_at);
    EXPECT_LE(gone.got, gone.sent + 1);
    EXPECT_FALSE(gone.end);
  }
}

// Of one end or the other; the process lives.
TEST_P(UnderFaults, a_queue_pair_that_is_killed_ends_one_sender_by_name_at_both_ends) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = seed % 4 < 2 ? 0.01 : 0});
    Seat& gone = program.seat(seed % kSenders);
    gone.messages = kEndless;
    const auto strike_at = static_cast<std::uint32_t>(5 + 4 * seed);
    program.strike(gone, strike_at, [&] {
      if (seed % 2 == 0)
        gone.host->kill_queue_pair(program.home());
      else
        program.home().kill_queue_pair(*gone.host);
    });
    EXPECT_TRUE(program.run([&] { return program.is_over(); }));
    expect_the_others_well(program, gone);
    EXPECT_GE(gone.got, strike_at);
    EXPECT_LE(gone.got, gone.sent + 1);
    expect_named(gone.end);
  }
}

TEST_P(UnderFaults, a_receiver_that_crashes_ends_every_sender_by_name) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = seed % 2 == 0 ? 0.01 : 0});
    for (std::size_t i = 0; i < kSenders; ++i) program.seat(i).messages = kEndless;
    program.strike(program.seat(seed % kSenders), 3 * static_cast<std::uint32_t>(seed),
                   [&] { program.home().crash(); });
    EXPECT_TRUE(program.run([&] { return program.seat(0).end && program.seat(1).end && program.seat(2).end; }));
    for (std::size_t i = 0; i < kSenders; ++i) expect_named(program.seat(i).end);
  }
}

// ---- While a sender closes: all of its messages have been taken, and both ends are about to part.

TEST_P(UnderFaults, what_passes_while_a_sender_closes_costs_nothing) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = 0.01 * static_cast<double>(seed % 4)});
    const Seat& at = program.seat(seed % kSenders);
    VirtualWorld::Host& host = seed % 2 == 0 ? program.home() : *at.host;
    program.strike(at, at.messages, [&] {
      if (seed % 4 < 2)
        host.pause();
      else
        cut_off(program, at, seed);
      program.world().after(a_while(program.random()), [&] {
        host.resume();
        program.world().mend();
      });
    });
    expect_all_well(program);
  }
}

void expect_well_or_named(const std::optional<Result<void>>& end) {
  ASSERT_TRUE(end);
  if (!*end) expect_named(end);
}

TEST_P(UnderFaults, a_sender_that_crashes_while_it_closes_is_told_of_and_the_others_are_left_alone) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = seed % 2 == 0 ? 0.02 : 0});
    Seat& gone = program.seat(seed % kSenders);
    program.strike(gone, gone.messages, [&] { gone.host->crash(); });
    EXPECT_TRUE(program.run([&] { return program.is_over(&gone); }));
    for (std::size_t i = 0; i < kSenders; ++i)
      if (i != gone.number) program.expect_well(program.seat(i));
    EXPECT_EQ(gone.got, gone.messages);
    expect_well_or_named(gone.told);
  }
}

TEST_P(UnderFaults, a_receiver_that_crashes_while_a_sender_closes_ends_every_sender_by_name) {
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    Program program(GetParam().kind, seed, {.loss = seed % 2 == 0 ? 0.02 : 0});
    const Seat& closing = program.seat(seed % kSenders);
    for (std::size_t i = 0; i < kSenders; ++i)
      if (i != closing.number) program.seat(i).messages = kEndless;
    program.strike(closing, closing.messages, [&] { program.home().crash(); });
    EXPECT_TRUE(program.run([&] { return program.seat(0).end && program.seat(1).end && program.seat(2).end; }));
    for (std::size_t i = 0; i < kSenders; ++i)
      i == closing.number ? expect_well_or_named(program.seat(i).end) : expect_named(program.seat(i).end);
  }
}

// ---- Together.

// Half of what may go wrong, each a little.
WorldOptions a_mixture(SeededRandom& random) {
  const auto maybe = [&random](double most) {
    return random.chance(0.5) ? most * static_cast<double>(random.below(1000)) / 1000 : 0;
  };
  const auto microseconds = [&](double most) { return Duration::microseconds(static_cast<std::int64_t>(maybe(most))); };
  WorldOptions network;
  network.loss = maybe(0.04);
  network.duplicate = maybe(0.1);
  network.corrupt = maybe(0.03);
  network.burst = maybe(0.005);
  network.hostile = maybe(0.2);
  network.ghost = maybe(0.3);
  network.jitter = microseconds(100);
  network.replay = microseconds(500);
  if (random.chance(0.5)) network.room = 8 + random.below(20);
  return network;
}

TEST_P(UnderFaults, whatever_passes_may_come_together) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 1 : 2) * kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    SeededRandom random(seed * 977);
    Program program(GetParam().kind, seed, a_mixture(random));
    const Seat& at = program.seat(seed % kSenders);
    VirtualWorld::Host& host = seed % 2 == 0 ? program.home() : *at.host;
    program.strike(at, 1 + static_cast<std::uint32_t>(random.below(at.messages)), [&] {
      if (seed % 3 == 0)
        host.pause();
      else if (seed % 3 == 1)
        cut_off(program, at, seed);
      program.world().after(a_while(program.random()), [&] {
        host.resume();
        program.world().mend();
      });
    });
    expect_all_well(program);
    const VirtualWorld& world = program.world();
    wrong += world.lost() + world.corrupted() + world.forged() + world.overflowed() + world.cut_off();
  }
  EXPECT_GT(wrong, 50u);
}

}  // namespace
}  // namespace verbena
