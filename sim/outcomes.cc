// SPDX-License-Identifier: Apache-2.0
// What the programs learn from their completion queues, and the last look at everything.
#include <algorithm>
#include <array>

#include "sim/workload.h"

namespace verbena::sim {

void Workload::drain_events(std::uint8_t node) {
  while (const auto event = world_.node(node).nic.poll_event()) on_event(node, *event);
}

void Workload::poll_completions(std::uint8_t node) {
  soft::Nic& device = world_.node(node).nic;
  Host& host = hosts_[node];
  drain_events(node);
  for (Bell& bell : host.bells) {
    core::CompletionQueue* cq = device.cq(bell.cq);
    if (!cq->looks_empty()) take_completions(node, *cq);
    if (options_.host.notify) check_bell(bell, *cq);
    if (host.receive_cq == host.send_cq) return;
  }
}

void Workload::take_completions(std::uint8_t node, core::CompletionQueue& cq) {
  std::array<Completion, 16> batch;
  while (!cq.looks_empty()) {
    const std::size_t n = cq.poll(batch);
    for (std::size_t i = 0; i < n && !world_.verdict().failed(); ++i) on_completion(node, batch[i]);
  }
}

// The queue is empty: what was due has rung, what was not has not. Then it may be armed again.
void Workload::check_bell(Bell& bell, core::CompletionQueue& cq) {
  if (world_.verdict().failed()) return;
  if (bell.due != bell.rang)
    return fail("event", bell.due ? "a completion raised no event" : "an event without cause");
  if (bell.rang) bell = {bell.cq, Bell::Armed::No, false, false};
  if (bell.armed == Bell::Armed::Next || !random_.chance(0.5)) return;
  const bool solicited_only = random_.chance(0.5);
  cq.arm(solicited_only);
  bell.armed = solicited_only ? Bell::Armed::Solicited : Bell::Armed::Next;
}

void Workload::on_bell(std::uint8_t node, core::CqId cq) {
  for (Bell& bell : hosts_[node].bells) {
    if (bell.cq != cq) continue;
    if (bell.armed == Bell::Armed::No || bell.rang)
      return fail("event", "an event that nobody asked for, or a second");
    bell.rang = true;
    ++coverage_.bells;
    return;
  }
}

// `solicited`: also wakes who waits for solicited completions only.
void Workload::note_completion(std::uint8_t node, bool receive, bool solicited) {
  Host& host = hosts_[node];
  Bell& bell = host.bells[receive && host.receive_cq != host.send_cq ? 1 : 0];
  if (bell.armed == Bell::Armed::Next || (bell.armed == Bell::Armed::Solicited && solicited)) bell.due = true;
}

void Workload::on_completion(std::uint8_t node, const Completion& c) {
  ++completions_;
  ++coverage_.statuses[static_cast<std::size_t>(c.status)];
  world_.mix(c.id ^ static_cast<std::uint64_t>(c.status) << 56 ^ std::uint64_t{c.byte_count} << 20);
  const Known* at = known(node, c.qpn);
  if (at == nullptr) return fail("completion", "a completion of a queue pair that is gone");
  Pair& pair = pairs_[at->pair];
  const std::size_t s = at->side;
  const std::uint64_t number = c.id & 0xffffffff;
  const bool receive = (c.id >> 48 & 1) != 0;
  if (c.id != id_of(pair, s, receive, number)) return fail("completion", "an id that was never posted");
  if (pair.sides[s].abandoned) return fail("completion", "a completion of a queue pair that was reset");
  const Operation* message = receive ? pair.flows[1 - s]->consumer(number) : nullptr;
  note_completion(node, receive,
                  c.status != CompletionStatus::Success ||
                      (message != nullptr && has_flag(message->flags, SendFlags::Solicited)));
  if (receive)
    on_receive_completion(pair, s, c, number);
  else
    pair.flows[s]->on_send_completion(c, pair.is_broken(s), world_.now());
  if (c.status == CompletionStatus::Success) return;
  const Duration period = Duration{std::int64_t{4096} << options_.queues.timeout};
  begin_closing(pair, random_.chance(0.3) ? period * 3 : Duration::microseconds(300));
}

void Workload::on_receive_completion(Pair& pair, std::size_t s, const Completion& c, std::uint64_t number) {
  Side& side = pair.sides[s];
  if (number != side.receives.begin() || !side.receives.holds(number))
    return fail("exactly once", "a receive completes twice, out of order, or was never posted");
  const Operation* op = pair.flows[1 - s]->consumer(number);
  const Defect defect = op == nullptr ? Defect::None : op->defect;
  switch (c.status) {
    case CompletionStatus::Success:
      take_message(pair, s, c, number);
      break;
    case CompletionStatus::Flushed:
      if (!pair.is_broken(s)) fail("error", "a receive is flushed without cause");
      break;
    case CompletionStatus::LocalLengthError:
      if (defect != Defect::TooLong) fail("error", "a message that fits is too long");
      break;
    case CompletionStatus::LocalProtectionError:
      if (defect != Defect::BadReceive) fail("error", "a receive whose memory is right is refused it");
      break;
    default:
      fail("error", "a receive ends with " + std::string(to_string(c.status)));
      break;
  }
  side.receive_buffers.release(side.receives[number].buffers_end);
  side.receives.pop();
}

void Workload::take_message(Pair& pair, std::size_t s, const Completion& c, std::uint64_t number) {
  Side& side = pair.sides[s];
  const PostedReceive& receive = side.receives[number];
  if (c.opcode == CompletionOpcode::Receive && c.byte_count > receive.capacity)
    return fail("receive", "a message is longer than its receive");
  std::array<std::span<const std::byte>, kMaxModelSegments> parts;
  std::uint64_t rest = c.opcode == CompletionOpcode::Receive ? c.byte_count : 0;
  const Pattern before(receive.serial);
  for (std::uint32_t i = 0; i < receive.segment_count; ++i) {
    const Segment& segment = receive.segments[i];
    parts[i] = side.receive_area.bytes(segment.offset, segment.length);
    const std::uint64_t used = std::min<std::uint64_t>(rest, segment.length);
    rest -= used;
    if (!before.equals(parts[i].subspan(used), i * 8 + used))
      fail("memory", "bytes behind a message have changed");
    if (!side.receive_buffers.guard_intact(segment.offset, segment.length))
      fail("memory", "bytes behind a receive have changed");
  }
  pair.flows[1 - s]->on_received(number, c, {parts.data(), receive.segment_count});
}

// The device's counters agree with what was seen on the wire.
void Workload::check_counters() {
  for (std::uint8_t n = 0; n < options_.nodes; ++n) {
    const soft::Counters& c = world_.node(n).nic.counters();
    const NodeTally& seen = world_.node(n).tally;
    std::uint64_t dropped = 0;
    for (const std::uint64_t d : c.dropped) dropped += d;
    if (c.sent_pkts != seen.sent || c.sent_bytes != seen.sent_bytes)
      fail("counters", "sent_pkts or sent_bytes is not what was sent");
    if (c.rcvd_pkts + dropped != seen.received)
      fail("counters", "received and dropped do not add up to what arrived");
    if (c.sent_cm_pkts != seen.management_sent) fail("counters", "sent_cm_pkts is not what was sent");
    if (c.send_rnr_err < seen.rnr_naks) fail("counters", "send_rnr_err is less than the RNR NAKs sent");
    if (c.send_seq_err < seen.sequence_naks)
      fail("counters", "send_seq_err is less than the sequence NAKs sent");
  }
  std::uint64_t retransmitted = 0, counted = 0;
  for (const Pair& pair : pairs_)
    for (const auto& flow : pair.flows) retransmitted += flow->retransmitted();
  for (std::uint8_t n = 0; n < options_.nodes; ++n)
    counted += world_.node(n).nic.counters().retransmitted_pkts;
  if (retransmitted != counted) fail("counters", "retransmitted_pkts is not what was sent again");
}

// Nothing refers to anything any more.
void Workload::destroy_everything() {
  for (std::uint8_t n = 0; n < options_.nodes; ++n) {
    soft::Nic& device = world_.node(n).nic;
    Host& host = hosts_[n];
    const auto gone = [&](const Result<void>& result) {
      if (!result) fail("leak", result.error().to_string());
    };
    for (const LKey key : {host.locked.region.lkey, host.foreign.region.lkey, host.cells->area().region.lkey})
      gone(device.deregister_memory(key));
    gone(device.destroy_cq(host.send_cq));
    if (host.receive_cq != host.send_cq) gone(device.destroy_cq(host.receive_cq));
    gone(device.destroy_pd(host.domain));
    gone(device.destroy_pd(host.foreign_domain));
    device.check_invariants();
    if (options_.queues.through_cm) destroy_cm(n);
    if (device.doorbell_rang()) device.handle_doorbells(world_.now());
    for (int i = 0; i < 10'000 && !device.next_deadline().is_never(); ++i)
      device.handle_timeout(device.next_deadline());
    if (!device.next_deadline().is_never()) fail("leak", "a device without objects waits for something");
  }
}

void Workload::finish() {
  for (Pair& pair : pairs_) {
    if (pair.state != Pair::State::Up || world_.verdict().failed()) continue;
    pair.state = Pair::State::Closing;
    close(pair);
  }
  if (world_.verdict().failed()) return;
  for (const Pair& pair : pairs_)
    for (const auto& flow : pair.flows) flow->check_memory();
  for (std::uint8_t n = 0; n < options_.nodes; ++n) {
    hosts_[n].cells->check(world_.verdict());
    const Pattern locked(0x10cced);
    for (const Area* area : {&hosts_[n].locked, &hosts_[n].foreign})
      if (!locked.equals(area->bytes(0, area->size)))
        fail("memory", "memory without remote rights has changed");
    if (!world_.node(n).memory.red_zones_intact()) fail("memory", "a byte outside every region has changed");
  }
  check_counters();
  destroy_everything();
}

}  // namespace verbena::sim
