// SPDX-License-Identifier: Apache-2.0
// A receiver and its senders on one engine, over packets or shared memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../api/test_pair.h"
#include "verbena/messaging/receiver.h"
#include "verbena/messaging/sender.h"

namespace verbena::test {

using messaging::Kind;
using messaging::LentMemory;
using messaging::Message;
using messaging::Options;
using messaging::Protocol;
using messaging::Receiver;
using messaging::Sender;
using messaging::SendStatus;

// What comes, comes long before; of virtual time, too.
inline constexpr Duration kPatience = Duration::seconds(60);

// What a protocol runs over.
struct Way {
  Kind kind;
  PathChoice path = PathChoice::Roce;
};

// Those that every test of all protocols runs over.
inline std::vector<Way> every_way() {
  std::vector<Way> all;
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
    for (const char* name :
         {"send-receive", "shared-receive", "direct-read", "direct-read/fenced", "direct-write"})
      all.push_back({must(messaging::parse_kind(name)), path});
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
    for (const auto commit :
         {messaging::Commit::Immediate, messaging::Commit::Offset, messaging::Commit::Reversed})
      for (const auto acknowledge : {messaging::Acknowledge::Send, messaging::Acknowledge::Read})
        for (const auto ring : {messaging::RingMemory::Plain, messaging::RingMemory::DoubleMapped})
          all.push_back({{Protocol::BufferedWrite, commit, acknowledge, ring}, path});
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
    for (const char* name :
         {"shared-write", "shared-write/double-mapped", "buffered-read", "buffered-read/double-mapped"})
      all.push_back({must(messaging::parse_kind(name)), path});
  return all;
}

inline std::string name_of(const Way& way) {
  std::string name = messaging::to_string(way.kind) + (way.path == PathChoice::Local ? "_local" : "_roce");
  for (char& c : name)
    if (c == '-' || c == '/') c = '_';
  return name;
}

inline std::string name_of_path(const ::testing::TestParamInfo<PathChoice>& path) {
  return path.param == PathChoice::Local ? "local" : "roce";
}

template <class T>
std::string how(const Result<T>& result) {
  return result ? "well" : result.error().to_string();
}

// The bytes of message number n of a sender: they say who and which, and fill up with a pattern of it.
inline std::vector<std::byte> text_of_message(std::uint32_t sender, std::uint32_t n, std::size_t bytes) {
  std::vector<std::byte> text(bytes);
  std::uint32_t x = sender * 7919 + n * 31 + 1;
  for (std::byte& b : text) {
    x = x * 1664525 + 1013904223;
    b = static_cast<std::byte>(x >> 24);
  }
  return text;
}

inline bool is_message(const Message& message, std::uint32_t n, std::size_t bytes, std::uint32_t sender = 0) {
  const auto expected = text_of_message(sender, n, bytes);
  return std::equal(expected.begin(), expected.end(), message.bytes().begin(), message.bytes().end());
}

// How often a device told a peer that it has no receive for its message.
inline std::uint64_t times_without_receive(const Device& device) {
  for (const NamedCounter& counter : device.counters())
    if (counter.name == "send_rnr_err") return counter.value;
  ADD_FAILURE() << "no counter is called send_rnr_err";
  return 0;
}

class Ends {
 public:
  // `timeout`: see ReliabilityOptions; so long that no end in these tests is one of patience.
  explicit Ends(const Way& way, Options both = {}, std::uint8_t timeout = 20)
      : Ends(must(Device::open(OpenOptions{.path = way.path})), must(Device::open(OpenOptions{.path = way.path})), way,
             std::move(both), timeout) {}
  Ends(Device its_client, Device its_server, const Way& way, Options both = {}, std::uint8_t timeout = 20,
       const EngineOptions& engine_options = {})
      : client(std::move(its_client)),
        server(std::move(its_server)),
        engine(must(ProgressEngine::create(client, engine_options))) {
    must(engine.add(server));
    options = std::move(both);
    options.kind = way.kind;
    options.connection.reliability.timeout = timeout;
    Options there = options;
    there.connection.device = &server;
    listener.emplace(must(Listener::create(engine, {.device = &server})));
    receiver.emplace(must(Receiver::create(engine, there)));
    listener->on_request([this] {
      while (auto request = listener->poll_request()) {
        auto peer = receiver->accept(std::move(*request));
        if (!peer) refused.push_back(peer.error().to_string());
      }
    });
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  Result<Sender> try_connect(const Options& here) {
    return Sender::connect(engine, listener->address().to_string(), here);
  }
  // It has credits: some receivers grant them once it is there.
  Sender connect(std::uint64_t credits = 1) {
    Sender sender = must(try_connect(options));
    EXPECT_TRUE(engine.run_until([&] { return sender.credits() >= credits; }, kPatience));
    return sender;
  }

  // No message found no receive, whichever way it went.
  void expect_a_receive_for_every_message() const {
    EXPECT_EQ(times_without_receive(client), 0u);
    EXPECT_EQ(times_without_receive(server), 0u);
  }

  Device client, server;
  Options options;
  ProgressEngine engine;
  std::optional<Listener> listener;
  std::optional<Receiver> receiver;
  std::vector<std::string> refused;
};

// No message moves: some ends go on asking for room, and the devices may have to agree on a path first.
class Quiet {
 public:
  explicit Quiet(Ends& ends) : ends_(ends) { end(); }
  void end() {
    turns_ = 0;
    since_ = ends_.client.now();
  }
  // One turn more.
  bool is_long() { return ++turns_ > 3000 && ends_.client.now() - since_ > Duration::milliseconds(20); }

 private:
  Ends& ends_;
  int turns_ = 0;
  Instant since_{};
};

// Sends until neither end has room any more, and what came is held. How many went.
inline std::uint32_t fill_up(Ends& ends, Sender& sender, std::vector<Message>& held, std::size_t bytes) {
  std::uint32_t sent = 0;
  Quiet quiet(ends);
  while (!quiet.is_long()) {
    for (; sender.try_send(text_of_message(0, sent, bytes)); ++sent) quiet.end();
    ends.engine.run_once();
    if (auto message = ends.receiver->try_receive()) {
      held.push_back(std::move(*message));
      quiet.end();
    }
  }
  return sent;
}
// The same, and nobody takes what came.
inline std::uint32_t fill_up(Ends& ends, Sender& sender, std::size_t bytes) {
  std::uint32_t sent = 0;
  Quiet quiet(ends);
  while (!quiet.is_long()) {
    for (; sender.try_send(text_of_message(0, sent, bytes)); ++sent) quiet.end();
    ends.engine.run_once();
  }
  return sent;
}

}  // namespace verbena::test
