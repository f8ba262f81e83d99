// SPDX-License-Identifier: Apache-2.0
// Whole programs in virtual time: devices, engines, connections and coroutines of several hosts in one
// thread, and a network between them that delays, reorders, doubles, damages and loses. Hosts stop for a while or for
// good, ways between them are cut. One seed repeats a run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../../sim/forging.h"
#include "base/random.h"
#include "device/device_factory.h"
#include "soft/driver/virtual_time.h"
#include "soft/provider/soft_context.h"
#include "verbena/verbena.h"

namespace verbena::test {

struct WorldOptions {
  double loss = 0, duplicate = 0;
  double corrupt = 0;  // of the datagrams that arrive: one bit is another
  Duration delay = Duration::microseconds(5), jitter = Duration::microseconds(20);
  Duration replay{};  // a duplicate comes up to so much later still
  double burst = 0;  // with it, and for up to so long behind it, all that goes the same way is lost
  Duration burst_time = Duration::microseconds(500);
  double hostile = 0;    // another comes besides that a device must ignore, with a right ICRC
  double ghost = 0;      // of acknowledgements: one for what was never sent comes besides
  std::size_t room = 0;  // datagrams that are on their way to a host, or wait there; the rest is lost. 0: no end
  // How long hosts wait for an answer in connection management: 2^(code - 8) ms.
  std::uint8_t response_timeout_code = 20;
};

class VirtualWorld {
  struct Datagram {
    wire::Path path;
    std::uint16_t identification = 0;
    std::vector<std::byte> bytes;
  };
  struct Inbox {
    std::multimap<Instant, Datagram> datagrams;
    bool held = false;  // its host does not look
  };

 public:
  VirtualWorld(std::uint64_t seed, const WorldOptions& options)
      : options_(options), random_(seed), seed_(seed) {}

  // One host: its device and its engine.
  class Host final : private soft::VirtualTime {
   public:
    Host(VirtualWorld& world, std::uint8_t number) : world_(world), device_(make(number)) {
      engine_.emplace(value(ProgressEngine::create(device_)));
    }
    Device& device() { return device_; }
    ProgressEngine& engine() { return *engine_; }

    // It does nothing until it goes on; what comes waits, as far as there is room. Not while it is driven from outside.
    void pause() { stop(true); }
    void resume() { stop(false); }
    // The queue pair that heard from that host last is in error, as if its own host had said so.
    void kill_queue_pair(const Host& peer) {
      const Qpn which = world_.heard_.at({peer.address_, address_});
      const auto kill = [&](soft::Nic& nic, Instant now) {
        QueuePairAttributes values;
        values.state = QueuePairState::Error;
        return nic.modify_qp(now, which, values, AttributeMask::State);
      };
      EXPECT_TRUE(driver_->with_nic(kill));
    }
    // It does nothing any more, and nobody hears of it: what its objects say at their end goes nowhere.
    void crash() {
      stop(true);
      world_.dead_.insert(address_);
      inbox_->datagrams.clear();
    }

   private:
    friend class VirtualWorld;
    template <class T>
    static T value(Result<T> result) {
      EXPECT_TRUE(result);
      return std::move(*result);
    }
    Instant now() const override { return world_.now_; }
    void wait(Instant until) override {
      alarm_ = until;
      if (!world_.asking_) world_.turn(this, until);
    }
    bool stopped() const { return inbox_->held; }
    void stop(bool on) {
      inbox_->held = on;
      alarm_ = Instant::never();
    }
    Device make(std::uint8_t number);

    VirtualWorld& world_;
    Gid address_;
    Inbox* inbox_ = nullptr;
    Instant alarm_ = Instant::never();
    soft::HostDevice* driver_ = nullptr;  // the device's
    Device device_;
    std::optional<ProgressEngine> engine_;
  };

  Host& add_host() {
    hosts_.push_back(std::make_unique<Host>(*this, static_cast<std::uint8_t>(hosts_.size() + 1)));
    return *hosts_.back();
  }
  Instant now() const { return now_; }
  // All hosts go on, none of them driven from outside, until done() or for that long. Whether it is done. A host that
  // is never idle would stop the time for all.
  bool run_until(const std::function<bool()>& done, Duration limit) {
    const Instant end = now_ + limit;
    Instant since = now_;
    for (std::uint32_t turns = 0; !done(); ++turns) {
      if (now_ != std::exchange(since, now_)) turns = 0;
      EXPECT_LT(turns, kMostTurns) << "seed " << seed_ << ": time stands still";
      if (now_ >= end || turns >= kMostTurns) return false;
      turn(nullptr, end);
    }
    return true;
  }

  // The network is another from now on.
  void change_network(const WorldOptions& options) { options_ = options; }
  // Runs f() when so much time has gone by, between the turns of the hosts.
  void after(Duration delay, std::function<void()> f) { events_.emplace(now_ + delay, std::move(f)); }
  // Nothing sent from the one to the other arrives any more, until all ways are mended.
  void cut(const Host& from, const Host& to) { cuts_.emplace(from.address_, to.address_); }
  void mend() { cuts_.clear(); }

  // Over every datagram: when it arrived, its length, its BTH. What follows may tell addresses of memory.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t lost() const { return lost_; }
  std::uint64_t corrupted() const { return corrupted_; }
  std::uint64_t cut_off() const { return cut_off_; }
  std::uint64_t forged() const { return forged_; }
  std::uint64_t overflowed() const { return overflowed_; }

 private:
  static constexpr std::size_t kMostHeld = 64;           // datagrams
  static constexpr std::uint32_t kMostTurns = 100'000;  // of all hosts, at one moment
  class Port;

  bool passes(const wire::Path& path) const {
    return !dead_.contains(path.source) && !dead_.contains(path.destination) &&
           !cuts_.contains({path.source, path.destination});
  }
  void send(const roce::Train& train) {
    if (!passes(train.path())) {
      cut_off_ += train.datagrams();
      return;
    }
    for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
      Datagram d{train.path(), static_cast<std::uint16_t>(i), {}};
      train.flatten(i, d.bytes);
      if (const Qpn to{load_be24(&d.bytes[5])}; to != kGsiQpn) heard_[{d.path.source, d.path.destination}] = to;
      if (options_.duplicate != 0 && random_.chance(options_.duplicate)) deliver(d, options_.replay);
      if (options_.hostile != 0 && random_.chance(options_.hostile)) deliver_hostile(d);
      if (options_.ghost != 0 && random_.chance(options_.ghost)) deliver_ghost(d);
      if (is_in_burst(d.path) || (options_.loss != 0 && random_.chance(options_.loss)))
        ++lost_;
      else
        deliver(std::move(d), {});
    }
  }
  Duration up_to(Duration most) {
    return Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most.ns) + 1))};
  }
  bool is_in_burst(const wire::Path& path) {
    if (options_.burst == 0) return false;
    Instant& end = bursts_[{path.source, path.destination}];
    if (now_ >= end && random_.chance(options_.burst))
      end = now_ + up_to(options_.burst_time) + Duration{1};
    return now_ < end;
  }
  void deliver_hostile(Datagram d) {
    sim::forge(d.path, d.identification, d.bytes, random_);
    ++forged_;
    deliver(std::move(d), {});
  }
  // Nobody has so much under way.
  void deliver_ghost(Datagram d) {
    if (d.bytes[0] != static_cast<std::byte>(wire::Opcode::RcAcknowledge)) return;
    const auto ahead = static_cast<std::uint32_t>((1u << 20) + random_.below(1000));
    d.bytes[wire::kBthBytes] = std::byte{wire::kSyndromeAck};
    store_be24(&d.bytes[9], (Psn(load_be24(&d.bytes[9])) + ahead).value());
    sim::seal(d.path, d.identification, d.bytes);
    ++forged_;
    deliver(std::move(d), {});
  }
  void deliver(Datagram d, Duration late) {
    if (options_.corrupt != 0 && random_.chance(options_.corrupt)) {
      const std::uint64_t bit = random_.below(d.bytes.size() * 8);
      d.bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      ++corrupted_;
    }
    const Instant at = now_ + options_.delay + up_to(options_.jitter + late);
    hash_ = (hash_ ^ static_cast<std::uint64_t>(at.ns)) * 0x9e3779b97f4a7c15u + d.bytes.size();
    const auto bth = std::span(d.bytes).first(std::min(d.bytes.size(), wire::kBthBytes));
    for (const std::byte b : bth) hash_ = (hash_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    Inbox& inbox = inboxes_[d.path.destination];
    if (inbox.held && inbox.datagrams.size() >= kMostHeld)
      ++lost_;
    else if (options_.room != 0 && inbox.datagrams.size() >= options_.room)
      ++overflowed_;
    else
      inbox.datagrams.emplace(at, std::move(d));
  }

  // Who has something to do runs; if nobody has, time goes on to the next thing that happens anywhere, or to `until`.
  // `idle` has nothing to do, and said when it will.
  void turn(Host* idle, Instant until) {
    if (run_all_but(idle)) return;
    asking_ = true;
    for (const auto& host : hosts_) {
      if (host.get() == idle || !host->engine_ || host->stopped()) continue;
      host->alarm_ = now_;
      host->engine().wait(Instant::never());
    }
    asking_ = false;
    Instant next = until;
    for (const auto& host : hosts_) next = std::min(next, host->alarm_);
    for (const auto& [address, inbox] : inboxes_)
      if (!inbox.held && !inbox.datagrams.empty()) next = std::min(next, inbox.datagrams.begin()->first);
    if (!events_.empty()) next = std::min(next, events_.begin()->first);
    ASSERT_FALSE(next.is_never()) << "seed " << seed_ << ": nothing will ever happen again";
    now_ = std::max(now_, next);
  }
  bool run_all_but(const Host* idle) {
    bool any = false;
    for (; !events_.empty() && events_.begin()->first <= now_; any = true)
      events_.extract(events_.begin()).mapped()();
    const std::size_t first = random_.below(hosts_.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      Host& host = *hosts_[(first + i) % hosts_.size()];
      if (&host != idle && host.engine_ && !host.stopped() && host.engine().run_once()) any = true;
    }
    return any;
  }

  WorldOptions options_;
  SeededRandom random_;
  const std::uint64_t seed_;
  Instant now_{1'000'000'000};
  bool asking_ = false;
  std::uint64_t hash_ = 0, lost_ = 0, corrupted_ = 0, cut_off_ = 0, forged_ = 0, overflowed_ = 0;
  std::map<Gid, Inbox> inboxes_;
  std::set<Gid> dead_;
  std::set<std::pair<Gid, Gid>> cuts_;             // from, to
  std::map<std::pair<Gid, Gid>, Instant> bursts_;  // from, to: all is lost until then
  std::map<std::pair<Gid, Gid>, Qpn> heard_;       // from, to: the queue pair that was meant last
  std::multimap<Instant, std::function<void()>> events_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

class VirtualWorld::Port final : public soft::Port {
 public:
  Port(VirtualWorld& world, Inbox& inbox) : world_(world), inbox_(inbox) {}

  bool receive(soft::DatagramSink& sink) override {
    bool any = false;
    auto& waiting = inbox_.datagrams;
    for (; !waiting.empty() && waiting.begin()->first <= world_.now_; any = true) {
      const Datagram d = std::move(waiting.begin()->second);
      waiting.erase(waiting.begin());
      sink.on_datagrams(d.path, d.identification, d.bytes, d.bytes.size());
    }
    return any;
  }
  void send(std::span<const roce::Train* const> trains) override {
    for (const roce::Train* train : trains) world_.send(*train);
  }
  std::span<const int> fds() const override { return {}; }
  roce::TrainLimits limits() const override { return {}; }
  std::string hint_about(const Gid&) override { return {}; }
  std::vector<std::string> explain() const override { return {"a simulated network"}; }
  std::vector<soft::NamedCounter> counters() override { return {}; }

 private:
  VirtualWorld& world_;
  Inbox& inbox_;
};

inline Device VirtualWorld::Host::make(std::uint8_t number) {
  soft::NicConfig config;
  config.address = address_ = *Gid::parse("10.0.0." + std::to_string(number));
  inbox_ = &world_.inboxes_[address_];
  config.path_mtu = 1024;
  config.source_ports = {0xc000};
  config.cm.response_timeout_code = world_.options_.response_timeout_code;
  soft::UdpDevice parts;
  parts.local = {config.address, "sim", 1, 1500, false, true};
  soft::HostDevice::Options options;
  options.service_thread = false;
  options.time = this;
  auto driver =
      std::make_unique<soft::HostDevice>(config, std::make_unique<SeededRandom>(world_.seed_ * 97 + number),
                                         std::make_unique<Port>(world_, *inbox_), std::move(options));
  driver_ = driver.get();
  parts.device = std::move(driver);
  return value(
      DeviceFactory::make(std::make_unique<soft::SoftContext>(std::move(parts), "sim", "simulated")));
}

}  // namespace verbena::test
