// SPDX-License-Identifier: Apache-2.0
// What the commands have in common. Each command adds itself to the program and, when it was chosen, runs and leaves
// its exit status.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "verbena/connection/endpoint.h"
#include "verbena/device/device.h"

namespace CLI {
class App;
class Option;
}

namespace verbena::tools {

// Where `verbena serve` and `verbena ping -s` listen unless told otherwise.
inline constexpr std::uint16_t kDefaultPort = 7471;

void add_devices_command(CLI::App& program, int& status);
void add_bench_command(CLI::App& program, int& status);
void add_tune_command(CLI::App& program, int& status);
void add_ping_command(CLI::App& program, int& status);
void add_pingpong_command(CLI::App& program, int& status);
void add_rping_command(CLI::App& program, int& status);
void add_serve_command(CLI::App& program, int& status);
void add_get_command(CLI::App& program, int& status);
void add_put_command(CLI::App& program, int& status);
void add_broker_command(CLI::App& program, int& status);
void add_sim_command(CLI::App& program, int& status);
void add_counters_command(CLI::App& program, int& status);
void add_capture_command(CLI::App& program, int& status);
void add_config_command(CLI::App& program, int& status);
void add_doctor_command(CLI::App& program, int& status);
// They look at all of `program`, which outlives them.
void add_completion_commands(CLI::App& program, int& status, const std::string& version);

struct DeviceFlags {
  std::string device;  // --device
  std::string pcap;    // --pcap
  std::string path;    // --path
};
void add_device_flags(CLI::App& command, DeviceFlags& flags);
// An address alone, the device's unless `what` says whose; not an empty word.
void add_device(CLI::App& command, std::string& device, const std::string& flag = "--device",
                const std::string& what = "Name or IP address of the local device; see `verbena devices`");
// The name of a file, which is not empty.
CLI::Option* add_file(CLI::App& command, const std::string& flag, std::string& name, const std::string& what);
// HOST, or HOST:PORT as a server prints it, in which case `port` is stored. Errors: InvalidArgument (no port).
Result<void> read_host(const std::string& text, std::string& host, std::uint16_t& port);
// The command's positional; refuses a HOST:PORT beside another -p.
CLI::Option* add_host(CLI::App& command, std::string& host, std::uint16_t& port, const std::string& what);

// The device the flags name. Without a name: for a peer on another machine the device of the address that leads there,
// otherwise the default device.
Result<Device> open_device(const DeviceFlags& flags);
Result<Device> open_device_towards(const DeviceFlags& flags, const Endpoint& peer);

// What to do when a device did not open, `peer` being where it was to lead, and when connecting from it failed.
std::string_view open_advice(const Error& error, const DeviceFlags& flags, const Endpoint* peer);
std::string_view connect_advice(const Error& error, const Device& device, const Endpoint& peer);
// The first error of a connection: what followed on it says less.
Error first_error(const Error& error, const Result<void>& status);

// The end of a command that had the device open: its exit status, which is kExitFailure when --pcap lacks packets.
int finish_capture(std::string_view command, Device& device, int status);

// "host", "host:port", "[v6]", "[v6]:port": the port is kDefaultPort when none is written. Without its brackets an IPv6
// address and a port cannot be told apart.
Result<Endpoint> parse_peer(std::string_view text);
// "verbena://host[:port]/path".
Result<Url> parse_url(std::string_view text);

// The value of a device's counter, 0 when it has none of that name.
std::uint64_t counter(const Device& device, std::string_view name);

}  // namespace verbena::tools
