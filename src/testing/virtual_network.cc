// SPDX-License-Identifier: Apache-2.0
#include "verbena/testing/virtual_network.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/assert.h"
#include "testing/network_state.h"

namespace verbena::testing {

Device& VirtualHost::device() const { return state_->device(); }
ProgressEngine& VirtualHost::engine() const { return state_->engine(); }
Gid VirtualHost::address() const { return state_->address(); }
void VirtualHost::pause() { state_->hold(true); }
void VirtualHost::resume() { state_->resume(); }
void VirtualHost::crash() { state_->crash(); }

VirtualNetwork::VirtualNetwork(std::unique_ptr<NetworkState> state) : state_(std::move(state)) {}
VirtualNetwork::VirtualNetwork(VirtualNetwork&& other) noexcept = default;
VirtualNetwork& VirtualNetwork::operator=(VirtualNetwork&& other) noexcept = default;
VirtualNetwork::~VirtualNetwork() = default;

Result<VirtualNetwork> VirtualNetwork::create(std::uint64_t seed, const NetworkFaults& faults,
                                              const NetworkOptions& options) {
  if (auto ok = FaultyNetwork::check(faults); !ok) return ok.error();
  constexpr std::array<std::uint32_t, 5> kPathMtus{256, 512, 1024, 2048, 4096};
  if (std::find(kPathMtus.begin(), kPathMtus.end(), options.path_mtu) == kPathMtus.end())
    return Error(ErrorCode::InvalidArgument, "create a virtual network: the path MTU is " +
                                                 std::to_string(options.path_mtu) +
                                                 ", and may be 256, 512, 1024, 2048 or 4096");
  return VirtualNetwork{std::make_unique<NetworkState>(seed, faults, options)};
}

Result<VirtualHost> VirtualNetwork::add_host() {
  auto host = state_->add_host();
  if (!host) return host.error();
  return VirtualHost(**host);
}

Instant VirtualNetwork::now() const { return state_->now(); }
std::uint64_t VirtualNetwork::seed() const { return state_->seed(); }

Result<void> VirtualNetwork::run_until(const std::function<bool()>& done, Duration limit) {
  return state_->run_until(done, limit);
}

Result<void> VirtualNetwork::run_for(Duration duration) { return state_->run_for(duration); }

Result<void> VirtualNetwork::change_faults(const NetworkFaults& faults) {
  if (auto ok = FaultyNetwork::check(faults); !ok) return ok;
  state_->network().change(faults);
  return {};
}

void VirtualNetwork::after(Duration delay, std::function<void()> f) { state_->after(delay, std::move(f)); }

void VirtualNetwork::require_own(VirtualHost host) const {
  VERBENA_REQUIRE(host.state_->is_of(*state_), "hands a VirtualNetwork a host of another VirtualNetwork");
}

void VirtualNetwork::cut(VirtualHost from, VirtualHost to) {
  require_own(from);
  require_own(to);
  state_->network().cut(from.address(), to.address());
}

void VirtualNetwork::mend() { state_->network().mend(); }
NetworkCounters VirtualNetwork::counters() const { return state_->network().counters(); }
std::uint64_t VirtualNetwork::hash() const { return state_->network().hash(); }

}  // namespace verbena::testing
