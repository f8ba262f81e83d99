// SPDX-License-Identifier: Apache-2.0
// Traffic classes and flow labels as the kernel sends them, which a packet socket sees in a network of a
// process of its own, and as captures tell them.
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/ipv6.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "test_process.h"

namespace verbena {
namespace {

using test::must;
using test::Process;

constexpr const char* kNearAddress = "fd91:7::1";
constexpr const char* kFarAddress = "fd91:7::2";
constexpr std::uint8_t kUdp = 17;
constexpr unsigned kRocePort = 4791;
constexpr unsigned kManagement = 1;  // the queue pair that connections are made through
constexpr unsigned kConnectRequest = 0x10;
constexpr std::uint32_t kSeenBytes = 256;  // of each packet

bool enter_own_network() {
  if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return false;
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING;
  const bool up = ::ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  ::close(fd);
  return up;
}

// To loopback's interface.
bool add_ipv6_address(const char* address) {
  const Gid gid = Gid::parse(address).value();
  const int fd = ::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  in6_ifreq request{};
  std::memcpy(&request.ifr6_addr, gid.bytes.data(), 16);
  request.ifr6_prefixlen = 64;
  request.ifr6_ifindex = static_cast<int>(::if_nametoindex("lo"));
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  std::memcpy(&at.sin6_addr, gid.bytes.data(), 16);
  const bool added = ::ioctl(fd, SIOCSIFADDR, &request) == 0;
  bool usable = false;
  // The kernel lets go of a new address only after its own look-round.
  for (int attempt = 0; added && !usable && attempt < 5'000; ++attempt) {
    usable = ::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
    if (!usable) ::poll(nullptr, 0, 1);
  }
  ::close(fd);
  return usable;
}

// What all the packets carry that one end of a connection sends.
struct Flow {
  std::set<std::string> marks;  // traffic class/flow label, in hexadecimal digits
  std::set<unsigned> source_ports;
};

// The packets of RoCE among those it is given: whole ones, or their beginnings. By who sends, and by the
// queue pair that they go to, which is another for each connection.
class Flows {
 public:
  void add(std::span<const unsigned char> ip) {
    if (ip.empty()) return;
    const bool ipv4 = ip[0] >> 4 == 4;
    const std::size_t udp = ipv4 ? 20 : 40;
    if (ip.size() < udp + 8 + 12 || ip[ipv4 ? 9 : 6] != kUdp) return;
    const auto number = [&](std::size_t at, std::size_t bytes) {
      unsigned value = 0;
      for (std::size_t i = at; i < at + bytes; ++i) value = value << 8 | ip[i];
      return value;
    };
    if (number(udp + 2, 2) != kRocePort) return;
    char marks[16];
    std::snprintf(marks, sizeof marks, "%02x/%05x", ipv4 ? number(1, 1) : number(0, 4) >> 20 & 0xff,
                  ipv4 ? 0 : number(0, 4) & 0xfffff);
    const std::size_t source = ipv4 ? 12 : 8;
    const std::string sender(reinterpret_cast<const char*>(&ip[source]), ipv4 ? 4 : 16);
    auto& of_sender = flows_[sender];
    const unsigned qpn = number(udp + 8 + 5, 3);
    auto flow =
        std::find_if(of_sender.begin(), of_sender.end(), [&](const auto& one) { return one.first == qpn; });
    if (flow == of_sender.end()) flow = of_sender.insert(of_sender.end(), {qpn, {}});
    flow->second.marks.insert(marks);
    flow->second.source_ports.insert(number(udp, 2));
    // The label of the primary path of a request for a connection (format reference 9.2), behind UDP, BTH and
    // DETH.
    const std::size_t mad = udp + 8 + 12 + 8;
    if (qpn == kManagement && ip.size() >= mad + 116 && number(mad + 16, 2) == kConnectRequest)
      asked_labels_.push_back(number(mad + 112, 4) >> 12);
  }

  // Of each sender, the lower address first: of one connection after the other, in the order of their first
  // packets.
  std::vector<std::string> marks() const {
    std::vector<std::string> lines;
    for (const auto& [sender, of_sender] : flows_) {
      std::string line;
      for (const auto& [qpn, flow] : of_sender)
        if (qpn != kManagement) line += (line.empty() ? "" : "; ") + text_of(flow);
      lines.push_back(line);
    }
    return lines;
  }
  // What the lower address sends to make and end connections.
  std::string management_marks() const {
    const OfSender own = lower();
    for (const auto& [qpn, flow] : own)
      if (qpn == kManagement) return text_of(flow);
    return "";
  }
  // Those that requests for connections name.
  const std::vector<unsigned>& asked_labels() const { return asked_labels_; }
  // Of the connections of the lower address, in the same order.
  std::vector<std::set<unsigned>> source_ports() const {
    const OfSender own = lower();
    std::vector<std::set<unsigned>> ports;
    for (const auto& [qpn, flow] : own)
      if (qpn != kManagement) ports.push_back(flow.source_ports);
    return ports;
  }

 private:
  using OfSender = std::vector<std::pair<unsigned, Flow>>;

  OfSender lower() const { return flows_.empty() ? OfSender{} : flows_.begin()->second; }
  static std::string text_of(const Flow& flow) {
    std::string text;
    for (const std::string& one : flow.marks) text += (text.empty() ? "" : " ") + one;
    return text;
  }

  std::map<std::string, OfSender> flows_;
  std::vector<unsigned> asked_labels_;
};

// All that leaves by loopback from now on. Little of it fits into the socket: look() comes often.
class Wire {
 public:
  bool open() {
    fd_ = ::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    // What leaves by loopback comes by it, too; that is left out.
    sock_filter lines[] = {
        {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<std::uint32_t>(SKF_AD_OFF + SKF_AD_PKTTYPE)},
        {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, PACKET_OUTGOING},
        {BPF_RET | BPF_K, 0, 0, kSeenBytes},
        {BPF_RET | BPF_K, 0, 0, 0}};
    const sock_fprog filter{static_cast<unsigned short>(std::size(lines)), lines};
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = __builtin_bswap16(ETH_P_ALL);
    at.sll_ifindex = static_cast<int>(::if_nametoindex("lo"));
    return fd_ >= 0 && ::setsockopt(fd_, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) == 0 &&
           ::bind(fd_, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;
  }
  ~Wire() { ::close(fd_); }

  void look() {
    unsigned char bytes[kSeenBytes];
    for (ssize_t got; (got = ::recv(fd_, bytes, sizeof bytes, 0)) >= 0;)
      flows_.add({bytes, static_cast<std::size_t>(got)});
  }
  const Flows& seen() {
    look();
    return flows_;
  }
  // Since the last time.
  unsigned overlooked() const {
    tpacket_stats counted{};
    socklen_t size = sizeof counted;
    return ::getsockopt(fd_, SOL_PACKET, PACKET_STATISTICS, &counted, &size) == 0 ? counted.tp_drops : 0;
  }

 private:
  int fd_ = -1;
  Flows flows_;
};

// Of a pcapng file of ours: enhanced packet blocks of raw IP.
Flows captured(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  const auto word = [&](std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, &all[at], 4);
    return value;
  };
  Flows flows;
  for (std::size_t at = 0; at + 12 <= all.size() && word(at + 4) >= 12; at += word(at + 4))
    if (word(at) == 6) flows.add({reinterpret_cast<const unsigned char*>(&all[at + 28]), word(at + 20)});
  return flows;
}

using Say = std::function<void(const std::string&)>;

// Runs `body` in a network of its own, which has the two addresses where `ipv6`; what it says is returned.
std::vector<std::string> in_own_network(bool ipv6, const std::function<void(Wire&, const Say&)>& body) {
  Process child([&](const Say& say) {
    Wire wire;
    if (!enter_own_network() || !wire.open()) return say("skip the system gives no network of its own");
    if (ipv6 && !(add_ipv6_address(kNearAddress) && add_ipv6_address(kFarAddress))) return say("skip there is no IPv6");
    body(wire, say);
    if (const unsigned packets = wire.overlooked(); packets != 0)
      say(std::to_string(packets) + " packets overlooked");
    say("end");
  });
  std::vector<std::string> lines;
  for (std::string line = child.hear(); !line.empty(); line = child.hear()) lines.push_back(line);
  if (lines.empty() || (lines.back() != "end" && !lines.back().starts_with("skip ")))
    lines.push_back("no end");
  return lines;
}

bool was_skipped(const std::vector<std::string>& lines) { return lines.back().starts_with("skip "); }

ConnectionOptions marked(std::uint8_t traffic_class, std::uint32_t flow_label) {
  ConnectionOptions options;
  options.keep_alive = Duration::seconds(0);
  options.traffic_class = traffic_class;
  options.flow_label = flow_label;
  return options;
}

// Requests, responses and acknowledgements, single packets and trains of them, either way.
void exchange(Wire& wire, test::Pair& pair, Connection& near) {
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{3 * 4096}}) {
    const MemoryRegion here = must(pair.client.allocate_memory(bytes)),
                       there = must(pair.server.allocate_memory(bytes));
    must(near.write(here.local(), there.remote()).wait());
    wire.look();
    must(near.read(here.local(), there.remote()).wait());
    wire.look();
    must(pair.far_end().write(there.local(), here.remote()).wait());
    wire.look();
  }
}

// Two connections at once: of the first the connecting end has marks, of the second the accepting end.
void connect_with_marks(Wire& wire, const Say& say, const OpenOptions& near, const OpenOptions& far) {
  const std::string file = ::testing::TempDir() + "marks_" + std::to_string(::getpid()) + ".pcapng";
  {
    OpenOptions capturing = near;
    capturing.pcap_file = file;
    test::Pair pair({}, far, capturing);
    pair.server_options = marked(0, 0);
    Connection first = pair.connect(marked(0x68, 0x12345));
    exchange(wire, pair, first);
    pair.server_options = marked(0x28, 0xfffff);
    Connection second = pair.connect(marked(0, 0));
    exchange(wire, pair, second);
    must(first.close());
    must(second.close());
  }
  for (const std::string& line : wire.seen().marks()) say(line);
  say("to connect: " + wire.seen().management_marks());
  const auto& asked = wire.seen().asked_labels();
  say(!asked.empty() && asked.front() == 0x12345 ? "asked for" : "not asked for");
  const Flows flows = captured(file);
  for (const std::string& line : flows.marks()) say(line);
  say("to connect: " + flows.management_marks());
  std::remove(file.c_str());
}

TEST(MarksOnTheWire, of_ipv6_are_each_connection_s_own_in_the_kernel_s_packets_and_in_the_capture) {
  const auto lines = in_own_network(true, [](Wire& wire, const Say& say) {
    connect_with_marks(wire, say, {.device = kNearAddress, .path = PathChoice::Roce},
                       {.device = kFarAddress, .path = PathChoice::Roce});
  });
  if (was_skipped(lines)) GTEST_SKIP() << lines.back();
  const std::string near = "68/12345; 00/00000", far = "68/00000; 28/fffff",
                    both = "to connect: 00/00000 68/00000";
  EXPECT_THAT(lines, ::testing::ElementsAre(near, far, both, "asked for", near, far, both, "end"));
}

TEST(MarksOnTheWire, of_ipv4_are_the_type_of_service) {
  const auto lines = in_own_network(false, [](Wire& wire, const Say& say) {
    connect_with_marks(wire, say, {.device = "127.0.0.1", .path = PathChoice::Roce},
                       {.device = "127.0.0.2", .path = PathChoice::Roce});
  });
  if (was_skipped(lines)) GTEST_SKIP() << lines.back();
  const std::string near = "68/00000; 00/00000", far = "68/00000; 28/00000",
                    both = "to connect: 00/00000 68/00000";
  EXPECT_THAT(lines, ::testing::ElementsAre(near, far, both, "asked for", near, far, both, "end"));
}

TEST(MarksOnTheWire, of_queue_pairs_connected_by_hand_are_each_side_s_own) {
  const auto lines = in_own_network(true, [](Wire& wire, const Say& say) {
    {
      Device device = must(Device::open({.device = kNearAddress, .path = PathChoice::Roce}));
      Device peer = must(Device::open({.device = kFarAddress, .path = PathChoice::Roce}));
      CompletionQueue queue = must(device.create_completion_queue(4)),
                      idle = must(peer.create_completion_queue(4));
      QueuePair near = must(device.create_queue_pair(queue)), far = must(peer.create_queue_pair(idle));
      must(near.connect(far.address(), {}, {.traffic_class = 0xb8, .flow_label = 0xfffff}));
      must(far.connect(near.address(), {}, {.traffic_class = 0x28, .flow_label = 1}));
      MemoryRegion memory = must(peer.allocate_memory(64)), own = must(device.allocate_memory(64));
      const ScatterGather piece = own.local();
      SendRequest read;
      read.opcode = SendOpcode::RdmaRead;
      read.local = {&piece, 1};
      read.remote_address = memory.remote().address;
      read.rkey = memory.remote().rkey;
      if (!near.post_send(read)) return say("refused");
      std::optional<Completion> done;
      while (!(done = queue.poll_one())) peer.progress();
      if (done->status != CompletionStatus::Success) say("failed");
    }
    for (const std::string& line : wire.seen().marks()) say(line);
  });
  if (was_skipped(lines)) GTEST_SKIP() << lines.back();
  EXPECT_THAT(lines, ::testing::ElementsAre("b8/fffff", "28/00001", "end"));
}

// Says of connections with these labels which source port each has, beginning with 0 in the order of their
// first uses.
void say_source_ports(Wire& wire, const Say& say, const OpenOptions& near, const OpenOptions& far) {
  {
    test::Pair pair({}, far, near);
    pair.server_options = marked(0, 0);
    std::vector<Connection> all;
    for (const std::uint32_t label : {7u, 8u, 7u, 8u}) {
      all.push_back(pair.connect(marked(0, label)));
      exchange(wire, pair, all.back());
    }
    for (Connection& connection : all) must(connection.close());
  }
  std::vector<unsigned> known;
  for (const std::set<unsigned>& ports : wire.seen().source_ports()) {
    if (ports.size() != 1) return say("several ports");
    const auto at = std::find(known.begin(), known.end(), *ports.begin());
    say(std::to_string(at - known.begin()));
    if (at == known.end()) known.push_back(*ports.begin());
  }
}

TEST(MarksOnTheWire, one_flow_label_is_one_source_port_and_another_is_another) {
  for (const bool ipv6 : {true, false}) {
    const auto lines = in_own_network(ipv6, [&](Wire& wire, const Say& say) {
      say_source_ports(wire, say, {.device = ipv6 ? kNearAddress : "127.0.0.1", .path = PathChoice::Roce},
                       {.device = ipv6 ? kFarAddress : "127.0.0.2", .path = PathChoice::Roce});
    });
    if (was_skipped(lines)) GTEST_SKIP() << lines.back();
    EXPECT_THAT(lines, ::testing::ElementsAre("0", "1", "0", "1", "end")) << (ipv6 ? "IPv6" : "IPv4");
  }
}

}  // namespace
}  // namespace verbena
