// SPDX-License-Identifier: Apache-2.0
// The judge of request packets: each must be the packet of a posted request that belongs at its sequence
// number, and the order in which they leave must be go-back-N.
#include "sim/flow.h"

namespace verbena::sim {

std::uint64_t Flow::near(Psn psn, std::uint64_t to) {
  const std::int64_t distance = Psn::distance(psn, Psn{static_cast<std::uint32_t>(to)});
  return to + static_cast<std::uint64_t>(distance);
}

// The request that the sequence number belongs to, or kNone.
std::uint64_t Flow::find(std::uint64_t sequence) {
  if (!slots_.holds(sequence)) return kNone;
  const auto in = [&](std::uint64_t n) {
    return operations_.holds(n) && operations_[n].first <= sequence && sequence < operations_[n].end();
  };
  if (in(hint_)) return hint_;
  if (in(hint_ + 1)) return ++hint_;
  std::uint64_t low = operations_.begin(), high = operations_.end();
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (operations_[middle].first <= sequence ? low : high) = middle;
  }
  return hint_ = low;
}

namespace {

wire::Opcode opcode_of(const Operation& op, bool first, bool last) {
  switch (op.opcode) {
    case SendOpcode::RdmaRead:
      return wire::Opcode::RcReadRequest;
    case SendOpcode::CompareAndSwap:
      return wire::Opcode::RcCompareSwap;
    case SendOpcode::FetchAndAdd:
      return wire::Opcode::RcFetchAdd;
    default:
      break;
  }
  // First 0, Middle 1, Last 2, Last with immediate 3, Only 4, Only with immediate 5; WRITE six further.
  const unsigned place = first ? (last ? 4u : 0u) : (last ? 2u : 1u);
  return static_cast<wire::Opcode>(place + (last && op.has_immediate() ? 1 : 0) + (op.is_write() ? 6 : 0));
}

}  // namespace

bool Flow::read_request_matches(const Operation& op, const wire::Packet& packet, std::uint64_t sequence,
                                std::uint32_t* packets) {
  const std::uint64_t skipped = (sequence - op.first) * mtu_;
  const std::uint64_t rest = op.length - skipped;
  const wire::Reth& reth = packet.reth;
  *packets = reth.length == 0 ? 1 : (reth.length - 1) / mtu_ + 1;
  const bool ends_at_packet = reth.length == rest || (reth.length != 0 && reth.length % mtu_ == 0);
  return reth.va == op.remote_address + skipped && reth.rkey == op.rkey && reth.length <= rest &&
         ends_at_packet;
}

bool Flow::matches(const Operation& op, const wire::Packet& packet, std::uint64_t sequence,
                   std::uint32_t* packets) {
  const wire::OpcodeInfo& info = packet.info();
  const bool first = sequence == op.first;
  const bool last = sequence + 1 == op.end();
  if (packet.bth.opcode != opcode_of(op, first, last)) return false;
  if (op.is_read()) return read_request_matches(op, packet, sequence, packets);
  *packets = 1;
  if (op.is_atomic()) {
    const wire::AtomicEth& a = packet.atomic;
    const std::uint64_t compare = op.opcode == SendOpcode::CompareAndSwap ? op.compare : 0;
    return a.va == op.remote_address && a.rkey == op.rkey && a.swap_or_add == op.swap_or_add &&
           a.compare == compare;
  }
  if (info.has(wire::kReth) &&
      (packet.reth.va != op.remote_address || packet.reth.rkey != op.rkey || packet.reth.length != op.length))
    return false;
  if (info.has(wire::kImmDt) && packet.immediate != op.immediate) return false;
  const std::uint64_t offset = (sequence - op.first) * mtu_;
  const std::uint64_t length = last ? op.length - offset : mtu_;
  return packet.payload.size() == length && Pattern(op.serial).equals(packet.payload, offset);
}

void Flow::note_first_packet(Operation& op, std::uint64_t number) {
  op.started = true;
  if (draining_) fail("SQD", "a request starts though the send queue is drained", number);
  if (has_flag(op.flags, SendFlags::Fence) && fetches_out_ != 0)
    fail("fence", "a fenced request starts before earlier READs and atomics are answered", number);
  if (!op.is_fetch()) return;
  if (++fetches_out_ > options_.queues.rd_atomic)
    fail("rd-atomic", "more READs and atomics are outstanding than allowed", number);
}

// Go-back-N: packets follow one another; a jump is backwards, or forwards over what was acknowledged
// meanwhile.
bool Flow::place_in_sequence(std::uint64_t sequence, std::uint32_t packets) {
  if (sequence > cursor_ && sequence > acked_)
    return fail("go-back-N", "a packet that was to be sent again was left out", find(sequence));
  // What was acknowledged, as a copy that came late can be, needs no request for it.
  if (sequence != cursor_ || sequence <= acked_) without_ack_request_ = 0;
  cursor_ = sequence + packets;
  if (sequence < next_) ++retransmitted_;
  if (cursor_ <= next_) return true;
  if (sequence < next_)
    return fail("sequence", "a packet joins old and new sequence numbers", find(sequence));
  next_ = cursor_;
  if (next_ - una_ > (1u << 23))
    return fail("sequence", "more than 2^23 sequence numbers are outstanding", find(sequence));
  return true;
}

void Flow::on_request_sent(const wire::Packet& packet, Instant now) {
  const wire::OpcodeInfo& info = packet.info();
  const std::uint64_t sequence = near(packet.bth.psn, next_);
  const std::uint64_t number = find(sequence);
  if (number == kNone || number < next_completion_) {
    fail("sequence", "a packet belongs to no unfinished request", number);
    return;
  }
  Operation& op = operations_[number];
  std::uint32_t packets = 1;
  if (!matches(op, packet, sequence, &packets) || !wire::payload_obeys(packet, mtu_)) {
    fail("content", "a packet is not the one its request asks for", number);
    return;
  }
  if (op.defect == Defect::BadLocalKey) {
    fail("local access", "a packet of a request without right to its own memory was sent", number);
    return;
  }
  if (errored_) fail("error", "a queue pair in ERR sends requests", number);
  const bool is_new = sequence == next_;
  if (is_new && una_ == next_) last_progress_ = now;
  if (!place_in_sequence(sequence, packets)) return;
  if (is_new && (info.last || op.is_fetch())) messages_.add() = next_;
  if (is_new && !op.started) note_first_packet(op, number);

  if (op.is_fetch() || packet.bth.ack_request)
    without_ack_request_ = 0;
  else if (++without_ack_request_ >= options_.transport.ack_request_interval)
    fail("AckReq", "too many packets in a row ask for no acknowledgement", number);
  if (info.last && !op.is_fetch() && !packet.bth.ack_request)
    fail("AckReq", "the last packet of a message asks for no acknowledgement", number);
  const bool solicited = has_flag(op.flags, SendFlags::Solicited) && op.takes_receive() && info.last;
  if (packet.bth.solicited != solicited)
    fail("solicited", "the solicited event bit is wrong", number);
}

void Flow::on_request_delivered(const wire::Packet& packet, const ResponderView& responder) {
  const std::uint64_t sequence = near(packet.bth.psn, expected_);
  const bool read = packet.info().operation == wire::Operation::ReadRequest;
  const std::uint32_t packets = read && packet.reth.length != 0 ? (packet.reth.length - 1) / mtu_ + 1 : 1;
  latest_delivered_ = std::max(latest_delivered_, sequence);
  if (sequence == expected_) expected_ = sequence + packets;
  const std::uint64_t number = find(sequence);
  if (number == kNone) return;
  Slot& slot = slots_[sequence];
  if (slot.deliveries != 0xff) ++slot.deliveries;
  Operation& op = operations_[number];
  op.delivered = true;
  const bool looks_for_receive = op.takes_receive() && sequence == (op.is_send() ? op.first : op.end() - 1);
  if (looks_for_receive) op.receives_seen = std::min(op.receives_seen, responder.receives_posted);
}

}  // namespace verbena::sim
