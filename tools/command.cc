// SPDX-License-Identifier: Apache-2.0
#include "tools/command.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tools/number_flags.h"
#include "tools/report.h"
#include "tools/tree.h"

namespace verbena::tools {

namespace {

bool is_loopback(const Gid& gid) {
  if (gid.is_ipv4()) return gid.bytes[12] == 127;
  Gid one;
  one.bytes[15] = 1;
  return gid == one;
}

// The address of this machine from which packets to `peer` would leave.
Result<Gid> source_towards(const Gid& peer) {
  sockaddr_storage storage{};
  socklen_t length = 0;
  constexpr std::uint16_t kAnyPort = 4791;  // nothing is sent
  if (peer.is_ipv4()) {
    auto* to = reinterpret_cast<sockaddr_in*>(&storage);
    to->sin_family = AF_INET;
    to->sin_port = htons(kAnyPort);
    std::memcpy(&to->sin_addr, peer.bytes.data() + 12, 4);
    length = sizeof *to;
  } else {
    auto* to = reinterpret_cast<sockaddr_in6*>(&storage);
    to->sin6_family = AF_INET6;
    to->sin6_port = htons(kAnyPort);
    std::memcpy(&to->sin6_addr, peer.bytes.data(), 16);
    length = sizeof *to;
  }
  const UniqueFd socket(::socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (!socket.is_open() || ::connect(socket.get(), address, length) != 0 ||
      ::getsockname(socket.get(), address, &length) != 0)
    return Error::from_errno(errno, "find the way to " + peer.to_string());
  Gid source;
  if (storage.ss_family == AF_INET) {
    const auto* from = reinterpret_cast<const sockaddr_in*>(&storage);
    source = Gid::from_ipv4(0, 0, 0, 0);
    std::memcpy(source.bytes.data() + 12, &from->sin_addr, 4);
  } else {
    std::memcpy(source.bytes.data(), &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr, 16);
  }
  return source;
}

}  // namespace

void add_device(CLI::App& command, std::string& device, const std::string& flag, const std::string& what) {
  require_word(command.add_option(flag, device, what)->type_name("ADDRESS"));
}

void add_device_flags(CLI::App& command, DeviceFlags& flags) {
  add_device(command, flags.device);
  add_file(command, "--pcap", flags.pcap, "Write every packet to this file, for Wireshark");
  command
      .add_option("--path", flags.path,
                  "What connections within this host go by: shared memory (local), packets (roce), or memory where "
                  "both ends may (auto, the default)")
      ->type_name("PATH")
      ->check(CLI::IsMember({"auto", "roce", "local"}));
}

Result<Device> open_device(const DeviceFlags& flags) {
  OpenOptions options;
  options.device = flags.device;
  options.pcap_file = flags.pcap;
  if (!flags.path.empty()) options.path = parse_path_choice(flags.path);
  return Device::open(options);
}

Result<Device> open_device_towards(const DeviceFlags& flags, const Endpoint& peer) {
  if (!flags.device.empty()) return open_device(flags);
  auto address = peer.resolve();
  if (!address) return std::move(address).error();
  if (is_loopback(*address) && address->is_ipv4()) return open_device(flags);
  auto source = source_towards(*address);
  if (!source) return std::move(source).error();
  DeviceFlags chosen = flags;
  chosen.device = source->to_string();
  return open_device(chosen);
}

std::string_view open_advice(const Error& error, const DeviceFlags& flags, const Endpoint* peer) {
  // The error of a capture file names it.
  if (!flags.pcap.empty() && error.context().find("capture file " + flags.pcap) != std::string::npos)
    return "Name a file for --pcap in a folder that is there and that this user may write to.";
  if (error.code() != ErrorCode::NotFound) return advice(error);
  if (peer != nullptr && !peer->resolve()) return "Check the spelling of the host, or write its IP address.";
  return "Check the spelling of --device; `verbena devices` lists devices.";
}

std::string_view connect_advice(const Error& error, const Device& device, const Endpoint& peer) {
  if (error.code() == ErrorCode::ResourceExhausted && error.domain() == ErrorDomain::CmReject)
    return "The server there has no room for another client now: try again later.";
  if (error.code() == ErrorCode::TimedOut) return "Look at the program there: it is stopped, or too busy to answer.";
  if (error.code() != ErrorCode::Unreachable) return advice(error);
  const auto remote = peer.resolve(device.address());
  if (remote && remote->is_ipv4() != device.address().is_ipv4())
    return "Write an address of the server in the device's IP version, or choose a device of the other with --device;\n"
           "  `verbena devices` lists them.";
  if (remote && is_loopback(device.address()) && !is_loopback(*remote))
    return "Choose a device on that network with --device, or leave --device out; `verbena devices` lists them.";
  return advice(error);
}

Error first_error(const Error& error, const Result<void>& status) {
  const bool follows = error.code() == ErrorCode::ConnectionLost || error.code() == ErrorCode::Flushed;
  return follows && !status ? status.error() : error;
}

int finish_capture(std::string_view command, Device& device, int status) {
  const auto closed = device.close_capture();
  if (closed) return status;
  return report_failure(command, explain(closed.error()), advice(closed.error()));
}

CLI::Option* add_file(CLI::App& command, const std::string& flag, std::string& name, const std::string& what) {
  CLI::Option* const option = command.add_option(flag, name, what)->type_name("FILE");
  require_word(option);
  return option;
}

Result<void> read_host(const std::string& text, std::string& host, std::uint16_t& port) {
  host = text;
  if (text.starts_with('[') && text.ends_with(']')) host = text.substr(1, text.size() - 2);
  if (host != text || (!text.starts_with('[') && std::count(text.begin(), text.end(), ':') != 1)) return {};
  auto both = Endpoint::parse(text);
  if (!both) return std::move(both).error();
  host = both->host;
  port = both->port;
  return {};
}

CLI::Option* add_host(CLI::App& command, std::string& host, std::uint16_t& port, const std::string& what) {
  // What -p says is stored behind that.
  const auto read = [&command, &host, &port](const std::string& text) {
    std::uint16_t named = 0;
    if (auto ok = read_host(text, host, named); !ok) throw CLI::ValidationError("HOST", ok.error().context());
    if (named == 0) return;
    port = named;
    const CLI::Option* const other = command.get_option_no_throw("-p");
    if (other != nullptr && other->count() != 0 && other->results().front() != std::to_string(named))
      throw CLI::ValidationError("HOST", "'" + text + "' names a port, and -p another: give one of the two");
  };
  CLI::Option* const option = command.add_option_function<std::string>("HOST", read, what);
  require_word(option);
  return option;
}

Result<Endpoint> parse_peer(std::string_view text) {
  const std::string port = ":" + std::to_string(kDefaultPort);
  if (text.empty()) return Error(ErrorCode::InvalidArgument, "an empty address");
  if (text.front() == '[' && text.back() == ']') return Endpoint::parse(std::string(text) + port);
  if (text.find(':') == std::string_view::npos) return Endpoint::parse(std::string(text) + port);
  return Endpoint::parse(text);
}

Result<Url> parse_url(std::string_view text) {
  if (!Url::looks_like_url(text))
    return Error(ErrorCode::InvalidArgument,
                 "'" + std::string(text) + "' is no URL; it looks like verbena://host:port/path");
  const std::string_view rest = text.substr(Url::kScheme.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  auto endpoint = parse_peer(rest.substr(0, slash));
  if (!endpoint) return std::move(endpoint).error();
  return Url{std::move(*endpoint), std::string(rest.substr(slash))};
}

std::uint64_t counter(const Device& device, std::string_view name) {
  for (const NamedCounter& one : device.counters())
    if (one.name == name) return one.value;
  return 0;
}

}  // namespace verbena::tools
