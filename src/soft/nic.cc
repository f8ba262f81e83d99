// SPDX-License-Identifier: Apache-2.0
// The device's commands: objects, their limits and references.
#include "soft/nic.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>

#include "base/assert.h"
#include "soft/core/dma.h"
#include "soft/nic_qp.h"

namespace verbena::soft {

namespace {

constexpr std::size_t kRetiredQpns = 4096;
constexpr unsigned kQpnBits = 24;

Error error(ErrorCode code, int number, std::string context) {
  return {code, std::move(context), number, ErrorDomain::Errno};
}
Error unknown(const char* what, std::uint32_t id) {
  return error(ErrorCode::NotFound, EINVAL, std::string("no ") + what + " has number " + std::to_string(id));
}

}  // namespace

Nic::Nic(const NicConfig& config, RandomSource& random)
    : config_(config), random_(random), memory_(random, config.max_memory_regions) {
  VERBENA_ASSERT(!config.source_ports.empty());
  management_psn_ = Psn{random.next_u32()};
  cm::ManagerConfig cm_config = config.cm;
  cm_config.local = config.address;
  cm_config.ids = config.ids;
  if (cm_config.ca_guid == 0) cm_config.ca_guid = random.next_u64() | 1;
  cm_config.max_path_mtu_bytes = config.path_mtu;
  cm_config.max_responder_resources = cm_config.max_initiator_depth = config.max_rd_atomic;
  cm_ = std::make_unique<cm::Manager>(cm_config, random);
}

Nic::~Nic() = default;

Result<core::PdId> Nic::create_pd() {
  if (pds_.size() >= config_.max_protection_domains)
    return error(ErrorCode::ResourceExhausted, ENOMEM,
                 "create protection domain: the device's limit is reached");
  const core::PdId id{next_id_++};
  pds_[id.value] = 0;
  return id;
}

Result<void> Nic::destroy_pd(core::PdId pd) {
  const auto found = pds_.find(pd.value);
  if (found == pds_.end()) return unknown("protection domain", pd.value);
  if (found->second != 0 || memory_.count_of(pd) != 0)
    return error(ErrorCode::Busy, EBUSY,
                 "destroy protection domain: queue pairs, shared receive queues or memory regions still belong to it");
  pds_.erase(found);
  return {};
}

Result<core::MemoryRegion> Nic::register_memory(core::PdId pd, void* base, std::uint64_t length,
                                                std::uint64_t iova, Access access, int file) {
  if (!pds_.contains(pd.value)) return unknown("protection domain", pd.value);
  return memory_.register_region(pd, base, length, iova, access, file);
}

Result<void> Nic::deregister_memory(LKey lkey) {
  if (const core::MemoryRegion* region = memory_.region(lkey)) take_back_of_all(region->rkey);
  return memory_.deregister(lkey);
}

bool Nic::read_local(core::PdId pd, const ScatterGather& from, std::byte* to) const {
  const std::byte* const bytes = memory_.find_local(from.lkey, pd, from.address, from.length, Access::None);
  return bytes != nullptr && core::dma_read(to, {bytes, from.length});
}

Result<core::CqId> Nic::create_cq(std::uint32_t capacity, core::CompletionQueue::Pollers pollers) {
  if (capacity == 0 || capacity > config_.max_completion_entries)
    return error(ErrorCode::InvalidArgument, EINVAL,
                 "create completion queue: " + std::to_string(capacity) +
                     " entries, this device takes 1 to " + std::to_string(config_.max_completion_entries));
  if (cqs_.size() >= config_.max_completion_queues)
    return error(ErrorCode::ResourceExhausted, ENOMEM,
                 "create completion queue: the device's limit is reached");
  const core::CqId id{next_id_++};
  cqs_[id.value] = std::make_unique<core::CompletionQueue>(id, capacity, pollers);
  return id;
}

Result<void> Nic::destroy_cq(core::CqId cq) {
  const auto found = cqs_.find(cq.value);
  if (found == cqs_.end()) return unknown("completion queue", cq.value);
  if (found->second->users != 0)
    return error(ErrorCode::Busy, EBUSY, "destroy completion queue: queue pairs still use it");
  cqs_.erase(found);
  return {};
}

core::CompletionQueue* Nic::cq(core::CqId id) {
  const auto found = cqs_.find(id.value);
  return found == cqs_.end() ? nullptr : found->second.get();
}

Result<core::SrqId> Nic::create_srq(core::PdId pd, std::uint32_t max_requests, std::uint32_t max_segments,
                                    core::Posters posters) {
  const auto owner = pds_.find(pd.value);
  if (owner == pds_.end()) return unknown("protection domain", pd.value);
  if (max_requests == 0 || max_requests > config_.max_requests || max_segments > core::kMaxSegments)
    return error(ErrorCode::InvalidArgument, EINVAL,
                 "create shared receive queue: " + std::to_string(max_requests) + " requests of " +
                     std::to_string(max_segments) + " segments, this device takes 1 to " +
                     std::to_string(config_.max_requests) + " of up to " + std::to_string(core::kMaxSegments));
  if (srqs_.size() >= config_.max_shared_receive_queues)
    return error(ErrorCode::ResourceExhausted, ENOMEM,
                 "create shared receive queue: the device's limit is reached");
  const core::SrqId id{next_id_++};
  srqs_[id.value] = std::make_unique<core::SharedReceiveQueue>(id, pd, max_requests, max_segments, events_, posters);
  ++owner->second;
  return id;
}

Result<void> Nic::modify_srq(core::SrqId id, std::uint32_t limit) {
  core::SharedReceiveQueue* const queue = srq(id);
  if (queue == nullptr) return unknown("shared receive queue", id.value);
  if (limit > queue->capacity())
    return error(ErrorCode::InvalidArgument, EINVAL,
                 "modify shared receive queue: a limit of " + std::to_string(limit) + ", it holds only " +
                     std::to_string(queue->capacity()));
  queue->arm(limit);
  return {};
}

Result<SharedReceiveQueueAttributes> Nic::query_srq(core::SrqId id) const {
  const core::SharedReceiveQueue* const queue = srq(id);
  if (queue == nullptr) return unknown("shared receive queue", id.value);
  return SharedReceiveQueueAttributes{queue->capacity(), queue->max_sges(), queue->limit()};
}

Result<void> Nic::destroy_srq(core::SrqId id) {
  const core::SharedReceiveQueue* const queue = srq(id);
  if (queue == nullptr) return unknown("shared receive queue", id.value);
  if (queue->users != 0)
    return error(ErrorCode::Busy, EBUSY, "destroy shared receive queue: queue pairs still use it");
  --pds_.at(queue->pd().value);
  srqs_.erase(id.value);
  return {};
}

core::SharedReceiveQueue* Nic::srq(core::SrqId id) const {
  const auto found = srqs_.find(id.value);
  return found == srqs_.end() ? nullptr : found->second.get();
}

Result<Qpn> Nic::fresh_qpn(std::optional<Qpn> wanted) {
  const auto usable = [this](Qpn q) {
    return q.value() > kGsiQpn.value() && q != kMulticastQpn && config_.ids.holds(q.value(), kQpnBits) &&
           !qp_by_number_.contains(q.value());
  };
  if (wanted) {
    if (usable(*wanted)) return *wanted;
    return error(ErrorCode::AlreadyExists, EINVAL, "create queue pair: number is taken or reserved");
  }
  for (;;) {
    const Qpn qpn{config_.ids.place(random_.next_u32(), kQpnBits)};
    if (usable(qpn) && !retired_qpn_set_.contains(qpn.value())) return qpn;
  }
}

Result<void> Nic::check(const QpInit& init) const {
  if (init.type != QueuePairType::ReliableConnected)
    return error(ErrorCode::NotSupported, EOPNOTSUPP,
                 "create queue pair: this device has reliable connected queue pairs only");
  if (!pds_.contains(init.pd.value)) return unknown("protection domain", init.pd.value);
  for (const core::CqId cq : {init.send_cq, init.receive_cq})
    if (!cqs_.contains(cq.value)) return unknown("completion queue", cq.value);
  if (cqs_.at(init.send_cq.value)->is_broken() || cqs_.at(init.receive_cq.value)->is_broken())
    return error(ErrorCode::WrongState, EINVAL,
                 "create queue pair: its completion queue overran, and takes nothing any more");
  if (init.srq && srq(*init.srq) == nullptr) return unknown("shared receive queue", init.srq->value);
  const QueuePairCapabilities& c = init.capabilities;
  if (c.max_send_requests > config_.max_requests || c.max_receive_requests > config_.max_requests ||
      c.max_send_segments > core::kMaxSegments || c.max_receive_segments > core::kMaxSegments ||
      c.max_inline_bytes > config_.max_inline_bytes)
    return error(ErrorCode::InvalidArgument, EINVAL,
                 "create queue pair: this device takes up to " + std::to_string(config_.max_requests) +
                     " requests per queue, " + std::to_string(core::kMaxSegments) +
                     " segments per request and " + std::to_string(config_.max_inline_bytes) +
                     " inline bytes");
  if (qps_.size() >= config_.max_queue_pairs)
    return error(ErrorCode::ResourceExhausted, ENOMEM, "create queue pair: the device's limit is reached");
  return {};
}

Result<Nic::CreatedQp> Nic::create_qp(const QpInit& init) {
  if (auto checked = check(init); !checked) return checked.error();
  const Result<Qpn> qpn = fresh_qpn(init.qpn);
  if (!qpn) return qpn.error();
  core::QueuePairInit core_init;
  core_init.type = init.type;
  core_init.pd = init.pd;
  core_init.send_cq = cqs_.at(init.send_cq.value).get();
  core_init.receive_cq = cqs_.at(init.receive_cq.value).get();
  core_init.signal_all = init.signal_all;
  core_init.posters = init.posters;
  core_init.capabilities = init.capabilities;
  core_init.capabilities.max_send_requests = std::bit_ceil(std::max(init.capabilities.max_send_requests, 1u));
  core_init.capabilities.max_receive_requests =
      std::bit_ceil(std::max(init.capabilities.max_receive_requests, 1u));
  if (init.srq) {
    core_init.srq = srq(*init.srq);
    core_init.capabilities.max_receive_requests = core_init.capabilities.max_receive_segments = 0;
  }
  auto qp = std::make_unique<Qp>(*qpn, core_init, events_, config_, memory_, counters_, random_);
  CreatedQp created{*qpn, qp.get(), core_init.capabilities};
  ++pds_.at(init.pd.value);
  qp_by_number_[qpn->value()] = qp.get();
  qps_[qpn->value()] = std::move(qp);
  return created;
}

Nic::Qp* Nic::find(Qpn qpn) const {
  const auto found = qp_by_number_.find(qpn.value());
  return found == qp_by_number_.end() ? nullptr : found->second;
}

core::QueuePair* Nic::qp(Qpn qpn) { return find(qpn); }

void Nic::await_first_request(Qpn qpn) {
  Qp* qp = find(qpn);
  if (qp == nullptr) return;
  qp->transport.await_first_request();
  if (qp->local != nullptr) qp->local->transport.await_first_request();
}

wire::Path Nic::path_of(const Qp& qp, std::uint32_t* source_index) const {
  const QueuePairAttributes& a = qp.attributes();
  // Symmetric in the two numbers, spread over the ports (format reference 1).
  std::uint64_t v = std::uint64_t{qp.qpn().value()} * a.destination.value();
  if (a.address.flow_label != 0) v = (a.address.flow_label & 0x3fff) ^ (a.address.flow_label >> 14 & 0x3f);
  v ^= v >> 20;
  v ^= v >> 40;
  *source_index = static_cast<std::uint32_t>((v & 0xfffff) % config_.source_ports.size());
  wire::Path path;
  path.source = config_.address;
  path.destination = a.address.destination;
  path.source_port = config_.source_ports[*source_index];
  path.traffic_class = a.address.traffic_class;
  // Address vectors of verbs programs are often zeroed; 0 would reach nobody.
  if (a.address.hop_limit != 0) path.hop_limit = a.address.hop_limit;
  path.flow_label = a.address.flow_label & 0xfffff;
  return path;
}

Result<void> Nic::modify_qp(Instant now, Qpn qpn, const QueuePairAttributes& values, AttributeMask mask) {
  Qp* qp = find(qpn);
  if (qp == nullptr) return unknown("queue pair", qpn.value());
  if (any(mask & AttributeMask::Address) && values.address.destination.is_ipv4() != config_.address.is_ipv4())
    return error(ErrorCode::InvalidArgument, EINVAL,
                 "modify queue pair: " + values.address.destination.to_string() + " and this device's " +
                     config_.address.to_string() + " are not of one address family");
  const QueuePairState before = qp->state();
  if (any(mask & AttributeMask::State) &&
      (values.state == QueuePairState::Error || values.state == QueuePairState::Reset))
    say_owed(now, *qp);
  const core::AttributeLimits limits{config_.path_mtu, config_.max_rd_atomic, config_.max_rd_atomic};
  if (auto modified = qp->modify(values, mask, limits); !modified)
    return error(modified.error().code(), EINVAL, modified.error().context());
  std::uint32_t source_index = 0;
  const wire::Path path = path_of(*qp, &source_index);
  const bool by_rings = qp->path == verbena::local::Path::Local && qp->state() != QueuePairState::Reset;
  if (!by_rings) qp->transport.handle_state(before, path, source_index);
  if (qp->state() == before) {
    if (!by_rings) qp->transport.follow_attributes(now, mask);
    if (qp->local != nullptr) qp->local->transport.follow_attributes(now, mask);
  }
  if (any(mask & (AttributeMask::Access | AttributeMask::MaxDestRdAtomic))) take_back_all(*qp);
  auto followed = paths_ != nullptr ? follow_state(now, *qp, before) : Result<void>();
  schedule(now, *qp);
  settle_broken_queues(now);
  return followed;
}

Result<QueuePairAttributes> Nic::query_qp(Qpn qpn) const {
  const Qp* qp = find(qpn);
  if (qp == nullptr) return unknown("queue pair", qpn.value());
  QueuePairAttributes attributes = qp->attributes();
  attributes.state = attributes.current_state = qp->state();
  return attributes;
}

Result<void> Nic::destroy_qp(Qpn qpn) {
  Qp* qp = find(qpn);
  if (qp == nullptr) return unknown("queue pair", qpn.value());
  forget_doorbell(*qp);
  say_owed(Instant{0}, *qp);
  leave_path(*qp, true);
  unlink(*qp);
  // What it left in the completion queues stays readable, as with any device.
  --qp->init().send_cq->users;
  --qp->init().receive_cq->users;
  if (qp->init().srq != nullptr) --qp->init().srq->users;
  --pds_.at(qp->init().pd.value);
  qp_by_number_.erase(qpn.value());
  qps_.erase(qpn.value());
  retired_qpns_.push_back(qpn);
  retired_qpn_set_.insert(qpn.value());
  if (retired_qpns_.size() > kRetiredQpns) {
    retired_qpn_set_.erase(retired_qpns_.front().value());
    retired_qpns_.pop_front();
  }
  return {};
}

void Nic::check_invariants() const {
  std::size_t ready = 0;
  for (const auto& [number, qp] : qps_) {
    VERBENA_ASSERT(qp->qpn().value() == number);
    if (qp->local == nullptr)
      qp->transport.check_invariants();
    else
      qp->local->transport.check_invariants();
    VERBENA_ASSERT((qp->path == verbena::local::Path::Roce) == (qp->local == nullptr));
    ready += qp->hooks[kReady].linked ? 1u : 0u;
  }
  std::size_t linked = 0;
  for (const Qp* qp = lists_[kReady].first; qp != nullptr; qp = qp->hooks[kReady].next) ++linked;
  VERBENA_ASSERT(ready == linked);
}

}  // namespace verbena::soft
