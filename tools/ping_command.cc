// SPDX-License-Identifier: Apache-2.0
// verbena ping: is the peer there, does every operation work, how long does it take.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/histogram.h"
#include "tools/json_output.h"
#include "tools/number_flags.h"
#include "tools/ping_client.h"
#include "tools/ping_server.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

constexpr double kAnswerSeconds = 10;

struct PingOptions {
  std::string peer;
  bool server = false, once = false, quiet = false, json = false, poll = false;
  std::uint16_t port = kDefaultPort;
  std::string operation = "send";
  std::uint64_t count = 5;
  std::optional<std::uint32_t> size;
  double interval = 1;            // seconds
  std::optional<double> timeout;  // seconds
  DeviceFlags device;
};

Duration seconds(double value) { return Duration{static_cast<std::int64_t>(value * 1e9)}; }
Duration answer_timeout(const PingOptions& options) { return seconds(options.timeout.value_or(kAnswerSeconds)); }
double microseconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

ConnectionOptions connection_options(const PingOptions& options) {
  ConnectionOptions chosen;
  if (options.timeout) chosen.connect_timeout = seconds(*options.timeout);
  return chosen;
}

EngineOptions engine_options(const PingOptions& options) {
  EngineOptions chosen;
  if (options.poll) chosen.wait = WaitMode::Busy;
  return chosen;
}

int serve_on(Device& device, const PingOptions& options) {
  auto engine = ProgressEngine::create(device, engine_options(options));
  if (!engine) return report_error("ping", engine.error());
  auto server = PingServer::create(*engine, device, options.port);
  if (!server) return report_error("ping", server.error());
  const StopSignals signals(*engine);
  say(stdout, "listening on {}\n", (*server)->address().to_string());
  std::fflush(stdout);
  bool over = false;
  const auto on_begin = [&](const PingVisit& visit) {
    if (options.quiet) return;
    say(stdout, "{}: {}, {} bytes\n", visit.peer(), to_string(visit.request().operation), visit.request().size);
    std::fflush(stdout);
  };
  const auto on_over = [&](const PingVisit& visit) {
    over = true;
    if (options.quiet) return;
    const auto status = visit.status();
    const bool closed = status || status.error().code() == ErrorCode::Disconnected;
    say(stdout, "{}: {}\n", visit.peer(), closed ? "closed" : printable(status.error().to_string()));
    std::fflush(stdout);
  };
  while (!signals.requested() && !(options.once && over)) {
    const bool further = engine->run_once();
    if (!(*server)->pump(on_begin, on_over) && !further) engine->wait(Instant::never());
  }
  return kExitOk;
}

int run_server(const PingOptions& options) {
  auto device = open_device(options.device);
  if (!device) return report_error("ping", device.error(), open_advice(device.error(), options.device, nullptr));
  return finish_capture("ping", *device, serve_on(*device, options));
}

struct PingRun {
  std::uint64_t sent = 0, failed = 0;
  Histogram times;
  std::optional<Error> error;
};

void print_summary(const PingOptions& options, const Endpoint& peer, std::uint32_t size, const PingRun& run) {
  say(stdout, "\n--- {}: {} of {} bytes ---\n", printable(peer.to_string()), options.operation, size);
  say(stdout, "{} done, {} failed\n", run.times.count(), run.failed);
  if (run.times.count() == 0) return;
  say(stdout, "min/avg/p50/p99/p99.9/max = {:.2f}/{:.2f}/{:.2f}/{:.2f}/{:.2f}/{:.2f} us\n",
             microseconds(run.times.min()), run.times.average() * 1e-3, microseconds(run.times.percentile(0.5)),
             microseconds(run.times.percentile(0.99)), microseconds(run.times.percentile(0.999)),
             microseconds(run.times.max()));
}

void print_json(const PingOptions& options, const std::string& peer, std::uint32_t size, const PingRun& run) {
  nlohmann::json all{{"command", "ping"},       {"peer", printable(peer)},
                     {"operation", options.operation}, {"bytes", size},
                     {"sent", run.sent},        {"done", run.times.count()},
                     {"failed", run.failed},    {"ok", !run.error.has_value()}};
  if (run.times.count() != 0)
    all["time_us"] = {{"min", microseconds(run.times.min())},
                      {"avg", run.times.average() * 1e-3},
                      {"p50", microseconds(run.times.percentile(0.5))},
                      {"p99", microseconds(run.times.percentile(0.99))},
                      {"p99.9", microseconds(run.times.percentile(0.999))},
                      {"max", microseconds(run.times.max())}};
  if (run.error) all["error"] = error_json(*run.error);
  say_json(all);
}

void ping_on(const PingOptions& options, const PingRequest& request, PingClient& client, ProgressEngine& engine,
             const StopSignals& signals, PingRun& run) {
  const bool lines = !options.quiet && !options.json;
  for (std::uint64_t sequence = 1; options.count == 0 || sequence <= options.count; ++sequence) {
    ++run.sent;
    auto time = client.ping(sequence, answer_timeout(options));
    if (!time) {
      ++run.failed;
      run.error = first_error(time.error(), client.connection().status());
      return;
    }
    run.times.add(time->ns);
    if (lines) {
      say(stdout, "{} bytes, {}: seq={} time={:.2f} us\n", request.size, options.operation, sequence,
                 microseconds(time->ns));
      std::fflush(stdout);
    }
    if (signals.requested() || sequence == options.count) return;
    if (options.interval > 0) engine.run_until([&] { return signals.requested(); }, seconds(options.interval));
    if (signals.requested()) return;
    if (client.connection().closed()) {
      const auto status = client.connection().status();
      run.error = status ? Error(ErrorCode::Disconnected, "the server closed the connection") : status.error();
      return;
    }
  }
}

int fail(const PingOptions& options, const Endpoint& peer, const PingRequest& request, const Error& error,
         std::string_view what_to_do) {
  PingRun run;
  run.error = error;
  if (options.json) print_json(options, peer.to_string(), request.size, run);
  return report_error("ping", error, what_to_do);
}

int ping_from(Device& device, const PingOptions& options, const Endpoint& peer, const PingRequest& request) {
  auto engine = ProgressEngine::create(device, engine_options(options));
  if (!engine) return fail(options, peer, request, engine.error(), advice(engine.error()));
  auto client = PingClient::connect(*engine, device, peer, request, connection_options(options));
  if (!client) return fail(options, peer, request, client.error(), connect_advice(client.error(), device, peer));
  PingRun run;
  {
    const StopSignals signals(*engine);
    if (!options.quiet && !options.json)
      say(stdout, "ping {} from {}: {} of {} bytes\n", printable(peer.to_string()), device.address().to_string(),
                 options.operation, request.size);
    ping_on(options, request, **client, *engine, signals, run);
  }
  if (options.json) print_json(options, peer.to_string(), request.size, run);
  else print_summary(options, peer, request.size, run);
  if (!run.error) {
    (void)(*client)->connection().close();
    return kExitOk;
  }
  std::fflush(stdout);
  return report_error("ping", *run.error);
}

int run_client(const PingOptions& options, const PingRequest& request) {
  auto peer = parse_peer(options.peer);
  if (!peer) return report_usage("ping", peer.error().context());
  auto device = open_device_towards(options.device, *peer);
  if (!device)
    return fail(options, *peer, request, device.error(), open_advice(device.error(), options.device, &*peer));
  return finish_capture("ping", *device, ping_from(*device, options, *peer, request));
}

int run_ping(const PingOptions& options, const CLI::App& command) {
  const auto given = [&](std::initializer_list<const char*> names) -> std::string {
    for (const char* const name : names)
      if (command.count(name) != 0) return name;
    return "";
  };
  if (options.server) {
    if (!options.peer.empty()) return report_usage("ping", "a server takes no HOST; --device chooses its address");
    if (const auto name = given({"--op", "--count", "--size", "--interval", "--timeout", "--json"}); !name.empty())
      return report_usage("ping", name + " is for the client");
    return run_server(options);
  }
  if (options.peer.empty()) return report_usage("ping", "HOST is missing (or -s for the server)");
  if (const auto name = given({"--port", "--once"}); !name.empty())
    return report_usage("ping", name + " is for the server" + (name == "--port" ? "; a client says HOST:PORT" : ""));
  PingRequest request;
  request.operation = *parse_ping_operation(options.operation);
  request.size = options.size.value_or(is_atomic(request.operation) ? 8 : 64);
  if (is_atomic(request.operation) && request.size != 8) return report_usage("ping", "--size: atomics are of 8 bytes");
  return run_client(options, request);
}

}  // namespace

void add_ping_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "ping", "Try a connection: one operation at a time, and how long each takes.\n"
              "Start the server with `verbena ping -s`; its first line names the address to ping.");
  auto options = std::make_shared<PingOptions>();
  command->add_option("HOST", options->peer, "host[:port] of the server; the port is 7471 when left out");
  command->add_flag("-s,--server", options->server, "Be the server, for any number of clients at once");
  command->add_option("--op", options->operation, "send (there and back), write, read, cas or fadd")
      ->check(CLI::IsMember({"send", "write", "read", "cas", "fadd"}))
      ->capture_default_str();
  auto* count = command->add_option("-c,--count", options->count, "Operations; 0: until interrupted");
  require_whole(count->capture_default_str(), 0, std::numeric_limits<std::uint64_t>::max());
  require_bytes(command->add_option("--size", options->size, "Bytes per operation, as 64k or 1M (64; atomics: 8)"), 0,
                kMaxPingBytes);
  auto* interval = command->add_option("-i,--interval", options->interval, "Seconds between operations");
  require_seconds(interval->capture_default_str(), 0, 1e6);
  auto* timeout = command->add_option("-W,--timeout", options->timeout,
                                      "Seconds to wait for the connection (5) and for an answer (10)");
  require_seconds(timeout, 0.001, 1e6);
  auto* port = command->add_option("--port", options->port, "Server: port to listen on; 0: a free one");
  require_whole(port->capture_default_str(), 0, 65535);
  command->add_flag("--once", options->once, "Server: end after the first client");
  command->add_flag("--poll", options->poll, "Poll busily: lower latency, one processor");
  command->add_flag("-q,--quiet", options->quiet, "No line per operation");
  command->add_flag("--json", options->json, "The summary as JSON");
  add_device_flags(*command, options->device);
  command->callback([options, command, &status] { status = run_ping(*options, *command); });
}

}  // namespace verbena::tools
