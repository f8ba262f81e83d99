// SPDX-License-Identifier: Apache-2.0
// A receiver and a sender on a host each, in virtual time, over a network that loses nothing: what takes time takes
// exactly that much.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../scenario/virtual_world.h"
#include "test_ends.h"

namespace verbena::test {

// Those of every_way() that go by packets: virtual time has no other path.
inline std::vector<Way> ways_in_virtual_time() {
  std::vector<Way> all;
  for (const Way& way : every_way())
    if (way.path == PathChoice::Roce) all.push_back(way);
  return all;
}

inline std::vector<Way> ways_of(std::initializer_list<const char*> names) {
  std::vector<Way> all;
  for (const char* name : names) all.push_back({must(messaging::parse_kind(name))});
  return all;
}

// Ends with room for a few messages, and the bytes of one.
inline constexpr std::size_t kSmallBytes = 250;
inline Options small_options() { return {.max_message_bytes = 256, .depth = 4, .ring_bytes = 4096}; }

class VirtualPair {
 public:
  explicit VirtualPair(const Way& way, Options both = {}, Duration delay = Duration::microseconds(5))
      : world(7, {.delay = delay, .jitter = {}}), there(world.add_host()), here(world.add_host()) {
    options = std::move(both);
    options.kind = way.kind;
    options.max_senders = 1;
    options.connection.reliability.timeout = 20;  // nobody is given up
    receiver.emplace(must(Receiver::create(there.engine(), options)));
    receiver->on_peer_end([this](messaging::PeerId, const Result<void>& end) { told = how(end); });
    listener.emplace(must(Listener::create(there.engine())));
    listener->on_request([this] { must(receiver->accept(*listener->poll_request())); });
    sender.emplace(must(Sender::connect(here.engine(), listener->address().to_string(), options)));
    EXPECT_TRUE(run_until([this] { return sender->credits() != 0 && receiver->peers() == 1; }));
  }
  VirtualPair(const VirtualPair&) = delete;
  VirtualPair& operator=(const VirtualPair&) = delete;

  bool run_until(const std::function<bool()>& done, Duration limit = kPatience) { return world.run_until(done, limit); }
  void run_for(Duration time) { world.run_until([] { return false; }, time); }
  // Sends until nothing goes any more, though the receiver's engine runs: nobody takes what came. How many went.
  std::uint32_t fill(std::size_t bytes) {
    std::uint32_t sent = 0;
    for (std::uint32_t before = ~0u; before != sent; run_for(Duration::milliseconds(2)))
      for (before = sent; sender->try_send(text_of_message(0, sent, bytes)); ++sent) continue;
    return sent;
  }
  // The receiver's program begins to take what comes.
  void take_all(std::size_t bytes) {
    receiver->on_message([this, bytes](const Message& message) {
      EXPECT_TRUE(is_message(message, got, bytes)) << got;
      ++got;
    });
  }
  Instant now() const { return world.now(); }

  VirtualWorld world;
  VirtualWorld::Host &there, &here;
  Options options;
  std::optional<Receiver> receiver;
  std::optional<Listener> listener;
  std::optional<Sender> sender;
  std::uint32_t got = 0;
  std::string told;  // how the sender ended, as the receiver learnt it
};

}  // namespace verbena::test
