// SPDX-License-Identifier: Apache-2.0
// SENDs and WRITEs of one short packet, each sent for the first time: their way leads past all that is about messages
// of several packets, READs, and sending again. Whatever is not plain goes the long way: to the peer it is the same.
#include <array>

#include "soft/roce/requester.h"

namespace verbena::roce {

using core::SendWqe;
using wire::Opcode;

struct Requester::Short {
  SendOpcode opcode = SendOpcode::Send;
  SendFlags flags = SendFlags::None;
  RKey rkey;
  std::uint64_t remote_address = 0;
  std::array<std::byte, 4> immediate{};
  const std::byte* data = nullptr;
  std::uint32_t length = 0;

  // One by one: what is put together elsewhere could be copied only when all its parts have reached the cache.
  template <class Request>
  void take(const Request& from, std::uint32_t bytes) {
    opcode = from.opcode;
    flags = from.flags;
    rkey = from.rkey;
    remote_address = from.remote_address;
    immediate = from.immediate;
    data = nullptr;
    length = bytes;
  }
};

namespace {

bool may_be_short(SendOpcode opcode, std::uint32_t length) {
  return opcode < SendOpcode::RdmaRead && length <= kMostShortBytes;
}

struct Kind {
  Opcode opcode;
  bool writes, immediate, may_be_solicited;
};

Kind kind_of(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::RdmaWrite:
      return {Opcode::RcWriteOnly, true, false, false};
    case SendOpcode::RdmaWriteWithImmediate:
      return {Opcode::RcWriteOnlyWithImmediate, true, true, true};
    case SendOpcode::SendWithImmediate:
      return {Opcode::RcSendOnlyWithImmediate, false, true, true};
    default:
      return {Opcode::RcSendOnly, false, false, true};
  }
}

}  // namespace

bool Requester::leaves_in_order() const {
  return state_.current_packet == 0 && state_.next == state_.highest && !state_.failed && !state_.rnr_waiting &&
         !state_.rnr_only_one;
}

bool Requester::find_payload(const ScatterGather& sge, Short& request) const {
  if (request.length == 0) return true;
  request.data = link_.memory.find_local(sge.lkey, link_.pd(), sge.address, request.length, Access::None);
  return request.data != nullptr;
}

bool Requester::is_short(const SendWqe& wqe, Short& request) const {
  if (!may_be_short(wqe.opcode, wqe.length) || wqe.started || wqe.sge_count != 1) return false;
  if (has_flag(wqe.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  request.take(wqe, wqe.length);
  core::SendQueue& queue = link_.qp.send_queue();
  if (!has_flag(wqe.flags, SendFlags::Inline)) return find_payload(queue.sges(state_.current)[0], request);
  request.data = queue.inline_data(state_.current).data();
  return true;
}

// Inline bytes are the caller's own.
bool Requester::is_short(const SendRequest& posted, Short& request) const {
  if (posted.local.size() != 1 || !may_be_short(posted.opcode, posted.local[0].length)) return false;
  if (has_flag(posted.flags, SendFlags::Fence) && state_.reads_out != 0) return false;
  const ScatterGather& sge = posted.local[0];
  request.take(posted, sge.length);
  if (!has_flag(posted.flags, SendFlags::Inline)) return find_payload(sge, request);
  request.data = reinterpret_cast<const std::byte*>(sge.address);
  return true;
}

// Each is the last packet of its message, and asks for an acknowledgement.
bool Requester::add_short(const Short& request, Train& train) {
  const Kind kind = kind_of(request.opcode);
  wire::Bth bth;
  bth.opcode = kind.opcode;
  bth.psn = state_.next;
  bth.destination = link_.qp.attributes().destination;
  bth.pkey = link_.pkey;
  bth.solicited = kind.may_be_solicited && has_flag(request.flags, SendFlags::Solicited);
  bth.ack_request = true;
  bth.pad_count = wire::pad_count_for(request.length);
  const wire::Reth reth{request.remote_address, request.rkey, request.length};
  return train.add_short(bth, kind.writes ? &reth : nullptr, kind.immediate ? &request.immediate : nullptr,
                         {request.data, request.length});
}

void Requester::note_short(Instant now, SendWqe& wqe, bool first, std::size_t bytes) {
  begin(wqe);
  if (first) ++state_.trains_begun;
  ++link_.counters.sent_pkts;
  link_.counters.sent_bytes += bytes;
  advance(now, wqe, 1, true);
}

// As many of those that come next as there is room for.
Requester::Shorts Requester::emit_shorts(Instant now, const Room& room, Train& train) {
  if (!leaves_in_order()) return Shorts::None;
  core::SendQueue& queue = link_.qp.send_queue();
  const std::uint32_t end = queue.posted();
  std::uint32_t count = 0, bytes = 0;
  Short request;
  while (state_.current != end && count < room.packets && bytes + kMostShortBytes <= room.bytes) {
    SendWqe& wqe = queue.at(state_.current);
    const bool first = train.empty();
    const std::size_t before = train.total_bytes();
    if (!is_short(wqe, request)) break;
    if (!add_short(request, train)) {
      if (count == 0 && !first) return Shorts::NoRoom;
      break;
    }
    note_short(now, wqe, first, train.total_bytes() - before);
    ++count;
    bytes += request.length;
  }
  return count != 0 ? Shorts::Some : Shorts::None;
}

// The window admits at least what is counted here: packets of any length.
bool Requester::put_short(Instant now, const SendRequest& posted, Train& train) {
  const std::uint32_t with_it = state_.in_flight() + 1;
  const bool admitted = with_it <= std::min(link_.config.max_window_packets, state_.window.packets()) &&
                        with_it * link_.mtu() <= link_.config.max_window_bytes;
  Short request;
  if (!leaves_in_order() || (with_it != 1 && !admitted) || !is_short(posted, request)) return false;
  core::SendQueue& queue = link_.qp.send_queue();
  if (!queue.post_started(state_.current, posted, [&](std::uint32_t) { return add_short(request, train); }))
    return false;
  note_short(now, queue.at(state_.current), true, train.total_bytes());
  return true;
}

}  // namespace verbena::roce
