// SPDX-License-Identifier: Apache-2.0
// What the two ends of `verbena bench` say beside the traffic they measure: JSON over TCP, each text with its length
// before it in 4 bytes, little-endian.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tools/tcp_link.h"

namespace verbena::tools {

class BenchControl {
 public:
  BenchControl(TcpLink link, StopQuestion stopped, Duration patience)
      : link_(std::move(link)), stopped_(std::move(stopped)), patience_(patience) {}

  // Errors: ConnectionLost (the other end has gone), Rejected (and told why before), IoError.
  Result<void> send(const nlohmann::json& message);
  // Something is there to receive(), if only the end.
  bool ready(Duration wait = {}) const { return link_.ready(wait); }
  // Errors: ProtocolError (the other end is no verbena bench), ConnectionLost (it has gone), Rejected (it told of an
  // error of its own), TimedOut, Cancelled.
  Result<nlohmann::json> receive();
  // The other end's user is to know why this one ends. When that fails too, nobody is there to be told.
  void send_error(const Error& error);

 private:
  static constexpr std::uint32_t kMaxBytes = 64u << 10;

  TcpLink link_;
  StopQuestion stopped_;
  Duration patience_;
};

// What each end says first has a member "bench", the test that it runs: "write bw", "message". Errors: InvalidArgument:
// the other end runs another than this one.
Result<void> check_same_bench(const nlohmann::json& hello, std::string_view here);

// A member that must be a whole number, or a text. ProtocolError.
Result<std::uint64_t> number_of(const nlohmann::json& message, const char* key);
Result<std::string> text_of(const nlohmann::json& message, const char* key);

}  // namespace verbena::tools
