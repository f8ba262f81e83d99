// SPDX-License-Identifier: Apache-2.0
// From what is to be done to requests in the queues, with buffers of their own.
#include <algorithm>

#include "sim/workload.h"

namespace verbena::sim {

std::uint64_t Workload::id_of(const Pair& pair, std::size_t s, bool receive, std::uint64_t number) const {
  const std::uint64_t tag = pair.index << 2 | s << 1 | (receive ? 1u : 0u);
  return tag << 48 | std::uint64_t{pair.incarnation & 0xffff} << 32 | (number & 0xffffffff);
}

namespace {

// Cuts `length` into pieces, some of them empty, and takes a buffer for each. False: no room now.
bool take_segments(BufferRing& ring, SeededRandom& random, std::uint32_t length, std::uint32_t most,
                   std::array<Segment, kMaxModelSegments>& segments, std::uint32_t& count) {
  const std::uint64_t before = ring.mark();
  most = std::min<std::uint32_t>(most, kMaxModelSegments);
  count = 1 + static_cast<std::uint32_t>(random.below(most));
  if (random.chance(0.5)) count = 1;
  if (length == 0 && random.chance(0.5)) count = 0;
  std::uint32_t rest = length;
  for (std::uint32_t i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    const std::uint32_t piece = last ? rest : static_cast<std::uint32_t>(random.below(rest + 1));
    const std::uint32_t at = ring.take(piece);
    if (at == BufferRing::kNone) {
      ring.undo(before);
      return false;
    }
    segments[i] = {at, piece};
    rest -= piece;
  }
  return true;
}

}  // namespace

bool Workload::prepare_receive(Pair& pair, std::size_t s, PostedReceive& receive) {
  Side& side = pair.sides[s];
  const Operation* op = pair.flows[1 - s]->consumer(side.receives.end());
  std::uint32_t capacity =
      random_.chance(0.5) ? max_message_ : static_cast<std::uint32_t>(random_.below(max_message_ + 1));
  if (op != nullptr) {
    capacity = std::max(capacity, op->is_send() ? op->length : 0);
    if (op->defect == Defect::TooLong) capacity = static_cast<std::uint32_t>(random_.below(op->length));
  }
  receive.serial = next_serial_++;
  receive.capacity = capacity;
  if (!take_segments(side.receive_buffers, random_, capacity, options_.queues.segments, receive.segments,
                     receive.segment_count))
    return false;
  const Pattern before(receive.serial);
  for (std::uint32_t i = 0; i < receive.segment_count; ++i)
    before.fill(side.receive_area.bytes(receive.segments[i].offset, receive.segments[i].length), i * 8);
  receive.buffers_end = side.receive_buffers.mark();
  return true;
}

void Workload::post_receives(Pair& pair, std::size_t s, std::uint32_t count) {
  Side& side = pair.sides[s];
  for (std::uint32_t n = 0; n < count; ++n) {
    if (side.receives.size() >= side.receive_capacity) return;
    PostedReceive receive;
    const std::uint64_t before = side.receive_buffers.mark();
    if (!prepare_receive(pair, s, receive)) return;
    const Operation* op = pair.flows[1 - s]->consumer(side.receives.end());
    const bool bad = op != nullptr && op->defect == Defect::BadReceive;
    const LKey lkey = bad ? LKey{~side.receive_area.region.lkey.value()} : side.receive_area.region.lkey;
    std::array<ScatterGather, kMaxModelSegments> sges;
    for (std::uint32_t i = 0; i < receive.segment_count; ++i)
      sges[i] = {side.receive_area.va(receive.segments[i].offset), receive.segments[i].length, lkey};
    const ReceiveRequest request{id_of(pair, s, true, side.receives.end()),
                                 {sges.data(), receive.segment_count}};
    const PostResult result = side.queues->post_receive({&request, 1});
    if (!result) {
      side.receive_buffers.undo(before);
      return fail("post", "a receive was refused though there was room");
    }
    side.receives.add() = receive;
  }
  nic(side).ring_doorbell(*side.queues);
  world_.wake(side.node);
}

bool Workload::prepare_send(Pair& pair, std::size_t s, Operation& op) {
  Flow& flow = *pair.flows[s];
  const std::uint32_t most =
      op.is_atomic() ? std::min(options_.queues.segments, 2u) : options_.queues.segments;
  if (!take_segments(flow.buffers(), random_, op.length, most, op.segments, op.segment_count)) return false;
  op.buffers_end = flow.buffers().mark();
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < op.segment_count; ++i) {
    const std::span<std::byte> bytes =
        flow.places().local.bytes(op.segments[i].offset, op.segments[i].length);
    // Sinks are filled with something else first.
    Pattern(op.is_fetch() ? ~op.serial : op.serial).fill(bytes, at);
    at += op.segments[i].length;
  }
  return true;
}

SendRequest Workload::request_of(const Pair& pair, std::size_t s, const Operation& op,
                                 std::span<ScatterGather> sges, std::uint64_t number) {
  const Area& local = pair.flows[s]->places().local;
  const bool bad = op.defect == Defect::BadLocalKey;
  for (std::uint32_t i = 0; i < op.segment_count; ++i)
    sges[i] = {local.va(op.segments[i].offset), op.segments[i].length,
               bad ? LKey{~local.region.lkey.value()} : local.region.lkey};
  // Inline data needs no key and no address the device could know.
  if (has_flag(op.flags, SendFlags::Inline))
    for (std::uint32_t i = 0; i < op.segment_count; ++i)
      sges[i] = {reinterpret_cast<std::uint64_t>(local.base + op.segments[i].offset), op.segments[i].length,
                 LKey{}};
  SendRequest request;
  request.id = id_of(pair, s, false, number);
  request.opcode = op.opcode;
  request.flags = op.flags;
  request.local = {sges.data(), op.segment_count};
  request.remote_address = op.remote_address;
  request.rkey = op.rkey;
  request.immediate = op.immediate;
  request.compare = op.compare;
  request.swap_or_add = op.swap_or_add;
  return request;
}

// How many were posted.
std::uint32_t Workload::post_sends(Pair& pair, std::size_t s, std::uint32_t count) {
  Side& side = pair.sides[s];
  Flow& flow = *pair.flows[s];
  auto& [operations, sges, requests, marks] = batch_;
  std::uint32_t drawn = 0, receives = 0;
  for (; drawn < std::min<std::uint32_t>(count, kMaxBatch); ++drawn) {
    // A full queue refuses; that is tried now and then.
    if (flow.unfinished() + drawn >= side.send_capacity && !random_.chance(0.02)) break;
    Operation& op = operations[drawn];
    op = Operation{};
    marks[drawn] = flow.buffers().mark();
    if (!draw(pair, s, drawn, receives, op) || !prepare_send(pair, s, op)) break;
    requests[drawn] = request_of(pair, s, op, sges[drawn], flow.posted() + drawn);
    receives += op.takes_receive() ? 1u : 0u;
  }
  if (drawn == 0) return 0;
  const PostResult result = side.queues->post_send({requests.data(), drawn});
  if (!result) {
    const bool full =
        result.status == PostStatus::QueueFull && flow.unfinished() + result.posted >= side.send_capacity;
    if (!full) fail("post", "a right request was refused: " + std::string(to_string(result.status)));
    flow.buffers().undo(marks[result.posted]);
    if (!options_.work.script.empty()) next_scripted_ -= drawn - result.posted;
  }
  for (std::size_t i = 0; i < result.posted; ++i) {
    const Operation& op = operations[i];
    flow.add(op);
    ++coverage_.defects[static_cast<std::size_t>(op.defect)];
    if (!has_flag(op.flags, SendFlags::Inline)) continue;
    for (std::uint32_t k = 0; k < op.segment_count; ++k)  // the program may use its memory again at once
      Pattern(~op.serial).fill(flow.places().local.bytes(op.segments[k].offset, op.segments[k].length));
  }
  operations_left_ -= std::min<std::uint64_t>(operations_left_, result.posted);
  nic(side).ring_doorbell(*side.queues);
  world_.wake(side.node);
  return static_cast<std::uint32_t>(result.posted);
}

}  // namespace verbena::sim
