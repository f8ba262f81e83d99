// SPDX-License-Identifier: Apache-2.0
// verbena devices: what there is to work with.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/environment.h"
#include "tools/json_output.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"

namespace verbena::tools {

namespace {

struct DevicesOptions {
  bool verbose = false, json = false;
  DeviceFlags device;
};

std::string address_of(const DeviceInfo& info) { return info.address.is_zero() ? "-" : info.address.to_string(); }

// What opening it tells; the error when it does not open. An incomplete capture changes `status`.
std::vector<std::string> explain_open(const DeviceInfo& info, const DeviceFlags& flags, int& status) {
  DeviceFlags chosen = flags;
  chosen.device = info.name;
  auto device = open_device(chosen);
  if (!device) return {"opening it fails: " + printable(device.error().to_string())};
  auto lines = device->explain();
  for (std::string& line : lines) line = printable(line);
  status = finish_capture("devices", *device, status);
  return lines;
}

nlohmann::json to_json(const DeviceInfo& info, const DevicesOptions& options, int& status) {
  nlohmann::json one{{"name", info.name},
                     {"provider", info.provider},
                     {"address", info.address.is_zero() ? "" : info.address.to_string()},
                     {"interface", info.interface_name},
                     {"interface_mtu", info.interface_mtu},
                     {"active_mtu", info.active_mtu},
                     {"state", info.port_active ? "active" : "down"},
                     {"usable", info.usable},
                     {"reason", info.reason},
                     {"max_queue_pairs", info.max_queue_pairs},
                     {"max_completion_queues", info.max_completion_queues},
                     {"max_completion_entries", info.max_completion_entries},
                     {"max_shared_receive_queues", info.max_shared_receive_queues},
                     {"max_requests", info.max_requests},
                     {"max_segments", info.max_segments},
                     {"max_inline_bytes", info.max_inline_bytes},
                     {"max_memory_regions", info.max_memory_regions},
                     {"max_rd_atomic", info.max_rd_atomic},
                     {"order_in_write", info.order_in_write}};
  if (options.verbose && info.usable) one["explain"] = explain_open(info, options.device, status);
  return one;
}

void print_table(const std::vector<DeviceInfo>& devices) {
  std::size_t name = 6, address = 7, interface = 9;
  for (const DeviceInfo& info : devices) {
    name = std::max(name, info.name.size());
    address = std::max(address, address_of(info).size());
    interface = std::max(interface, info.interface_name.size());
  }
  say(stdout, "{:{}}  {:{}}  {:{}}  {:>5}  {:>4}  {:6}  {}\n", "device", name, "address", address, "interface",
             interface, "MTU", "path", "state", "usable");
  for (const DeviceInfo& info : devices)
    say(stdout, "{:{}}  {:{}}  {:{}}  {:>5}  {:>4}  {:6}  {}\n", info.name, name, address_of(info), address,
               info.interface_name, interface, info.interface_mtu, info.active_mtu,
               info.port_active ? "active" : "down", (info.usable ? "yes: " : "no: ") + info.reason);
}

void print_verbose(const DeviceInfo& info, const DeviceFlags& flags, int& status) {
  say(stdout, "{}\n", info.name);
  say(stdout, "  provider      {}\n  address       {}\n", info.provider, address_of(info));
  say(stdout, "  interface     {}, MTU {}, {}\n", info.interface_name, info.interface_mtu,
             info.port_active ? "active" : "down");
  say(stdout, "  path MTU      {} bytes of payload per packet\n", info.active_mtu);
  say(stdout, "  usable        {}: {}\n", info.usable ? "yes" : "no", info.reason);
  say(stdout, "  at most       {} queue pairs, {} completion queues of {}, {} regions\n", info.max_queue_pairs,
             info.max_completion_queues, info.max_completion_entries, info.max_memory_regions);
  say(stdout, "  per queue     {} requests of {} segments, {} bytes inline, {} READ or atomics at once\n",
             info.max_requests, info.max_segments, info.max_inline_bytes, info.max_rd_atomic);
  say(stdout, "  inside WRITE  {}\n", info.order_in_write ? "bytes arrive in order" : "bytes arrive in any order");
  if (info.usable)
    for (const std::string& line : explain_open(info, flags, status)) say(stdout, "  opened        {}\n", line);
}

// The variable whose value no device opens with.
std::optional<EnvironmentVariable> misunderstood(const DeviceFlags& flags) {
  for (EnvironmentVariable& one : environment())
    if (!wrong_with(one).empty() && (one.name != "VERBENA_PATH" || flags.path.empty())) return std::move(one);
  return std::nullopt;
}

int run_devices(const DevicesOptions& options) {
  std::vector<DeviceInfo> devices = Device::list();
  for (DeviceInfo& info : devices) {
    info.interface_name = printable(info.interface_name);
    info.reason = printable(info.reason);
  }
  if (!options.device.device.empty()) {
    const auto other = [&](const DeviceInfo& info) {
      return info.name != options.device.device && address_of(info) != options.device.device;
    };
    devices.erase(std::remove_if(devices.begin(), devices.end(), other), devices.end());
    if (devices.empty())
      return report_error("devices", Error(ErrorCode::NotFound, "no device has the name or address '" +
                                                                    options.device.device + "'"),
                          "Check the spelling; without --device all are listed.");
  }
  if (!options.verbose && !options.device.pcap.empty())
    return report_usage("devices", "--pcap is for --verbose, which opens devices");
  if (!options.device.pcap.empty() && std::ranges::count_if(devices, &DeviceInfo::usable) > 1)
    return report_usage("devices", "--pcap is one file for one device; name that with --device");
  int status = kExitOk;
  if (options.json) {
    nlohmann::json all = nlohmann::json::array();
    for (const DeviceInfo& info : devices) all.push_back(to_json(info, options, status));
    say_json(all);
  } else if (options.verbose) {
    for (const DeviceInfo& info : devices) print_verbose(info, options.device, status);
  } else {
    print_table(devices);
  }
  if (const auto one = misunderstood(options.device))
    return report_failure("devices", one->name + " is '" + *one->value + "'; " + wrong_with(*one),
                          "No device is opened with it.");
  const bool any = std::any_of(devices.begin(), devices.end(), [](const DeviceInfo& info) { return info.usable; });
  if (any) return status;
  say(stderr, "verbena devices: no device is usable; the last column says what is in the way.\n");
  return kExitFailure;
}

}  // namespace

void add_devices_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand("devices", "List every device, and why it is usable or not");
  auto options = std::make_shared<DevicesOptions>();
  command->add_flag("-v,--verbose", options->verbose, "Limits too; opens each usable device and tells what it found");
  command->add_flag("--json", options->json, "A JSON array with an object per device");
  add_device_flags(*command, options->device);
  command->callback([options, &status] { status = run_devices(*options); });
}

}  // namespace verbena::tools
