// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/port_owner.h"

#include <pwd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "soft/wire/path.h"

namespace verbena::soft::udp {
namespace {

namespace fs = std::filesystem;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class T>
bool parse_number(std::string_view text, int base, T& out) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, out, base);
  return result.ec == std::errc() && result.ptr == end;
}

// "0100007F:12B7": address as words in the host's byte order, then the port.
bool parse_endpoint(std::string_view text, UdpSocketRow& row) {
  const auto colon = text.find(':');
  if (colon == std::string_view::npos || !parse_number(text.substr(colon + 1), 16, row.port)) return false;
  const std::string_view hex = text.substr(0, colon);
  if (hex.size() != 8 && hex.size() != 32) return false;
  row.address = hex.size() == 8 ? Gid::from_ipv4(0, 0, 0, 0) : Gid{};
  std::size_t at = hex.size() == 8 ? 12 : 0;
  for (std::size_t i = 0; i < hex.size(); i += 8, at += 4) {
    std::uint32_t word = 0;
    if (!parse_number(hex.substr(i, 8), 16, word)) return false;
    std::memcpy(row.address.bytes.data() + at, &word, 4);
  }
  return true;
}

bool parse_row(const std::string& line, UdpSocketRow& row) {
  std::istringstream fields(line);
  std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
  if (!(fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >>
        inode))
    return false;
  return parse_endpoint(local, row) && parse_number(uid, 10, row.uid) && parse_number(inode, 10, row.inode);
}

// Of the IPv4 wildcard IPv6 knows nothing; of the other IPv4 does, mostly.
bool covers(const UdpSocketRow& row, const Gid& address) {
  return row.address == address || (row.is_wildcard() && (address.is_ipv4() || !row.address.is_ipv4()));
}

// Those of the port that keep others from binding it at the address. The kernel shows its table by the page, and one
// again that moved behind the end of a page when others came.
std::vector<UdpSocketRow> rows_at(const Gid& address, std::uint16_t port, const std::string& proc) {
  std::vector<UdpSocketRow> rows;
  for (const char* table : {"udp", "udp6"}) {
    std::string text = read_text(proc + "/thread-self/net/" + table);
    if (text.empty()) text = read_text(proc + "/net/" + table);
    for (const UdpSocketRow& row : parse_udp_table(text)) {
      const auto is_again = [&row](const UdpSocketRow& seen) { return row.inode != 0 && seen.inode == row.inode; };
      if (row.port == port && covers(row, address) && std::ranges::none_of(rows, is_again)) rows.push_back(row);
    }
  }
  return rows;
}

// Of that address before a wildcard.
std::optional<UdpSocketRow> find_row(const Gid& address, std::uint16_t port, const std::string& proc) {
  const auto rows = rows_at(address, port, proc);
  if (rows.empty()) return std::nullopt;
  const auto own = std::find_if(rows.begin(), rows.end(), [](const UdpSocketRow& row) { return !row.is_wildcard(); });
  return own == rows.end() ? rows.front() : *own;
}

struct Process {
  unsigned pid = 0;
  std::string command;  // printable ASCII
};

// A process names itself, in any bytes it likes: what is not printable ASCII becomes '?'.
std::string clean(std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return name;
}

std::optional<Process> find_process(std::uint64_t inode, const std::string& proc) {
  if (inode == 0) return std::nullopt;
  const std::string wanted = "socket:[" + std::to_string(inode) + "]";
  std::error_code failed;
  for (fs::directory_iterator it(proc, failed), end; !failed && it != end; it.increment(failed)) {
    Process process;
    if (!parse_number(it->path().filename().native(), 10, process.pid)) continue;
    std::error_code unreadable;
    for (fs::directory_iterator fd(it->path() / "fd", unreadable); !unreadable && fd != end;
         fd.increment(unreadable)) {
      std::error_code gone;
      if (fs::read_symlink(fd->path(), gone).native() != wanted) continue;
      std::string command = read_text((it->path() / "comm").native());
      if (!command.empty() && command.back() == '\n') command.pop_back();
      process.command = clean(std::move(command));
      return process;
    }
  }
  return std::nullopt;
}

std::string name_of_user(unsigned uid) {
  std::array<char, 4096> buffer;
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
    return entry.pw_name;
  return "uid " + std::to_string(uid);
}

bool is_soft_roce_loaded(const std::string& proc, const std::string& sys) {
  std::error_code failed;
  if (fs::exists(sys + "/module/rdma_rxe", failed)) return true;
  const std::string modules = read_text(proc + "/modules");
  return modules.rfind("rdma_rxe ", 0) == 0 || modules.find("\nrdma_rxe ") != std::string::npos;
}

// "rxe0, rxe1", or what to type when the devices cannot be read.
std::string soft_roce_advice(const std::string& sys) {
  std::string names;
  std::error_code failed;
  for (fs::directory_iterator it(sys + "/class/infiniband", failed), end; !failed && it != end;
       it.increment(failed)) {
    std::error_code absent;
    if (!fs::exists(it->path() / "parent", absent)) continue;  // where rxe names its network device
    names += names.empty() ? "" : ", ";
    names += it->path().filename().native();
  }
  return "remove its devices (`rdma link show`, then `rdma link delete NAME`" +
         (names.empty() ? std::string() : "; here: " + names) +
         ") and unload rdma_rxe, or work in a network namespace of your own";
}

}  // namespace

std::vector<UdpSocketRow> parse_udp_table(std::string_view text) {
  std::vector<UdpSocketRow> rows;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    UdpSocketRow row;
    if (parse_row(line, row)) rows.push_back(row);
  }
  return rows;
}

std::size_t count_bound(const Gid& address, std::uint16_t port, const std::string& proc) {
  return rows_at(address, port, proc).size();
}

std::string describe_port_owner(const Gid& address, std::uint16_t port, const std::string& proc,
                                const std::string& sys) {
  const std::string what = "UDP port " + std::to_string(port) + " on " + address.to_string();
  const bool could_be_rxe = port == wire::kRocePort && is_soft_roce_loaded(proc, sys);
  const auto row = find_row(address, port, proc);
  if (row) {
    const std::string where = row->is_wildcard() ? " (bound to every address)" : "";
    if (const auto process = find_process(row->inode, proc))
      return what + " is held by process " + std::to_string(process->pid) + " (" + process->command +
             ") of user " + name_of_user(row->uid) + where;
    if (!(could_be_rxe && row->is_wildcard() && row->uid == 0))
      return what + " is held by a process of user " + name_of_user(row->uid) +
             " whose descriptors we may not read" + where;
  }
  if (could_be_rxe) return what + " is held by the kernel's Soft-RoCE (rxe): " + soft_roce_advice(sys);
  return what + " is held by nobody we can see: a socket of the kernel, or one that has just been closed";
}

}  // namespace verbena::soft::udp
