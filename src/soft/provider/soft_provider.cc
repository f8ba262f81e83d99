// SPDX-License-Identifier: Apache-2.0
#include "soft/provider/soft_provider.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/port_owner.h"
#include "soft/driver/udp/rendezvous.h"
#include "soft/driver/udp/udp_device.h"
#include "soft/provider/soft_context.h"

namespace verbena::soft {

namespace {

using udp::LocalAddress;

constexpr std::uint16_t kRocePort = 4791;

// Sockets that hold the RoCE port.
std::vector<udp::UdpSocketRow> port_holders() {
  std::vector<udp::UdpSocketRow> rows;
  for (const char* file : {"/proc/net/udp", "/proc/net/udp6"}) {
    std::ifstream in(file);
    std::stringstream text;
    text << in.rdbuf();
    for (udp::UdpSocketRow& row : udp::parse_udp_table(text.str()))
      if (row.port == kRocePort) rows.push_back(std::move(row));
  }
  return rows;
}

// Of the IPv4 wildcard IPv6 knows nothing.
bool is_held(const std::vector<udp::UdpSocketRow>& holders, const Gid& address) {
  return std::any_of(holders.begin(), holders.end(), [&](const auto& row) {
    return row.address == address || (row.is_wildcard() && (address.is_ipv4() || !row.address.is_ipv4()));
  });
}

void judge(DeviceInfo& info, const LocalAddress& local, const std::vector<udp::UdpSocketRow>& holders,
           const udp::AddressUsers& users) {
  if (!local.up) {
    info.reason = "interface " + local.interface_name + " is down";
  } else if (info.active_mtu == 0) {
    info.reason =
        "interface " + local.interface_name + " has MTU " + std::to_string(local.mtu) + ", RoCE needs 336";
  } else if (local.loopback && local.gid.is_ipv4()) {
    info.usable =
        std::none_of(holders.begin(), holders.end(), [](const auto& row) { return row.is_wildcard(); });
    info.reason = info.usable ? "the default: takes the first free address of 127.0.0.0/8 when it is opened"
                              : udp::describe_port_owner(local.gid, kRocePort);
  } else if (is_held(holders, local.gid) && udp::rendezvous::exists(udp::rendezvous::name_of(local, users))) {
    info.usable = true;
    info.reason = users == udp::AddressUsers{} ? "processes of this user share it"
                                               : "processes share it; open() tells whether of " + users.to_string();
  } else if (is_held(holders, local.gid)) {
    info.reason = udp::describe_port_owner(local.gid, kRocePort);
  } else {
    info.usable = true;
    info.reason = "UDP port " + std::to_string(kRocePort) + " is free there";
  }
}

// The loopback device first: it is the default.
std::vector<std::pair<DeviceInfo, LocalAddress>> list_devices(const udp::AddressUsers& users = {}) {
  std::vector<std::pair<DeviceInfo, LocalAddress>> all;
  auto addresses = udp::list_local_addresses();
  if (!addresses) return all;
  std::stable_partition(addresses->begin(), addresses->end(),
                        [](const LocalAddress& a) { return a.loopback; });
  const auto holders = port_holders();
  std::map<std::string, int> seen;
  for (const LocalAddress& local : *addresses) {
    DeviceInfo info = software_limits(NicConfig{});
    const int number = ++seen[local.interface_name];
    info.name = "soft-" + local.interface_name + (number == 1 ? "" : "-" + std::to_string(number));
    info.address = local.gid;
    info.interface_name = local.interface_name;
    info.interface_mtu = local.mtu;
    info.active_mtu = udp::path_mtu_for(local);
    info.port_active = local.up;
    judge(info, local, holders, users);
    all.emplace_back(std::move(info), local);
  }
  return all;
}

struct Choice {
  std::string name;
  Gid address;  // zero: automatic
  std::string reason;
};

Result<Choice> choose(const std::string& wanted) {
  const std::string automatic = "no device was named, so the first free address of 127.0.0.0/8 was taken";
  if (wanted.empty()) return Choice{"soft-lo", {}, automatic};
  const auto devices = list_devices();
  for (const auto& [info, local] : devices) {
    if (info.name != wanted) continue;
    const bool any_loopback = local.loopback && local.gid.is_ipv4();
    return Choice{wanted, any_loopback ? Gid{} : local.gid, "the device was named: " + wanted};
  }
  const auto address = Gid::parse(wanted);
  if (!address) return Error(ErrorCode::NotFound, "no software device is named '" + wanted + "'");
  auto local = udp::find_local_address(*address);
  if (!local) return std::move(local).error();
  std::string name = "soft-" + local->interface_name;
  for (const auto& [info, other] : devices)
    if (info.address == *address) name = info.name;
  return Choice{std::move(name), *address, "its address was named: " + wanted};
}

class SoftProvider final : public provider::Provider {
 public:
  std::string name() const override { return "soft"; }

  std::vector<DeviceInfo> list(const OpenOptions& options) const override {
    std::vector<DeviceInfo> infos;
    const auto users = udp::AddressUsers::with(options.address_users.value_or(std::vector<std::uint32_t>{}));
    for (auto& [info, local] : list_devices(users ? *users : udp::AddressUsers{})) infos.push_back(info);
    return infos;
  }

  Result<std::unique_ptr<provider::Context>> open(const OpenOptions& options) const override {
    auto choice = choose(options.device);
    if (!choice) return std::move(choice).error();
    UdpDeviceOptions device_options;
    device_options.address = choice->address;
    device_options.pcap_file = options.pcap_file;
    device_options.receive_buffer_bytes = options.receive_buffer_bytes;
    device_options.path = options.path.value_or(PathChoice::Auto);
    device_options.pull = options.pull.value_or(true);
    device_options.local_dir = options.local_dir.value_or("");
    if (options.local_users) device_options.local_users = *options.local_users;
    if (options.address_users) device_options.address_users = *options.address_users;
    device_options.service_thread = options.service_thread;
    device_options.single_threaded = options.single_threaded;
    device_options.nic.cm = connection_management();
    auto device = open_udp_device(device_options);
    if (!device) return std::move(device).error();
    return std::unique_ptr<provider::Context>(
        std::make_unique<SoftContext>(std::move(*device), choice->name, choice->reason));
  }
};

}  // namespace

const provider::Provider& soft_provider() {
  static const SoftProvider provider;
  return provider;
}

}  // namespace verbena::soft
