// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/udp_device.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/this_user.h"
#include "soft/driver/udp/crypto_random.h"
#include "soft/driver/udp/shared_address.h"
#include "soft/driver/udp/sockets.h"

namespace verbena::soft {

namespace {

using udp::OutTrain;
using udp::SharedAddress;
using udp::SocketSet;

std::string words_for(const udp::SendError& error) {
  std::string text = std::strerror(error.error);
  if (error.error == ECONNREFUSED) text = "port 4791 is closed there: no RoCE device at this address";
  if (error.error == EMSGSIZE && error.mtu != 0)
    text = "packets are too long for the path, whose MTU is " + std::to_string(error.mtu);
  return text + (error.from_network ? " (told by ICMP)" : " (told by our kernel)");
}

class UdpPort final : public Port {
 public:
  UdpPort(std::unique_ptr<SharedAddress> shared, SocketSet sockets)
      : shared_(std::move(shared)), sockets_(std::move(sockets)) {}
  ~UdpPort() override { shared_->let_go(); }
  const SocketSet& sockets() const { return sockets_; }

  bool receive(DatagramSink& sink, bool everywhere) override {
    const bool handed_over = shared_->inbox().waits();
    if (handed_over) [[unlikely]] read_inbox(sink);
    follow_peer();
    const auto trains = sockets_.receive(everywhere);
    for (const udp::ReceivedTrain& train : trains) {
      if (shared_->is_ours(train)) [[likely]] {
        sink.on_datagrams(train.path, std::nullopt, train.bytes, train.segment_bytes);
      } else {
        shared_->sort(train);
        read_inbox(sink);  // before what came later
      }
    }
    return handed_over || !trains.empty();
  }

  void send(std::span<const roce::Train* const> trains) override {
    if (trains.size() == 1 && trains[0]->pieces().size() == 1) [[likely]] {
      iovec piece = vector_of(trains[0]->pieces()[0]);
      OutTrain out = out_of(*trains[0], {&piece, 1});
      sockets_.send({&out, 1});
    } else {
      send_all(trains);
    }
    while (const auto error = sockets_.poll_error()) remember(*error);
  }

  std::span<const int> fds() const override { return fds_; }

  roce::TrainLimits limits() const override {
    roce::TrainLimits limits;
    limits.max_datagrams = std::max(sockets_.max_segments(), 1u);
    limits.max_bytes = udp::kMaxTrainBytes;
    return limits;
  }

  std::string hint_about(const Gid& peer) override {
    sockets_.read_errors();  // what nobody's send has met yet
    while (const auto error = sockets_.poll_error()) remember(*error);
    const auto found = hints_.find(peer);
    return found == hints_.end() ? std::string{} : found->second;
  }

  std::vector<std::string> explain() const override {
    const udp::LocalAddress& local = sockets_.interface();
    std::string ports;
    for (unsigned i = 0; i < sockets_.sources(); ++i)
      ports += (i == 0 ? "" : ", ") + std::to_string(sockets_.source_port(i));
    return {
        "address " + local.gid.to_string() + " on interface " + local.interface_name + ", MTU " +
            std::to_string(local.mtu) + " -> path MTU " + std::to_string(sockets_.path_mtu()),
        "RoCEv2 in user space over UDP: receives on port 4791 of that address, sends from ports " + ports,
        "segmentation offload: up to " + std::to_string(sockets_.max_segments()) + " datagrams per send",
        "receive buffer: " + std::to_string(sockets_.receive_buffer_bytes()) +
            " bytes, as the kernel books it",
        shared_->explain(),
    };
  }

  std::vector<NamedCounter> counters() override {
    const udp::SocketCounters c = sockets_.counters();
    std::vector<NamedCounter> all = shared_->counters();
    all.insert(all.begin(),
           {{"udp_send_calls", c.send_calls},
            {"udp_sent_trains", c.sent_trains},
            {"udp_sent_datagrams", c.sent_datagrams},
            {"udp_sent_connected", c.sent_connected},
            {"udp_dropped_datagrams", c.dropped_datagrams},
            {"udp_send_full", c.send_full},
            {"udp_send_errors", c.send_errors},
            {"udp_gso_refused", c.gso_refused},
            {"udp_receive_calls", c.receive_calls},
            {"udp_received_trains", c.received_trains},
            {"udp_received_datagrams", c.received_datagrams},
            {"udp_received_connected", c.received_connected},
            {"udp_receive_errors", c.receive_errors},
            {"udp_receive_drops", c.receive_drops}});
    return all;
  }

  Result<void> announce(std::uint32_t service) override { return shared_->announce(service); }
  Result<void> withdraw(std::uint32_t service) override { return shared_->withdraw(service); }

 private:
  static iovec vector_of(const roce::Piece& piece) { return {const_cast<std::byte*>(piece.data), piece.size}; }
  static OutTrain out_of(const roce::Train& train, std::span<const iovec> pieces) {
    OutTrain out;
    out.source_index = train.source_index();
    out.path = train.path();
    out.segment_bytes = train.segment_bytes();
    out.datagrams = train.datagrams();
    out.pieces = pieces;
    return out;
  }

  void send_all(std::span<const roce::Train* const> trains) {
    pieces_.clear();
    out_.clear();
    std::size_t total = 0;
    for (const roce::Train* train : trains) total += train->pieces().size();
    pieces_.reserve(total);  // spans below stay valid
    for (const roce::Train* train : trains) {
      const std::size_t first = pieces_.size();
      for (const roce::Piece& piece : train->pieces()) pieces_.push_back(vector_of(piece));
      out_.push_back(out_of(*train, {pieces_.data() + first, pieces_.size() - first}));
    }
    sockets_.send(out_);
  }

  [[gnu::cold]] void remember(const udp::SendError& error) {
    constexpr std::size_t kHints = 1024;
    if (hints_.size() < kHints || hints_.contains(error.peer)) hints_[error.peer] = words_for(error);
  }

  // While one peer alone sends, and little at a time, a socket leads to it.
  void follow_peer() {
    if (const wire::Path* peer = sockets_.busy_peer())
      sockets_.set_led(shared_->peer_socket().lead_to(*peer));
    else if (sockets_.is_led() && (sockets_.wants_rest() || shared_->is_shared()))
      sockets_.set_led(!shared_->peer_socket().lead_nowhere());
  }

  [[gnu::cold]] void read_inbox(DatagramSink& sink) {
    for (const udp::Stray& stray : shared_->inbox().take())
      sink.on_datagrams(stray.path, std::nullopt, stray.bytes, stray.segment_bytes);
  }

  const std::unique_ptr<SharedAddress> shared_;
  SocketSet sockets_;
  const std::vector<int> fds_ = shared_->peer_fd() < 0
                                    ? std::vector{sockets_.receive_fd(), shared_->inbox().fd()}
                                    : std::vector{sockets_.receive_fd(), shared_->inbox().fd(), shared_->peer_fd()};
  std::vector<iovec> pieces_;
  std::vector<OutTrain> out_;
  std::map<Gid, std::string> hints_;
};

// A peer whose queue pair fails lets go of the memory at once, and says so by connection management when its program is
// told of the failure.
constexpr Duration kFarewell = Duration::milliseconds(50);

// The hub, or why there is none.
Result<void> choose_paths(const UdpDeviceOptions& options, const Gid& address, const IdSlot& ids,
                          HostDevice::Options& device) {
  if (options.path == PathChoice::Roce) {
    device.path_reason = "path=roce was asked for";
    return {};
  }
  if (options.path == PathChoice::Auto && !options.pcap_file.empty()) {
    device.path_reason = "packets are captured; path=local takes shared memory all the same";
    return {};
  }
  for (const std::uint32_t user : options.local_users)
    if (!is_one_user(user))
      return Error{ErrorCode::InvalidArgument,
                   "local_users (VERBENA_LOCAL_USERS) " + std::to_string(user) +
                       ": the number stands for every user that this container does not know"};
  std::optional<local::MeetingFolder> folder;
  if (!options.local_dir.empty()) {
    auto opened = local::MeetingFolder::open(options.local_dir);
    if (!opened) return std::move(opened).error();
    folder.emplace(std::move(*opened));
  }
  auto hub = local::Hub::open(
      {.address = address, .ids = ids, .required = options.path == PathChoice::Local, .pull = options.pull,
       .users = {options.local_users.begin(), options.local_users.end()}, .farewell = kFarewell},
      std::move(folder));
  if (hub) {
    device.hub = std::move(*hub);
    return {};
  }
  if (options.path == PathChoice::Local) return hub.error();
  device.path_reason = "shared memory cannot be offered: " + local::reason_of(hub.error());
  return {};
}

}  // namespace

Result<UdpDevice> open_udp_device(const UdpDeviceOptions& options) {
  const auto users = udp::AddressUsers::with(options.address_users);
  if (!users) return users.error();
  auto shared = options.address.is_zero() ? SharedAddress::open_free_loopback(*users)
                                          : SharedAddress::open(options.address, *users);
  if (!shared) return std::move(shared).error();
  auto receiving = (*shared)->receiving_socket();
  if (!receiving) return std::move(receiving).error();
  udp::SocketOptions socket_options;
  socket_options.report_ip_fields = !options.pcap_file.empty();
  if (options.receive_buffer_bytes != 0) socket_options.receive_buffer_bytes = options.receive_buffer_bytes;
  Result<SocketSet> opened =
      SocketSet::open((*shared)->local(), std::move(*receiving), socket_options, (*shared)->peer_fd());
  if (!opened) return std::move(opened).error();
  const IdSlot ids = (*shared)->ids();
  auto port = std::make_unique<UdpPort>(std::move(*shared), std::move(*opened));  // lets go of both, whatever follows
  const SocketSet& sockets = port->sockets();

  UdpDevice result;
  result.local = sockets.interface();
  if (sockets.path_mtu() == 0)
    return Error{ErrorCode::NotSupported,
                 "interface " + result.local.interface_name + " has MTU " + std::to_string(result.local.mtu) +
                     ", RoCE needs at least 336; choose another address or raise it"};
  HostDevice::Options device_options;
  device_options.service_thread = options.service_thread;
  device_options.single_threaded = options.single_threaded;
  if (!options.pcap_file.empty()) {
    auto capture = Capture::open(options.pcap_file, result.local.interface_name);
    if (!capture) return std::move(capture).error();
    device_options.capture = std::move(*capture);
  }
  if (auto chosen = choose_paths(options, result.local.gid, ids, device_options); !chosen) return chosen.error();
  NicConfig config = options.nic;
  config.address = result.local.gid;
  config.path_mtu = sockets.path_mtu();
  if (options.path_mtu != 0) config.path_mtu = std::min(config.path_mtu, options.path_mtu);
  config.ids = ids;
  config.source_ports.clear();
  for (unsigned i = 0; i < sockets.sources(); ++i) config.source_ports.push_back(sockets.source_port(i));
  auto device = HostDevice::open(config, std::make_unique<udp::CryptoRandom>(), std::move(port),
                                 std::move(device_options));
  if (!device) return device.error();
  result.device = std::move(*device);
  return result;
}

}  // namespace verbena::soft
