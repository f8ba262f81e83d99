// SPDX-License-Identifier: Apache-2.0
// Callbacks that hold the end they are called by, and callbacks and tasks that come in the middle of a call.
#include <memory>
#include <utility>

#include "verbena/testing/virtual_network.h"
#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;
using verbena::testing::VirtualHost;
using verbena::testing::VirtualNetwork;

struct Hosts {
  VirtualNetwork network = must(VirtualNetwork::create(1));
  VirtualHost server = must(network.add_host()), client = must(network.add_host());
  Listener listener = must(Listener::create(server.engine(), {.port = 7471}));
  Options options;
  Hosts() { options.kind.protocol = messaging::Protocol::SendReceive; }

  Receiver receiver() { return must(Receiver::create(server.engine(), options)); }
  Sender sender() { return must(Sender::connect(client.engine(), "10.0.0.1:7471", options)); }
  void run_for(Duration time) { must(network.run_for(time)); }
};

// A callback of the server's that is called when it next runs, in whatever it does then.
struct Order {
  template <class F>
  Order(Hosts& on, F f) : hosts(on) {
    called.on_done([f](Operation&) { f(); });
    other.on_request([this] {
      taken.emplace(must(other.poll_request()->accept()));
      taken->receive(called, in.local());
    });
    boss.emplace(must(Connection::connect(hosts.client.engine(), "10.0.0.1:7472")));
  }
  void give() {
    hosts.server.pause();
    boss->send(sent, out.local());
    hosts.run_for(kMs);
  }
  Hosts& hosts;
  Listener other = must(Listener::create(hosts.server.engine(), {.port = 7472}));
  MemoryRegion in = must(hosts.server.device().allocate_memory(64));
  MemoryRegion out = must(hosts.client.device().allocate_memory(64));
  std::optional<Connection> taken, boss;
  Operation called, sent;
};

TEST(CapturedEnds, a_sender_may_go_with_the_callback_about_freed_memory_that_takes_itself_back) {
  Hosts hosts;
  Receiver receiver = hosts.receiver();
  hosts.listener.on_request([&] { must(receiver.accept(*hosts.listener.poll_request())); });
  auto sender = std::make_shared<Sender>(hosts.sender());
  const std::weak_ptr<Sender> gone = sender;
  bool called = false;
  sender->on_freed([sender, &called](messaging::MessageId) {
    called = true;
    sender->on_freed({});
  });
  ASSERT_TRUE(sender->try_send(text_of_message(0, 0, 30)));
  sender.reset();
  must(hosts.network.run_until([&] { return called; }));
  EXPECT_TRUE(gone.expired());
}

TEST(CapturedEnds, ends_may_go_with_callbacks_that_are_taken_back) {
  Hosts hosts;
  Receiver receiver = hosts.receiver();
  hosts.listener.on_request([&] { must(receiver.accept(*hosts.listener.poll_request())); });
  const auto with = [](auto end, auto set) {
    auto shared = std::make_shared<decltype(end)>(std::move(end));
    const std::weak_ptr<decltype(end)> gone = shared;
    auto& itself = *shared;
    set(itself, std::exchange(shared, nullptr));
    EXPECT_TRUE(gone.expired());
  };
  with(hosts.sender(), [](Sender& itself, std::shared_ptr<Sender> held) {
    itself.on_room([held = std::move(held)] {});
    itself.on_room({});
  });
  with(hosts.sender(), [](Sender& itself, std::shared_ptr<Sender> held) {
    itself.on_freed([held = std::move(held)](messaging::MessageId) {});
    itself.on_freed({});
  });
  with(hosts.receiver(), [](Receiver& itself, std::shared_ptr<Receiver> held) {
    itself.on_message([held = std::move(held)](Message) {});
    itself.on_message({});
  });
}

TEST(CapturedEnds, a_receiver_may_be_destroyed_while_it_accepts_who_gave_up) {
  Hosts hosts;
  std::optional<Receiver> receiver = hosts.receiver();
  Order order(hosts, [&] { receiver.reset(); });
  std::optional<ConnectionRequest> request;
  hosts.listener.on_request([&] { request.emplace(std::move(*hosts.listener.poll_request())); });
  static_cast<void>(hosts.network.run(
      hosts.client,
      [](Hosts& on) -> Task<void> {
        static_cast<void>(co_await Sender::async_connect(on.client.engine(), "10.0.0.1:7471", on.options));
      }(hosts),
      kMs * 50));
  hosts.run_for(kMs * 50);
  ASSERT_TRUE(request);
  order.give();
  EXPECT_FALSE(receiver->accept(std::move(*request)));
  EXPECT_FALSE(receiver);
}

class CapturedMessages : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, CapturedMessages, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(CapturedMessages, messages_may_be_given_back_while_their_receiver_is_destroyed) {
  constexpr std::size_t kMessages = 8;
  Hosts hosts;
  hosts.options.kind = GetParam().kind;
  hosts.options.depth = 16;
  hosts.options.max_senders = 2;
  std::optional<Receiver> receiver = hosts.receiver();
  hosts.listener.on_request([&] { must(receiver->accept(*hosts.listener.poll_request())); });
  std::vector<Message> held;
  Order order(hosts, [&] { held.clear(); });
  Sender sender = hosts.sender();
  for (std::uint32_t i = 0; i < kMessages; ++i) static_cast<void>(sender.try_send(text_of_message(0, i, 30)));
  static_cast<void>(hosts.network.run_until(
      [&] {
        if (auto message = receiver->try_receive()) held.push_back(std::move(*message));
        return held.size() == kMessages;
      },
      Duration::seconds(1)));
  order.give();
  receiver.reset();
  EXPECT_TRUE(order.called.done());
}

// Two wait when the last sender has closed; the first accepts another one, and the second is told what it was woken
// for.
TEST(CapturedEnds, who_is_told_that_all_have_closed_is_told_so_though_another_is_accepted_before) {
  Hosts hosts;
  Receiver receiver = hosts.receiver();
  bool first = true;
  hosts.listener.on_request([&] {
    if (std::exchange(first, false)) must(receiver.accept(*hosts.listener.poll_request()));
  });
  std::vector<std::string> told;
  const auto wait = [&](bool accepts) -> Task<void> {
    const auto message = co_await receiver.async_receive();
    told.push_back(message ? "a message" : message.error().to_string());
    if (accepts) must(receiver.accept(*hosts.listener.poll_request()));
  };
  const auto later = [&]() -> Task<void> {
    co_await hosts.client.engine().sleep(kMs * 50);
    const auto sender = co_await Sender::async_connect(hosts.client.engine(), "10.0.0.1:7471", hosts.options);
    co_await hosts.client.engine().sleep(Duration::seconds(1));
  };
  const auto now = [&]() -> Task<Result<void>> {
    Sender sender =
        must(co_await Sender::async_connect(hosts.client.engine(), "10.0.0.1:7471", hosts.options));
    co_await hosts.client.engine().sleep(kMs * 100);
    co_return co_await sender.async_close();
  };
  hosts.server.engine().spawn(wait(true));
  hosts.server.engine().spawn(wait(false));
  hosts.client.engine().spawn(later());
  must(hosts.network.run(hosts.client, now()));
  hosts.run_for(Duration::seconds(2));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], told[1]);
  EXPECT_THAT(told[1], ::testing::HasSubstr("closed"));
}

}  // namespace
}  // namespace verbena
