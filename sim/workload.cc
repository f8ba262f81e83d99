// SPDX-License-Identifier: Apache-2.0
#include "sim/workload.h"

#include <algorithm>

#include "soft/wire/text.h"

namespace verbena::sim {

namespace {

constexpr std::uint64_t kMaxMessageBytes = 32 * 1024;
constexpr std::uint64_t kMaxFaultyPackets = 20'000;
constexpr std::uint64_t kMaxPacketsAfterwards = 200'000;

struct Sizes {
  std::uint32_t message;
  std::uint64_t target, buffers, receives;
};

Sizes sizes_of(const Options& o) {
  Sizes sizes;
  std::uint64_t message =
      std::min<std::uint64_t>(std::uint64_t{o.work.max_packets} * o.queues.path_mtu, kMaxMessageBytes);
  for (const ScriptedRequest& r : o.work.script) message = std::max<std::uint64_t>(message, r.length);
  sizes.message = static_cast<std::uint32_t>(message);
  sizes.target = (message + 1024) & ~std::uint64_t{7};
  sizes.buffers = 4 * message + 2048;
  sizes.receives = 4 * message + 2048;
  return sizes;
}

}  // namespace

std::uint64_t Workload::memory_per_node(const Options& o) {
  const Sizes s = sizes_of(o);
  std::uint64_t pair = Memory::cost(s.buffers) + 2 * Memory::cost(s.target) + Memory::cost(s.receives);
  return o.work.pairs * pair + 3 * Memory::cost(4096) + 4096;
}

Workload::Workload(World& world)
    : world_(world),
      options_(world.options()),
      random_(options_.seed * 0x9e3779b97f4a7c15u + 7),
      hosts_(options_.nodes),
      listeners_(options_.nodes),
      pairs_(options_.work.pairs),
      known_(options_.nodes) {
  max_message_ = sizes_of(options_).message;
  operations_left_ = options_.work.script.empty() ? options_.work.operations : options_.work.script.size();
  // Faults last about as long as the work would take several times over.
  faults_end_ = world_.now() + options_.work.think * (std::int64_t{options_.work.operations} * 40) +
                Duration::milliseconds(200);
  if (options_.queues.through_cm) faults_end_ = faults_end_ + Duration::seconds(60);
  world_.attach(*this);
}

void Workload::fail(std::string_view oracle, std::string_view what) {
  world_.verdict().fail(oracle, std::string(what));
}

Duration Workload::random_up_to(Duration limit) {
  return limit.ns <= 0
             ? Duration{}
             : Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(limit.ns) + 1))};
}

void Workload::set_up_host(std::uint8_t node) {
  Host& host = hosts_[node];
  soft::Nic& device = world_.node(node).nic;
  host.domain = device.create_pd().value();
  host.foreign_domain = device.create_pd().value();
  const std::uint32_t ends = 2 * options_.work.pairs;
  const std::uint32_t room = 2 * ends * (options_.queues.send_depth + options_.queues.receive_depth) + 64;
  host.send_cq = device.create_cq(room).value();
  host.receive_cq = random_.chance(0.5) ? host.send_cq : device.create_cq(room).value();
  host.bells[0].cq = host.send_cq;
  host.bells[1].cq = host.receive_cq;
  Memory& memory = world_.node(node).memory;
  const auto add = [&](core::PdId pd, Access access) {
    Area area = memory.take(4096);
    Pattern(0x10cced).fill(area.bytes(0, area.size));
    area.region = device.register_memory(pd, area.base, area.size, 0x10000, access).value();
    return area;
  };
  host.locked = add(host.domain, Access::LocalWrite);
  host.foreign = add(host.foreign_domain, Access::All);
  Area cells = memory.take(SharedCells::kBytes);
  cells.region = device.register_memory(host.domain, cells.base, cells.size, 0x1000, Access::All).value();
  host.cells = std::make_unique<SharedCells>(cells);
  if (options_.queues.through_cm) listen(node);
}

void Workload::set_up_pair(std::uint32_t index) {
  const Sizes sizes = sizes_of(options_);
  Pair& pair = pairs_[index];
  pair.index = index;
  pair.sides[0].node = static_cast<std::uint8_t>(random_.below(options_.nodes));
  pair.sides[1].node = static_cast<std::uint8_t>(
      (pair.sides[0].node + 1 + random_.below(options_.nodes - 1)) % options_.nodes);
  if (!options_.work.script.empty()) pair.sides[0].node = 0, pair.sides[1].node = 1;
  for (std::size_t s = 0; s < 2; ++s) {
    wire::Line name("pair ");
    name.decimal(index).add(s == 0 ? " forth" : " back");
    pair.flows[s] = std::make_unique<Flow>(options_, world_.verdict(), name.take());
    Side& side = pair.sides[s];
    side.receive_area = world_.node(side.node).memory.take(sizes.receives);
  }
  for (std::size_t s = 0; s < 2; ++s) {
    Host& peer = hosts_[pair.sides[1 - s].node];
    Memory& peer_memory = world_.node(pair.sides[1 - s].node).memory;
    Flow::Places places;
    places.local = world_.node(pair.sides[s].node).memory.take(sizes.buffers);
    places.target = peer_memory.take(sizes.target);
    places.stable = peer_memory.take(sizes.target);
    Pattern(0x7a49e7 + index).fill(places.target.bytes(0, places.target.size));
    Pattern(0x57ab1e).fill(places.stable.bytes(0, places.stable.size));
    places.cells = peer.cells.get();
    places.lane = peer.lanes++;
    pair.flows[s]->set_places(places);
  }
}

void Workload::start() {
  for (std::uint8_t n = 0; n < options_.nodes; ++n) set_up_host(n);
  for (std::uint32_t i = 0; i < pairs_.size(); ++i) {
    set_up_pair(i);
    tick_at(world_.now() + random_up_to(Duration::microseconds(20)), pairs_[i], Tick::Open);
  }
}

void Workload::tick_at(Instant at, const Pair& pair, Tick kind) {
  world_.tick_at(at, pair.index * 4 + static_cast<std::uint32_t>(kind));
}

void Workload::on_tick(std::uint32_t argument) {
  Pair& pair = pairs_[argument / 4];
  heal_if_due();
  switch (static_cast<Tick>(argument % 4)) {
    case Tick::Work:
      return work(pair);
    case Tick::Finish:
      return close(pair);
    case Tick::Open:
      return open(pair);
  }
}

void Workload::heal_if_due() {
  if (healed_) {
    const bool endless = world_.packets() > healed_packets_ + kMaxPacketsAfterwards;
    if (endless || world_.now() > healed_at_ + options_.work.patience)
      fail("liveness", "without faults, not everything came to an end");
    return;
  }
  if (operations_left_ != 0 && world_.now() < faults_end_ && world_.packets() < kMaxFaultyPackets) return;
  // A scripted run keeps its faults: what it waits for must happen under them.
  healed_ = true;
  healed_at_ = world_.now();
  healed_packets_ = world_.packets();
  operations_left_ = 0;
  if (options_.work.script.empty()) world_.heal();
}

// One turn of both programs of a pair.
void Workload::work(Pair& pair) {
  if (pair.state != Pair::State::Up || pair.settled) return;
  std::uint32_t posted = 0;
  const WorkOptions& w = options_.work;
  for (std::size_t s = 0; s < 2; ++s) {
    Side& side = pair.sides[s];
    if (healed_ || !random_.chance(w.late_receive)) {
      // Only what the peer needs, once there is no new work.
      const std::uint64_t wanted =
          healed_ ? pair.flows[1 - s]->consumers() : side.receives.begin() + side.receive_capacity;
      if (wanted > side.receives.end())
        post_receives(pair, s,
                      static_cast<std::uint32_t>(
                          std::min<std::uint64_t>(wanted - side.receives.end(), 1 + random_.below(8))));
    }
    if (options_.work.drain != 0) drain_or_resume(pair, s);
    if (operations_left_ != 0 && side.may_send)
      posted += post_sends(pair, s, 1 + static_cast<std::uint32_t>(random_.below(kMaxBatch)));
  }
  if (!healed_ && w.misuse != 0 && random_.chance(w.misuse)) misuse(pair, random_.below(2));
  if (!healed_ && w.kill != 0 && random_.chance(w.kill)) kill(pair, random_.below(2));
  if (healed_) settle_if_idle(pair);
  if (pair.settled || pair.state != Pair::State::Up) return;
  pair.idle_ticks = posted != 0 ? 0 : std::min(pair.idle_ticks + 1, 200u);
  tick_at(world_.now() + Duration{1} + random_up_to(w.think * (2 + pair.idle_ticks)), pair, Tick::Work);
}

// In the end every direction is idle; a last signaled request shows that the unsignaled ones before it are
// done.
void Workload::settle_if_idle(Pair& pair) {
  bool idle = true;
  for (std::size_t s = 0; s < 2; ++s) {
    poll_completions(pair.sides[s].node);
    if (pair.state != Pair::State::Up) return;
    Flow& flow = *pair.flows[s];
    if (!flow.is_idle() && !flow.is_last_signaled() && pair.sides[s].may_send) post_sends(pair, s, 1);
    idle = idle && flow.is_idle() && !pair.sides[s].draining;
  }
  if (!idle) return;
  pair.settled = true;
  ++settled_;
}

const Workload::Known* Workload::known(std::uint8_t node, Qpn qpn) const {
  for (const Known& k : known_[node])
    if (k.qpn == qpn) return &k;
  return nullptr;
}

void Workload::on_sent(const Flight& flight) {
  NodeTally& tally = world_.node(flight.from).tally;
  const wire::Packet& packet = flight.packet;
  ++tally.sent;
  tally.sent_bytes += flight.bytes.size();
  if (packet.bth.destination == kGsiQpn) {
    ++tally.management_sent;
    return;
  }
  const Known* to = known(flight.to, packet.bth.destination);
  if (to == nullptr) return fail("wire", "a device sends to a queue pair that does not exist");
  Pair& pair = pairs_[to->pair];
  if (pair.sides[1u - to->side].node != flight.from)
    return fail("wire", "a device sends to a stranger's queue pair");
  if (packet.info().request) return pair.flows[1u - to->side]->on_request_sent(packet, world_.now());
  pair.flows[to->side]->on_response_sent(packet);
  if (packet.info().operation != wire::Operation::Acknowledge) return;
  if (wire::aeth_kind(packet.aeth) == wire::AethKind::RnrNak) ++tally.rnr_naks;
  if (packet.aeth.syndrome == wire::nak_syndrome(wire::NakCode::SequenceError)) ++tally.sequence_naks;
}

void Workload::on_delivery(const Flight& flight) {
  const Known* to = known(flight.to, flight.packet.bth.destination);
  if (to == nullptr) return;
  Pair& pair = pairs_[to->pair];
  const core::QueuePair* queues = pair.sides[to->side].queues;
  if (queues == nullptr || queues->state() == QueuePairState::Error ||
      queues->state() == QueuePairState::Reset)
    return;
  if (flight.packet.info().request)
    return pair.flows[1u - to->side]->on_request_delivered(flight.packet,
                                                           {pair.sides[to->side].receives.end()});
  pair.flows[to->side]->on_response_delivered(flight.packet, world_.now());
}

bool Workload::next_unsent(const Flight& flight, Psn& psn) {
  const Known* to = known(flight.to, flight.packet.bth.destination);
  if (to == nullptr) return false;
  psn = pairs_[to->pair].flows[to->side]->next_unsent();
  return true;
}

void Workload::on_polled(std::uint8_t node) {
  if (options_.queues.through_cm) {
    cm::Event event;
    while (!world_.verdict().failed() && world_.node(node).nic.cm().poll_event(event))
      on_cm_event(node, event);
  }
  if (!healed_ && options_.host.lazy_poll != 0 && random_.chance(options_.host.lazy_poll)) return;
  poll_completions(node);
}

void Workload::on_event(std::uint8_t node, const core::Event& event) {
  world_.mix(static_cast<std::uint64_t>(event.type) << 32 | event.qpn.value() | std::uint64_t{node} << 60);
  if (event.kind != core::Event::Kind::Async) return on_bell(node, event.cq);
  if (event.type == AsyncEventType::SqDrained) return on_drained(node, event.qpn);
  if (event.type == AsyncEventType::CommEstablished && options_.queues.through_cm)
    on_first_data(node, event.qpn);
  if (event.type == AsyncEventType::CqError) fail("CQ", "a completion queue that is large enough overran");
}

}  // namespace verbena::sim
