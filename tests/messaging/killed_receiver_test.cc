// SPDX-License-Identifier: Apache-2.0
// Receivers whose processes are stopped, or killed, while messages are on their way: a sender learns of it by name and
// waits no longer, or goes on where it was; and other receivers' senders go on meanwhile.
#include <algorithm>
#include <optional>

#include "../api/test_process.h"
#include "base/sanitizer.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

constexpr std::uint32_t kLongestReceived = 2000;
// Who is silent for four times 4.096 us * 2^kReceiverTimeout is lost: half a second, or two where all is slow.
constexpr std::uint8_t kReceiverTimeout = kSanitized ? 17 : 15, kRetries = 3;
constexpr std::uint8_t kPatientTimeout = 22;
using Say = std::function<void(const std::string&)>;

std::size_t size_of(std::uint32_t n) { return std::size_t{n} * 37 % (kLongestReceived + 1); }

Options options_of_receivers(const Way& way, std::uint8_t timeout) {
  Options options{
      .kind = way.kind, .max_message_bytes = kLongestReceived, .depth = 8, .ring_bytes = 16384, .max_senders = 2};
  options.connection.reliability.timeout = timeout;
  options.connection.reliability.retry_count = kRetries;
  options.connection.keep_alive = Duration::milliseconds(100);
  return options;
}

// The life of a receiver with one sender: says where it is, then that it has the first message, and how all ended.
void receive_all(const Way& way, std::uint8_t timeout, const Say& say) {
  Device device = must(Device::open(OpenOptions{.path = way.path}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  Receiver receiver = must(Receiver::create(engine, options_of_receivers(way, timeout)));
  Listener listener = must(Listener::create(engine));
  listener.on_request([&] { must(receiver.accept(*listener.poll_request())); });
  say(listener.address().to_string());
  for (std::uint32_t got = 0;; ++got) {
    const auto message = receiver.receive(kPatience);
    if (!message) return say(std::to_string(got) + " came, " + message.error().to_string());
    if (!is_message(*message, got, size_of(got))) return say(std::to_string(got) + " is spoilt");
    if (got == 0) say("receives");
  }
}

// Of another process, and one of this which has a sender of its own.
class Receivers : public ::testing::TestWithParam<Way> {
 protected:
  explicit Receivers(std::uint8_t timeout)
      : child([timeout](const Say& say) { receive_all(GetParam(), timeout, say); }),
        address(child.hear()),
        ends(GetParam(), options_of_receivers(GetParam(), timeout), timeout),
        to_own(ends.connect()),
        to_child(must(Sender::connect(ends.engine, address, ends.options))) {}
  // As many go to the child as go now.
  void send_to_child(std::uint32_t end) {
    while (sent < end && to_child->try_send(text_of_message(0, sent, size_of(sent)))) ++sent;
  }
  void send_one_to_child() {
    must(to_child->send(text_of_message(0, sent, size_of(sent)), kPatience));
    ++sent;
  }
  void pass_one_to_own() {
    must(to_own.send(text_of_message(1, passed, size_of(passed)), kPatience));
    const Message message = must(ends.receiver->receive(kPatience));
    EXPECT_TRUE(is_message(message, passed, size_of(passed), 1)) << passed;
    ++passed;
  }

  Process child;
  const std::string address;
  Ends ends;
  Sender to_own;
  std::optional<Sender> to_child;
  std::uint32_t sent = 0, passed = 0;
};

class StoppedReceiver : public Receivers {
 protected:
  StoppedReceiver() : Receivers(kPatientTimeout) {}
};
INSTANTIATE_TEST_SUITE_P(Messaging, StoppedReceiver, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(StoppedReceiver, holds_back_its_own_sender_alone_and_gets_all_when_it_goes_on) {
  constexpr std::uint32_t kMost = 1000;  // more than go without it
  send_one_to_child();
  must(to_child->wait_freed(1, kPatience));
  ASSERT_EQ(child.hear(), "receives");
  child.stop();
  const std::uint64_t memory = to_child->memory_bytes();
  for (Quiet quiet(ends); !quiet.is_long(); ends.engine.run_once())
    if (const std::uint32_t before = sent; send_to_child(kMost), sent != before) quiet.end();
  const std::uint32_t full = sent;
  EXPECT_GT(full, 1u);
  EXPECT_LT(full, 300u);
  for (int i = 0; i < 200; ++i) pass_one_to_own();
  send_to_child(kMost);
  EXPECT_EQ(sent, full);
  EXPECT_FALSE(to_child->closed());
  EXPECT_EQ(to_child->memory_bytes(), memory);
  child.signal(SIGCONT);
  while (sent < kMost) send_one_to_child();
  must(to_child->close(kPatience));
  EXPECT_THAT(child.hear(), ::testing::StartsWith("1000 came, Disconnected"));
  EXPECT_EQ(child.wait(), 0);
  pass_one_to_own();
}

class KilledReceiver : public Receivers {
 protected:
  KilledReceiver() : Receivers(kReceiverTimeout) {}
  static ::testing::Matcher<std::string> is_named() {
    return ::testing::ContainsRegex("^(RetryExceeded|ConnectionLost|Disconnected)");
  }
};
INSTANTIATE_TEST_SUITE_P(Messaging, KilledReceiver, ::testing::ValuesIn(every_way()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(KilledReceiver, ends_its_own_sender_by_name_and_all_that_waits_there) {
  constexpr std::uint32_t kFlow = 100;  // more than go without it: it takes them
  MemoryRegion lent = must(ends.client.allocate_memory(kLongestReceived));
  while (sent < kFlow) {
    ASSERT_FALSE(to_child->closed());
    send_to_child(kFlow);
    pass_one_to_own();
  }
  send_to_child(kFlow + 1);
  const auto text = text_of_message(0, sent, size_of(sent));
  std::copy(text.begin(), text.end(), lent.data());
  const auto last = to_child->try_lend(LentMemory::of(lent, 0, static_cast<std::uint32_t>(text.size())));
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(), -SIGKILL);
  std::string waited;
  const auto wait_for_room = [&]() -> Task<void> {
    Result<messaging::MessageId> done = messaging::MessageId{0};
    while (done) done = co_await to_child->async_send(text, kPatience);
    waited = done.error().to_string();
  };
  ends.engine.spawn(wait_for_room());
  const Instant end = ends.engine.now() + kPatience;
  while (waited.empty() && ends.engine.now() < end) pass_one_to_own();
  EXPECT_THAT(waited, is_named());
  EXPECT_TRUE(to_child->closed());
  EXPECT_EQ(to_child->try_send({}).status, SendStatus::Closed);
  ASSERT_FALSE(to_child->status());
  EXPECT_THAT(to_child->status().error().to_string(), is_named());
  expect_error(to_child->send(text_of_message(0, 0, 8), kPatience), to_child->status().error().code());
  expect_error(to_child->close(kPatience), to_child->status().error().code());
  if (last && to_child->freed() < last.last) {
    EXPECT_FALSE(to_child->wait_freed(last.last, kPatience));
  }
  to_child.reset();
  for (int i = 0; i < 100; ++i) pass_one_to_own();
  must(to_own.close(kPatience));
}

}  // namespace
}  // namespace verbena
