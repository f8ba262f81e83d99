// SPDX-License-Identifier: Apache-2.0
// A receiver that goes to its sender: the sender may speak as soon as it has accepted, and the receiver hears it before
// its own call to connect() is over.
#include <future>
#include <thread>

#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;

constexpr std::uint32_t kEarlyMessages = 3;
constexpr int kConnections = 3;

class EarlyMessages : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, EarlyMessages, ::testing::ValuesIn([] {
                           std::vector<Way> ways;
                           for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
                             for (const char* name : {"send-receive", "shared-receive", "buffered-write",
                                                      "buffered-write/reversed", "shared-write", "direct-write",
                                                      "direct-read", "buffered-read"})
                               ways.push_back({must(messaging::parse_kind(name)), path});
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

Options options_of(const Way& way) {
  return {.kind = way.kind, .max_message_bytes = 256, .depth = 8, .max_senders = 1};
}

// One sender after another, who says all it has to say at once.
void send_early(const Way& way, std::promise<std::string>& address) {
  Device device = must(Device::open(OpenOptions{.path = way.path}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  Listener listener = must(Listener::create(engine));
  address.set_value(listener.address().to_string());
  for (int i = 0; i < kConnections; ++i) {
    Sender sender = must(Sender::accept(engine, must(listener.wait_request(kPatience)), options_of(way)));
    for (std::uint32_t n = 0; n < kEarlyMessages; ++n) must(sender.send(text_of_message(0, n, 100 + n), kPatience));
    must(sender.close(kPatience));
  }
}

TEST_P(EarlyMessages, are_kept_until_their_receiver_is_connected) {
  const Way way = GetParam();
  std::promise<std::string> address;
  std::thread other([&] { send_early(way, address); });
  const std::string there = address.get_future().get();
  Device device = must(open_standard(
      way.path, {.promises = true, .keeps = true, .looks_away = Duration::milliseconds(20)}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  for (int i = 0; i < kConnections; ++i) {
    Receiver receiver = must(Receiver::create(engine, options_of(way)));
    const auto peer = receiver.connect(there);
    EXPECT_TRUE(peer) << peer.error().to_string();
    for (std::uint32_t n = 0; peer && n < kEarlyMessages; ++n) {
      const auto message = receiver.receive(kPatience);
      EXPECT_TRUE(message && is_message(*message, n, 100 + n)) << "connection " << i << ", message " << n;
    }
    EXPECT_FALSE(receiver.receive(kPatience));  // it has closed
  }
  other.join();
}

// What it said is handed out, and its end told, though the connection was over before the call was.
TEST_P(EarlyMessages, of_one_that_leaves_at_once_are_handed_out_and_its_end_is_told) {
  const Way way = GetParam();
  const bool stays = way.kind.protocol == messaging::Protocol::DirectRead ||
                     way.kind.protocol == messaging::Protocol::DirectWrite ||
                     way.kind.protocol == messaging::Protocol::BufferedRead;
  if (stays) GTEST_SKIP() << "its messages come when the receiver has begun";
  std::promise<std::string> address;
  std::thread other([&] {
    Device device = must(Device::open(OpenOptions{.path = way.path}));
    ProgressEngine engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(engine));
    address.set_value(listener.address().to_string());
    Sender sender = must(Sender::accept(engine, must(listener.wait_request(kPatience)), options_of(way)));
    must(sender.send(text_of_message(0, 0, 100), kPatience));
    EXPECT_TRUE(engine.run_until([&] { return sender.freed() == 1; }, kPatience));
  });
  const std::string there = address.get_future().get();
  Device device = must(open_standard(
      way.path, {.promises = true, .keeps = true, .looks_away = Duration::milliseconds(100)}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  Receiver receiver = must(Receiver::create(engine, options_of(way)));
  std::string how;
  receiver.on_peer_end([&](auto, const Result<void>& end) { how = end ? "well" : end.error().to_string(); });
  must(receiver.connect(there));
  {
    const auto message = receiver.receive(kPatience);
    EXPECT_TRUE(message && is_message(*message, 0, 100));
  }
  EXPECT_FALSE(receiver.receive(kPatience));
  // As one that left without closing; or a word of the receiver's was on its way, and found nobody.
  EXPECT_THAT(how, ::testing::AnyOf(::testing::HasSubstr("left without closing"),
                                    ::testing::HasSubstr("the peer stopped answering")));
  other.join();
}

// It said nothing, and was gone before the call was over.
TEST_P(EarlyMessages, are_not_waited_for_from_one_that_has_left) {
  const Way way = GetParam();
  std::promise<std::string> address;
  std::promise<void> over;
  std::thread other([&] {
    Device device = must(Device::open(OpenOptions{.path = way.path}));
    ProgressEngine engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(engine));
    address.set_value(listener.address().to_string());
    {
      const Sender sender = must(Sender::accept(engine, must(listener.wait_request(kPatience)), options_of(way)));
      static_cast<void>(engine.run_until([] { return false; }, Duration::milliseconds(30)));
    }
    over.get_future().wait();
  });
  const std::string there = address.get_future().get();
  Device device = must(open_standard(
      way.path, {.promises = true, .keeps = true, .looks_away = Duration::milliseconds(150)}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  Receiver receiver = must(Receiver::create(engine, options_of(way)));
  int told = 0;
  receiver.on_peer_end([&](auto, const Result<void>& end) {
    EXPECT_FALSE(end);
    ++told;
  });
  must(receiver.connect(there));
  const auto nothing = receiver.receive(kPatience);
  EXPECT_FALSE(nothing);
  EXPECT_NE(nothing.error().code(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(engine.run_until([&] { return receiver.peers() == 0; }, kPatience));
  over.set_value();
  other.join();
}

}  // namespace
}  // namespace verbena
