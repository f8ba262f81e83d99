// SPDX-License-Identifier: Apache-2.0
// A verbs device moved by text commands: the other end of the matrix, on any device libibverbs knows.
//
//   verbs_peer PORT        serves one driver after the other; what a driver made ends with its connection
//
//   open device=rxe0 gid=1                          ok gid=0x... gid_low=0x... mtu=1024
//   region bytes=4096 access=15                     ok region=1 address=0x... rkey=0x...
//   fill region=1 offset=0 bytes=10 seed=7          all else of the region becomes untouched
//   digest region=1 offset=0 bytes=10               ok hash=0x... intact=1
//   store region=1 offset=8 value=5 | load region=1 offset=8        ok value=0x5
//   deregister region=1
//   pair access=15 ...                              ok pair=1 qpn=17
//   connect pair=1 gid=0x... gid_low=0x... qpn=18 ...
//   receive pair=1 id=3 pieces=REGION:OFFSET:BYTES,...
//   send pair=1 id=4 opcode=N flags=N pieces=... hold=1             posted with the next that is not held
//   poll pair=1 queue=send count=2 wait_ms=100      ok completions=ID:STATUS:OPCODE:BYTES:FLAGS:IMMEDIATE,...
//   state pair=1                                    ok state=3
//   modify pair=1 state=6 | destroy pair=1
//   events                                          ok events=TYPE:QPN,...
//   release                                         destroys every pair and region
//
// Numbers are verbs': access flags, opcodes, send flags, statuses, states and events. An immediate is the
// four bytes on the wire read as a big-endian number.
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

#include "line.h"
#include "pattern.h"

namespace verbena::interop {
namespace {

template <auto Release>
struct Releaser {
  template <class T>
  void operator()(T* object) const {
    Release(object);
  }
};
using Context = std::unique_ptr<ibv_context, Releaser<ibv_close_device>>;
using Domain = std::unique_ptr<ibv_pd, Releaser<ibv_dealloc_pd>>;
using Key = std::unique_ptr<ibv_mr, Releaser<ibv_dereg_mr>>;
using Queue = std::unique_ptr<ibv_cq, Releaser<ibv_destroy_cq>>;
using QueuePair = std::unique_ptr<ibv_qp, Releaser<ibv_destroy_qp>>;

constexpr std::uint32_t kRequests = 128;
constexpr std::uint32_t kSegments = 8;
constexpr std::uint32_t kInlineBytes = 256;

struct Region {
  GuardedBytes bytes;
  Key key;
};

// A send request that waits for those to be posted with it; its segments move with it.
struct Held {
  ibv_send_wr request;
  std::vector<ibv_sge> segments;
};

struct Pair {
  Queue send_queue, receive_queue;
  QueuePair queue_pair;
  std::vector<Held> held;
};

std::string failed(const std::string& what, int number) {
  return "error " + what + ": " + std::strerror(number);
}

class Session {
 public:
  std::string answer(const std::string& text);

 private:
  using Handler = std::string (Session::*)(Line&);

  std::string open(Line& line);
  std::string make_region(Line& line);
  std::string fill(Line& line);
  std::string digest(Line& line);
  std::string store(Line& line);
  std::string load(Line& line);
  std::string deregister(Line& line);
  std::string make_pair(Line& line);
  std::string connect(Line& line);
  std::string receive(Line& line);
  std::string send(Line& line);
  std::string poll(Line& line);
  std::string state(Line& line);
  std::string modify(Line& line);
  std::string destroy(Line& line);
  std::string events(Line& line);
  std::string release(Line& line);

  Region* find_region(std::uint64_t id);
  Pair* find_pair(std::uint64_t id);
  // False when one of them names no region.
  bool segments(const std::vector<std::string>& pieces, std::vector<ibv_sge>& made);

  Context context_;
  Domain domain_;
  std::uint8_t gid_index_ = 0;
  std::map<std::uint64_t, Region> regions_;
  std::map<std::uint64_t, Pair> pairs_;
  std::uint64_t next_id_ = 1;
};

constexpr const char* kNoRegion = "error there is no such region, or not that range in it";
constexpr const char* kNoPair = "error there is no such pair";

std::string Session::answer(const std::string& text) {
  static const std::map<std::string, Handler> handlers{
      {"open", &Session::open},
      {"region", &Session::make_region},
      {"fill", &Session::fill},
      {"digest", &Session::digest},
      {"store", &Session::store},
      {"load", &Session::load},
      {"deregister", &Session::deregister},
      {"pair", &Session::make_pair},
      {"connect", &Session::connect},
      {"receive", &Session::receive},
      {"send", &Session::send},
      {"poll", &Session::poll},
      {"state", &Session::state},
      {"modify", &Session::modify},
      {"destroy", &Session::destroy},
      {"events", &Session::events},
      {"release", &Session::release},
  };
  Line line(text);
  const auto handler = handlers.find(line.word());
  if (handler == handlers.end()) return "error there is no command '" + line.word() + "'";
  if (!context_ && line.word() != "open") return "error open a device first";
  return (this->*handler->second)(line);
}

std::string Session::open(Line& line) {
  const std::string name = line.text("device");
  const std::uint64_t gid_index = line.number("gid");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  release(line);
  domain_.reset();
  context_.reset();
  int count = 0;
  ibv_device** const devices = ibv_get_device_list(&count);
  for (int i = 0; i < count; ++i)
    if (name == ibv_get_device_name(devices[i])) context_.reset(ibv_open_device(devices[i]));
  if (devices != nullptr) ibv_free_device_list(devices);
  if (!context_) return "error there is no device " + name + ", or it does not open";
  domain_.reset(ibv_alloc_pd(context_.get()));
  if (!domain_) return failed("ibv_alloc_pd", errno);
  ibv_gid gid{};
  ibv_port_attr port{};
  if (ibv_query_gid(context_.get(), 1, static_cast<int>(gid_index), &gid) != 0)
    return "error " + name + " has no GID with index " + std::to_string(gid_index);
  if (const int error = ibv_query_port(context_.get(), 1, &port)) return failed("ibv_query_port", error);
  ::fcntl(context_->async_fd, F_SETFL, ::fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK);
  gid_index_ = static_cast<std::uint8_t>(gid_index);
  return "ok gid=" + hexadecimal(be64toh(gid.global.subnet_prefix)) +
         " gid_low=" + hexadecimal(be64toh(gid.global.interface_id)) +
         " mtu=" + std::to_string(128u << static_cast<unsigned>(port.active_mtu));
}

Region* Session::find_region(std::uint64_t id) {
  const auto found = regions_.find(id);
  return found == regions_.end() ? nullptr : &found->second;
}

Pair* Session::find_pair(std::uint64_t id) {
  const auto found = pairs_.find(id);
  return found == pairs_.end() ? nullptr : &found->second;
}

std::string Session::make_region(Line& line) {
  const std::uint64_t bytes = line.number("bytes");
  const auto access = static_cast<unsigned>(line.number("access"));
  if (auto complaint = line.complaint()) return "error " + *complaint;
  Region region{GuardedBytes(bytes), nullptr};
  region.key.reset(ibv_reg_mr(domain_.get(), region.bytes.bytes().data(), bytes, access));
  if (!region.key) return failed("ibv_reg_mr", errno);
  const std::uint64_t id = next_id_++;
  const ibv_mr& key = *regions_.emplace(id, std::move(region)).first->second.key;
  return "ok region=" + std::to_string(id) +
         " address=" + hexadecimal(reinterpret_cast<std::uint64_t>(key.addr)) +
         " rkey=" + hexadecimal(key.rkey);
}

std::string Session::fill(Line& line) {
  Region* const region = find_region(line.number("region"));
  const std::uint64_t offset = line.number("offset"), bytes = line.number("bytes"),
                      seed = line.number("seed");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (region == nullptr || !region->bytes.holds(offset, bytes)) return kNoRegion;
  const auto all = region->bytes.bytes();
  std::fill(all.begin(), all.end(), kUntouched);
  fill_pattern(all.subspan(offset, bytes), seed);
  return "ok";
}

std::string Session::digest(Line& line) {
  Region* const region = find_region(line.number("region"));
  const std::uint64_t offset = line.number("offset"), bytes = line.number("bytes");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (region == nullptr || !region->bytes.holds(offset, bytes)) return kNoRegion;
  const Digest digest = region->bytes.digest(offset, bytes);
  return "ok hash=" + hexadecimal(digest.hash) + " intact=" + (digest.intact ? "1" : "0");
}

std::string Session::store(Line& line) {
  Region* const region = find_region(line.number("region"));
  const std::uint64_t offset = line.number("offset"), value = line.number("value");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (region == nullptr || !region->bytes.holds(offset, sizeof value)) return kNoRegion;
  std::memcpy(region->bytes.bytes().data() + offset, &value, sizeof value);
  return "ok";
}

std::string Session::load(Line& line) {
  Region* const region = find_region(line.number("region"));
  const std::uint64_t offset = line.number("offset");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  std::uint64_t value = 0;
  if (region == nullptr || !region->bytes.holds(offset, sizeof value)) return kNoRegion;
  std::memcpy(&value, region->bytes.bytes().data() + offset, sizeof value);
  return "ok value=" + hexadecimal(value);
}

std::string Session::deregister(Line& line) {
  Region* const region = find_region(line.number("region"));
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (region == nullptr) return kNoRegion;
  region->key.reset();
  return "ok";
}

std::string Session::make_pair(Line& line) {
  const auto access = static_cast<unsigned>(line.number("access"));
  if (auto complaint = line.complaint()) return "error " + *complaint;
  Pair pair;
  pair.send_queue.reset(ibv_create_cq(context_.get(), kRequests, nullptr, nullptr, 0));
  pair.receive_queue.reset(ibv_create_cq(context_.get(), kRequests, nullptr, nullptr, 0));
  if (!pair.send_queue || !pair.receive_queue) return failed("ibv_create_cq", errno);
  ibv_qp_init_attr made{};
  made.send_cq = pair.send_queue.get();
  made.recv_cq = pair.receive_queue.get();
  made.cap = {kRequests, kRequests, kSegments, kSegments, kInlineBytes};
  made.qp_type = IBV_QPT_RC;
  pair.queue_pair.reset(ibv_create_qp(domain_.get(), &made));
  if (!pair.queue_pair) return failed("ibv_create_qp", errno);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  attributes.qp_access_flags = access;
  if (const int error = ibv_modify_qp(pair.queue_pair.get(), &attributes,
                                      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
    return failed("ibv_modify_qp to INIT", error);
  const std::uint64_t id = next_id_++;
  const std::uint32_t qpn = pair.queue_pair->qp_num;
  pairs_.emplace(id, std::move(pair));
  return "ok pair=" + std::to_string(id) + " qpn=" + std::to_string(qpn);
}

std::string Session::connect(Line& line) {
  Pair* const pair = find_pair(line.number("pair"));
  ibv_qp_attr a{};
  a.ah_attr.is_global = 1;
  a.ah_attr.port_num = 1;
  a.ah_attr.grh.hop_limit = 64;
  a.ah_attr.grh.sgid_index = gid_index_;
  a.ah_attr.grh.dgid.global.subnet_prefix = htobe64(line.number("gid"));
  a.ah_attr.grh.dgid.global.interface_id = htobe64(line.number("gid_low"));
  a.dest_qp_num = static_cast<std::uint32_t>(line.number("qpn"));
  a.rq_psn = static_cast<std::uint32_t>(line.number("rq_psn"));
  a.sq_psn = static_cast<std::uint32_t>(line.number("sq_psn"));
  const std::uint64_t mtu = line.number("mtu");
  for (unsigned code = IBV_MTU_256; code <= IBV_MTU_4096; ++code)
    if (mtu == 128u << code) a.path_mtu = static_cast<ibv_mtu>(code);
  a.max_dest_rd_atomic = static_cast<std::uint8_t>(line.number("max_dest_rd_atomic"));
  a.max_rd_atomic = static_cast<std::uint8_t>(line.number("max_rd_atomic"));
  a.min_rnr_timer = static_cast<std::uint8_t>(line.number("min_rnr_timer"));
  a.timeout = static_cast<std::uint8_t>(line.number("timeout"));
  a.retry_cnt = static_cast<std::uint8_t>(line.number("retry_count"));
  a.rnr_retry = static_cast<std::uint8_t>(line.number("rnr_retry"));
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (pair == nullptr) return kNoPair;
  a.qp_state = IBV_QPS_RTR;
  if (const int error = ibv_modify_qp(pair->queue_pair.get(), &a,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                          IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
    return failed("ibv_modify_qp to RTR", error);
  a.qp_state = IBV_QPS_RTS;
  if (const int error = ibv_modify_qp(pair->queue_pair.get(), &a,
                                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                          IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC))
    return failed("ibv_modify_qp to RTS", error);
  return "ok";
}

bool Session::segments(const std::vector<std::string>& pieces, std::vector<ibv_sge>& made) {
  for (const std::string& piece : pieces) {
    const auto parts = split(piece, ':');
    if (parts.size() != 3) return false;
    const auto id = parse_number(parts[0]), offset = parse_number(parts[1]), bytes = parse_number(parts[2]);
    Region* const region = id ? find_region(*id) : nullptr;
    if (region == nullptr || !region->key || !offset || !bytes) return false;
    made.push_back({reinterpret_cast<std::uint64_t>(region->key->addr) + *offset,
                    static_cast<std::uint32_t>(*bytes), region->key->lkey});
  }
  return true;
}

std::string Session::receive(Line& line) {
  Pair* const pair = find_pair(line.number("pair"));
  ibv_recv_wr request{};
  request.wr_id = line.number("id");
  const auto pieces = line.list("pieces");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  std::vector<ibv_sge> made;
  if (pair == nullptr) return kNoPair;
  if (!segments(pieces, made)) return kNoRegion;
  request.sg_list = made.data();
  request.num_sge = static_cast<int>(made.size());
  ibv_recv_wr* refused = nullptr;
  if (const int error = ibv_post_recv(pair->queue_pair.get(), &request, &refused))
    return failed("ibv_post_recv", error);
  return "ok";
}

std::string Session::send(Line& line) {
  Pair* const pair = find_pair(line.number("pair"));
  Held held{};
  ibv_send_wr& request = held.request;
  request.wr_id = line.number("id");
  request.opcode = static_cast<ibv_wr_opcode>(line.number("opcode"));
  request.send_flags = static_cast<unsigned>(line.number("flags"));
  request.imm_data = htonl(static_cast<std::uint32_t>(line.number("immediate", 0)));
  const std::uint64_t address = line.number("address", 0), rkey = line.number("rkey", 0);
  const std::uint64_t compare = line.number("compare", 0), swap_or_add = line.number("swap_or_add", 0);
  const bool hold = line.number("hold", 0) != 0;
  const auto pieces = line.list("pieces");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (pair == nullptr) return kNoPair;
  if (!segments(pieces, held.segments)) return kNoRegion;
  if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    const bool swaps = request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    request.wr.atomic = {address, swaps ? compare : swap_or_add, swap_or_add,
                         static_cast<std::uint32_t>(rkey)};
  } else {
    request.wr.rdma = {address, static_cast<std::uint32_t>(rkey)};
  }
  pair->held.push_back(std::move(held));
  if (hold) return "ok";
  std::vector<Held> posted = std::move(pair->held);
  pair->held.clear();
  for (std::size_t i = 0; i < posted.size(); ++i) {
    posted[i].request.sg_list = posted[i].segments.data();
    posted[i].request.num_sge = static_cast<int>(posted[i].segments.size());
    posted[i].request.next = i + 1 < posted.size() ? &posted[i + 1].request : nullptr;
  }
  ibv_send_wr* refused = nullptr;
  if (const int error = ibv_post_send(pair->queue_pair.get(), &posted[0].request, &refused))
    return failed("ibv_post_send", error);
  return "ok";
}

std::string Session::poll(Line& line) {
  using Clock = std::chrono::steady_clock;
  Pair* const pair = find_pair(line.number("pair"));
  const std::string queue = line.text("queue");
  const std::uint64_t count = line.number("count"), wait_ms = line.number("wait_ms");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (pair == nullptr) return kNoPair;
  ibv_cq* const polled = queue == "send" ? pair->send_queue.get() : pair->receive_queue.get();
  const auto until = Clock::now() + std::chrono::milliseconds(wait_ms);
  std::string completions;
  for (std::uint64_t found = 0; found < count;) {
    ibv_wc c{};
    const int n = ibv_poll_cq(polled, 1, &c);
    if (n < 0) return "error ibv_poll_cq";
    if (n == 0) {
      if (Clock::now() >= until) break;
      std::this_thread::sleep_for(std::chrono::microseconds(500));
      continue;
    }
    ++found;
    for (const std::uint64_t value : {c.wr_id, std::uint64_t{c.status}, std::uint64_t{c.opcode},
                                      std::uint64_t{c.byte_len}, std::uint64_t{c.wc_flags}})
      completions += std::to_string(value) + ":";
    completions += std::to_string(ntohl(c.imm_data)) + ",";
  }
  return "ok completions=" + completions;
}

std::string Session::state(Line& line) {
  Pair* const pair = find_pair(line.number("pair"));
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (pair == nullptr) return kNoPair;
  ibv_qp_attr attributes{};
  ibv_qp_init_attr made{};
  if (const int error = ibv_query_qp(pair->queue_pair.get(), &attributes, IBV_QP_STATE, &made))
    return failed("ibv_query_qp", error);
  return "ok state=" + std::to_string(attributes.qp_state);
}

std::string Session::modify(Line& line) {
  Pair* const pair = find_pair(line.number("pair"));
  ibv_qp_attr attributes{};
  attributes.qp_state = static_cast<ibv_qp_state>(line.number("state"));
  if (auto complaint = line.complaint()) return "error " + *complaint;
  if (pair == nullptr) return kNoPair;
  if (const int error = ibv_modify_qp(pair->queue_pair.get(), &attributes, IBV_QP_STATE))
    return failed("ibv_modify_qp", error);
  return "ok";
}

std::string Session::destroy(Line& line) {
  const std::uint64_t id = line.number("pair");
  if (auto complaint = line.complaint()) return "error " + *complaint;
  return pairs_.erase(id) == 1 ? "ok" : kNoPair;
}

std::string Session::events(Line& line) {
  if (auto complaint = line.complaint()) return "error " + *complaint;
  std::string events;
  ibv_async_event event{};
  while (ibv_get_async_event(context_.get(), &event) == 0) {
    const bool about_pair =
        event.event_type == IBV_EVENT_QP_FATAL || event.event_type == IBV_EVENT_QP_REQ_ERR ||
        event.event_type == IBV_EVENT_QP_ACCESS_ERR || event.event_type == IBV_EVENT_COMM_EST ||
        event.event_type == IBV_EVENT_SQ_DRAINED;
    events += std::to_string(event.event_type) + ":" +
              std::to_string(about_pair ? event.element.qp->qp_num : 0) + ",";
    ibv_ack_async_event(&event);
  }
  return "ok events=" + events;
}

std::string Session::release(Line& line) {
  if (auto complaint = line.complaint()) return "error " + *complaint;
  pairs_.clear();
  regions_.clear();
  return "ok";
}

int serve(std::uint16_t port) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0) {
    std::fprintf(stderr, "verbs_peer: port %u: %s; choose another\n", port, std::strerror(errno));
    return 1;
  }
  std::printf("listening on port %u\n", port);
  std::fflush(stdout);
  for (;;) {
    const int descriptor = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0) continue;
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    LineSocket socket(descriptor);
    Session session;
    while (const auto line = socket.receive())
      if (!socket.send(session.answer(*line))) break;
  }
}

}  // namespace
}  // namespace verbena::interop

int main(int argc, char** argv) {
  const auto port = verbena::interop::parse_number(argc == 2 ? argv[1] : "");
  if (!port || *port == 0 || *port > 65535) {
    std::fprintf(stderr, "usage: verbs_peer PORT\n");
    return 2;
  }
  return verbena::interop::serve(static_cast<std::uint16_t>(*port));
}
