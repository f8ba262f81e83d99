// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/command_tree.h"
#include "tools/number_flags.h"

namespace verbena::tools {

namespace {

struct Reason {
  const char* flag;
  bool takes_value;
  const char* why;
};

constexpr const char* kBelowIp = "it stands in headers that a UDP socket does not write";
constexpr const char* kOneAtATime = "a latency is that of one operation at a time";
constexpr const char* kNic = "it is a matter of NICs, and the device here is software";

constexpr Reason kReasons[] = {
    {"-C,--report-cycles", false, "times are in microseconds; what a cycle is changes with the processor's frequency"},
    {"-f,--margin", true, "-D measures from the first message to the last"},
    {"-g,--mcg", false, "reliable connected queue pairs take no part in multicast"},
    {"-L,--hop_limit", true, "every packet leaves with hop limit 64"},
    {"-M,--MGID", true, "reliable connected queue pairs take no part in multicast"},
    {"-O,--dualport", false, "a device here has one port"},
    {"-S,--sl", true, kBelowIp},
    {"-V,--version", false, "`verbena --version` tells the version"},
    {"-w,--limit_bw", true, "compare the numbers of --json FILE instead"},
    {"-W,--report-counters", true, "`verbena counters -- verbena bench ...` shows what the device counted"},
    {"-X,--vector", true, "a device here has one completion vector"},
    {"-y,--limit_msgrate", true, "compare the numbers of --json FILE instead"},
    {"-z,--com_rdma_cm", false, "the two ends talk over TCP; -R connects the queue pairs by the connection manager"},
    {"--aes_xts", false, kNic},
    {"--burst_size", true, "there is no rate limiter"},
    {"--cpu_util", false, "`time` and `perf stat` tell it of any program"},
    {"--dlid", true, "RoCE has no LIDs"},
    {"--dont_xchg_versions", false, "the two ends always check that they agree"},
    {"--force-link", true, "RoCE v2 runs on any link that carries IP"},
    {"--inline_recv", true, kNic},
    {"--ipv6", false, "give an IPv6 address to -d or as HOST"},
    {"--mmap", true, "it is for testing peer-to-peer transfers between cards"},
    {"--mmap-offset", true, "it is for testing peer-to-peer transfers between cards"},
    {"--mr_per_qp", false, "regions cost the software device nothing per queue pair"},
    {"--odp", false, "the software device reads memory as the process sees it"},
    {"--out_json", false, "--json FILE does that"},
    {"--out_json_file", true, "--json FILE does that"},
    {"--output", true, "--json FILE has every number"},
    {"--perform_warm_up", false, "run the test twice: the second run has warm caches"},
    {"--pkey_index", true, "a device here has one partition, the default"},
    {"--rate_limit", true, "there is no rate limiter"},
    {"--rate_limit_type", true, "there is no rate limiter"},
    {"--rate_units", true, "there is no rate limiter"},
    {"--recv_post_list", true, "receives are posted again one by one, as they complete"},
    {"--report-both", false, "--json FILE of both ends has the numbers"},
    {"--report-per-port", false, "a device here has one port"},
    {"--retry_count", true, "it is 7, the most there is"},
    {"--reversed", false, "exchange the roles: start the server where the client was"},
    {"--run_infinitely", false, "-D takes up to a million seconds"},
    {"--source_ip", true, "-d takes an address"},
    {"--tclass", true, "-T marks the packets"},
    {"--typical_pkt_size", true, "there is no rate limiter"},
    {"--use_old_post_send", false, "there is one way to post"},
    {"--wait_destroy", true, "nothing is destroyed before both ends are through"},
    {"--disable_pcie_relaxed", false, kNic},
};

constexpr Reason kBandwidthOnly[] = {
    {"-b,--bidirectional", false, kOneAtATime}, {"-q,--qp", true, kOneAtATime},
    {"-Q,--cq-mod", true, kOneAtATime},         {"-l,--post_list", true, kOneAtATime},
    {"-N,--noPeak", false, kOneAtATime},        {"-t,--tx-depth", true, kOneAtATime},
    {"--report_gbits", false, "a latency has no bandwidth"}};
constexpr Reason kLatencyOnly[] = {
    {"-H,--report-histogram", false, "times are measured by lat"},
    {"-U,--report-unsorted", false, "times are measured by lat"},
    {"--latency_gap", true, "times are measured by lat"}};

void refuse(BenchFlags& flags, const Reason& reason) { flags.refused.push_back({reason.flag, reason.why, {}, false}); }

// After the last refuse(): the options keep references.
void add_refused(CLI::App& command, BenchFlags& flags, const std::vector<bool>& takes_value) {
  for (std::size_t i = 0; i < flags.refused.size(); ++i) {
    BenchRefusal& one = flags.refused[i];
    CLI::Option* option = takes_value[i] ? command.add_option(one.flag, one.given, one.why)->expected(0, 1)
                                         : command.add_flag(one.flag, one.is_given, one.why);
    option->group(kRefusedGroup);
    if (!takes_value[i]) continue;
    // One value and not HOST behind it; and given twice it is refused for the same reason.
    option->allow_extra_args(false)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    option->each([&one](const std::string&) { one.is_given = true; })->type_name("");
  }
}

void add_refusals(CLI::App& command, BenchFlags& flags) {
  const BenchSettings& settings = flags.settings;
  std::vector<bool> takes_value;
  const auto add = [&](const Reason& reason) {
    refuse(flags, reason);
    takes_value.push_back(reason.takes_value);
  };
  for (const Reason& one : kReasons) add(one);
  if (settings.is_latency()) {
    for (const Reason& one : kBandwidthOnly) add(one);
    add({"--latency_gap", true, "one operation follows on the other"});
  } else {
    for (const Reason& one : kLatencyOnly) add(one);
  }
  if (settings.verb == BenchVerb::Atomic) {
    add({"-s,--size", true, "atomics are of 8 bytes"});
    add({"-a,--all", false, "atomics are of 8 bytes"});
  }
  const bool fetches = settings.verb == BenchVerb::Read || settings.verb == BenchVerb::Atomic;
  if (fetches) add({"-I,--inline_size", true, "its request carries no data"});
  else add({"-o,--outs", true, "it limits READ and atomics"});
  if (settings.verb != BenchVerb::Send) {
    add({"-r,--rx-depth", true, "nothing is received by it"});
    add({"--use-srq", false, "nothing is received by it"});
  }
  if (settings.verb == BenchVerb::Write) add({"-e,--events", false, "a WRITE raises no event at its target"});
  if (settings.verb != BenchVerb::Atomic) add({"-A,--atomic_type", true, "it is for atomics"});
  add_refused(command, flags, takes_value);
}

void add_common(CLI::App& command, BenchFlags& flags) {
  BenchSettings& settings = flags.settings;
  add_host(command, flags.host, flags.port, "The server, HOST or HOST:PORT as it prints it; without it, be the server");
  add_device_flags(command, flags.device);
  add_device(command, flags.device.device, "-d,--ib-dev", "As --device");
  auto* device_port = command.add_option("-i,--ib-port", flags.device_port, "Port of the device; there is one");
  require_whole(device_port->capture_default_str(), 0, 255);
  auto* gid_index = command.add_option("-x,--gid-index", flags.gid_index, "Index of the GID; there is one");
  require_whole(gid_index->capture_default_str(), 0, 255);
  auto* port = command.add_option("-p,--port", flags.port, "TCP port of the server; a server takes a free one with 0");
  require_whole(port->capture_default_str(), 0, 65535);
  const std::string usual = std::to_string(settings.iterations);
  require_whole(command.add_option("-n,--iters", flags.iterations, "Operations per queue pair (" + usual + ")"), 5,
                kMaxBenchIterations);
  auto* duration = command.add_option("-D,--duration", settings.duration, "Measure each size this many seconds");
  require_whole(duration, 1, 1'000'000);
  command.add_option("-m,--mtu", settings.mtu, "Path MTU: bytes per packet (the largest both ends can do)")
      ->check(CLI::IsMember({"256", "512", "1024", "2048", "4096"}));
  command.add_option("-c,--connection", flags.connection, "RC: there is no other kind here")->capture_default_str();
  command.add_flag("-R,--rdma_cm", settings.managed, "Connect the queue pairs by the connection manager");
  auto* timeout_code = command.add_option("-u,--qp-timeout", settings.timeout_code,
                                          "Retry after 4 us times 2 to this power (perftest's own default is 14)");
  require_whole(timeout_code->capture_default_str(), 1, 31);
  auto* traffic_class = command.add_option("-T,--tos", settings.traffic_class,
                                           "Traffic class of this end's packets, DSCP << 2");
  require_whole(traffic_class, 0, 255);
  command.add_flag("-F,--CPU-freq", flags.quiet_frequency, "No warning when the processor changes its frequency");
  auto* patience = command.add_option("--timeout", flags.timeout, "Seconds to wait for the other end");
  require_seconds(patience->capture_default_str(), 0.1, 1e6);
  command.add_flag("--use_hugepages", settings.huge_pages, "Huge pages or none: fail where no reserved ones are free");
  add_file(command, "--json", flags.json, "Write the results there, as JSON");
  add_file(command, "--report", flags.report, "Write them there as an HTML page with plots");
}

void add_own(CLI::App& command, BenchFlags& flags) {
  BenchSettings& settings = flags.settings;
  const bool fetches = settings.verb == BenchVerb::Read || settings.verb == BenchVerb::Atomic;
  if (settings.verb != BenchVerb::Atomic) {
    const std::string usual = std::to_string(settings.size);
    require_bytes(command.add_option("-s,--size", flags.size, "Bytes per message, as 4096, 64k or 1M (" + usual + ")"),
                  1, kMaxBenchSize);
    command.add_flag("-a,--all", settings.all_sizes, "All sizes from 2 to 2^23");
  } else {
    command.add_option("-A,--atomic_type", flags.atomic, "Which atomic operation")
        ->check(CLI::IsMember({"CMP_AND_SWAP", "FETCH_AND_ADD"}))
        ->capture_default_str();
  }
  if (settings.verb != BenchVerb::Write)
    command.add_flag("-e,--events", settings.events, "Sleep until something completes (otherwise poll)");
  if (fetches) {
    auto* outs = command.add_option("-o,--outs", settings.outstanding, "At a time (as many as the device can)");
    require_whole(outs, 1, 255);
  } else {
    auto* most = command.add_option("-I,--inline_size", settings.inline_bytes, "Send messages up to this size inline");
    require_whole(most->capture_default_str(), 0, 1u << 16);
  }
  if (settings.verb == BenchVerb::Send) {
    auto* depth = command.add_option("-r,--rx-depth", settings.receive_depth, "Receives posted per queue pair");
    require_whole(depth->capture_default_str(), 1, 1u << 20);
    command.add_flag("--use-srq", settings.shared_receives, "One queue of -r receives for all queue pairs of this end");
  }
  if (settings.is_latency()) {
    command.add_flag("-H,--report-histogram", flags.display.all_times, "Print every time, ascending");
    command.add_flag("-U,--report-unsorted", flags.display.unsorted, "Print every time, as they came");
    return;
  }
  command.add_flag("-b,--bidirectional", settings.bidirectional, "Both ends at once; rates are of both together");
  require_whole(command.add_option("-q,--qp", settings.pairs, "Queue pairs")->capture_default_str(), 1, kMaxBenchPairs);
  auto* depth = command.add_option("-t,--tx-depth", settings.send_depth, "Operations in flight per queue pair");
  require_whole(depth->capture_default_str(), 1, 1u << 20);
  require_whole(command.add_option("-Q,--cq-mod", flags.signal_every,
                                   "One completion per so many operations (100, and -t at most; 1 of more than 8192 "
                                   "bytes without -a or -e; with -l as many as that)"),
                1, 1u << 20);
  auto* list = command.add_option("-l,--post_list", settings.post_list, "Operations posted by one call");
  require_whole(list->capture_default_str(), 1, 1u << 20);
  command.add_flag("-N,--noPeak", settings.no_peak, "No peak: the best rate over 16 x -t x -q messages in a row");
  command.add_flag("--report_gbits", flags.display.gigabits, "Gbit/s instead of perftest's MB/s, which are 2^20 bytes");
}

// As perftest's programs do where -Q is not given.
std::uint32_t usual_signal_every(const BenchSettings& settings) {
  constexpr std::uint32_t kUsual = 100, kLargeMessage = 8192;
  if (settings.is_latency()) return 1;
  if (settings.post_list > 1) return settings.post_list;
  if (settings.sizes().front() > kLargeMessage && !settings.events) return 1;
  return std::min(kUsual, settings.send_depth);
}

std::string refusal_given(const BenchFlags& flags) {
  for (const BenchRefusal& one : flags.refused)
    if (one.is_given || !one.given.empty())
      return fmt::format("{} is refused for {}: {}", one.flag, flags.settings.name(), one.why);
  return "";
}

}  // namespace

void add_bench_flags(CLI::App& command, BenchFlags& flags) {
  add_common(command, flags);
  add_own(command, flags);
  add_refusals(command, flags);
}

std::string finish_bench_flags(BenchFlags& flags) {
  BenchSettings& settings = flags.settings;
  if (std::string refused = refusal_given(flags); !refused.empty()) return refused;
  if (flags.connection != "RC")
    return fmt::format("-c {}: the queue pairs here are reliable connected ones, RC", flags.connection);
  if (flags.device_port != 1) return "-i: a device here has one port, number 1";
  if (flags.gid_index != 0)
    return "-x: a device here has one GID, index 0, which is its address; -d chooses another";
  if (settings.all_sizes && flags.size) return "-a measures all sizes, and -s one: give one of the two";
  if (settings.duration != 0 && flags.iterations) return "-D measures for a time, and -n a number: give one of the two";
  settings.client = !flags.host.empty();
  if (settings.client && flags.port == 0) return "-p 0 is for the server, which then takes a free port";
  settings.size = flags.size.value_or(settings.size);
  settings.iterations = flags.iterations.value_or(settings.iterations);
  settings.keep_times = flags.display.all_times || flags.display.unsorted;
  if (settings.keep_times && settings.duration != 0) return "-H and -U keep every time: give a number of them with -n";
  if (settings.keep_times && settings.iterations > kMaxKeptTimes)
    return fmt::format("-H and -U keep every time: -n is {} at most with them", kMaxKeptTimes);
  if (settings.shared_receives && settings.managed)
    return "--use-srq is for queue pairs that are connected by hand, without -R";
  if (settings.post_list > settings.send_depth)
    return fmt::format("-l {} is more than the {} operations that -t lets fly", settings.post_list,
                       settings.send_depth);
  settings.signal_every = flags.signal_every.value_or(usual_signal_every(settings));
  if (settings.signal_every > settings.send_depth)
    return fmt::format("-Q {} is more than the {} operations that -t lets fly", settings.signal_every,
                       settings.send_depth);
  settings.compare_and_swap = flags.atomic == "CMP_AND_SWAP";
  settings.patience = Duration{static_cast<std::int64_t>(flags.timeout * 1e9)};
  return "";
}

}  // namespace verbena::tools
