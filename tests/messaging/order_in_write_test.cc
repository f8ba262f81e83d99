// SPDX-License-Identifier: Apache-2.0
// Devices that promise no order inside a WRITE, and keep none: every protocol goes on, by a commit that needs none, and
// says so; one that needs it loses its messages where a device lies.
#include <deque>
#include <optional>

#include "messaging/offer.h"
#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Acknowledge;
using messaging::Commit;
using messaging::Offer;
using messaging::Role;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t kOrderedMessages = 600;
constexpr std::uint32_t kLongestOrdered = 3000;
constexpr const char* kNoPromise = "does not promise the order inside a WRITE";

std::size_t size_of(std::uint32_t n) { return std::size_t{n} * 37 % (kLongestOrdered + 1); }

Options options() {
  return {.max_message_bytes = kLongestOrdered, .depth = 16, .ring_bytes = 32768, .max_senders = 1};
}
Ends ends_on(const StandardOptions& client, const StandardOptions& server, const Way& way) {
  return {must(open_standard(way.path, client)), must(open_standard(way.path, server)), way, options(), 20,
          {.wait = WaitMode::Busy}};
}
// What both ends' devices promise and keep. Where it is kept nothing is taken apart.
constexpr StandardOptions kStandard{.seed = 3}, kLiar{.promises = true, .seed = 5};
constexpr StandardOptions kKeeper{.promises = true, .keeps = true};

// Sends by every call there is, and takes.
class CallTraffic {
 public:
  CallTraffic(Ends& ends, Sender& sender)
      : ends_(ends), sender_(sender), lent_(must(ends.client.allocate_memory(kLongestOrdered))) {}

  // How many came as they were sent, each in its turn. What is spoilt once ends it: a reader that lost its place in the
  // ring may find what looks like messages for ever.
  std::uint32_t run() {
    const bool all = ends_.engine.run_until(
        [&] {
          send();
          take();
          return spoilt_ || (got_ == kOrderedMessages && sender_.freed() == kOrderedMessages) || sender_.closed();
        },
        kPatience);
    EXPECT_TRUE(all) << got_ << " of " << sent_ << ", " << sender_.freed() << " freed";
    while (!held_.empty()) let_go();
    return whole_;
  }

 private:
  void send() {
    if (sent_ == kOrderedMessages) return;
    switch (sent_ % 4) {
      case 0: {
        std::array<std::vector<std::byte>, 3> texts;
        std::array<std::span<const std::byte>, 3> batch;
        for (std::uint32_t i = 0; i < 3; ++i) texts[i] = text_of_message(0, sent_ + i, size_of(sent_ + i));
        std::copy(texts.begin(), texts.end(), batch.begin());
        sent_ += static_cast<std::uint32_t>(sender_.try_send_batch(batch).taken);
        return;
      }
      case 3:
        if (sender_.freed() < lent_id_) return;
        return lend();
      default:
        if (sender_.try_send(text_of_message(0, sent_, size_of(sent_)))) ++sent_;
    }
  }
  void lend() {
    const auto text = text_of_message(0, sent_, size_of(sent_));
    std::copy(text.begin(), text.end(), lent_.bytes().begin());
    const auto done = sender_.try_lend(LentMemory::of(lent_, 0, static_cast<std::uint32_t>(text.size())));
    if (!done) return;
    lent_id_ = done.last;
    ++sent_;
  }
  // Some are held for a while, and have to stay as they are.
  void take() {
    while (!spoilt_) {
      auto message = ends_.receiver->try_receive();
      if (!message) return;
      const bool whole = is_right(*message, got_);
      spoilt_ = !whole;
      held_.push_back({std::move(*message), got_++, whole});
      while (held_.size() > got_ % 4) let_go();
    }
  }
  void let_go() {
    const Held& oldest = held_.front();
    if (oldest.whole && is_right(oldest.message, oldest.number)) ++whole_;
    held_.pop_front();
  }
  static bool is_right(const Message& message, std::uint32_t number) {
    return message.bytes().size() == size_of(number) && is_message(message, number, size_of(number));
  }

  struct Held {
    Message message;
    std::uint32_t number;
    bool whole;  // when it came
  };
  Ends& ends_;
  Sender& sender_;
  MemoryRegion lent_;
  messaging::MessageId lent_id_ = 0;
  std::uint32_t sent_ = 0, got_ = 0, whole_ = 0;
  bool spoilt_ = false;
  std::deque<Held> held_;
};

class ByTheStandard : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, ByTheStandard, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(ByTheStandard, messages_arrive_once_in_order_and_whole_though_no_write_arrives_in_order) {
  const Kind kind = messaging::without_order_in_write(GetParam().kind);
  EXPECT_FALSE(messaging::traits_of(kind).order_in_write);
  for (const std::uint64_t seed : {3u, 17u, 101u}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::uint64_t before = StandardContext::torn;
    Ends ends = ends_on({.seed = seed}, {.seed = seed + 1}, GetParam());
    Sender sender = ends.connect();
    EXPECT_EQ(ends.receiver->kind(), kind);
    EXPECT_EQ(sender.kind(), kind);
    EXPECT_EQ(CallTraffic(ends, sender).run(), kOrderedMessages);
    must(sender.close(kPatience));
    expect_error(ends.receiver->receive(kPatience), ErrorCode::Disconnected, "all senders have closed");
    EXPECT_EQ(ends.receiver->counters().messages, kOrderedMessages);
    const Protocol protocol = kind.protocol;
    const bool writes = protocol == Protocol::BufferedWrite || protocol == Protocol::SharedWrite ||
                        protocol == Protocol::DirectWrite;
    EXPECT_GE(StandardContext::torn - before, writes ? kOrderedMessages / 4 : 0);
  }
}

std::vector<Way> ways_in_need() {
  std::vector<Way> all;
  for (const Way& way : every_way())
    if (messaging::traits_of(way.kind).order_in_write) all.push_back(way);
  return all;
}

class InNeedOfOrder : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, InNeedOfOrder, ::testing::ValuesIn(ways_in_need()),
                         [](const auto& way) { return name_of(way.param); });

// That the test above would see what it is there for.
TEST_P(InNeedOfOrder, messages_are_spoilt_where_a_device_promises_what_it_does_not_keep) {
  Ends ends = ends_on(kLiar, kLiar, GetParam());
  std::optional<Sender> sender = ends.connect();
  EXPECT_EQ(sender->kind(), GetParam().kind);
  CallTraffic traffic(ends, *sender);
  EXPECT_LT(traffic.run(), kOrderedMessages);
  sender.reset();  // it ended in the middle: what was lent may be under way
}

TEST_P(InNeedOfOrder, the_promise_of_the_receivers_device_decides_and_the_senders_is_not_asked) {
  const Kind asked = GetParam().kind, other = messaging::without_order_in_write(asked);
  for (const bool receiver_keeps : {true, false}) {
    // Who sends to a device that keeps the order has none to break.
    const StandardOptions mute{.keeps = true};
    Ends ends = receiver_keeps ? ends_on(mute, kKeeper, GetParam()) : ends_on(kLiar, kStandard, GetParam());
    Sender sender = ends.connect();
    EXPECT_EQ(ends.receiver->kind(), receiver_keeps ? asked : other);
    EXPECT_EQ(sender.kind(), receiver_keeps ? asked : other);
    EXPECT_EQ(CallTraffic(ends, sender).run(), kOrderedMessages);
    must(sender.close(kPatience));
  }
}

TEST_P(InNeedOfOrder, both_ends_say_what_was_taken_and_why) {
  const std::string asked = to_string(GetParam().kind);
  const std::string other = to_string(messaging::without_order_in_write(GetParam().kind));
  {
    Ends ends = ends_on(kStandard, kStandard, GetParam());
    const Sender sender = ends.connect();
    const bool is_atomic = messaging::has_atomic_tail(ends.receiver->kind(), false);
    const std::string tail = is_atomic ? messaging::kAtomicTail : "";
    EXPECT_EQ(is_atomic, GetParam().kind.acknowledge == Acknowledge::Read);
    EXPECT_EQ(ends.receiver->explain(), other + " instead of " + asked + ": device " + ends.server.info().name + " " +
                                            kNoPromise + " that " + asked + " needs" + tail);
    EXPECT_THAT(sender.explain(),
                AllOf(HasSubstr(other + ": "), HasSubstr("instead of " + asked + tail), HasSubstr(kNoPromise)));
  }
  Ends ends = ends_on(kStandard, kKeeper, GetParam());
  const Sender sender = ends.connect();
  EXPECT_THAT(ends.receiver->explain(), AllOf(HasSubstr(asked + ": "), HasSubstr("promises the order inside a WRITE")));
  EXPECT_EQ(sender.explain(), asked + ": as asked for");
}

TEST_P(InNeedOfOrder, a_receiver_that_takes_no_other_kind_is_refused_by_name) {
  Device device = must(open_standard(GetParam().path, kStandard));
  ProgressEngine engine = must(ProgressEngine::create(device));
  Options exact = options();
  exact.exact_kind = true;
  exact.kind = GetParam().kind;
  const Kind other = messaging::without_order_in_write(exact.kind);
  expect_error(Receiver::create(engine, exact), ErrorCode::NotSupported, to_string(exact.kind).c_str(), kNoPromise,
               (to_string(other) + " needs none").c_str());
  exact.kind = other;
  EXPECT_EQ(must(Receiver::create(engine, exact)).kind(), other);
  Device keeper = must(Device::open(OpenOptions{.path = GetParam().path}));
  ProgressEngine its_engine = must(ProgressEngine::create(keeper));
  exact.kind = GetParam().kind;
  EXPECT_EQ(must(Receiver::create(its_engine, exact)).kind(), exact.kind);
}

TEST_P(InNeedOfOrder, a_receiver_that_connects_takes_another_kind_as_well) {
  Ends ends = ends_on(kStandard, kStandard, GetParam());
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.client}));
  std::optional<Sender> sender;
  listener.on_request([&] { sender = must(Sender::accept(ends.engine, *listener.poll_request(), ends.options)); });
  must(ends.receiver->connect(listener.address().to_string()));
  ASSERT_TRUE(ends.engine.run_until([&] { return sender && sender->credits() != 0; }, kPatience));
  EXPECT_EQ(sender->kind(), messaging::without_order_in_write(GetParam().kind));
  EXPECT_THAT(sender->explain(), HasSubstr(kNoPromise));
  EXPECT_EQ(CallTraffic(ends, *sender).run(), kOrderedMessages);
  must(sender->close(kPatience));
}

// No receiver of this library says that.
TEST_P(InNeedOfOrder, a_receiver_that_chose_what_its_device_does_not_promise_is_refused_and_left_by_name) {
  Ends ends(GetParam(), options());
  Offer offer;
  offer.role = Role::Receiver;
  offer.kind = GetParam().kind;
  offer.max_message_bytes = kLongestOrdered;
  offer.depth = 16;
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.client}));
  std::vector<Connection> strangers;
  std::string refusal;
  bool sender_listens = false;
  listener.on_request([&] {
    ConnectionRequest request = *listener.poll_request();
    if (!sender_listens)
      return strangers.push_back(must(request.accept({.device = &ends.client}, offer.to_bytes())));
    auto sender = Sender::accept(ends.engine, std::move(request), ends.options);
    refusal = sender ? "none" : sender.error().to_string();
  });
  const std::string address = listener.address().to_string();
  const std::string words = "the receiver chose " + to_string(offer.kind);
  Options here = ends.options;
  here.connection.device = &ends.server;
  expect_error(Sender::connect(ends.engine, address, here), ErrorCode::NotSupported, words.c_str(), kNoPromise);
  sender_listens = true;
  Connection stranger = must(Connection::prepare(ends.engine, {.device = &ends.server}));
  expect_error(stranger.connect_to(address, offer.to_bytes()), ErrorCode::Rejected, words.c_str());
  EXPECT_THAT(refusal, AllOf(HasSubstr("NotSupported"), HasSubstr(words)));
}

// Who takes all that a device has is not to know how many those are.
TEST(OrderInWrite, a_device_of_few_reads_at_once_gives_as_many_as_it_has) {
  Device device = must(open_standard(PathChoice::Roce, {.max_rd_atomic = 4}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  EXPECT_EQ(must(must(Connection::prepare(engine)).describe()).max_rd_atomic, 4);
  expect_error(Connection::prepare(engine, {.reliability = {.max_rd_atomic = 5}}), ErrorCode::InvalidArgument,
               "max_rd_atomic 5, at most 4");
}

TEST(OrderInWrite, an_offset_ring_whose_tail_atomics_move_is_refused_where_they_are_not_allowed) {
  const Way way{*messaging::parse_kind("buffered-write/offset"), PathChoice::Roce};
  Options none = options();
  none.kind = way.kind;
  none.connection.reliability.max_dest_rd_atomic = 0;
  {
    Device device = must(open_standard(way.path, kStandard));
    ProgressEngine engine = must(ProgressEngine::create(device));
    expect_error(Receiver::create(engine, none), ErrorCode::InvalidArgument, "atomics", "max_dest_rd_atomic is 0");
    none.connection.reliability = {.access = Access::RemoteWrite};
    expect_error(Receiver::create(engine, none), ErrorCode::InvalidArgument, "atomics", "no RemoteAtomic");
  }
  Ends ends = ends_on(kStandard, kStandard, way);
  none.connection.reliability = {.max_rd_atomic = 0};
  expect_error(ends.try_connect(none), ErrorCode::InvalidArgument, "atomics", "max_rd_atomic is 0");
}

TEST(OrderInWrite, our_own_device_promises_it_on_both_paths_before_it_is_opened_and_after) {
  for (const DeviceInfo& info : Device::list()) EXPECT_TRUE(info.order_in_write) << info.name;
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local}) {
    const Device device = must(Device::open(OpenOptions{.path = path}));
    EXPECT_TRUE(device.info().order_in_write);
    EXPECT_THAT(device.explain(), ::testing::Contains(HasSubstr("order inside a WRITE: promised")));
  }
  EXPECT_FALSE(DeviceInfo{}.order_in_write) << "who says nothing promises nothing";
}

TEST(OrderInWrite, what_is_recommended_for_a_receivers_device_needs_no_more_than_that_promises) {
  const Device keeper = must(Device::open());
  const Device device = must(open_standard(PathChoice::Roce, kStandard));
  for (const bool idle : {false, true}) {
    const messaging::Requirements wanted{.lowest_latency = true, .idle_receiver = idle};
    const auto best = must(messaging::recommend(wanted));
    ASSERT_TRUE(messaging::traits_of(best.kind).order_in_write);
    EXPECT_EQ(must(messaging::recommend(wanted, keeper.info())).kind, best.kind);
    EXPECT_EQ(must(messaging::recommend(wanted, keeper.info())).reason, best.reason);
    const auto other = must(messaging::recommend(wanted, device.info()));
    EXPECT_EQ(to_string(other.kind), idle ? "buffered-write/offset/read" : "send-receive");
    EXPECT_THAT(other.reason, AllOf(HasSubstr(kNoPromise), HasSubstr(to_string(best.kind) + " needs")));
  }
  const messaging::Requirements simple{.many_small = true, .receiver_sleeps = true};
  EXPECT_EQ(must(messaging::recommend(simple, device.info())).reason, must(messaging::recommend(simple)).reason);
}

}  // namespace
}  // namespace verbena
