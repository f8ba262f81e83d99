// SPDX-License-Identifier: Apache-2.0
// One open software device as the provider contract wants it: ids and plain calls, over a driver.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "provider/provider.h"
#include "soft/driver/udp/udp_device.h"

namespace verbena::soft {

// The part of DeviceInfo that is the same for every software device of that configuration.
DeviceInfo software_limits(const NicConfig& config);
// Handshakes between machines near each other: first repetition after about 100 ms, 16 sendings in all; whoever lets a
// request wait is told of the listener's patience by MRA.
cm::ManagerConfig connection_management();

class SoftContext final : public provider::Context {
 public:
  // `name` and `reason` say which device this is and why it was chosen.
  SoftContext(UdpDevice device, const std::string& name, std::string reason);
  ~SoftContext() override;

  const DeviceInfo& info() const override { return info_; }
  std::vector<std::string> explain() const override;
  std::vector<provider::NamedCounter> counters() const override;
  std::size_t objects() const override;
  std::string explain_path(Qpn qpn) const override { return device_->explain(qpn); }
  std::string hint_about(const Gid& peer) const override { return device_->hint_about(peer); }
  Result<void> close_capture() override { return device_->close_capture(); }
  std::uint64_t random() override { return device_->random(); }

  Result<provider::PdId> create_pd() override;
  Result<void> destroy_pd(provider::PdId pd) override;
  Result<provider::MemoryRegionInfo> register_memory(provider::PdId pd, void* base, std::uint64_t length,
                                                     std::uint64_t iova, Access access, int file) override;
  bool shares_memory() const override { return device_->shares_memory(); }
  Result<void> deregister_memory(LKey lkey) override;
  bool read_local(provider::PdId pd, const ScatterGather& from, std::byte* to) override;
  Result<provider::CqId> create_cq(const provider::CompletionQueueSpec& spec) override;
  Result<void> destroy_cq(provider::CqId cq) override;
  provider::CompletionQueueOps* cq(provider::CqId cq) override;
  Result<provider::SrqId> create_srq(const provider::SharedReceiveQueueSpec& spec) override;
  Result<void> modify_srq(provider::SrqId srq, std::uint32_t limit) override;
  Result<SharedReceiveQueueAttributes> query_srq(provider::SrqId srq) const override;
  Result<void> destroy_srq(provider::SrqId srq) override;
  provider::SharedReceiveQueueOps* srq(provider::SrqId srq) override;
  Result<CreatedQueuePair> create_qp(const provider::QueuePairSpec& spec) override;
  Result<void> modify_qp(Qpn qpn, const QueuePairAttributes& values, AttributeMask mask) override;
  Result<QueuePairAttributes> query_qp(Qpn qpn) const override;
  Result<void> destroy_qp(Qpn qpn) override;
  provider::QueuePairOps* qp(Qpn qpn) override;

  Result<provider::ListenerId> listen(std::uint16_t port, int backlog) override;
  Result<std::uint16_t> listener_port(provider::ListenerId listener) const override;
  Result<void> stop_listening(provider::ListenerId listener) override;
  Result<provider::ConnectionId> connect(const provider::ConnectionParameters& parameters,
                                         std::span<const std::byte> private_data) override;
  Result<void> accept(provider::ConnectionId connection, const provider::ConnectionParameters& parameters,
                      std::span<const std::byte> private_data) override;
  Result<void> reject(provider::ConnectionId connection, std::span<const std::byte> private_data,
                      provider::Refusal why) override;
  Result<void> confirm(provider::ConnectionId connection) override;
  Result<void> disconnect(provider::ConnectionId connection) override;
  Result<void> destroy_connection(provider::ConnectionId connection) override;
  Result<provider::ConnectionParameters> connection_parameters(
      provider::ConnectionId connection) const override;

  bool progress() override { return device_->progress(); }
  void gather_posts(bool on) override { device_->gather_kicks(on); }
  std::optional<provider::Event> poll_event() override;
  int event_fd() const override { return device_->event_fd(); }
  bool serves_itself() const override { return device_->serves_itself(); }
  Instant now() const override { return device_->now(); }
  void wait_event(Instant until) override { device_->wait_event(until); }
  void wake() override { device_->wake(); }

 private:
  class Cq;
  class Qp;
  class Srq;
  Psn chosen_psn(Psn wanted);
  // A packet of the peer's stands for the RTU that got lost (C-06).
  void establish_on(Qpn qpn);

  DeviceInfo info_;
  const std::string reason_;
  std::unique_ptr<HostDevice> device_;
  std::atomic<std::size_t> regions_{0};
  mutable std::mutex mutex_;  // guards what follows; never held while calling the device
  std::unordered_map<std::uint32_t, std::unique_ptr<Cq>> cqs_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Srq>> srqs_;
  std::unordered_map<std::uint32_t, std::unique_ptr<Qp>> qps_;
  std::unordered_map<std::uint32_t, provider::ConnectionId>
      accepted_;  // by local queue pair, until established
};

}  // namespace verbena::soft
