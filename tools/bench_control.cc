// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_control.h"

#include <fmt/format.h>

#include <array>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

Error not_a_bench() {
  return Error(ErrorCode::ProtocolError,
               "the other side does not speak as verbena bench does (perftest's own programs do not)");
}

}  // namespace

Result<void> BenchControl::send(const nlohmann::json& message) {
  std::string text(4, '\0');
  text += message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto length = static_cast<std::uint32_t>(text.size() - 4);
  for (std::size_t i = 0; i < 4; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xff);
  auto written = link_.write(text);
  if (written || written.error().code() != ErrorCode::ConnectionLost) return written;
  // Who leaves says why before, behind whatever else it said.
  auto told = receive();
  while (told) told = receive();
  return told.error().code() == ErrorCode::Rejected ? std::move(told).error() : std::move(written).error();
}

Result<nlohmann::json> BenchControl::receive() {
  std::array<char, 4> prefix{};
  if (auto got = link_.read(prefix, patience_, stopped_); !got) {
    if (got.error().code() != ErrorCode::ProtocolError) return std::move(got).error();
    return Error(ErrorCode::ConnectionLost, "the other side has gone: " + got.error().context());
  }
  std::uint32_t length = 0;
  for (std::size_t i = 0; i < 4; ++i) length |= std::uint32_t{static_cast<unsigned char>(prefix[i])} << (8 * i);
  if (length > kMaxBytes) return not_a_bench();
  std::string text(length, '\0');
  if (auto got = link_.read(text, patience_, stopped_); !got) return std::move(got).error();
  auto message = nlohmann::json::parse(text, nullptr, false);
  if (!message.is_object()) return not_a_bench();
  if (message.contains("error")) {
    const auto told = text_of(message, "error");
    return told ? Error(ErrorCode::Rejected, "the other side: " + printable(*told)) : told.error();
  }
  return message;
}

Result<void> check_same_bench(const nlohmann::json& hello, std::string_view here) {
  const auto there = hello.find("bench");
  if (there == hello.end())
    return Error(ErrorCode::ProtocolError,
                 "the other end does not say which test it runs: it is no `verbena bench`, or of another release");
  if (!there->is_string() || *there == here) return {};
  return Error(ErrorCode::InvalidArgument,
               fmt::format("the two ends run different tests: `verbena bench {}` here, and `verbena bench {}` there",
                           here, printable(there->get<std::string>().substr(0, 40))));
}

void BenchControl::send_error(const Error& error) { (void)send({{"error", error.to_string()}}); }

Result<std::uint64_t> number_of(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_number_unsigned()) return not_a_bench();
  return found->get<std::uint64_t>();
}

Result<std::string> text_of(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end() || !found->is_string()) return not_a_bench();
  return found->get<std::string>();
}

}  // namespace verbena::tools
