// SPDX-License-Identifier: Apache-2.0
// What the commands have in common that run many tests of message protocols: whom they measure with, and what is shown
// meanwhile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tools/bench_settings.h"
#include "tools/message_session.h"

namespace verbena::tools {

struct MessageClientFlags {
  std::string host;  // empty: with a server of its own, on this machine
  DeviceFlags device;
  std::uint16_t port = kBenchPort;
  double timeout = 10;  // seconds
  bool quiet_frequency = false;
  std::string json;
};
void add_message_client_flags(CLI::App& command, MessageClientFlags& flags);

// Says why not, and gives nothing; `status` is the command's then. `events`: the receiving end sleeps, where it is
// started here.
std::unique_ptr<MessageSession> open_message_session(std::string_view command, const MessageClientFlags& flags,
                                                     bool events, const StopQuestion& stopped, int& status);

// "17 of 342: ..." on a terminal, and nothing elsewhere.
class TestCounter {
 public:
  explicit TestCounter(std::size_t total);  // 0: unknown
  TestCounter(const TestCounter&) = delete;
  TestCounter& operator=(const TestCounter&) = delete;
  ~TestCounter();
  void begin(const MessageTest& test);

 private:
  const bool enabled_;
  const std::size_t total_;
  std::size_t begun_ = 0;
};

}  // namespace verbena::tools
