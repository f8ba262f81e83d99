// SPDX-License-Identifier: Apache-2.0
// Objects and their data path. Connection management stands in soft_connections.cc.
#include "soft/provider/soft_context.h"

#include "soft/provider/soft_queues.h"

namespace verbena::soft {

using provider::CqId;
using provider::PdId;
using provider::SrqId;

namespace {

core::PdId to_core(PdId pd) { return {static_cast<std::uint32_t>(pd)}; }
core::CqId to_core(CqId cq) { return {static_cast<std::uint32_t>(cq)}; }
core::SrqId to_core(SrqId srq) { return {static_cast<std::uint32_t>(srq)}; }

template <class Spec>
core::Posters posters_of(const HostDevice& device, const Spec& spec) {
  const bool one = spec.single_threaded || device.is_single_threaded();
  return one ? core::Posters::OneThread : core::Posters::AnyThread;
}

}  // namespace

DeviceInfo software_limits(const NicConfig& config) {
  DeviceInfo info;
  info.provider = "soft";
  info.max_queue_pairs = config.max_queue_pairs;
  info.max_completion_queues = config.max_completion_queues;
  info.max_completion_entries = config.max_completion_entries;
  info.max_shared_receive_queues = config.max_shared_receive_queues;
  info.max_requests = config.max_requests;
  info.max_segments = core::kMaxSegments;
  info.max_inline_bytes = config.max_inline_bytes;
  info.max_memory_regions = config.max_memory_regions;
  info.max_rd_atomic = config.max_rd_atomic;
  info.order_in_write = true;  // core/dma.cc keeps it for packets and for shared memory
  return info;
}

cm::ManagerConfig connection_management() {
  cm::ManagerConfig config;
  config.response_timeout_code = 14;  // 64 ms
  config.packet_lifetime_code = 12;   // 16 ms
  config.mra_after = Duration::milliseconds(50);
  config.mra_service_code = 19;  // 2 s
  return config;
}

SoftContext::SoftContext(UdpDevice device, const std::string& name, std::string reason)
    : info_(software_limits(device.device->config())),
      reason_(std::move(reason)),
      device_(std::move(device.device)) {
  info_.name = name;
  info_.address = device.local.gid;
  info_.interface_name = device.local.interface_name;
  info_.interface_mtu = device.local.mtu;
  info_.active_mtu = device_->config().path_mtu;
  info_.port_active = true;
  info_.usable = true;
  info_.reason = reason_;
}

SoftContext::~SoftContext() = default;

std::vector<std::string> SoftContext::explain() const {
  std::vector<std::string> lines{"device " + info_.name + ": " + reason_};
  for (std::string& line : device_->explain()) lines.push_back(std::move(line));
  lines.push_back("order inside a WRITE: promised, by packets and through shared memory");
  if (std::string failure = device_->capture_failure(); !failure.empty())
    lines.push_back(std::move(failure));
  return lines;
}

std::vector<provider::NamedCounter> SoftContext::counters() const {
  std::vector<provider::NamedCounter> all;
  for (auto& counter : device_->counters()) all.push_back({counter.name, counter.value});
  return all;
}

std::size_t SoftContext::objects() const {
  const std::lock_guard guard(mutex_);
  return cqs_.size() + srqs_.size() + qps_.size() + regions_.load();
}

Result<PdId> SoftContext::create_pd() {
  auto pd = device_->with_nic([](Nic& nic, Instant) { return nic.create_pd(); });
  if (!pd) return pd.error();
  return PdId{pd->value};
}

Result<void> SoftContext::destroy_pd(PdId pd) {
  return device_->with_nic([&](Nic& nic, Instant) { return nic.destroy_pd(to_core(pd)); });
}

Result<provider::MemoryRegionInfo> SoftContext::register_memory(PdId pd, void* base, std::uint64_t length,
                                                                std::uint64_t iova, Access access, int file) {
  auto region = device_->with_nic(
      [&](Nic& nic, Instant) { return nic.register_memory(to_core(pd), base, length, iova, access, file); });
  if (!region) return region.error();
  ++regions_;
  return provider::MemoryRegionInfo{region->lkey, region->rkey, region->iova, region->length};
}

Result<void> SoftContext::deregister_memory(LKey lkey) {
  auto done = device_->with_nic([&](Nic& nic, Instant now) {
    nic.take_back_named(now, lkey);
    return nic.deregister_memory(lkey);
  });
  if (done) --regions_;
  return done;
}

bool SoftContext::read_local(PdId pd, const ScatterGather& from, std::byte* to) {
  return device_->with_nic([&](Nic& nic, Instant) { return nic.read_local(to_core(pd), from, to); });
}

Result<CqId> SoftContext::create_cq(const provider::CompletionQueueSpec& spec) {
  using Pollers = core::CompletionQueue::Pollers;
  core::CompletionQueue* queue = nullptr;
  auto id = device_->with_nic([&](Nic& nic, Instant) {
    const bool one = spec.single_threaded || device_->is_single_threaded();
    auto made = nic.create_cq(spec.capacity, one ? Pollers::OneThread : Pollers::AnyThread);
    if (made) queue = nic.cq(*made);
    return made;
  });
  if (!id) return id.error();
  const std::lock_guard guard(mutex_);
  cqs_[id->value] = std::make_unique<Cq>(*device_, *queue);
  return CqId{id->value};
}

Result<void> SoftContext::destroy_cq(CqId cq) {
  auto done = device_->with_nic([&](Nic& nic, Instant) { return nic.destroy_cq(to_core(cq)); });
  if (!done) return done;
  const std::lock_guard guard(mutex_);
  cqs_.erase(static_cast<std::uint32_t>(cq));
  return {};
}

provider::CompletionQueueOps* SoftContext::cq(CqId cq) {
  const std::lock_guard guard(mutex_);
  const auto found = cqs_.find(static_cast<std::uint32_t>(cq));
  return found == cqs_.end() ? nullptr : found->second.get();
}

Result<SrqId> SoftContext::create_srq(const provider::SharedReceiveQueueSpec& spec) {
  core::SharedReceiveQueue* queue = nullptr;
  auto id = device_->with_nic([&](Nic& nic, Instant) {
    auto made = nic.create_srq(to_core(spec.pd), spec.max_requests, spec.max_segments, posters_of(*device_, spec));
    if (made) queue = nic.srq(*made);
    return made;
  });
  if (!id) return id.error();
  const std::lock_guard guard(mutex_);
  srqs_[id->value] = std::make_unique<Srq>(*device_, *queue);
  return SrqId{id->value};
}

Result<void> SoftContext::modify_srq(SrqId srq, std::uint32_t limit) {
  return device_->with_nic([&](Nic& nic, Instant) { return nic.modify_srq(to_core(srq), limit); });
}

Result<SharedReceiveQueueAttributes> SoftContext::query_srq(SrqId srq) const {
  return device_->with_nic([&](Nic& nic, Instant) { return nic.query_srq(to_core(srq)); });
}

Result<void> SoftContext::destroy_srq(SrqId srq) {
  auto done = device_->with_nic([&](Nic& nic, Instant) { return nic.destroy_srq(to_core(srq)); });
  if (!done) return done;
  const std::lock_guard guard(mutex_);
  srqs_.erase(static_cast<std::uint32_t>(srq));
  return {};
}

provider::SharedReceiveQueueOps* SoftContext::srq(SrqId srq) {
  const std::lock_guard guard(mutex_);
  const auto found = srqs_.find(static_cast<std::uint32_t>(srq));
  return found == srqs_.end() ? nullptr : found->second.get();
}

Result<SoftContext::CreatedQueuePair> SoftContext::create_qp(const provider::QueuePairSpec& spec) {
  Nic::QpInit init;
  init.type = spec.type;
  init.pd = to_core(spec.pd);
  init.send_cq = to_core(spec.send_cq);
  init.receive_cq = to_core(spec.receive_cq);
  init.capabilities = spec.capabilities;
  init.signal_all = spec.signal_all;
  init.posters = posters_of(*device_, spec);
  if (spec.srq != SrqId{}) init.srq = to_core(spec.srq);
  auto made = device_->with_nic([&](Nic& nic, Instant) { return nic.create_qp(init); });
  if (!made) return made.error();
  const std::lock_guard guard(mutex_);
  qps_[made->qpn.value()] = std::make_unique<Qp>(*device_, *made->queues);
  return CreatedQueuePair{made->qpn, made->capabilities};
}

Result<void> SoftContext::modify_qp(Qpn qpn, const QueuePairAttributes& values, AttributeMask mask) {
  return device_->with_nic([&](Nic& nic, Instant now) { return nic.modify_qp(now, qpn, values, mask); });
}

Result<QueuePairAttributes> SoftContext::query_qp(Qpn qpn) const {
  return device_->with_nic([&](Nic& nic, Instant) { return nic.query_qp(qpn); });
}

Result<void> SoftContext::destroy_qp(Qpn qpn) {
  auto done = device_->with_nic([&](Nic& nic, Instant) { return nic.destroy_qp(qpn); });
  if (!done) return done;
  const std::lock_guard guard(mutex_);
  qps_.erase(qpn.value());
  accepted_.erase(qpn.value());
  return {};
}

provider::QueuePairOps* SoftContext::qp(Qpn qpn) {
  const std::lock_guard guard(mutex_);
  const auto found = qps_.find(qpn.value());
  return found == qps_.end() ? nullptr : found->second.get();
}

}  // namespace verbena::soft
