// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include "base/assert.h"

namespace verbena::sim {

Gid World::address_of(const Options& options, std::uint8_t node) {
  // Of loopback, where a window is wider; IPv6 is that of any network.
  if (!options.ipv6) return Gid::from_ipv4(127, 0, 0, static_cast<std::uint8_t>(node + 1));
  Gid gid;
  gid.bytes[0] = 0xfd;
  gid.bytes[15] = static_cast<std::uint8_t>(node + 1);
  return gid;
}

World::World(const Options& options, std::uint64_t memory_bytes, Verdict& verdict, const TraceSink& trace)
    : options_(options),
      verdict_(verdict),
      trace_(trace),
      network_(options.network),
      host_(options.host),
      random_(options.seed * 0x2545f4914f6cdd1du + 1),
      now_(options.start),
      train_({options.host.train_datagrams, 65000, options.host.gather_from_bytes}) {
  for (std::uint8_t i = 0; i < options.nodes; ++i) {
    soft::NicConfig config;
    config.address = address_of(options, i);
    config.path_mtu = 4096;
    config.transport = options.transport;
    config.source_ports.clear();
    for (std::uint16_t p = 0; p < options.host.source_ports; ++p)
      config.source_ports.push_back(static_cast<std::uint16_t>(0xC000 + 97 * p));
    if (options.queues.quick_cm) {
      config.cm.response_timeout_code = 14;
      config.cm.packet_lifetime_code = 10;
    }
    nodes_.push_back(std::make_unique<Node>(config, options.seed * 257 + i, memory_bytes));
  }
  links_.resize(nodes_.size() * nodes_.size());
  for (Link& l : links_) l = {now_, now_, now_, false};
  plan_disturbances();
}

// Pauses and cuts fall into the first stretch of the run, where the work is.
void World::plan_disturbances() {
  const Duration stretch = options_.work.think * static_cast<std::int64_t>(options_.work.operations);
  for (std::uint32_t i = 0; i < host_.pauses; ++i) {
    const Instant at = now_ + random_up_to(stretch);
    const auto node = static_cast<std::uint8_t>(random_.below(nodes_.size()));
    queue_.push(at, EventKind::Pause, node, 0);
    queue_.push(at + random_up_to(host_.pause_time), EventKind::Resume, node, 0);
  }
  for (std::uint32_t i = 0; i < network_.cuts; ++i) {
    const auto wire = static_cast<std::uint32_t>(random_.below(links_.size()));
    queue_.push(now_ + random_up_to(stretch), EventKind::Cut, 0, wire);
  }
}

Duration World::random_up_to(Duration limit) {
  return limit.ns <= 0
             ? Duration{}
             : Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(limit.ns) + 1))};
}

// Of those that are not paused.
std::optional<std::uint8_t> World::first_to_poll() const {
  Moment first;
  std::optional<std::uint8_t> index;
  for (std::uint8_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    if (node.paused || !(node.next_poll < first)) continue;
    first = node.next_poll;
    index = i;
  }
  return index;
}

bool World::step() {
  const std::optional<std::uint8_t> poller = first_to_poll();
  const Moment look = poller ? nodes_[*poller]->next_poll : Moment{}, next = queue_.next();
  const bool polls = poller && look < next;
  if (!polls && queue_.empty()) return false;
  const Instant at = polls ? look.at : next.at;
  VERBENA_ASSERT(at >= now_);
  now_ = at;
  polls ? poll(*poller) : happen(queue_.pop());
  return true;
}

void World::happen(const Event& event) {
  switch (event.kind) {
    case EventKind::Arrival:
      arrive(event.node, event.argument);
      break;
    case EventKind::Tick:
      application_->on_tick(event.argument);
      break;
    case EventKind::Pause:
      nodes_[event.node]->paused = true;
      break;
    case EventKind::Resume:
      nodes_[event.node]->paused = false;
      nodes_[event.node]->next_poll = {};
      schedule_poll(event.node, now_);
      break;
    case EventKind::Cut:
      links_[event.argument].cut_until = now_ + random_up_to(network_.cut_time);
      break;
  }
}

void World::heal() {
  const NetworkOptions calm;
  network_.loss = network_.burst_begin = network_.reorder = network_.duplicate = network_.replay = 0;
  network_.corrupt = network_.hostile = network_.ghost = 0;
  network_.jitter = {};
  network_.delay = std::min(network_.delay, Duration::microseconds(50));
  network_.bits_per_second = calm.bits_per_second;
  network_.queue_bytes = calm.queue_bytes;
  network_.cut_time = {};
  network_.lose.clear();
  host_.receive_buffer_bytes = 1u << 30;
  host_.lazy_poll = 0;
  for (Link& l : links_) {
    l.bad = false;
    l.cut_until = now_;
    l.free_at = std::min(l.free_at, now_);
  }
}

void World::schedule_poll(std::uint8_t index, Instant at) {
  Node& node = *nodes_[index];
  if (at < node.next_poll.at) node.next_poll = queue_.moment(at);
}

void World::arrive(std::uint8_t index, std::uint32_t flight) {
  Node& node = *nodes_[index];
  --in_flight_;
  const std::uint64_t bytes = pool_[flight].bytes.size();
  if (node.inbox_bytes + bytes > host_.receive_buffer_bytes) {
    record(pool_[flight], Instant::never(), Fate::QueueFull);
    return pool_.release(flight);
  }
  node.inbox_bytes += bytes;
  node.inbox.push_back(flight);
  schedule_poll(index, now_ + random_up_to(host_.max_poll_delay));
}

// Datagrams that lie one behind the other and could be of one train, as a kernel joins them. It shows no identification
// of those inside.
std::size_t World::joined(const Node& node, std::size_t first) {
  if (!host_.hide_identification && !options_.ipv6) return 1;
  const Flight& begin = pool_[node.inbox[first]];
  std::size_t end = first + 1;
  for (; end < node.inbox.size() && !begin.bytes.empty(); ++end) {
    const Flight& next = pool_[node.inbox[end]];
    if (next.path != begin.path || next.bytes.size() > begin.bytes.size() || next.bytes.empty()) break;
    if (next.bytes.size() < begin.bytes.size()) return end + 1 - first;  // the shorter is the last
  }
  return end - first;
}

void World::deliver(Node& node, std::size_t first, std::size_t count) {
  train_bytes_.clear();
  const Flight& begin = pool_[node.inbox[first]];
  for (std::size_t i = first; i < first + count; ++i) {
    const Flight& flight = pool_[node.inbox[i]];
    if (network_.ghost != 0 && flight.genuine && random_.chance(network_.ghost)) deliver_ghost(node, flight);
    if (flight.genuine) application_->on_delivery(flight);
    ++node.tally.received;
    train_bytes_.insert(train_bytes_.end(), flight.bytes.begin(), flight.bytes.end());
  }
  std::optional<std::uint16_t> identification;
  if (!host_.hide_identification) identification = begin.identification;
  node.nic.handle_datagrams(now_, begin.path, identification, train_bytes_, begin.bytes.size());
}

void World::poll(std::uint8_t index) {
  Node& node = *nodes_[index];
  node.next_poll = {};
  for (std::size_t i = 0; i < node.inbox.size() && !verdict_.failed();) {
    const std::size_t count = joined(node, i);
    deliver(node, i, count);
    for (const std::size_t end = i + count; i < end; ++i) pool_.release(node.inbox[i]);
  }
  node.inbox.clear();
  node.inbox_bytes = 0;
  if (node.nic.doorbell_rang()) node.nic.handle_doorbells(now_);
  if (node.nic.next_deadline() <= now_) node.nic.handle_timeout(now_);
  transmit_all(index);
  while (const auto event = node.nic.poll_event()) application_->on_event(index, *event);
  application_->on_polled(index);
  if (node.nic.doorbell_rang()) schedule_poll(index, now_ + Duration::nanoseconds(100));
  const Instant deadline = node.nic.next_deadline();
  if (deadline.is_never()) return;
  if (deadline > now_) {
    node.idle_polls = 0;
    return schedule_poll(index, deadline + random_up_to(host_.max_timer_delay));
  }
  if (++node.idle_polls > 100'000)
    verdict_.fail("progress", "a deadline stays in the past however often the driver looks");
  schedule_poll(index, now_ + Duration::nanoseconds(200));
}

void World::transmit_all(std::uint8_t index) {
  Node& node = *nodes_[index];
  const soft::Nic::Acks acks = host_.flush_acks ? soft::Nic::Acks::Flush : soft::Nic::Acks::Owed;
  for (;;) {
    train_.clear();
    if (!node.nic.poll_transmit(now_, acks, train_)) return;
    for (std::uint32_t i = 0; i < train_.datagrams(); ++i) {
      const std::uint32_t taken = pool_.take();
      Flight& flight = pool_[taken];
      train_.flatten(i, flight.bytes);
      flight.path = train_.path();
      flight.identification = static_cast<std::uint16_t>(i);
      flight.genuine = true;
      flight.from = index;
      flight.ordinal = packets_++;
      transmit(taken);
    }
    if (verdict_.failed()) return;
  }
}

}  // namespace verbena::sim
