// SPDX-License-Identifier: Apache-2.0
// Two devices of this process on the loopback network, and connections between them.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/verbena.h"

namespace verbena::test {

template <class T>
T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().to_string();
    std::abort();
  }
  return std::move(result).value();
}
inline void must(const Result<void>& result) { EXPECT_TRUE(result) << result.error().to_string(); }

inline std::uint64_t counter(const Device& device, std::string_view name) {
  for (const NamedCounter& one : device.counters())
    if (one.name == name) return one.value;
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

inline std::string text_of(std::span<const std::byte> bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.substr(0, text.find('\0'));
}
inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span{text}); }

inline void fill(const MemoryRegion& region, std::uint32_t seed) {
  std::uint32_t x = seed | 1;
  for (std::byte& b : region.bytes()) {
    x = x * 1664525 + 1013904223;
    b = static_cast<std::byte>(x >> 24);
  }
}
inline bool same(const MemoryRegion& a, const MemoryRegion& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.bytes().size()) == 0;
}

// All that a device or a connection says of itself, a line each.
template <class Explaining>
std::string explained(const Explaining& it) {
  std::string text;
  for (const std::string& line : it.explain()) text += line + "\n";
  return text;
}

inline constexpr Duration kMs = Duration::milliseconds(1);

// A result that failed with that code, and whose text has each of the words.
template <class... Words>
void expect_error(const Error& error, ErrorCode code, Words... words) {
  EXPECT_EQ(error.code(), code) << error.to_string();
  for (const char* word : std::initializer_list<const char*>{words...})
    EXPECT_THAT(error.to_string(), ::testing::HasSubstr(word));
}
template <class T, class... Words>
void expect_error(const Result<T>& result, ErrorCode code, Words... words) {
  ASSERT_FALSE(result.has_value()) << "succeeded";
  expect_error(result.error(), code, words...);
}

// Client and server devices on one engine. The server accepts everybody.
struct Pair {
  explicit Pair(const EngineOptions& engine_options = {}, const OpenOptions& device_options = {})
      : Pair(engine_options, device_options, device_options) {}
  Pair(const EngineOptions& engine_options, const OpenOptions& device_options, const OpenOptions& client_options)
      : client(must(Device::open(client_options))),
        server(must(Device::open(device_options))),
        engine(must(ProgressEngine::create(client, engine_options))) {
    must(engine.add(server));
    listener.emplace(must(Listener::create(engine, {.device = &server})));
    listener->on_request([this] {
      auto request = listener->poll_request();
      if (request) accepted.push_back(must(request->accept(server_options, server_data)));
    });
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  Connection connect(const ConnectionOptions& options = {}, std::span<const std::byte> data = {}) {
    Connection connection = must(Connection::connect(engine, listener->address().to_string(), options, data));
    engine.run_until(
        [&] { return !accepted.empty() && accepted.back().phase() == ConnectionPhase::Established; },
        Duration::seconds(10));
    return connection;
  }
  Connection& far_end() { return accepted.back(); }

  Device client;
  Device server;
  ConnectionOptions server_options;
  std::span<const std::byte> server_data;
  ProgressEngine engine;
  std::optional<Listener> listener;
  std::vector<Connection> accepted;
};

}  // namespace verbena::test
