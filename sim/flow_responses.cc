// SPDX-License-Identifier: Apache-2.0
// The judge of responses: nothing is answered that did not arrive, and every answer is true.
#include "sim/flow.h"

namespace verbena::sim {

using WireOperation = wire::Operation;

// Request messages whose last packet lies before `end`.
std::uint64_t Flow::messages_within(std::uint64_t end) const {
  std::uint64_t low = messages_.begin(), high = messages_.end();
  while (low != high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (messages_[middle] <= end)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// `covered`: everything before it is executed. R-091.
void Flow::check_msn(const wire::Packet& packet, std::uint64_t covered) {
  const std::uint64_t most = messages_within(expected_);
  const auto msn = static_cast<std::int32_t>((packet.aeth.msn - static_cast<std::uint32_t>(most)) << 8) >> 8;
  if (msn > 0) {
    fail("MSN", "counts messages that did not arrive", find(covered));
    return;
  }
  if (covered < slots_.begin() || slots_.size() == 0) return;  // said of requests already forgotten
  const std::uint64_t least = messages_within(covered);
  if (most - least < static_cast<std::uint64_t>(-static_cast<std::int64_t>(msn)))
    fail("MSN", "counts fewer messages than it acknowledges", find(covered));
}

void Flow::check_read_response(const Operation& op, const wire::Packet& packet, std::uint64_t sequence) {
  const wire::OpcodeInfo& info = packet.info();
  if (!op.is_read()) {
    fail("response", "READ data answers another request", find(sequence));
    return;
  }
  const std::uint64_t at = (sequence - op.first) * mtu_;
  const std::uint64_t length = std::min<std::uint64_t>(mtu_, op.length - at);
  if (packet.payload.size() != length) fail("response", "READ data is of the wrong length", find(sequence));
  if (sequence + 1 == op.end() && !info.last)
    fail("response", "the end of READ data is not marked", find(sequence));
}

void Flow::check_acknowledge(const wire::Packet& packet, std::uint64_t sequence) {
  const std::uint64_t number = find(sequence), following = find(sequence + 1);
  // READs and atomics are answered by their own responses alone, which an acknowledgement must not overtake
  // a duplicate before one is acknowledged just up to there.
  // One request may ask for a part of a READ: its first number is inside the operation.
  const bool inside_fetch = number != kNone && operations_[number].is_fetch();
  if (inside_fetch && sequence >= una_) fail("ACK", "stands for a READ or atomic that is not answered", number);
  const bool short_of_fetch =
      inside_fetch || following == kNone ||
      (operations_[following].is_fetch() && operations_[following].first == sequence + 1);
  if (sequence + 1 < said_acked_ && !short_of_fetch) fail("ACK", "acknowledges less than before", number);
  said_acked_ = std::max(said_acked_, sequence + 1);
  check_msn(packet, sequence + 1);
}

// An RNR NAK needs a receive to be missing.
void Flow::check_rnr(std::uint64_t sequence) {
  const std::uint64_t number = find(sequence);
  if (number == kNone) {
    fail("RNR", "a receive is missed for what was acknowledged", number);
    return;
  }
  const Operation& op = operations_[number];
  const bool looks_for_receive = op.takes_receive() && sequence == (op.is_send() ? op.first : op.end() - 1);
  if (!looks_for_receive)
    fail("RNR", "a packet that takes no receive is refused for the lack of one", number);
  else if (op.receives_seen > op.consumer)
    fail("RNR", "a receive was there", number);
}

void Flow::check_nak(const wire::Packet& packet, std::uint64_t sequence) {
  const std::uint64_t number = find(sequence);
  if (sequence < said_acked_ && !target_gone_) {
    fail("NAK", "refuses what was acknowledged", number);
    return;
  }
  check_msn(packet, sequence);
  if (wire::aeth_kind(packet.aeth) == wire::AethKind::RnrNak) return check_rnr(sequence);
  if (packet.aeth.syndrome == wire::nak_syndrome(wire::NakCode::SequenceError)) {
    if (latest_delivered_ <= sequence) fail("NAK", "nothing behind the gap has arrived", number);
    if (!slots_.holds(sequence)) return;
    Slot& slot = slots_[sequence];
    if (slot.sequence_naks > slot.deliveries)
      fail("NAK", "a gap is complained about twice", number);
    if (slot.sequence_naks != 0xff) ++slot.sequence_naks;
    return;
  }
  if (++fatal_naks_ > 1) fail("NAK", "a second fatal NAK", number);
  const bool access = packet.aeth.syndrome == wire::nak_syndrome(wire::NakCode::RemoteAccess);
  if (target_gone_ && access && (number == kNone || operations_[number].place == Place::Target)) return;
  const Defect defect = number == kNone ? Defect::None : operations_[number].defect;
  if (!kills_responder(defect) || packet.aeth.syndrome != wire::nak_syndrome(nak_of(defect)))
    fail("NAK", "a request that is right is refused, or for the wrong reason", number);
}

void Flow::on_response_sent(const wire::Packet& packet) {
  const wire::OpcodeInfo& info = packet.info();
  const std::uint64_t sequence = near(packet.bth.psn, expected_);
  const bool nak =
      info.operation == WireOperation::Acknowledge && wire::aeth_kind(packet.aeth) != wire::AethKind::Ack;
  const bool gap = nak && packet.aeth.syndrome == wire::nak_syndrome(wire::NakCode::SequenceError);
  if (sequence >= expected_ + (gap ? 1 : 0)) {
    fail("response", "answers what never arrived", find(sequence));
    return;
  }
  if (fatal_naks_ != 0) fail("NAK", "goes on after a fatal NAK", find(sequence));
  if (nak) return check_nak(packet, sequence);
  if (info.operation == WireOperation::Acknowledge) return check_acknowledge(packet, sequence);
  if (info.has(wire::kAeth)) check_msn(packet, info.last ? sequence + 1 : sequence);
  if (info.operation == WireOperation::ReadResponse) {
    if (!info.first && run_next_ != sequence)
      fail("response", "READ data is out of order", find(sequence));
    run_next_ = info.last ? kNone : sequence + 1;
  }
  const std::uint64_t number = find(sequence);
  if (number == kNone) return;
  if (info.operation == WireOperation::ReadResponse)
    check_read_response(operations_[number], packet, sequence);
  else if (!operations_[number].is_atomic())
    fail("response", "an atomic's answer to another request", number);
}

// Everything before `end` has arrived at the peer; what needs an answer of its own is not done by that
//
void Flow::acknowledge(std::uint64_t end, Instant now) {
  acked_ = std::max(acked_, end);
  if (end <= una_) return;
  std::uint64_t reached = una_;
  for (std::uint64_t n = find(una_); reached < end && operations_.holds(n) && !operations_[n].is_fetch(); ++n)
    reached = std::min(end, operations_[n].end());
  if (reached == una_) return;
  una_ = reached;
  last_progress_ = now;
}

void Flow::answer(std::uint64_t sequence, bool ends_operation, Instant now) {
  acknowledge(sequence, now);
  acked_ = std::max(acked_, sequence + 1);
  if (una_ == sequence) {
    una_ = sequence + 1;
    last_progress_ = now;
  }
  const std::uint64_t number = find(sequence);
  if (number == kNone || !ends_operation || operations_[number].answered) return;
  operations_[number].answered = true;
  --fetches_out_;
}

void Flow::on_response_delivered(const wire::Packet& packet, Instant now) {
  const std::uint64_t sequence = near(packet.bth.psn, next_);
  if (sequence >= next_ || !slots_.holds(sequence)) return;
  const wire::OpcodeInfo& info = packet.info();
  if (info.operation == WireOperation::Acknowledge)
    return acknowledge(wire::aeth_kind(packet.aeth) == wire::AethKind::Ack ? sequence + 1 : sequence, now);
  const std::uint64_t number = find(sequence);
  answer(sequence, number != kNone && sequence + 1 == operations_[number].end(), now);
}

}  // namespace verbena::sim
