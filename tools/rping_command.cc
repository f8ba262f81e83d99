// SPDX-License-Identifier: Apache-2.0
// verbena rping: either end of rdma-core's rping.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/command.h"
#include "tools/number_flags.h"
#include "tools/report.h"
#include "tools/rping_client.h"
#include "tools/rping_server.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

struct RpingOptions {
  bool server = false, client = false, persistent = false, debug = false, own_queue_pair = false;
  std::string address, source;
  std::uint16_t port = kRpingPort;
  std::optional<std::uint32_t> size;
  double timeout = 10;  // seconds
  RpingSettings settings;
  DeviceFlags device;
};

std::string_view rping_advice(const Error& error) {
  switch (error.code()) {
    case ErrorCode::ConnectionRefused:
      return "Start the server there (`rping -s` or `verbena rping -s`), or give the port it listens on with -p.";
    case ErrorCode::Unreachable:
      return "Check the address, that an RDMA device has it, and that UDP port 4791 is open between the two.";
    case ErrorCode::TimedOut: return "Look at the program there: it is stopped, or too busy to answer.";
    case ErrorCode::ProtocolError:
      return "Check that the other side is an rping, and that its -S is not beyond the server's.";
    case ErrorCode::RemoteAccessError: return "The other side refuses its memory: check that it is an rping.";
    case ErrorCode::CorruptData: return "Other bytes came than those of rping: check the other side, then try again.";
    default: return advice(error);
  }
}

int report_rping(const Error& error) {
  const bool has_no_room = error.code() == ErrorCode::ResourceExhausted && error.domain() == ErrorDomain::CmReject;
  return report_error("rping", error, has_no_room ? "Try again later." : rping_advice(error));
}

std::string pings_text(std::uint64_t pings) { return fmt::format("{} ping{}", pings, pings == 1 ? "" : "s"); }

int serve_on(Device& device, const RpingOptions& options) {
  auto engine = ProgressEngine::create(device);
  if (!engine) return report_rping(engine.error());
  auto server = RpingServer::create(*engine, device, options.port, options.persistent, options.settings);
  if (!server) return report_rping(server.error());
  const StopSignals signals(*engine);
  say(stdout, "listening on {}\n", (*server)->address().to_string());
  std::fflush(stdout);
  bool over = false;
  int status = kExitOk;
  const auto on_over = [&](const RpingVisit& visit) {
    over = true;
    say(stdout, "{}: {}\n", visit.peer(), pings_text(visit.pings()));
    std::fflush(stdout);
    if (auto ended = visit.status(); !ended) {
      const int failed = report_rping(ended.error());
      if (!options.persistent) status = failed;
    }
  };
  while (!signals.requested() && (options.persistent || !over)) {
    const bool further = engine->run_once();
    if (!(*server)->pump(on_over) && !further) engine->wait(Instant::never());
  }
  return status;
}

Result<void> ping_on(const RpingOptions& options, RpingClient& client, const StopSignals& signals,
                     std::uint64_t& done) {
  const auto timeout = Duration{static_cast<std::int64_t>(options.timeout * 1e9)};
  const std::uint64_t count = options.settings.count == 0 ? kMaxRpingCount : options.settings.count;
  for (; done < count && !signals.requested(); ++done) {
    if (auto pinged = client.ping(done, timeout); !pinged) return pinged;
    if (!options.settings.verbose) continue;
    say(stdout, "ping data: {}\n", rping_text(client.data()));
    std::fflush(stdout);
  }
  return client.connection().close();
}

int ping_from(Device& device, const RpingOptions& options, const Endpoint& peer) {
  auto engine = ProgressEngine::create(device);
  if (!engine) return report_rping(engine.error());
  auto client = RpingClient::connect(*engine, device, peer, options.settings);
  if (!client) return report_rping(client.error());
  std::uint64_t done = 0;
  Result<void> outcome;
  {
    const StopSignals signals(*engine);
    outcome = ping_on(options, **client, signals, done);
  }
  say(stdout, "{}: {} of {} bytes\n", peer.to_string(), pings_text(done), options.settings.bytes);
  std::fflush(stdout);
  return outcome ? kExitOk : report_rping(outcome.error());
}

int run_on_device(const RpingOptions& options) {
  const Endpoint peer{options.address, options.port};
  auto device = options.server ? open_device(options.device) : open_device_towards(options.device, peer);
  if (!device)
    return report_error("rping", device.error(),
                        open_advice(device.error(), options.device, options.server ? nullptr : &peer));
  const int status = options.server ? serve_on(*device, options) : ping_from(*device, options, peer);
  return finish_capture("rping", *device, status);
}

// What is wrong with the words; empty when nothing is.
std::string obstacle(const RpingOptions& options) {
  if (options.server == options.client) return "either -s (server) or -c (client) must be given";
  if (options.own_queue_pair)
    return "-q chooses who makes the queue pair inside librdmacm; here connections always make their own";
  if (options.client && options.address.empty()) return "-a ADDRESS, the server's address, is missing";
  if (options.client && options.persistent) return "-P is for the server";
  if (options.client && options.port == 0) return "-p 0 is for the server, which then takes a free port";
  if (options.server && !options.source.empty()) return "-I is for the client; a server's own address is -a";
  const bool named_twice = !options.device.device.empty() &&
                           (!options.source.empty() || (options.server && !options.address.empty()));
  if (named_twice) return options.server ? "-a and --device both name the local device" :
                                           "-I and --device both name the local device";
  return "";
}

int run_rping(RpingOptions options) {
  if (const std::string what = obstacle(options); !what.empty()) return report_usage("rping", what);
  if (options.server && !options.address.empty()) options.device.device = options.address;
  if (!options.source.empty()) options.device.device = options.source;
  options.settings.bytes = options.size.value_or(options.server ? kMaxRpingBytes : kDefaultRpingBytes);
  if (options.debug)
    options.settings.tell = [](const std::string& text) { say(stderr, "rping: {}\n", printable(text)); };
  return run_on_device(options);
}

}  // namespace

void add_rping_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "rping", "Be either end of rdma-core's rping: data goes there by READ and comes back by WRITE.\n"
               "  verbena rping -s -a ADDRESS        and there  rping -c -a ADDRESS -C 10 -v -V\n"
               "  verbena rping -c -a ADDRESS -C 10  and there  rping -s");
  auto options = std::make_shared<RpingOptions>();
  command->add_flag("-s", options->server, "Be the server");
  command->add_flag("-c", options->client, "Be the client");
  add_device(*command, options->address, "-a",
             "Server: own address (the default device's when left out). Client: the server's address");
  auto* port = command->add_option("-p,--port", options->port, "Port of the server; a server takes a free one with 0");
  require_whole(port->capture_default_str(), 0, 65535);
  add_device(*command, options->source, "-I", "Client: own address");
  auto* size = command->add_option("-S", options->size, "Bytes per ping (64); server: the most it takes (65535)");
  require_whole(size, kMinRpingBytes, kMaxRpingBytes);
  auto* count = command->add_option("-C", options->settings.count,
                                    "Pings; 0: any number. Server: what each client must make");
  require_whole(count->capture_default_str(), 0, kMaxRpingCount);
  command->add_flag("-P", options->persistent, "Server: stay for any number of clients, many at once");
  command->add_flag("-v", options->settings.verbose, "Print the data of every ping");
  command->add_flag("-V", options->settings.validate, "Check the data of every ping");
  command->add_flag("-d", options->debug, "Tell of every message on standard error");
  command->add_flag("-q", options->own_queue_pair, "Refused: of no meaning here");
  auto* timeout = command->add_option("--timeout", options->timeout, "Client: seconds to wait for an answer");
  require_seconds(timeout->capture_default_str(), 0.001, 1e6);
  add_device_flags(*command, options->device);
  command->callback([options, &status] { status = run_rping(*options); });
}

}  // namespace verbena::tools
