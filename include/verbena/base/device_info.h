// SPDX-License-Identifier: Apache-2.0
// What can be said of a device, how to open one, and what it counted: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/gid.h"

namespace verbena {

// One device as listed or opened. Sizes are the largest the device accepts.
struct DeviceInfo {
  std::string name{};               // unique on this machine: "soft-lo", "soft-eth0", "mlx5_0"
  std::string provider{};           // "soft": Verbena's own software device
  Gid address{};                    // GID 0; zero when the device takes one only when it is opened
  std::string interface_name{};     // network interface below, "lo"
  std::uint32_t interface_mtu = 0;  // bytes, IP header included
  std::uint32_t active_mtu = 0;     // largest path MTU: payload bytes per packet
  std::uint32_t max_queue_pairs = 0;
  std::uint32_t max_completion_queues = 0;
  std::uint32_t max_completion_entries = 0;  // per completion queue
  std::uint32_t max_shared_receive_queues = 0;
  std::uint32_t max_requests = 0;            // per work queue
  std::uint32_t max_segments = 0;            // per request
  std::uint32_t max_inline_bytes = 0;
  std::uint32_t max_memory_regions = 0;
  std::uint8_t max_rd_atomic = 0;  // READ and atomics outstanding per queue pair, in each direction
  // The last bytes of a peer's WRITE into its memory appear there after all others of it and of the WRITEs before it
  // (doc/memory-model.md). The software device promises that, by packets and by memory; the standard asks it of nobody.
  bool order_in_write = false;
  bool port_active = false;
  bool usable = false;   // open() would succeed as far as can be seen without trying
  std::string reason{};  // why it is usable, or what is in the way
};

// What the connections of a device go by. To a peer of the same host and user they can go through shared memory; a
// program cannot tell which, but by speed and by Device::explain().
enum class PathChoice : std::uint8_t {
  Auto,   // shared memory where both ends may, packets otherwise; packets alone when they are captured
  Roce,   // packets
  Local,  // shared memory; a queue pair whose peer offers none does not reach RTR
};

// "auto", "roce" or "local"; nothing for another text.
std::optional<PathChoice> parse_path_choice(std::string_view text);

// How to open a device. The defaults suit every program that has no special wish.
struct OpenOptions {
  std::string device{};     // name or IP address; empty: the best one there is, see Device::open()
  std::string pcap_file{};  // write every packet there, as pcapng; empty: no capture; see Device::close_capture()
  std::uint32_t receive_buffer_bytes = 0;  // of the sockets below; 0: as much as one gets
  std::optional<PathChoice> path{};        // nothing: what VERBENA_PATH says, or Auto
  // Through shared memory: one copy of all but short messages, where the kernel lets processes read each
  // other's memory, and of READs and WRITEs in memory from Verbena. Otherwise two, and no memory but that of the
  // connection is shared. Nothing: what VERBENA_LOCAL_COPY says, or yes.
  std::optional<bool> pull{};
  // A folder of this host, and of no network file system, in which processes meet that have a network of their own, as
  // containers do: a device that may share memory stands there as a Unix socket from open() until it is destroyed, and
  // looks there for peers whose address nobody of its own network has. Loopback addresses stand in none. Processes of
  // this user that write to it could stand for any other address: share it among containers that trust each other.
  // The folder must be there, and this user must be allowed to read and write it; where everybody may, it belongs to
  // this user or has the sticky bit (drwxrwxrwt). Otherwise open() fails, with InvalidArgument (missing, no folder) or
  // PermissionDenied. One that vanishes later costs the shared memory of connections to come, and nothing else. With
  // PathChoice::Roce it is not looked at. Nothing: what VERBENA_LOCAL_DIR says, or none; empty: none.
  std::optional<std::string> local_dir{};
  // Other users, by number, whose processes on this host share memory with this device's where both name each other:
  // that of their connections and no other, by two copies, with the rules of packets. Who is named is trusted to speak
  // for no address that is another's, which anybody can claim who comes first. Not by way of local_dir. With
  // PathChoice::Roce it is not looked at. open() fails with InvalidArgument for a number that stands for many. Nothing:
  // what VERBENA_LOCAL_USERS says (numbers, commas between), or none.
  std::optional<std::vector<std::uint32_t>> local_users{};
  // The users, by number, whose processes share an address with this device's. All who share one name the same users,
  // each his own or not; who names others is refused, and says so (AddressInUse). Who is named is trusted with
  // everything at the address: he holds the sockets of all, and can read, forge and hold up whatever packet comes to or
  // goes from any process there. What memory they share is another question: local_users. Numbers are those of one user
  // namespace, and up to 64. open() fails with InvalidArgument for a number that stands for many. Nothing: what
  // VERBENA_ADDRESS_USERS says (numbers, commas between), or none: processes of this user alone share it.
  std::optional<std::vector<std::uint32_t>> address_users{};
  // Lets peers read and write while this process computes or sleeps. Without it whoever polls or waits drives the
  // device, and no descriptor tells that something came: the fd() of its engine is -1, and an engine of several devices
  // looks each millisecond while it sleeps.
  bool service_thread = true;
  // The program has one thread at a time use the device and all that is made with it, as with UCX's thread mode
  // "single" or a thread domain of verbs, but for ProgressEngine::wake(). That spares each end some five locked
  // instructions a message, and there is no service thread. Two threads at once are undefined, and mostly end the
  // process. With VERBENA_COUNTERS, whose file a thread of ours writes, locks are taken all the same.
  bool single_threaded = false;
};

// One number the device counted. Names as in the kernel's hw_counters where it has one.
struct NamedCounter {
  std::string name{};
  std::uint64_t value = 0;
};

}  // namespace verbena
