// SPDX-License-Identifier: Apache-2.0
// verbena bench: what perftest measures, over any device of Verbena's.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/bench_common.h"
#include "tools/bench_flags.h"
#include "tools/bench_report.h"
#include "tools/json_output.h"
#include "tools/message_command.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

// What a run is made of, in the order of its making.
struct Bench {
  const BenchFlags& flags;
  Device& device;
  ProgressEngine& engine;
  const StopQuestion stopped;
  std::unique_ptr<BenchPairs> pairs;
  std::optional<BenchControl> control;
  BenchSurroundings surroundings;
  std::vector<BenchRow> rows;
};

std::string command_name(const BenchFlags& flags) { return "bench " + flags.settings.name(); }

Result<void> meet(Bench& bench) {
  const BenchFlags& flags = bench.flags;
  const BenchSettings& settings = flags.settings;
  std::optional<TcpListener> listener;
  if (!settings.client) {
    auto made = TcpListener::create(bench.device.address(), flags.port);
    if (!made) return std::move(made).error();
    const std::string here = Endpoint{bench.device.address().to_string(), made->port()}.to_string();
    say(stdout, "listening on {}\n waits for `verbena bench {} {}`, with the same flags\n", here, settings.name(),
        here);
    std::fflush(stdout);
    listener.emplace(std::move(*made));
  }
  auto link = listener ? listener->accept(bench.stopped)
                       : TcpLink::connect({flags.host, flags.port}, settings.patience, bench.stopped);
  if (!link) return std::move(link).error();
  bench.control.emplace(std::move(*link), bench.stopped, settings.patience);
  const nlohmann::json ours = bench_agreement(settings);
  const nlohmann::json hello{
      {"bench", settings.name()}, {"flags", ours}, {"address", bench.device.address().to_string()}};
  if (auto sent = bench.control->send(hello); !sent) return sent;
  auto message = bench.control->receive();
  if (!message) return std::move(message).error();
  if (auto same = check_same_bench(*message, settings.name()); !same) return same;
  const auto address = text_of(*message, "address");
  if (!address || !message->contains("flags"))
    return Error(ErrorCode::ProtocolError, "the other side does not say what it wants to measure");
  if (const auto differs = bench_difference(ours, (*message)["flags"]); differs)
    return Error(ErrorCode::InvalidArgument, "the two ends differ: " + *differs);
  bench.surroundings.local = bench.device.address().to_string();
  bench.surroundings.remote = printable(*address);
  return {};
}

void print_heading(const Bench& bench) {
  const BenchSettings& settings = bench.flags.settings;
  say(stdout, "{}                    verbena bench {}\n", kBenchDashes, settings.name());
  say(stdout, " Device        : {:<24} Connection  : {}\n", printable(bench.device.info().name),
      settings.managed ? "RC, by rdma_cm" : "RC");
  say(stdout, " Local address : {:<24} Remote      : {}\n", bench.surroundings.local, bench.surroundings.remote);
  say(stdout, " Mtu           : {:<24} Queue pairs : {}\n", fmt::format("{}[B]", bench.surroundings.mtu),
      settings.pairs);
  say(stdout, " Path          : {}\n", bench.surroundings.path.reason);
  if (!settings.is_latency())
    say(stdout, " TX depth      : {:<24} CQ mod.     : {}\n", settings.send_depth, settings.signal_every);
  say(stdout, "{}{}", kBenchDashes, bench_header(settings, bench.flags.display));
  std::fflush(stdout);
}

Result<void> measure_all(Bench& bench, BenchRun& run) {
  const BenchFlags& flags = bench.flags;
  const BenchSettings& settings = flags.settings;
  Progress progress(settings.client && Progress::possible());
  for (const std::uint32_t size : settings.sizes()) {
    const std::string name = fmt::format("{}, {} bytes", settings.name(), size);
    std::uint64_t before = 0;
    const auto draw = [&](std::uint32_t bytes, std::uint64_t messages) {
      progress.update(std::uint64_t{bytes} * messages + before, 0, name);
    };
    auto row = run.measure(size, draw);
    progress.clear();
    if (!row) return std::move(row).error();
    if (!*row) continue;
    say(stdout, "{}", bench_line(settings, flags.display, **row));
    if (settings.keep_times) say(stdout, "{}", bench_times(settings, flags.display, **row));
    std::fflush(stdout);
    (*row)->kept = {};
    bench.rows.push_back(std::move(**row));
  }
  if (bench.rows.empty()) say(stdout, " (the client has the numbers)\n");
  say(stdout, "{}", kBenchDashes);
  return {};
}

void find_path(Bench& bench) {
  bench.surroundings.path = bench.pairs->wait_path();
  const BenchSettings& settings = bench.flags.settings;
  if (bench.surroundings.path.is_local() && (settings.mtu != 0 || settings.traffic_class != 0))
    say(stderr, "verbena bench: -m and -T are of packets: the ends share memory (--path roce asks for packets)\n");
}

Result<void> run_all(Bench& bench) {
  const BenchSettings& settings = bench.flags.settings;
  auto pairs = BenchPairs::create(bench.engine, bench.device, settings);
  if (!pairs) return std::move(pairs).error();
  bench.pairs = std::move(*pairs);
  if (auto met = meet(bench); !met) return met;
  if (auto connected = bench.pairs->connect(*bench.control, bench.flags.host, bench.stopped); !connected)
    return connected;
  bench.surroundings.mtu = bench.pairs->mtu();
  find_path(bench);
  auto run = BenchRun::create(bench.engine, bench.device, *bench.pairs, *bench.control, settings, bench.stopped);
  if (!run) return std::move(run).error();
  if (auto ready = (*run)->prepare(); !ready) return ready;
  print_heading(bench);
  auto outcome = measure_all(bench, **run);
  if (outcome) outcome = (*run)->part();
  // Before the memory that it uses.
  bench.pairs.reset();
  return outcome;
}

Result<void> write_files(const Bench& bench, const Result<void>& outcome) {
  const BenchFlags& flags = bench.flags;
  if (!flags.json.empty()) {
    nlohmann::json all = bench_json(flags.settings, bench.surroundings, bench.rows);
    all["ok"] = outcome.has_value();
    if (!outcome)
      all["error"] = error_json(outcome.error());
    const std::string text = json_text(all);
    if (auto written = write_file(flags.json, text); !written) return written;
  }
  if (flags.report.empty() || (!outcome && bench.rows.empty())) return {};
  auto written = write_file(flags.report, bench_page(flags.settings, bench.surroundings, bench.rows));
  if (written) say(stderr, "plots and numbers are in {}\n", printable(flags.report));
  return written;
}

int run_on(Device& device, const BenchFlags& flags) {
  EngineOptions engine_options;
  if (flags.settings.events) engine_options.wait = WaitMode::Event;
  auto engine = ProgressEngine::create(device, engine_options);
  if (!engine) return report_error(command_name(flags), engine.error());
  const StopSignals signals(*engine);
  Bench bench{flags, device, *engine, [&] { return signals.requested(); }, nullptr, {}, {}, {}};
  auto outcome = run_all(bench);
  const bool ours = !outcome && outcome.error().code() != ErrorCode::Rejected;
  if (ours && bench.control) bench.control->send_error(outcome.error());
  const auto written = write_files(bench, outcome);
  int status = kExitOk;
  if (!outcome) {
    std::fflush(stdout);
    status = report_error(command_name(flags), outcome.error(), bench_advice(outcome.error()));
  }
  return written ? status : report_error(command_name(flags), written.error(), kWritableFiles);
}

int run_bench(BenchFlags& flags) {
  if (const std::string wrong = finish_bench_flags(flags); !wrong.empty())
    return report_usage(command_name(flags), wrong);
  if (auto fits = check_results({flags.json, flags.report, flags.device.pcap}); !fits)
    return report_error(command_name(flags), fits.error(), kWritableFiles);
  if (!flags.quiet_frequency) warn_of_frequency();
  const Endpoint peer{flags.host, flags.port};
  const bool client = flags.settings.client;
  auto device = client ? open_device_towards(flags.device, peer) : open_device(flags.device);
  if (!device) {
    if (!flags.json.empty())
      static_cast<void>(write_file(flags.json, failure_text(command_name(flags), device.error())));
    return report_error(command_name(flags), device.error(),
                        open_advice(device.error(), flags.device, client ? &peer : nullptr));
  }
  return finish_capture(command_name(flags), *device, run_on(*device, flags));
}

void add_test(CLI::App& parent, int& status, BenchVerb verb, BenchMeasure measure) {
  auto flags = std::make_shared<BenchFlags>();
  BenchSettings& settings = flags->settings;
  settings.verb = verb;
  settings.measure = measure;
  settings.size = settings.is_latency() ? 2 : 65536;
  settings.iterations = !settings.is_latency() && verb == BenchVerb::Write ? 5000 : 1000;
  const std::string what = fmt::format(
      "Measure the {} of {} operations, as ib_{} does.\n  verbena bench {}        and there  verbena bench {} HOST",
      settings.is_latency() ? "latency" : "bandwidth", to_string(verb),
      fmt::format("{}_{}", to_string(verb), to_string(measure)), settings.name(), settings.name());
  CLI::App* command = parent.add_subcommand(std::string(to_string(measure)), what);
  add_bench_flags(*command, *flags);
  command->callback([flags, &status] { status = run_bench(*flags); });
}

}  // namespace

void add_bench_command(CLI::App& program, int& status) {
  CLI::App* bench = program.add_subcommand(
      "bench", "Measure latency and bandwidth between two ends, with perftest's flags and columns");
  bench->require_subcommand(1);
  for (const BenchVerb verb : {BenchVerb::Send, BenchVerb::Write, BenchVerb::Read, BenchVerb::Atomic}) {
    CLI::App* kind = bench->add_subcommand(std::string(to_string(verb)),
                                           fmt::format("Measure {} operations", to_string(verb)));
    kind->require_subcommand(1);
    add_test(*kind, status, verb, BenchMeasure::Latency);
    add_test(*kind, status, verb, BenchMeasure::Bandwidth);
  }
  add_message_command(*bench, status);
  add_protocols_command(*bench, status);
}

}  // namespace verbena::tools
