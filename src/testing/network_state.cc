// SPDX-License-Identifier: Apache-2.0
#include "testing/network_state.h"

#include <algorithm>
#include <string>
#include <utility>

#include "async/describe.h"
#include "base/assert.h"
#include "device/device_factory.h"

namespace verbena::testing {

namespace {
constexpr const char* kStuck = "hosts found something to do 100000 times in a row, and time stands still";
constexpr const char* kNothing = "nothing is on its way, and no host waits for a moment";
}  // namespace

// A host's end of the network.
class HostState::Port final : public soft::Port {
 public:
  Port(NetworkState& network, Inbox& inbox) : network_(network), inbox_(inbox) {}

  bool receive(soft::DatagramSink& sink, bool /*everywhere*/) override {
    bool any = false;
    auto& waiting = inbox_.datagrams;
    for (; !waiting.empty() && waiting.begin()->first <= network_.now(); any = true) {
      const Datagram datagram = std::move(waiting.begin()->second);
      waiting.erase(waiting.begin());
      sink.on_datagrams(datagram.path, datagram.identification, datagram.bytes, datagram.bytes.size());
    }
    return any;
  }
  void send(std::span<const roce::Train* const> trains) override {
    for (const roce::Train* train : trains) network_.network().send(network_.now(), *train);
  }
  std::span<const int> fds() const override { return {}; }
  roce::TrainLimits limits() const override { return {}; }
  std::string hint_about(const Gid&) override { return {}; }
  std::vector<std::string> explain() const override {
    return {"a network in virtual time, of seed " + std::to_string(network_.seed())};
  }
  std::vector<soft::NamedCounter> counters() override { return {}; }

 private:
  NetworkState& network_;
  Inbox& inbox_;
};

// ---- Hosts.

Result<std::unique_ptr<HostState>> HostState::create(NetworkState& network, std::uint8_t number) {
  std::unique_ptr<HostState> host(new HostState(network, Gid::from_ipv4(10, 0, 0, number)));
  if (auto opened = host->open(number); !opened) return opened.error();
  return host;
}

HostState::HostState(NetworkState& network, const Gid& address)
    : network_(network), address_(address), inbox_(network.network().open_inbox(address)) {}

Result<void> HostState::open(std::uint8_t number) {
  soft::NicConfig config;
  config.address = address_;
  config.path_mtu = network_.options().path_mtu;
  config.source_ports = {0xc000};
  config.cm = network_.connection_management();
  soft::HostDevice::Options options;
  options.service_thread = false;
  options.time = this;
  options.path_reason = "in virtual time all goes by packets";
  auto random = std::make_unique<SeededRandom>(network_.seed() * 97 + number);
  soft::UdpDevice parts;
  parts.local = {address_, "virtual", 1, config.path_mtu <= 1024 ? 1500u : 9000u, false, true};
  parts.device = std::make_unique<soft::HostDevice>(
      config, std::move(random), std::make_unique<Port>(network_, inbox_), std::move(options));
  driver_ = parts.device.get();
  auto device = DeviceFactory::make(
      std::make_unique<soft::SoftContext>(std::move(parts), "virtual", "a host in virtual time"));
  if (!device) return device.error();
  device_.emplace(std::move(*device));
  auto engine = ProgressEngine::create(*device_);
  if (!engine) return engine.error();
  engine_.emplace(std::move(*engine));
  return {};
}

Instant HostState::now() const { return network_.now(); }

void HostState::wait(Instant until) {
  alarm_ = until;
  if (!network_.asks()) network_.wait(*this, until);
}

Instant HostState::ask_alarm() {
  alarm_ = network_.now();  // unless it finds nothing, and waits
  engine_->wait(Instant::never());
  return alarm_;
}

void HostState::hold(bool on) { inbox_.held = on; }

void HostState::resume() {
  if (!crashed_) hold(false);
}

void HostState::crash() {
  crashed_ = true;
  hold(true);
  network_.network().silence(address_);
}

void HostState::end() {
  engine_.reset();
  device_.reset();
}

// ---- The network.

// One after the other, and nobody's program runs meanwhile.
NetworkState::~NetworkState() {
  over_ = true;  // what events and tasks hold may ask for another at its end
  events_.clear();
  for (const auto& host : hosts_) host->crash();
  for (const auto& host : hosts_) host->end();
}

Result<HostState*> NetworkState::add_host() {
  if (hosts_.size() >= kMostHosts)
    return Error(ErrorCode::ResourceExhausted,
                 "add a host to a virtual network: it has " + std::to_string(kMostHosts) + " already");
  auto host = HostState::create(*this, static_cast<std::uint8_t>(hosts_.size() + 1));
  if (!host) return host.error();
  hosts_.push_back(std::move(*host));
  return hosts_.back().get();
}

void NetworkState::after(Duration delay, std::function<void()> f) {
  if (!over_) events_.emplace(now_ + std::max(delay, Duration{}), std::move(f));
}

// ---- Running.

Result<void> NetworkState::run_until(const std::function<bool()>& done, Duration limit) {
  const Instant end = now_ + limit;
  turns_ = 0;
  while (!done()) {
    switch (turn(nullptr, end)) {
      case Turn::Done:
        break;
      case Turn::Late:
        return failure(ErrorCode::DeadlineExceeded, "not over after " + describe::duration(limit));
      case Turn::Over:
        return failure(
            ErrorCode::TimedOut,
            std::string("what is waited for has not happened, and nothing ever will: ") + kNothing);
      case Turn::Stuck:
        return failure(ErrorCode::ResourceExhausted, kStuck);
    }
  }
  return {};
}

Result<void> NetworkState::run_for(Duration duration) {
  const Instant end = now_ + duration;
  turns_ = 0;
  Turn last = Turn::Done;
  while (last == Turn::Done) last = turn(nullptr, end);
  if (last == Turn::Stuck) return failure(ErrorCode::ResourceExhausted, kStuck);
  return {};
}

void NetworkState::wait(const HostState& idle, Instant until) {
  const Turn how = turn(&idle, until);
  if (how == Turn::Stuck) misused(("waits in virtual time (" + where() + "): " + kStuck).c_str());
  if (how == Turn::Over && until.is_never())
    misused(("waits in virtual time (" + where() + ") for what will never happen: " + kNothing).c_str());
}

// Who has something to do runs. If nobody has, time goes on to what happens next anywhere, not past `until`.
NetworkState::Turn NetworkState::turn(const HostState* idle, Instant until) {
  if (std::exchange(counted_at_, now_) != now_) turns_ = 0;
  if (++turns_ > kMostTurns) return Turn::Stuck;
  if (run_all_but(idle)) return Turn::Done;
  const Instant next = next_event(idle), to = std::min(next, until);
  const bool is_late = until <= now_ && next > now_;
  if (is_late || to.is_never()) return next.is_never() ? Turn::Over : Turn::Late;
  now_ = std::max(now_, to);
  return Turn::Done;
}

// A host's turn may add hosts and events.
bool NetworkState::run_all_but(const HostState* idle) {
  bool any = false;
  for (; !events_.empty() && events_.begin()->first <= now_; any = true) {
    const auto event = events_.extract(events_.begin());
    event.mapped()();
  }
  if (hosts_.empty()) return any;
  const std::size_t first = network_.random().below(hosts_.size());
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    HostState& host = *hosts_[(first + i) % hosts_.size()];
    if (&host != idle && host.takes_turns() && host.run_once()) any = true;
  }
  return any;
}

Instant NetworkState::next_event(const HostState* idle) {
  Instant next = events_.empty() ? Instant::never() : events_.begin()->first;
  asks_ = true;
  for (const auto& host : hosts_)
    if (host.get() != idle && host->takes_turns()) next = std::min(next, host->ask_alarm());
  asks_ = false;
  return std::min(next, network_.next_arrival());  // asked last: who was asked may have sent
}

std::string NetworkState::where() const {
  return "seed " + std::to_string(seed_) + ", " + describe::duration(now_ - kBegin) + " after the beginning";
}

Error NetworkState::failure(ErrorCode code, const std::string& why) const {
  return {code, "wait in virtual time (" + where() + "): " + why};
}

}  // namespace verbena::testing
