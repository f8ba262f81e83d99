// SPDX-License-Identifier: Apache-2.0
// What stands behind VirtualNetwork and VirtualHost: hosts that take turns, and the clock they live by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "soft/driver/host_device.h"
#include "soft/driver/virtual_time.h"
#include "soft/provider/soft_context.h"
#include "testing/faulty_network.h"
#include "verbena/async/progress_engine.h"
#include "verbena/device/device.h"
#include "verbena/testing/virtual_network.h"

namespace verbena::testing {

class HostState final : private soft::VirtualTime {
 public:
  static Result<std::unique_ptr<HostState>> create(NetworkState& network, std::uint8_t number);
  ~HostState() override { end(); }
  HostState(const HostState&) = delete;
  HostState& operator=(const HostState&) = delete;

  Device& device() { return *device_; }
  ProgressEngine& engine() { return *engine_; }
  const Gid& address() const { return address_; }
  bool is_of(const NetworkState& network) const { return &network_ == &network; }
  void hold(bool on);
  void resume();
  void crash();
  // What its programs left goes, and then nothing drives it any more.
  void end();

  // ---- For the network.
  bool takes_turns() const { return engine_.has_value() && !inbox_.held; }
  bool run_once() { return engine_->run_once(); }
  // When it will have something to do, unless something comes before.
  Instant ask_alarm();

  // ---- For tests of the library.
  soft::HostDevice& driver() { return *driver_; }

 private:
  class Port;
  HostState(NetworkState& network, const Gid& address);
  Result<void> open(std::uint8_t number);
  Instant now() const override;
  void wait(Instant until) override;

  NetworkState& network_;
  const Gid address_;
  Inbox& inbox_;
  bool crashed_ = false;
  Instant alarm_ = Instant::never();
  soft::HostDevice* driver_ = nullptr;  // the device's
  std::optional<Device> device_;
  std::optional<ProgressEngine> engine_;
};

class NetworkState {
 public:
  NetworkState(std::uint64_t seed, const NetworkFaults& faults, const NetworkOptions& options)
      : options_(options), seed_(seed), network_(seed, faults) {}
  ~NetworkState();
  NetworkState(const NetworkState&) = delete;
  NetworkState& operator=(const NetworkState&) = delete;

  Result<HostState*> add_host();
  FaultyNetwork& network() { return network_; }
  const NetworkOptions& options() const { return options_; }
  std::uint64_t seed() const { return seed_; }
  Instant now() const { return now_; }
  Result<void> run_until(const std::function<bool()>& done, Duration limit);
  Result<void> run_for(Duration duration);
  void after(Duration delay, std::function<void()> f);

  // ---- For hosts.
  // That one has nothing to do before then; the others go on.
  void wait(const HostState& idle, Instant until);
  // Hosts are asked when they will have something to do, and nothing goes on meanwhile.
  bool asks() const { return asks_; }
  const cm::ManagerConfig& connection_management() const { return management_; }

  // ---- For tests of the library.
  // Of hosts that are added from now on.
  void set_connection_management(const cm::ManagerConfig& config) { management_ = config; }

 private:
  static constexpr Instant kBegin{1'000'000'000};
  static constexpr std::size_t kMostHosts = 250;
  static constexpr std::uint32_t kMostTurns = 100'000;  // of all hosts, at one moment
  enum class Turn : std::uint8_t {
    Done,   // something happened, or time went on
    Late,   // the time has come that the turn was for, and nothing is left to do at it
    Over,   // likewise, or it never comes; and nothing will ever happen
    Stuck,  // time stands still
  };

  Turn turn(const HostState* idle, Instant until);
  bool run_all_but(const HostState* idle);
  Instant next_event(const HostState* idle);
  std::string where() const;
  Error failure(ErrorCode code, const std::string& why) const;

  const NetworkOptions options_;
  const std::uint64_t seed_;
  cm::ManagerConfig management_ = soft::connection_management();
  FaultyNetwork network_;
  Instant now_ = kBegin;
  Instant counted_at_ = now_;
  std::uint32_t turns_ = 0;  // at that moment
  bool asks_ = false;
  bool over_ = false;  // nothing that is asked for will happen
  std::multimap<Instant, std::function<void()>> events_;
  std::vector<std::unique_ptr<HostState>> hosts_;
};

}  // namespace verbena::testing
