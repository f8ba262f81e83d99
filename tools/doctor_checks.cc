// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_checks.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/environment.h"
#include "tools/safe_path.h"
#include "tools/tree.h"
#include "verbena/verbena.h"

namespace verbena::tools {

namespace {

namespace fs = std::filesystem;

// What the software device asks of each socket.
constexpr std::uint64_t kWantedBufferBytes = 8u << 20;
constexpr std::uint32_t kWantedInterfaceMtu = 4200;  // 4096 of payload and every header
constexpr std::uint32_t kEthernetMtu = 1500;         // what any network takes
constexpr std::uint32_t kEthernetPathMtu = 1024;     // what that carries
constexpr std::uint32_t kLargestPathMtu = 4096;

std::string read_first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return printable(line);
}

std::string way_to_larger_packets(const DeviceInfo& info) {
  const std::string command = "ip link set dev " + printable(info.interface_name) + " mtu ";
  if (info.active_mtu >= kEthernetPathMtu)
    return fmt::format("Where the whole network takes jumbo frames, as root: {}{}", command, kWantedInterfaceMtu);
  return fmt::format("As root: {0}{1}; where the whole network takes jumbo frames: {0}{2}", command, kEthernetMtu,
                     kWantedInterfaceMtu);
}

// Another device may do, too.
std::string way_to_use(const DeviceInfo& info) {
  if (!info.port_active)
    return fmt::format("As root: ip link set dev {} up; or use another device.", printable(info.interface_name));
  if (info.active_mtu == 0) return way_to_larger_packets(info) + "; or use another device.";
  return "End the program that holds the port, or use another device.";
}

void examine_devices(std::vector<Finding>& findings) {
  const auto devices = Device::list();
  const auto usable = std::ranges::count_if(devices, &DeviceInfo::usable);
  if (usable == 0)
    findings.push_back({"devices", Health::Wrong, fmt::format("none of {} devices is usable", devices.size()),
                        "Do what the findings about addresses say; `verbena devices` lists them."});
  else
    findings.push_back({"devices", Health::Good, fmt::format("{} of {} are usable", usable, devices.size()), ""});
  for (const DeviceInfo& info : devices) {
    const std::string name = fmt::format("{} ({})", printable(info.name), info.address.to_string());
    if (info.usable) {
      findings.push_back({"address", Health::Good, name + ": " + printable(info.reason), ""});
    } else {
      // That no device at all is usable is a finding of its own.
      findings.push_back({"address", Health::Advice, name + ": " + printable(info.reason), way_to_use(info)});
    }
    if (!info.usable || info.active_mtu >= kLargestPathMtu) continue;
    findings.push_back({"MTU", Health::Advice,
                        fmt::format("{}: MTU {} carries {} bytes of payload per packet, and {} are possible", name,
                                    info.interface_mtu, info.active_mtu, kLargestPathMtu),
                        way_to_larger_packets(info)});
  }
}

// What connections within this host go by.
void examine_same_host(std::vector<Finding>& findings, const Device& device) {
  constexpr std::string_view kAbout = "same host: ";
  for (const std::string& line : device.explain()) {
    if (!line.starts_with(kAbout)) continue;
    const bool obstacle = line.find("cannot be offered") != std::string::npos;
    findings.push_back({"same host", obstacle ? Health::Advice : Health::Good, printable(line.substr(kAbout.size())),
                        obstacle ? "The text names what is in the way; until then packets go." : ""});
  }
}

void examine_opening(std::vector<Finding>& findings) {
  auto device = Device::open();
  if (!device) {
    findings.push_back({"opening", Health::Wrong,
                        "the default device does not open: " + printable(device.error().to_string()),
                        "The text names who or what is in the way."});
    return;
  }
  findings.push_back({"opening", Health::Good, "the default device opens, at " + device->address().to_string(), ""});
  examine_same_host(findings, *device);
}

Finding examine_segmentation() {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open())
    return {"GSO/GRO", Health::Wrong, std::string("no UDP socket: ") + std::strerror(errno),
            "Allow this user more descriptors (`ulimit -n`), or leave the sandbox."};
  const int bytes = 1024, on = 1;
  const bool gso = ::setsockopt(socket.get(), IPPROTO_UDP, UDP_SEGMENT, &bytes, sizeof bytes) == 0;
  const bool gro = ::setsockopt(socket.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on) == 0;
  if (gso && gro) return {"GSO/GRO", Health::Good, "the kernel sends and receives trains of packets at once", ""};
  return {"GSO/GRO", Health::Advice,
          fmt::format("the kernel {} UDP_SEGMENT and {} UDP_GRO; every packet costs a system call's work",
                      gso ? "has" : "lacks", gro ? "has" : "lacks"),
          "A kernel of 5.0 or later has both."};
}

std::optional<std::uint64_t> lockable_bytes() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return std::uint64_t{limit.rlim_cur};
}

// Devices of hardware have a PCI device behind them; the kernel's software devices have none.
std::string rdma_devices(const std::string& sys, bool of_hardware) {
  std::error_code error;
  std::string names;
  for (fs::directory_iterator at(sys + "/class/infiniband", error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (fs::exists(at->path() / "device", error) == of_hardware) names += (names.empty() ? "" : ", ") + printable(name);
  }
  return names;
}

Finding examine_descriptors() {
  constexpr rlim_t kMany = 4096;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = fmt::format(
      "a process may have {}; a connection within this host takes one, and the last quarter is left to the program",
      std::uint64_t{limit.rlim_cur});
  if (limit.rlim_cur >= kMany) return {"descriptors", Health::Good, found, ""};
  return {"descriptors", Health::Advice, found,
          fmt::format("For more connections that share memory: ulimit -n {}", std::uint64_t{kMany})};
}

Finding examine_environment() {
  const auto unknown = unknown_variables();
  if (unknown.empty()) return {"environment", Health::Good, "no VERBENA_ variable that nothing looks at", ""};
  return {"environment", Health::Wrong, unknown.front() + " is set, and nothing looks at it",
          "Check its spelling; `verbena config` lists them all."};
}

}  // namespace

Finding examine_socket_buffers(const std::string& proc) {
  const std::string path = proc + "/sys/net/core/rmem_max";
  std::uint64_t bytes = 0;
  if (std::ifstream file(path); !(file >> bytes))
    return {"socket buffers", Health::Advice, path + " cannot be read, so that their size is unknown",
            "Look at `verbena devices -v`, which tells what a device got."};
  if (bytes >= kWantedBufferBytes)
    return {"socket buffers", Health::Good, fmt::format("a socket may have {} kB", bytes >> 10), ""};
  return {"socket buffers", Health::Advice,
          fmt::format("a socket may have {} kB and wants {} kB; bursts beyond are lost and sent again", bytes >> 10,
                      kWantedBufferBytes >> 10),
          fmt::format("As root: sysctl -w net.core.rmem_max={}", kWantedBufferBytes)};
}

Finding examine_soft_roce(const std::string& sys) {
  std::error_code error;
  if (!fs::exists(sys + "/module/rdma_rxe", error))
    return {"Soft-RoCE", Health::Good, "the kernel's rxe is not loaded, so it holds no port", ""};
  const std::string names = rdma_devices(sys, false);
  if (names.empty())
    return {"Soft-RoCE", Health::Advice, "the kernel's rxe is loaded and may hold UDP port 4791 on every address",
            "Where addresses are held by the kernel, as root: modprobe -r rdma_rxe"};
  return {"Soft-RoCE", Health::Wrong, "the kernel's rxe holds UDP port 4791 on every address, for " + names,
          "As root: rdma link delete " + names.substr(0, names.find(',')) + "; or modprobe -r rdma_rxe"};
}

Finding examine_clock(const std::string& sys) {
  const std::string source = read_first_line(sys + "/devices/system/clocksource/clocksource0/current_clocksource");
  const bool slow = source == "hpet" || source == "acpi_pm" || source == "jiffies" || source == "xen";
  if (source.empty())
    return {"clock", Health::Advice, "the clock source is unknown", "Look at /sys/devices/system/clocksource."};
  if (!slow) return {"clock", Health::Good, "clock source " + source, ""};
  return {"clock", Health::Advice, "clock source " + source + ": each look at the time is a slow system call",
          "Where the processor's own clock is sound, boot with clocksource=tsc."};
}

// What Device::allocate_memory() finds for a large region: reserved pages, else, where peers do not map it, what the
// kernel makes huge by itself.
Finding examine_huge_pages(const std::string& proc, const std::string& sys) {
  constexpr const char* kSubject = "huge pages";
  const std::string reserve = "As root: sysctl -w vm.nr_hugepages=N, N times 2 MiB for the regions of all programs";
  std::ifstream file(proc + "/meminfo");
  std::optional<std::uint64_t> total, free;
  for (std::string line, name; std::getline(file, line);) {
    std::istringstream words(line);
    std::uint64_t number = 0;
    if (!(words >> name >> number)) continue;
    if (name == "HugePages_Total:") total = number;
    if (name == "HugePages_Free:") free = number;
  }
  if (!total || !free)
    return {kSubject, Health::Advice, proc + "/meminfo tells of none, so that large regions stand in small pages",
            "A kernel with CONFIG_HUGETLBFS has them."};
  if (*free != 0)
    return {kSubject, Health::Good,
            fmt::format("{} of {} reserved ones are free, for regions from 2 MiB on", *free, *total), ""};
  const std::string mode = read_first_line(sys + "/kernel/mm/transparent_hugepage/enabled");
  const bool transparent = mode.find("[always]") != std::string::npos || mode.find("[madvise]") != std::string::npos;
  const std::string reserved =
      *total == 0 ? "none is reserved" : fmt::format("all {} that are reserved are in use", *total);
  if (transparent && *total == 0)
    return {kSubject, Health::Good,
            reserved + "; the kernel makes them of what it finds for regions that peers do not map", ""};
  if (transparent)
    return {kSubject, Health::Advice, reserved + "; the next large regions take what the kernel finds", reserve};
  return {kSubject, Health::Advice,
          fmt::format("{}, and transparent ones are not to be had ({}): large regions stand in small pages", reserved,
                      mode.empty() ? "unknown" : mode),
          reserve + "; or: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding examine_locked_memory(const std::string& sys, std::optional<std::uint64_t> bytes) {
  constexpr const char* kSubject = "memlock";
  if (!bytes) return {kSubject, Health::Good, "a process may lock any amount of memory", ""};
  const std::string nics = rdma_devices(sys, true);
  const std::string most = fmt::format("a process may lock {} kB", *bytes >> 10);
  if (nics.empty())
    return {kSubject, Health::Good, most + "; the software device locks none, and there is no NIC that would", ""};
  return {kSubject, Health::Advice,
          fmt::format("{}; the software device locks none, but a NIC ({}) all that is registered with it", most, nics),
          "ulimit -l unlimited, where the hard limit allows it; for good: \"* - memlock unlimited\" in "
          "/etc/security/limits.conf, or LimitMEMLOCK=infinity in the unit of a service."};
}

std::vector<Finding> examine(const std::string& proc, const std::string& sys) {
  std::vector<Finding> findings;
  examine_devices(findings);
  examine_opening(findings);
  findings.push_back(examine_soft_roce(sys));
  findings.push_back(examine_socket_buffers(proc));
  findings.push_back(examine_segmentation());
  findings.push_back(examine_clock(sys));
  findings.push_back(examine_descriptors());
  findings.push_back(examine_locked_memory(sys, lockable_bytes()));
  findings.push_back(examine_huge_pages(proc, sys));
  findings.push_back(examine_environment());
  return findings;
}

}  // namespace verbena::tools
