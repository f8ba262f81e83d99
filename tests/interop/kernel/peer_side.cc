// SPDX-License-Identifier: Apache-2.0
#include "peer_side.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace verbena::interop {

namespace {

template <class T>
std::string number(T value) {
  return std::to_string(static_cast<std::uint64_t>(value));
}

std::string pieces_of(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    text += text.empty() ? " pieces=" : ",";
    text += number(piece.region) + ":" + number(piece.offset) + ":" + number(piece.bytes);
  }
  return text;
}

std::uint64_t half_of(const Gid& gid, std::size_t first) {
  std::uint64_t half = 0;
  for (std::size_t i = first; i < first + 8; ++i) half = half << 8 | gid.bytes[i];
  return half;
}

// Of the kernel's rxe, as of Linux 6.1; other devices are held to the specification.
Manners manners_of(const std::string& device) {
  if (device.rfind("rxe", 0) != 0) return {};
  return {.too_long_at_requester = CompletionStatus::RemoteOperationError,
          .too_long_at_receive = CompletionStatus::LocalQpOperationError,
          .refused_write_takes_receive = true,
          .refusal_raises_event = false,
          .post_refuses_misaligned = true,
          .repeated_empty_read_needs_key = true};
}

Result<int> connect_to(const std::string& host_and_port) {
  const auto colon = host_and_port.rfind(':');
  if (colon == std::string::npos)
    return Error(ErrorCode::InvalidArgument, "--peer " + host_and_port + ": write HOST:PORT");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host = host_and_port.substr(0, colon), port = host_and_port.substr(colon + 1);
  if (const int error = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0)
    return Error(ErrorCode::NotFound, "--peer " + host_and_port + ": " + ::gai_strerror(error));
  const int descriptor = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int failed = ::connect(descriptor, found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  ::freeaddrinfo(found);
  if (failed != 0) {
    ::close(descriptor);
    return Error::from_errno(failed, "connect to verbs_peer at " + host_and_port + "; is it running there?");
  }
  const int one = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return descriptor;
}

}  // namespace

Result<std::unique_ptr<PeerSide>> PeerSide::connect(Report& report, const std::string& host_and_port,
                                                    const std::string& device, std::uint32_t gid_index) {
  auto descriptor = connect_to(host_and_port);
  if (!descriptor) return std::move(descriptor).error();
  std::unique_ptr<PeerSide> side(new PeerSide(report, *descriptor));
  Line opened = side->call("open device=" + device + " gid=" + number(gid_index));
  if (opened.word() != "ok")
    return Error(ErrorCode::InvalidArgument, "verbs_peer at " + host_and_port + ": " + report.failure());
  const std::uint64_t high = opened.number("gid"), low = opened.number("gid_low");
  for (unsigned i = 0; i < 8; ++i) {
    side->gid_.bytes[i] = static_cast<std::uint8_t>(high >> (56 - 8 * i));
    side->gid_.bytes[8 + i] = static_cast<std::uint8_t>(low >> (56 - 8 * i));
  }
  side->manners_ = manners_of(device);
  side->mtu_ = static_cast<std::uint32_t>(opened.number("mtu"));
  return side;
}

Line PeerSide::call(const std::string& command) {
  std::optional<std::string> answer;
  if (!lost_ && socket_.send(command)) answer = socket_.receive();
  lost_ = !answer.has_value();
  if (lost_) report_.fail("peer: the connection is gone");
  if (!lost_ && answer->rfind("ok", 0) != 0) report_.fail("peer: " + *answer + " (" + command + ")");
  return Line(answer.value_or("error"));
}

RegionHandle PeerSide::make_region(std::uint64_t bytes, Access access) {
  Line line = call("region bytes=" + number(bytes) + " access=" + number(access));
  if (line.word() != "ok") return {};
  return {line.number("region"), line.number("address"),
          RKey{static_cast<std::uint32_t>(line.number("rkey"))}};
}

void PeerSide::fill(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes, std::uint64_t seed) {
  call("fill region=" + number(region) + " offset=" + number(offset) + " bytes=" + number(bytes) +
       " seed=" + number(seed));
}

Digest PeerSide::digest(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) {
  Line line =
      call("digest region=" + number(region) + " offset=" + number(offset) + " bytes=" + number(bytes));
  if (line.word() != "ok") return {};
  return {line.number("hash"), line.number("intact") == 1};
}

void PeerSide::store(std::uint64_t region, std::uint64_t offset, std::uint64_t value) {
  call("store region=" + number(region) + " offset=" + number(offset) + " value=" + number(value));
}

std::uint64_t PeerSide::load(std::uint64_t region, std::uint64_t offset) {
  return call("load region=" + number(region) + " offset=" + number(offset)).number("value", 0);
}

void PeerSide::deregister(std::uint64_t region) { call("deregister region=" + number(region)); }

std::uint64_t PeerSide::make_pair(const PairOptions& options) {
  Line line = call("pair access=" + number(options.access));
  if (line.word() != "ok") return 0;
  const std::uint64_t id = line.number("pair");
  pairs_[id] = {options, Qpn{static_cast<std::uint32_t>(line.number("qpn"))}};
  return id;
}

Qpn PeerSide::qpn(std::uint64_t pair) { return pairs_[pair].qpn; }

void PeerSide::connect(std::uint64_t pair, const PairAddress& peer) {
  const PairOptions& o = pairs_[pair].options;
  call("connect pair=" + number(pair) + " gid=" + hexadecimal(half_of(peer.gid, 0)) +
       " gid_low=" + hexadecimal(half_of(peer.gid, 8)) + " qpn=" + number(peer.qpn.value()) + " rq_psn=" +
       number(peer.first.value()) + " sq_psn=" + number(o.first.value()) + " mtu=" + number(o.mtu) +
       " max_rd_atomic=" + number(o.max_rd_atomic) + " max_dest_rd_atomic=" + number(o.max_dest_rd_atomic) +
       " min_rnr_timer=" + number(o.min_rnr_timer) + " timeout=" + number(o.timeout) +
       " retry_count=" + number(o.retry_count) + " rnr_retry=" + number(o.rnr_retry));
}

void PeerSide::post_receive(std::uint64_t pair, std::uint64_t id, const std::vector<Piece>& pieces) {
  call("receive pair=" + number(pair) + " id=" + number(id) + pieces_of(pieces));
}

void PeerSide::post_send(std::uint64_t pair, std::span<const Request> requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    call("send pair=" + number(pair) + " id=" + number(r.id) + " opcode=" + number(r.opcode) +
         " flags=" + number(r.flags) + pieces_of(r.local) + " address=" + hexadecimal(r.remote_address) +
         " rkey=" + hexadecimal(r.rkey.value()) + " immediate=" + number(r.immediate) +
         " compare=" + hexadecimal(r.compare) + " swap_or_add=" + hexadecimal(r.swap_or_add) +
         (i + 1 < requests.size() ? " hold=1" : ""));
  }
}

std::vector<Outcome> PeerSide::poll(std::uint64_t pair, Queue queue, std::size_t count,
                                    std::uint32_t wait_ms) {
  constexpr std::uint64_t kWithImmediate = 2;  // of ibv_wc_flags
  Line line = call("poll pair=" + number(pair) + " queue=" + (queue == Queue::Send ? "send" : "receive") +
                   " count=" + number(count) + " wait_ms=" + number(wait_ms));
  std::vector<Outcome> outcomes;
  for (const std::string& text : line.list("completions")) {
    std::vector<std::uint64_t> v;
    for (const std::string& part : split(text, ':')) v.push_back(parse_number(part).value_or(0));
    v.resize(6);
    Outcome outcome{v[0],
                    static_cast<CompletionStatus>(v[1]),
                    static_cast<CompletionOpcode>(v[2]),
                    static_cast<std::uint32_t>(v[3]),
                    {}};
    if ((v[4] & kWithImmediate) != 0) outcome.immediate = static_cast<std::uint32_t>(v[5]);
    outcomes.push_back(outcome);
  }
  return outcomes;
}

QueuePairState PeerSide::state(std::uint64_t pair) {
  // ibv_qp_state counts as QueuePairState does.
  return static_cast<QueuePairState>(call("state pair=" + number(pair)).number("state", 0));
}

void PeerSide::modify(std::uint64_t pair, QueuePairState state) {
  call("modify pair=" + number(pair) + " state=" + number(state));
}

void PeerSide::destroy(std::uint64_t pair) {
  call("destroy pair=" + number(pair));
  pairs_.erase(pair);
}

std::vector<PairEvent> PeerSide::events() {
  Line line = call("events");
  std::vector<PairEvent> found;
  for (const std::string& text : line.list("events")) {
    const auto parts = split(text, ':');
    if (parts.size() == 2)
      found.push_back({static_cast<AsyncEventType>(parse_number(parts[0]).value_or(0)),
                       Qpn{static_cast<std::uint32_t>(parse_number(parts[1]).value_or(0))}});
  }
  return found;
}

void PeerSide::release() {
  call("release");
  pairs_.clear();
}

}  // namespace verbena::interop
