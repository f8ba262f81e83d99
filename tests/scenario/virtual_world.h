// SPDX-License-Identifier: Apache-2.0
// Whole programs in virtual time: devices, engines, connections and coroutines of several hosts in one
// thread, and a network between them that delays, reorders, doubles and loses. One seed repeats a run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "device/device_factory.h"
#include "soft/driver/virtual_time.h"
#include "soft/provider/soft_context.h"
#include "verbena/verbena.h"

namespace verbena::test {

struct WorldOptions {
  double loss = 0, duplicate = 0;
  Duration delay = Duration::microseconds(5), jitter = Duration::microseconds(20);
};

class VirtualWorld {
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

   private:
    friend class VirtualWorld;
    template <class T>
    static T value(Result<T> result) {
      EXPECT_TRUE(result);
      return std::move(*result);
    }
    Instant now() const override { return world_.now_; }
    void wait(Instant until) override { world_.wait(*this, until); }
    Device make(std::uint8_t number);

    VirtualWorld& world_;
    Instant alarm_ = Instant::never();
    Device device_;
    std::optional<ProgressEngine> engine_;
  };

  Host& add_host() {
    hosts_.push_back(std::make_unique<Host>(*this, static_cast<std::uint8_t>(hosts_.size() + 1)));
    return *hosts_.back();
  }
  Instant now() const { return now_; }
  // Over every datagram: when it arrived, its length, its BTH. What follows may tell addresses of memory.
  std::uint64_t hash() const { return hash_; }
  std::uint64_t lost() const { return lost_; }

 private:
  struct Datagram {
    wire::Path path;
    std::uint16_t identification = 0;
    std::vector<std::byte> bytes;
  };
  using Inbox = std::multimap<Instant, Datagram>;
  class Port;

  void send(const roce::Train& train) {
    for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
      Datagram d{train.path(), static_cast<std::uint16_t>(i), {}};
      train.flatten(i, d.bytes);
      if (options_.duplicate != 0 && random_.chance(options_.duplicate)) deliver(d);
      if (options_.loss != 0 && random_.chance(options_.loss))
        ++lost_;
      else
        deliver(std::move(d));
    }
  }
  void deliver(Datagram d) {
    const auto more = random_.below(static_cast<std::uint64_t>(options_.jitter.ns) + 1);
    const Instant at = now_ + options_.delay + Duration{static_cast<std::int64_t>(more)};
    hash_ = (hash_ ^ static_cast<std::uint64_t>(at.ns)) * 0x9e3779b97f4a7c15u + d.bytes.size();
    const auto bth = std::span(d.bytes).first(std::min(d.bytes.size(), wire::kBthBytes));
    for (const std::byte b : bth) hash_ = (hash_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
    inboxes_[d.path.destination].emplace(at, std::move(d));
  }

  // One host has nothing to do: the others run, then time goes on to the next thing that happens anywhere.
  void wait(Host& idle, Instant until) {
    idle.alarm_ = until;
    if (asking_) return;
    bool any = false;
    const std::size_t first = random_.below(hosts_.size());
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      Host& host = *hosts_[(first + i) % hosts_.size()];
      if (&host != &idle && host.engine_ && host.engine().run_once()) any = true;
    }
    if (any) return;
    asking_ = true;
    for (const auto& host : hosts_) {
      if (host.get() == &idle || !host->engine_) continue;
      host->alarm_ = now_;
      host->engine().wait(Instant::never());
    }
    asking_ = false;
    Instant next = Instant::never();
    for (const auto& host : hosts_) next = std::min(next, host->alarm_);
    for (const auto& [address, inbox] : inboxes_)
      if (!inbox.empty()) next = std::min(next, inbox.begin()->first);
    ASSERT_FALSE(next.is_never()) << "seed " << seed_ << ": nothing will ever happen again";
    now_ = std::max(now_, next);
  }

  const WorldOptions options_;
  SeededRandom random_;
  const std::uint64_t seed_;
  Instant now_{1'000'000'000};
  bool asking_ = false;
  std::uint64_t hash_ = 0, lost_ = 0;
  std::map<Gid, Inbox> inboxes_;
  std::vector<std::unique_ptr<Host>> hosts_;
};

class VirtualWorld::Port final : public soft::Port {
 public:
  Port(VirtualWorld& world, const Gid& address) : world_(world), inbox_(world.inboxes_[address]) {}

  bool receive(soft::DatagramSink& sink) override {
    bool any = false;
    for (; !inbox_.empty() && inbox_.begin()->first <= world_.now_; any = true) {
      const Datagram d = std::move(inbox_.begin()->second);
      inbox_.erase(inbox_.begin());
      sink.on_datagrams(d.path, d.identification, d.bytes, d.bytes.size());
    }
    return any;
  }
  void send(std::span<const roce::Train* const> trains) override {
    for (const roce::Train* train : trains) world_.send(*train);
  }
  std::vector<int> fds() const override { return {}; }
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
  config.address = *Gid::parse("10.0.0." + std::to_string(number));
  config.path_mtu = 1024;
  config.source_ports = {0xc000};
  soft::UdpDevice parts;
  parts.local = {config.address, "sim", 1, 1500, false, true};
  soft::HostDevice::Options options;
  options.service_thread = false;
  options.time = this;
  parts.device =
      std::make_unique<soft::HostDevice>(config, std::make_unique<SeededRandom>(world_.seed_ * 97 + number),
                                         std::make_unique<Port>(world_, config.address), std::move(options));
  return value(
      DeviceFactory::make(std::make_unique<soft::SoftContext>(std::move(parts), "sim", "simulated")));
}

}  // namespace verbena::test
