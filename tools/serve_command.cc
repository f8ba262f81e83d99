// SPDX-License-Identifier: Apache-2.0
// verbena serve: a directory for `verbena get` and `verbena put`.
#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tools/command.h"
#include "tools/file_server.h"
#include "tools/number_flags.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

struct ServeOptions {
  std::string directory;
  std::uint16_t port = kDefaultPort;
  bool writable = false, once = false, quiet = false, verbose = false, poll = false;
  DeviceFlags device;
};

// A deep tree holds a descriptor per level, for each client.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

void tell(const VisitReport& report) {
  const double rate = report.seconds > 0 ? static_cast<double>(report.totals.bytes) / report.seconds : 0;
  std::string line = fmt::format("{}: {}: {}, {}, {}, {}/s", report.peer, printable(report.request),
                                 format_count(report.totals.files, "file", "files"),
                                 format_bytes(static_cast<double>(report.totals.bytes)),
                                 format_seconds(report.seconds), format_bytes(rate));
  if (report.request.empty()) line = report.peer + ": no request";
  if (report.totals.failures != 0) line += fmt::format(", {} failed", report.totals.failures);
  if (report.error) line += "; " + printable(report.error->to_string());
  say(stderr, "{}\n", line);
  std::fflush(stderr);
}

// What the device did for clients since the server began.
void tell_counters(const Device& device) {
  std::string line;
  for (const std::string_view name : {"served_reads", "served_read_bytes", "served_writes", "served_write_bytes"})
    line += fmt::format("  {} {}", name, counter(device, name));
  say(stderr, "{}\n", line);
}

std::string_view serve_advice(const Error& error) {
  switch (error.code()) {
    case ErrorCode::NotFound: return "Check the spelling of the directory to serve.";
    case ErrorCode::InvalidArgument: return "Serve the directory around a file, and name the file in the URL.";
    default: return advice(error);
  }
}

int serve_on(Device& device, const ServeOptions& options) {
  EngineOptions engine_options;
  if (options.poll) engine_options.wait = WaitMode::Busy;
  auto engine = ProgressEngine::create(device, engine_options);
  if (!engine) return report_error("serve", engine.error());
  FileServerOptions server_options;
  server_options.writable = options.writable;
  if (!options.quiet)
    server_options.tell_failure = [](const std::string& peer, const std::string& line) {
      say(stderr, "{}: {}\n", peer, line);
    };
  if (options.verbose)
    server_options.tell_arrival = [](const std::string& peer) { say(stderr, "{}: connected\n", peer); };
  auto server = FileServer::create(*engine, device, options.directory, options.port, server_options);
  if (!server) return report_error("serve", server.error(), serve_advice(server.error()));
  const StopSignals signals(*engine);
  say(stdout, "listening on {}\n", (*server)->address().to_string());
  say(stdout, "serving {} at verbena://{}/, {}\n", printable(options.directory), (*server)->address().to_string(),
             options.writable ? "writable" : "read-only");
  std::fflush(stdout);
  bool over = false, all_ok = true;
  const auto on_over = [&](const VisitReport& report) {
    if (!options.quiet) tell(report);
    if (options.verbose) tell_counters(device);
    all_ok = all_ok && report.ok();
    over = true;
  };
  while (!signals.requested() && !(options.once && over)) {
    const bool further = engine->run_once();
    if (!(*server)->pump(on_over) && !further) engine->wait(engine->now() + FileServer::patience());
  }
  if (!(options.once && over) && (*server)->is_visited()) {
    if (!options.quiet) say(stderr, "ended while a client was served\n");
    all_ok = false;
  }
  return options.once && !all_ok ? kExitFailure : kExitOk;
}

int run_serve(const ServeOptions& options) {
  raise_descriptor_limit();
  auto device = open_device(options.device);
  if (!device) return report_error("serve", device.error(), open_advice(device.error(), options.device, nullptr));
  return finish_capture("serve", *device, serve_on(*device, options));
}

}  // namespace

void add_serve_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "serve", "Serve a directory to `verbena get`, and with --writable to `verbena put`.\n"
               "The first line printed names address and port. Symbolic links below DIR are not followed.");
  auto options = std::make_shared<ServeOptions>();
  command->add_option("DIR", options->directory, "The directory; nothing outside it can be reached")->required();
  auto* port = command->add_option("--port", options->port, "Service port; 0: a free one");
  require_whole(port->capture_default_str(), 0, 65535);
  command->add_flag("--writable", options->writable, "Clients may put files here");
  command->add_flag("--once", options->once, "End after the first client; exit status 1 if it failed");
  command->add_flag("-q,--quiet", options->quiet, "Say nothing about clients");
  command->add_flag("-v,--verbose", options->verbose,
                    "Tell when clients come, and after each what the device has served since it began; clients of this "
                    "host do a part of it by themselves");
  command->add_flag("--poll", options->poll, "Poll busily: lower latency, one processor");
  add_device_flags(*command, options->device);
  command->callback([options, &status] { status = run_serve(*options); });
}

}  // namespace verbena::tools
