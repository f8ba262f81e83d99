// SPDX-License-Identifier: Apache-2.0
// A connection manager with one listener and one connection in a state of the fuzzer's choice; then messages,
// raw or aimed at that connection, commands and steps of time. Nothing may crash, exceed a limit, or be left
// at the end.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/byte_order.h"
#include "base/random.h"
#include "soft/cm/manager.h"

namespace {

using namespace verbena;

constexpr std::uint16_t kPort = 7174;
const Gid kLocal = Gid::from_ipv4(192, 0, 2, 1);
const Gid kPeer = Gid::from_ipv4(192, 0, 2, 2);
const Gid kStranger = Gid::from_ipv4(192, 0, 2, 3);
constexpr std::uint64_t kPeerGuid = 0x77;
constexpr std::uint32_t kPeerCommId = 0x1234;
constexpr std::uint64_t kTransaction = 0x99;

class Input {
 public:
  explicit Input(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const std::uint8_t b = bytes_[0];
    bytes_ = bytes_.subspan(1);
    return b;
  }
  void fill(std::span<std::byte> to) {
    const std::size_t n = std::min(to.size(), bytes_.size());
    if (n != 0) std::memcpy(to.data(), bytes_.data(), n);
    bytes_ = bytes_.subspan(n);
  }

 private:
  std::span<const std::uint8_t> bytes_;
};

class World {
 public:
  explicit World(Input& input) : input_(input), manager_(config(), random_) {
    VERBENA_ASSERT(manager_.listen(now_, cm::PortSpace::Tcp, kPort, 4).has_value());
    reach(input_.byte());
  }

  void step() {
    switch (input_.byte() % 8) {
      case 0:
        raw();
        break;
      case 1:
      case 2:
      case 3:
        aimed();
        break;
      case 4:
        command();
        break;
      case 5:
        pass(Duration::milliseconds(std::int64_t{1} << (input_.byte() % 16)));
        break;
      case 6:
        to_next_deadline();
        break;
      default:
        take();
        break;
    }
    VERBENA_ASSERT(manager_.half_open() <= 6 && manager_.connections() <= 12);
    VERBENA_ASSERT(manager_.footprint() < 600);
  }

  void end() {
    take();
    for (const cm::ConnectionId id : ids_) (void)manager_.destroy(now_, id);
    ids_.clear();
    while (!manager_.next_deadline().is_never()) {
      to_next_deadline();
      take();
      for (const cm::ConnectionId id : ids_) (void)manager_.destroy(now_, id);
      ids_.clear();
    }
    take();
    VERBENA_ASSERT(manager_.connections() == 0 && manager_.footprint() == 0);
  }

 private:
  static cm::ManagerConfig config() {
    cm::ManagerConfig c;
    c.local = kLocal;
    c.ca_guid = 0x55;
    c.response_timeout_code = c.packet_lifetime_code = 10;
    c.max_retries = 3;
    c.half_open_per_source = 4;
    c.half_open_total = 6;
    c.connections = 12;
    c.rejections_kept = 2;
    c.outgoing_messages = 32;
    c.mra_after = Duration::milliseconds(5);
    return c;
  }

  // A passive or active connection, somewhere on its way.
  void reach(std::uint8_t choice) {
    const bool passive = (choice & 1) != 0;
    const int steps = choice >> 1 & 3;
    if (passive) {
      deliver(req(), kPeer);
      take();
    } else {
      cm::ConnectParams p;
      p.remote = kPeer;
      p.port = kPort;
      p.qpn = Qpn{0x44};
      ids_.push_back(manager_.connect(now_, p).value());
    }
    take();
    if (steps >= 1 && passive) accept(ids_.back());
    take();
    if (steps >= 1 && !passive) deliver(rep(), kPeer);
    if (steps >= 2 && passive) deliver(ids_only<wire::CmRtu>(), kPeer);
    if (steps >= 2 && !passive) (void)manager_.confirm(now_, ids_.back());
    if (steps >= 3) (void)manager_.disconnect(now_, ids_.back());
    take();
  }

  void accept(cm::ConnectionId id) {
    cm::AcceptParams p;
    p.qpn = Qpn{0x44};
    (void)manager_.accept(now_, id, p);
  }

  template <class Message>
  cm::MadBytes whole(const Message& m) const {
    wire::MadHeader header;
    header.transaction_id = transaction_;
    cm::MadBytes out{};
    wire::emit_mad(header, m, out);
    return out;
  }
  cm::MadBytes req() const {
    wire::CmReq r;
    r.local_comm_id = kPeerCommId;
    r.service_id = wire::service_id(cm::PortSpace::Tcp, kPort);
    r.local_ca_guid = kPeerGuid;
    r.local_qpn = Qpn{0x45};
    r.path_mtu = 3;
    r.max_cm_retries = 2;
    r.primary.local_gid = kPeer;
    r.primary.remote_gid = kLocal;
    wire::CmaHeader cma;
    cma.source = kPeer;
    cma.destination = kLocal;
    wire::emit(cma, wire::cma_part(r.private_data));
    return whole(r);
  }
  template <class Message>
  cm::MadBytes ids_only() const {
    Message m;
    m.local_comm_id = kPeerCommId;
    m.remote_comm_id = our_id_;
    return whole(m);
  }
  cm::MadBytes rep() const {
    wire::CmRep r;
    r.local_comm_id = kPeerCommId;
    r.remote_comm_id = our_id_;
    r.local_qpn = Qpn{0x45};
    r.local_ca_guid = kPeerGuid;
    return whole(r);
  }
  cm::MadBytes message(std::uint8_t kind) const {
    switch (kind % 7) {
      case 0:
        return req();
      case 1:
        return rep();
      case 2:
        return ids_only<wire::CmRtu>();
      case 3:
        return ids_only<wire::CmRej>();
      case 4:
        return ids_only<wire::CmMra>();
      case 5: {
        wire::CmDreq d;
        d.local_comm_id = kPeerCommId;
        d.remote_comm_id = our_id_;
        d.remote_qpn = Qpn{0x44};
        return whole(d);
      }
      default:
        return ids_only<wire::CmDrep>();
    }
  }

  void deliver(std::span<const std::byte> mad, const Gid& source) {
    wire::Path path;
    path.source = source;
    path.destination = kLocal;
    manager_.handle_mad(now_, path, mad);
  }

  void raw() {
    cm::MadBytes mad{};
    const std::uint8_t choice = input_.byte();
    input_.fill(mad);
    deliver(std::span(mad).first(choice < 8 ? std::size_t{choice} * 32 : mad.size()),
            choice & 8 ? kPeer : kStranger);
  }

  // A message that fits the connection, with up to three bytes changed.
  void aimed() {
    cm::MadBytes mad = message(input_.byte());
    const int changes = input_.byte() % 4;
    for (int i = 0; i < changes; ++i) {
      const std::uint8_t at = input_.byte();
      mad[at] = std::byte{input_.byte()};
    }
    deliver(mad, kPeer);
  }

  void command() {
    const std::uint8_t which = input_.byte();
    if (ids_.empty()) return;
    const std::size_t index = input_.byte() % ids_.size();
    const cm::ConnectionId id = ids_[index];
    switch (which % 7) {
      case 0:
        accept(id);
        break;
      case 1:
        (void)manager_.reject(now_, id);
        break;
      case 2:
        (void)manager_.confirm(now_, id);
        break;
      case 3:
        (void)manager_.establish(now_, id);
        break;
      case 4:
        (void)manager_.disconnect(now_, id);
        break;
      case 5:
        (void)manager_.query(id);
        break;
      default:
        VERBENA_ASSERT(manager_.destroy(now_, id).has_value());
        ids_.erase(ids_.begin() + static_cast<std::ptrdiff_t>(index));
        break;
    }
  }

  void pass(Duration time) {
    now_ = now_ + time;
    manager_.handle_timeout(now_);
  }
  void to_next_deadline() {
    if (manager_.next_deadline().is_never()) return;
    now_ = std::max(now_, manager_.next_deadline());
    manager_.handle_timeout(now_);
  }

  // Takes what the manager has to say, and learns the ids by which a peer would aim.
  void take() {
    cm::OutgoingMad mad;
    while (manager_.poll_transmit(now_, mad)) {
      const auto attribute = static_cast<wire::CmAttribute>(load_be16(&mad.bytes[16]));
      if (attribute == wire::CmAttribute::Req || attribute == wire::CmAttribute::Rep) {
        transaction_ = load_be64(&mad.bytes[8]);
        our_id_ = load_be32(&mad.bytes[24]);
      }
    }
    cm::Event event;
    while (manager_.poll_event(event)) {
      if (event.type == cm::EventType::ConnectRequest) ids_.push_back(event.connection);
    }
  }

  Input& input_;
  SeededRandom random_{1};
  Instant now_{0};
  cm::Manager manager_;
  std::vector<cm::ConnectionId> ids_;
  std::uint64_t transaction_ = kTransaction;
  std::uint32_t our_id_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input(std::span(data, size));
  World world(input);
  while (!input.empty()) world.step();
  world.end();
  return 0;
}
