// SPDX-License-Identifier: Apache-2.0
// Which request comes next.
#include <algorithm>

#include "sim/workload.h"

namespace verbena::sim {

SendOpcode Workload::draw_opcode() {
  std::uint64_t sum = 0;
  for (const std::uint32_t weight : options_.work.weights) sum += weight;
  std::uint64_t pick = random_.below(sum);
  for (std::size_t i = 0; i < options_.work.weights.size(); ++i) {
    if (pick < options_.work.weights[i]) return static_cast<SendOpcode>(i);
    pick -= options_.work.weights[i];
  }
  return SendOpcode::Send;
}

// Around multiples of the path MTU, where the rules change; or anything.
std::uint32_t Workload::draw_length(std::uint32_t most) {
  const std::uint32_t mtu = options_.queues.path_mtu;
  std::uint64_t length = 0;
  switch (random_.below(6)) {
    case 0:
      length = random_.below(16);
      break;
    case 1:
      length = random_.below(most + 1);
      break;
    case 2:
      length = random_.below(257);
      break;
    default: {
      const std::uint64_t packets = random_.below(options_.work.max_packets + 1);
      length = packets * mtu + random_.below(3);
      length -= std::min<std::uint64_t>(length, 1);
      break;
    }
  }
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(length, most));
}

void Workload::draw_place(const Pair& pair, std::size_t s, Operation& op) {
  const Flow::Places& places = pair.flows[s]->places();
  if (op.is_send()) return;
  const auto in = [&](const Area& area, Place place, std::uint64_t offset) {
    op.place = place;
    op.offset = offset;
    op.remote_address = area.va(offset);
    op.rkey = area.region.rkey;
  };
  if (op.is_atomic()) {
    Area& cells = places.cells->area();
    const bool swap = op.opcode == SendOpcode::CompareAndSwap;
    op.swap_or_add = op.serial;
    op.compare = random_.chance(0.5) ? 0 : random_.next_u64();
    if (random_.chance(0.5)) {
      const std::uint64_t at = random_.below(8) * 8;
      in(places.target, Place::Target, at);
      // The program guesses what is there; with memory that several requests change it is often wrong.
      if (swap && random_.chance(0.7)) std::memcpy(&op.compare, places.target.base + at, 8);
    } else if (swap) {
      in(cells, Place::Register, SharedCells::kRegisterOffset);
      op.compare = pair.flows[s]->last_register();
    } else {
      in(cells, Place::Counter, SharedCells::counter_offset(places.lane));
      op.swap_or_add = std::uint64_t{1} << SharedCells::counter_shift(places.lane);
    }
    return;
  }
  const bool stable = op.is_read() && random_.chance(0.4);
  const Area& area = stable ? places.stable : places.target;
  in(area, stable ? Place::Stable : Place::Target, random_.below(area.size - op.length + 1));
  if (op.length != 0 || random_.chance(0.5)) return;
  op.place = Place::None;  // an empty request needs neither key nor address
  op.remote_address = random_.next_u64();
  op.rkey = RKey{random_.next_u32()};
}

// Makes the request one that must fail. False when nothing fits it.
bool Workload::draw_defect(Pair& pair, std::size_t s, std::uint64_t receive, Operation& op) {
  const Flow::Places& places = pair.flows[s]->places();
  const Side& peer = pair.sides[1 - s];
  if (op.length == 0) return false;
  if (random_.chance(0.15)) {
    op.defect = Defect::BadLocalKey;
    op.place = Place::None;
    return true;
  }
  if (op.is_send()) {
    if (peer.receives.end() > receive) {
      const std::uint32_t room = peer.receives[receive].capacity;
      if (room >= max_message_) return false;
      op.length = room + 1 + static_cast<std::uint32_t>(random_.below(max_message_ - room));
      op.defect = Defect::TooLong;
    } else {
      op.defect = random_.chance(0.5) ? Defect::TooLong : Defect::BadReceive;
    }
    return true;
  }
  const Host& host = hosts_[peer.node];
  op.place = Place::None;
  op.remote_address = places.target.va(0);
  op.rkey = places.target.region.rkey;
  switch (random_.below(op.is_atomic() ? 5 : 6)) {
    case 0:
      op.defect = Defect::UnknownKey;
      op.rkey = RKey{~op.rkey.value()};
      return true;
    case 1:
      if (pair.stale[s].base == nullptr) return false;
      op.defect = Defect::StaleKey;
      op.remote_address = pair.stale[s].iova;
      op.rkey = pair.stale[s].rkey;
      return true;
    case 2:
      op.defect = Defect::NoPermission;
      op.remote_address = host.locked.va(0);
      op.rkey = host.locked.region.rkey;
      return op.length <= host.locked.size;
    case 3:
      op.defect = Defect::ForeignDomain;
      op.remote_address = host.foreign.va(0);
      op.rkey = host.foreign.region.rkey;
      return op.length <= host.foreign.size;
    case 4:
      op.defect = op.is_atomic() ? Defect::Misaligned : Defect::BeforeStart;
      op.remote_address = op.is_atomic() ? places.target.va(1 + random_.below(7)) : places.target.va(0) - 1;
      return true;
    default:
      op.defect = Defect::BeyondEnd;
      op.remote_address = places.target.va(places.target.size - op.length + 1);
      return true;
  }
}

void Workload::draw_flags(const Pair& pair, std::size_t s, std::uint32_t ahead, Operation& op) {
  const WorkOptions& w = options_.work;
  const Side& side = pair.sides[s];
  op.flags = SendFlags::None;
  // The last slots of the queue are signaled, or the program would never learn that there is room again.
  const std::uint64_t used = pair.flows[s]->unfinished() + ahead + 1;
  const bool must = used * 2 >= side.send_capacity || healed_;
  if (must || !random_.chance(w.unsignaled)) op.flags = op.flags | SendFlags::Signaled;
  if (random_.chance(w.fence)) op.flags = op.flags | SendFlags::Fence;
  if (random_.chance(w.solicited)) op.flags = op.flags | SendFlags::Solicited;
  const bool small =
      !op.is_fetch() && op.length <= options_.queues.inline_bytes && op.defect != Defect::BadLocalKey;
  if (small && random_.chance(w.inlined)) op.flags = op.flags | SendFlags::Inline;
  op.signaled = options_.queues.signal_all || has_flag(op.flags, SendFlags::Signaled);
}

bool Workload::scripted(Pair& pair, std::size_t s, Operation& op) {
  if (s != 0 || next_scripted_ == options_.work.script.size()) return false;
  const ScriptedRequest& r = options_.work.script[next_scripted_++];
  op.opcode = r.opcode;
  op.length = op.is_atomic() ? 8 : r.length;
  op.flags = r.flags;
  op.signaled = has_flag(r.flags, SendFlags::Signaled);
  op.serial = next_serial_++;
  std::memcpy(op.immediate.data(), &op.serial, 4);
  draw_place(pair, s, op);
  return true;
}

// `ahead` requests, `receives_ahead` of which take a receive, are drawn and not yet posted.
bool Workload::draw(Pair& pair, std::size_t s, std::uint32_t ahead, std::uint32_t receives_ahead,
                    Operation& op) {
  if (!options_.work.script.empty()) return scripted(pair, s, op);
  op.opcode = draw_opcode();
  if (healed_) op.opcode = SendOpcode::RdmaWrite;
  op.serial = next_serial_++;
  const std::uint64_t word = op.serial * 0x9e3779b97f4a7c15u;
  std::memcpy(op.immediate.data(), &word, 4);
  std::uint32_t most = max_message_;
  const std::uint64_t receive = pair.flows[s]->consumers() + receives_ahead;
  const Side& peer = pair.sides[1 - s];
  if (op.is_send() && peer.receives.end() > receive) {
    most = peer.receives.holds(receive) ? peer.receives[receive].capacity : 0;
  }
  op.length = op.is_atomic() ? 8 : healed_ ? 0 : draw_length(most);
  draw_place(pair, s, op);
  const bool may_fail = pair.state == Pair::State::Up && !healed_ && !pair.flows[s]->has_defect();
  if (may_fail && options_.work.invalid != 0 && random_.chance(options_.work.invalid)) {
    const Operation kept = op;
    if (!draw_defect(pair, s, receive, op)) op = kept;
  }
  draw_flags(pair, s, ahead, op);
  return true;
}

}  // namespace verbena::sim
