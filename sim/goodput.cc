// SPDX-License-Identifier: Apache-2.0
#include "sim/goodput.h"

#include <algorithm>

#include "sim/world.h"

namespace verbena::sim {

namespace {

constexpr std::uint32_t kSlots = 4;   // messages go to these in turn
constexpr std::uint32_t kShift = 64;  // each message starts so much later in the source

class Stream final : public Application {
 public:
  Stream(World& world, const GoodputOptions& options) : world_(world), options_(options) {
    world.attach(*this);
  }

  void start();
  bool is_done() const { return completed_ == options_.messages || failed_; }
  std::uint32_t completed() const { return completed_; }
  bool data_right();

  void on_sent(const Flight&) override {}
  void on_delivery(const Flight&) override {}
  void on_event(std::uint8_t, const core::Event&) override {}
  void on_tick(std::uint32_t) override {}
  bool next_unsent(const Flight&, Psn&) override { return false; }
  void on_polled(std::uint8_t node) override;

 private:
  void connect(std::uint8_t node);
  void post();

  World& world_;
  const GoodputOptions& options_;
  std::array<soft::Nic::CreatedQp, 2> pairs_{};
  std::array<core::CqId, 2> cqs_;
  Area source_, target_;
  std::uint32_t posted_ = 0, completed_ = 0;
  bool failed_ = false;
};

void Stream::start() {
  for (std::uint8_t n = 0; n < 2; ++n) {
    soft::Nic& nic = world_.node(n).nic;
    soft::Nic::QpInit init;
    init.pd = nic.create_pd().value();
    cqs_[n] = init.send_cq = init.receive_cq = nic.create_cq(256).value();
    pairs_[n] = nic.create_qp(init).value();
    Area& area = n == 0 ? source_ : target_;
    const std::uint64_t size = n == 0 ? options_.message_bytes + std::uint64_t{kShift} * options_.messages
                                      : std::uint64_t{options_.message_bytes} * kSlots;
    area = world_.node(n).memory.take(size);
    area.region = nic.register_memory(init.pd, area.base, area.size, 0x1000'0000,
                                      Access::LocalWrite | Access::RemoteWrite)
                      .value();
  }
  Pattern(options_.seed).fill(source_.bytes(0, source_.size));
  for (std::uint8_t n = 0; n < 2; ++n) connect(n);
  post();
}

void Stream::connect(std::uint8_t node) {
  using M = AttributeMask;
  soft::Nic& nic = world_.node(node).nic;
  const Qpn qpn = pairs_[node].qpn;
  QueuePairAttributes a;
  a.state = QueuePairState::Init;
  a.access = Access::All;
  nic.modify_qp(world_.now(), qpn, a, M::State | M::PkeyIndex | M::Port | M::Access).value();
  a.state = QueuePairState::Rtr;
  a.address.destination = World::address_of(world_.options(), node == 0 ? 1 : 0);
  a.path_mtu = options_.path_mtu;
  a.destination = pairs_[1u - node].qpn;
  a.max_dest_rd_atomic = a.max_rd_atomic = 1;
  a.min_rnr_timer = 1;
  nic.modify_qp(world_.now(), qpn, a,
                M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic |
                    M::MinRnrTimer)
      .value();
  a.state = QueuePairState::Rts;
  a.retry_count = a.rnr_retry = 7;
  a.timeout = 14;
  nic.modify_qp(world_.now(), qpn, a,
                M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout)
      .value();
}

void Stream::post() {
  while (posted_ < options_.messages && posted_ - completed_ < options_.outstanding) {
    const ScatterGather sge{source_.va(std::uint64_t{kShift} * posted_), options_.message_bytes,
                            source_.region.lkey};
    SendRequest request;
    request.id = posted_;
    request.opcode = SendOpcode::RdmaWrite;
    request.local = {&sge, 1};
    request.remote_address = target_.va(std::uint64_t{posted_ % kSlots} * options_.message_bytes);
    request.rkey = target_.region.rkey;
    if (!pairs_[0].queues->post_send({&request, 1})) {
      failed_ = true;
      return;
    }
    ++posted_;
  }
  world_.node(0).nic.ring_doorbell(*pairs_[0].queues);
  world_.wake(0);
}

void Stream::on_polled(std::uint8_t node) {
  if (node != 0) return;
  std::array<Completion, 16> batch;
  const std::size_t n = world_.node(0).nic.cq(cqs_[0])->poll(batch);
  for (std::size_t i = 0; i < n; ++i) {
    if (batch[i].status != CompletionStatus::Success || batch[i].id != completed_)
      failed_ = true;
    else
      ++completed_;
  }
  if (n != 0) post();
}

// Each slot holds the last message that went there.
bool Stream::data_right() {
  for (std::uint32_t m = options_.messages - std::min(options_.messages, kSlots); m < options_.messages;
       ++m) {
    const auto there =
        target_.bytes(std::uint64_t{m % kSlots} * options_.message_bytes, options_.message_bytes);
    if (!Pattern(options_.seed).equals(there, std::uint64_t{kShift} * m)) return false;
  }
  return true;
}

}  // namespace

GoodputResult goodput(const GoodputOptions& options) {
  Options o;
  o.seed = options.seed;
  o.transport = options.transport;
  o.network.loss = options.loss;
  o.network.delay = options.round_trip / 2;
  o.network.bits_per_second = options.bits_per_second;
  Verdict verdict;
  const TraceSink none;
  const std::uint64_t memory =
      std::uint64_t{options.message_bytes} * kSlots + std::uint64_t{kShift} * options.messages + 4096;
  World world(o, memory, verdict, none);
  Stream stream(world, options);
  stream.start();
  const Instant begin = world.now();
  const Instant limit = begin + Duration::seconds(600);
  while (!stream.is_done() && !verdict.failed() && world.now() < limit && world.step()) {
  }
  GoodputResult result;
  result.completed = stream.completed();
  result.data_right = stream.data_right();
  const double seconds = static_cast<double>((world.now() - begin).ns) * 1e-9;
  result.bits_per_second = static_cast<double>(result.completed) * options.message_bytes * 8 / seconds;
  result.packets = world.packets();
  result.retransmitted = world.node(0).nic.counters().retransmitted_pkts;
  result.failure = verdict.oracle();
  return result;
}

}  // namespace verbena::sim
