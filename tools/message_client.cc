// SPDX-License-Identifier: Apache-2.0
#include "tools/message_client.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/bench_common.h"
#include "tools/json_output.h"
#include "tools/number_flags.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/say.h"

namespace verbena::tools {

void add_message_client_flags(CLI::App& command, MessageClientFlags& flags) {
  CLI::Option* const host =
      add_host(command, flags.host, flags.port, "A `verbena bench message` there; without it, one is started here");
  add_device(command, flags.device.device);
  require_whole(command.add_option("-p,--port", flags.port, "TCP port of HOST")->needs(host)->capture_default_str(), 1,
                65535);
  auto* patience = command.add_option("--timeout", flags.timeout, "Seconds to wait for the other end");
  require_seconds(patience->capture_default_str(), 0.1, 1e6);
  command.add_flag("-F,--CPU-freq", flags.quiet_frequency, "No warning when the processor changes its frequency");
  add_file(command, "--json", flags.json, "Write the results there, as JSON");
}

std::unique_ptr<MessageSession> open_message_session(std::string_view command, const MessageClientFlags& flags,
                                                     bool events, const StopQuestion& stopped, int& status) {
  MessageSessionOptions options;
  options.device = flags.device;
  options.end = {Duration{static_cast<std::int64_t>(flags.timeout * 1e9)}, events};
  options.stopped = stopped;
  auto session = flags.host.empty() ? MessageSession::start_here(options)
                                    : MessageSession::connect({flags.host, flags.port}, options);
  if (session) return std::move(*session);
  const Error& error = session.error();
  if (!flags.json.empty()) static_cast<void>(write_file(flags.json, failure_text(command, error)));
  const Endpoint peer{flags.host, flags.port};
  const bool device = error.code() == ErrorCode::NotFound;
  std::string_view advice = bench_advice(error);
  if (device) advice = open_advice(error, flags.device, flags.host.empty() ? nullptr : &peer);
  if (error.code() == ErrorCode::ConnectionRefused)
    advice = "Start `verbena bench message` there, or give its TCP port with -p.";
  status = report_error(command, error, advice);
  return nullptr;
}

TestCounter::TestCounter(std::size_t total) : enabled_(Progress::possible()), total_(total) {}

TestCounter::~TestCounter() {
  if (!enabled_) return;
  say(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

void TestCounter::begin(const MessageTest& test) {
  ++begun_;
  if (!enabled_) return;
  const std::string of = total_ == 0 ? "" : fmt::format(" of {}", total_);
  // Narrow enough for every terminal.
  say(stderr, "\r\x1b[K{}{}: {:.60}", begun_, of, test.name());
  std::fflush(stderr);
}

}  // namespace verbena::tools
