// SPDX-License-Identifier: Apache-2.0
// verbena bench message: what the message protocols do, between two ends.
#include "tools/message_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <utility>

#include "tools/bench_common.h"
#include "tools/json_output.h"
#include "tools/message_flags.h"
#include "tools/message_kinds.h"
#include "tools/message_server.h"
#include "tools/message_session.h"
#include "tools/message_table.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

constexpr std::string_view kMessageCommand = "bench message";

int report_message(const Error& error) {
  std::fflush(stdout);
  return report_error(kMessageCommand, error, bench_advice(error));
}

// ---- The client.
void print_heading(const MessageTest& first, const PathTaken& path, MessageSession& session) {
  say(stdout, "{}                    verbena bench message {} {}\n", kBenchDashes, messaging::to_string(first.kind),
      to_string(first.measure));
  say(stdout, " Device        : {:<24} Ring        : {}\n", printable(session.devices().name()),
      has_ring(first.kind) ? fmt::format("{}[B]", first.ring_bytes) : "none");
  say(stdout, " Local address : {:<24} Remote      : {}\n", session.devices().address().to_string(), session.remote());
  say(stdout, " Threads       : {:<24} Senders     : {}\n", first.threads, first.senders);
  say(stdout, " Window        : {:<24} Batch       : {}\n", first.window, first.batch);
  say(stdout, " Path          : {}\n", printable(path.reason));
  say(stdout, "{}{}", kBenchDashes, message_header(first.measure));
  std::fflush(stdout);
}

Result<void> measure_all(MessageSession& session, const MessageFlags& flags, std::vector<MessageRow>& rows) {
  Progress progress(Progress::possible());
  std::uint64_t before = 0;
  bool first = true;
  for (const MessageTest& test : message_tests(flags)) {
    const auto begin = [&](const PathTaken& path) {
      if (std::exchange(first, false)) print_heading(test, path, session);
    };
    auto row = session.run(test, begin, [&](std::uint64_t messages) {
      progress.update(before + messages * test.size, 0, test.name());
    });
    progress.clear();
    if (!row) return std::move(row).error();
    before += row->messages * test.size;
    say(stdout, "{}", message_line(*row));
    std::fflush(stdout);
    rows.push_back(std::move(*row));
  }
  say(stdout, "{}", kBenchDashes);
  return {};
}

Result<void> write_results(const MessageFlags& flags, const std::string& local, const std::string& remote,
                           const std::vector<MessageRow>& rows, const Result<void>& outcome) {
  if (flags.json.empty()) return {};
  nlohmann::json all{{"command", std::string(kMessageCommand)}, {"local", local}, {"remote", remote}};
  all["ok"] = outcome.has_value();
  if (!outcome) all["error"] = error_json(outcome.error());
  all["results"] = nlohmann::json::array();
  for (const MessageRow& row : rows) all["results"].push_back(to_json(row));
  return write_file(flags.json, json_text(all));
}

// Errors before the two ends have met are those of a device, or of the other end.
int report_meeting(const Error& error, const MessageFlags& flags) {
  const Endpoint peer{flags.host, flags.port};
  const std::string_view told = bench_advice(error);
  const bool device = error.code() == ErrorCode::NotFound || error.context().find("capture file") != std::string::npos;
  return report_error(kMessageCommand, error,
                      device ? open_advice(error, flags.device, flags.here ? nullptr : &peer) : told);
}

int run_client(const MessageFlags& flags) {
  const StopSignals signals;
  MessageSessionOptions options{flags.device, flags.end(), [&] { return signals.requested(); },
                                message_agreement(flags)};
  auto session = flags.here ? MessageSession::start_here(options)
                            : MessageSession::connect({flags.host, flags.port}, options);
  std::vector<MessageRow> rows;
  if (!session) {
    const auto written = write_results(flags, "", "", rows, session.error());
    const int status = report_meeting(session.error(), flags);
    return written ? status : report_error(kMessageCommand, written.error(), kWritableFiles);
  }
  const auto outcome = measure_all(**session, flags, rows);
  (*session)->end(outcome ? std::nullopt : std::optional<Error>(outcome.error()));
  MessageDevices& devices = (*session)->devices();
  const auto written =
      write_results(flags, devices.address().to_string(), (*session)->remote(), rows, outcome);
  int status = outcome ? kExitOk : report_message(outcome.error());
  if (!written) status = report_error(kMessageCommand, written.error(), kWritableFiles);
  return devices.count() == 0 ? status : finish_capture(kMessageCommand, devices.at(0), status);
}

// ---- The server.
Result<void> serve(MessageDevices& devices, const MessageFlags& flags) {
  const StopSignals signals;
  MessageServerOptions options{flags.end(), [&] { return signals.requested(); }, message_agreement(flags), {}};
  options.on_served = [](const MessageTest& test, const Result<void>& how) {
    say(stdout, " {}: {}\n", test.name(), how ? "the client has the numbers" : printable(how.error().to_string()));
    std::fflush(stdout);
  };
  auto listener = TcpListener::create(devices.address(), flags.port);
  if (!listener) return std::move(listener).error();
  const std::string here = Endpoint{devices.address().to_string(), listener->port()}.to_string();
  say(stdout, "listening on {}\n waits for `verbena bench message {} {} {}`; --here measures without another end\n",
      here, flags.protocol.empty() ? "PROTOCOL" : flags.protocol, flags.measure.empty() ? "lat|bw|rate" : flags.measure,
      here);
  std::fflush(stdout);
  auto link = listener->accept(options.stopped);
  if (!link) return std::move(link).error();
  return MessageServer(std::move(*link), devices, options).serve();
}

int run_server(const MessageFlags& flags) {
  auto devices = MessageDevices::open(flags.device, nullptr);
  if (!devices)
    return report_error(kMessageCommand, devices.error(), open_advice(devices.error(), flags.device, nullptr));
  const auto outcome = serve(*devices, flags);
  const int status = outcome ? kExitOk : report_message(outcome.error());
  return devices->count() == 0 ? status : finish_capture(kMessageCommand, devices->at(0), status);
}

int run_message(MessageFlags& flags) {
  if (const std::string wrong = place_words(flags); !wrong.empty()) return report_usage(kMessageCommand, wrong);
  if (const std::string wrong = check_message_flags(flags); !wrong.empty()) return report_usage(kMessageCommand, wrong);
  if (flags.matrix()) return run_matrix(kMessageCommand, matrix_flags(flags));
  if (auto fits = check_results({flags.json, flags.device.pcap}); !fits)
    return report_error(kMessageCommand, fits.error(), kWritableFiles);
  if (!flags.quiet_frequency) warn_of_frequency();
  if (flags.ring && ring_in_force(*flags.ring) != *flags.ring)
    say(stderr, "verbena {}: --ring {} makes a ring of {} bytes: a power of two, of whole pages\n", kMessageCommand,
        *flags.ring, ring_in_force(*flags.ring));
  return flags.client() ? run_client(flags) : run_server(flags);
}

}  // namespace

void add_message_command(CLI::App& bench, int& status) {
  auto flags = std::make_shared<MessageFlags>();
  CLI::App* command = bench.add_subcommand(
      "message",
      "Measure message protocols: latency, bandwidth, rate of messages.\n"
      "  verbena bench message        and there  verbena bench message send-receive lat HOST\n"
      "  verbena bench message buffered-write rate --here\n"
      "  verbena bench message --all [PROTOCOL] [HOST]   all protocols beside each other, and which to take\n"
      "The client says what is measured; a server that was given words takes no others.\n"
      "lat is half of there and back, of several --senders in turn. Of bw and rate, o[usec] is what handing a message\n"
      "over takes of the sender's processor, and KiB the memory that each end holds.");
  add_message_flags(*command, *flags);
  command->callback([flags, &status] { status = run_message(*flags); });
}

}  // namespace verbena::tools
