// SPDX-License-Identifier: Apache-2.0
// verbena pingpong: either end of rdma-core's ibv_rc_pingpong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <utility>
#include <vector>

#include "tools/command.h"
#include "tools/number_flags.h"
#include "tools/pingpong.h"
#include "tools/report.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

constexpr std::uint32_t kMaxPingpongBytes = 1u << 30;

struct Refusal {
  const char* flag;
  const char* why;
  bool given = false;
};

struct PingpongOptions {
  std::string host;
  std::uint16_t port = kPingpongPort;
  std::uint32_t device_port = 1, gid_index = 0;
  double timeout = 10;  // seconds
  PingpongSettings settings;
  DeviceFlags device;
  std::optional<std::string> service_level;
  std::vector<Refusal> refused{
      {"-o,--odp", "on-demand paging is a NIC's; the software device reads memory as the process sees it"},
      {"-O,--iodp", "implicit on-demand paging is a NIC's; the software device reads memory as the process sees it"},
      {"-P,--prefetch", "there is nothing to prefetch without on-demand paging"},
      {"-t,--ts", "completion time stamps are made by a NIC's clock, and the software device has none"},
      {"-j,--dm", "device memory is memory on a NIC, and the software device has none"},
      {"-N,--new_send", "it chooses between two interfaces of libibverbs, and here there is one"},
  };
};

std::string_view pingpong_advice(const Error& error) {
  switch (error.code()) {
    case ErrorCode::ConnectionRefused:
      return "Start the server there (`ibv_rc_pingpong -g INDEX` or `verbena pingpong`), or give its TCP port with -p.";
    case ErrorCode::Unreachable:
      return "Check the address, and that TCP port and UDP port 4791 are open between the two.";
    case ErrorCode::ProtocolError:
      return "Check that the other side is an ibv_rc_pingpong of the same -s, with -g and its RoCE v2 GID index.";
    case ErrorCode::CorruptData: return "Run the other side with -c too; if it happens again, check the network.";
    case ErrorCode::RemoteOperationError:
    case ErrorCode::RemoteInvalidRequest:
    case ErrorCode::LocalLengthError: return "Give both sides the same -s and -n.";
    case ErrorCode::Cancelled: return "";
    default: return advice(error);
  }
}

int report_pingpong(const Error& error) { return report_error("pingpong", error, pingpong_advice(error)); }

Result<void> exchange_messages(const PingpongOptions& options, Device& device, ProgressEngine& engine,
                               const StopQuestion& stopped) {
  const PingpongSettings& settings = options.settings;
  if (settings.mtu > device.info().active_mtu)
    return Error(ErrorCode::InvalidArgument,
                 fmt::format("-m {}: the device at {} takes packets of {} bytes at most", settings.mtu,
                             device.address().to_string(), device.info().active_mtu));
  auto pingpong = Pingpong::create(engine, device, settings, stopped);
  if (!pingpong) return std::move(pingpong).error();
  std::optional<TcpListener> listener;
  if (!settings.client) {
    auto made = TcpListener::create(device.address(), options.port);
    if (!made) return std::move(made).error();
    say(stdout, "listening on {}\n", Endpoint{device.address().to_string(), made->port()}.to_string());
    listener.emplace(std::move(*made));
  }
  say(stdout, "  local address:  {}\n", (*pingpong)->local().to_string());
  std::fflush(stdout);
  auto link = listener ? listener->accept(stopped)
                       : TcpLink::connect({options.host, options.port}, settings.timeout, stopped);
  if (!link) return std::move(link).error();
  auto peer = (*pingpong)->exchange(*link);
  if (!peer) return std::move(peer).error();
  say(stdout, "  remote address: {}\n", peer->to_string());
  std::fflush(stdout);
  auto taken = (*pingpong)->run();
  if (!taken) return std::move(taken).error();
  const double seconds = static_cast<double>(taken->ns) * 1e-9;
  const std::uint64_t bytes = 2ull * settings.size * settings.iterations;
  say(stdout, "{} bytes in {:.2f} seconds = {:.2f} Mbit/sec\n", bytes, seconds,
      static_cast<double>(bytes) * 8 / seconds / 1e6);
  say(stdout, "{} iters in {:.2f} seconds = {:.2f} usec/iter\n", settings.iterations, seconds,
      seconds * 1e6 / settings.iterations);
  std::fflush(stdout);
  (*pingpong)->linger();
  return {};
}

int run_on(Device& device, const PingpongOptions& options) {
  EngineOptions engine_options;
  engine_options.wait = options.settings.events ? WaitMode::Event : WaitMode::Busy;
  auto engine = ProgressEngine::create(device, engine_options);
  if (!engine) return report_pingpong(engine.error());
  const StopSignals signals(*engine);
  const auto outcome = exchange_messages(options, device, *engine, [&] { return signals.requested(); });
  return outcome ? kExitOk : report_pingpong(outcome.error());
}

int run_pingpong(PingpongOptions& options) {
  for (const Refusal& one : options.refused)
    if (one.given) return report_usage("pingpong", fmt::format("{} means nothing here: {}", one.flag, one.why));
  if (options.service_level)
    return report_usage("pingpong", "-l,--sl means nothing here: a service level stands in headers below IP, which a "
                                    "UDP socket does not write");
  if (options.device_port != 1) return report_usage("pingpong", "-i: a device here has one port, number 1");
  if (options.gid_index != 0)
    return report_usage("pingpong", "-g: a device here has one GID, index 0, which is its address; -d chooses another");
  options.settings.client = !options.host.empty();
  if (options.settings.client && options.port == 0)
    return report_usage("pingpong", "-p 0 is for the server, which then takes a free port");
  options.settings.timeout = Duration{static_cast<std::int64_t>(options.timeout * 1e9)};
  const Endpoint peer{options.host, options.port};
  auto device = options.settings.client ? open_device_towards(options.device, peer) : open_device(options.device);
  if (!device)
    return report_error("pingpong", device.error(),
                        open_advice(device.error(), options.device, options.settings.client ? &peer : nullptr));
  return finish_capture("pingpong", *device, run_on(*device, options));
}

}  // namespace

void add_pingpong_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "pingpong", "Be either end of rdma-core's ibv_rc_pingpong: messages there and back.\n"
                  "  verbena pingpong -d ADDRESS   and there  ibv_rc_pingpong -g INDEX ADDRESS\n"
                  "  verbena pingpong HOST         and there  ibv_rc_pingpong -g INDEX");
  auto options = std::make_shared<PingpongOptions>();
  PingpongSettings& settings = options->settings;
  require_word(command->add_option("HOST", options->host, "The server; without it, be the server"));
  auto* port = command->add_option("-p,--port", options->port,
                                   "TCP port of the server; a server takes a free one with 0");
  require_whole(port->capture_default_str(), 0, 65535);
  auto* size = command->add_option("-s,--size", settings.size, "Bytes per message");
  require_whole(size->capture_default_str(), 0, kMaxPingpongBytes);
  command->add_option("-m,--mtu", settings.mtu, "Path MTU: bytes per packet")
      ->check(CLI::IsMember({"256", "512", "1024", "2048", "4096"}))
      ->capture_default_str();
  auto* depth = command->add_option("-r,--rx-depth", settings.rx_depth, "Receives to post at a time");
  require_whole(depth->capture_default_str(), 1, 1u << 20);
  auto* iterations = command->add_option("-n,--iters", settings.iterations, "Messages each way");
  require_whole(iterations->capture_default_str(), 1, 1u << 31);
  command->add_flag("-e,--events", settings.events, "Sleep until something completes (otherwise poll)");
  command->add_flag("-c,--chk", settings.check, "Check the bytes received");
  auto* device_port = command->add_option("-i,--ib-port", options->device_port, "Port of the device; there is one");
  require_whole(device_port->capture_default_str(), 0, 255);
  auto* gid_index = command->add_option("-g,--gid-idx", options->gid_index, "Index of the GID; there is one");
  require_whole(gid_index->capture_default_str(), 0, 255);
  command->add_option("-l,--sl", options->service_level, "Refused: of no meaning here");
  for (Refusal& one : options->refused) command->add_flag(one.flag, one.given, "Refused: of no meaning here");
  auto* timeout = command->add_option("--timeout", options->timeout, "Seconds to wait for the peer");
  require_seconds(timeout->capture_default_str(), 0.001, 1e6);
  add_device_flags(*command, options->device);
  add_device(*command, options->device.device, "-d,--ib-dev", "As --device");
  command->callback([options, &status] { status = run_pingpong(*options); });
}

}  // namespace verbena::tools
