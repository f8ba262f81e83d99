// SPDX-License-Identifier: Apache-2.0
// Turns send requests into request packets, within window, order, fence and READ limits (Q-001 …
// … Q-034).
#pragma once

#include <algorithm>

#include "soft/core/planted.h"
#include "soft/roce/link.h"
#include "soft/roce/send_state.h"

namespace verbena::roce {

class Requester {
 public:
  Requester(Link& link, SendState& state) : link_(link), state_(state) {}

  // Whether emit() would add something to an empty train now.
  bool ready() { return next_request() != nullptr && next_may_leave(); }
  // Adds packets until the train, the window or the work ends. True when something was added.
  bool emit(Instant now, Train& train);
  // Instead of a post and an emit(): posts a SEND or WRITE of up to kMostShortBytes behind requests that have all left,
  // as it adds its packet to the empty train, and follow_short() is due when that has left. False: nothing happened.
  bool put_short(const SendRequest& request, Train& train);
  void follow_short(Instant now, const Train& train);

 private:
  struct Cut;  // one packet's place in its message
  // What the window has left.
  struct Room {
    std::uint32_t packets, bytes;
    std::uint32_t full_packets(std::uint32_t mtu) const { return std::min(packets, bytes / mtu); }
    bool ends_with_next(std::uint32_t mtu) const { return packets <= 1 || bytes < 2 * mtu; }
  };

  core::SendWqe* next_request() {
    core::SendQueue& queue = link_.qp.send_queue();
    return state_.current == queue.posted() ? nullptr : &queue.at(state_.current);
  }
  bool next_may_leave();
  // The next request, when the next packet of it may leave.
  core::SendWqe* sendable(Room& room);
  std::uint32_t half_window() const;
  std::uint32_t ack_request_interval() const;
  bool may_start(const core::SendWqe& wqe) const;
  Room room() const;
  bool window_admits(const core::SendWqe& wqe, const Room& room) const;
  // Whether a train that began now would end early for want of room; an acknowledgement that makes more was asked for.
  bool waits_for_room(const core::SendWqe& wqe, const Room& room) const;
  std::uint32_t bytes_in_flight() const;
  // At least as many as are, but for the one that holds the oldest request.
  std::uint32_t trains_in_flight() const;
  void begin(core::SendWqe& wqe);
  // Of the next packet; without what its payload and place in the window say.
  wire::Bth bth_of(wire::Opcode opcode, SendFlags flags) const;
  std::uint32_t middle_run(const core::SendWqe& wqe, const Room& room, const Train& train) const;
  bool emit_run(Instant now, core::SendWqe& wqe, std::uint32_t count, const Room& room, Train& train);
  // requester_short.cc
  struct Short;
  bool leaves_in_order() const;
  bool is_short(const core::SendWqe& wqe, Short& request) const;
  bool is_short(const SendRequest& posted, Short& request) const;
  [[gnu::always_inline]] static bool is_alike(const core::SendWqe& wqe, const Short& request);
  [[gnu::always_inline]] bool find_payload(const core::SendWqe& wqe, Short& request) const;
  bool find_piece(const ScatterGather& sge, bool is_inline, core::Piece& piece) const;
  bool add_short(Short& request, Train& train) const;
  [[gnu::always_inline]] void begin_short(core::SendWqe& wqe, bool first);
  void note_shorts(Instant now, std::uint32_t count, std::size_t bytes);
  enum class Shorts : std::uint8_t { None, Some, NoRoom };  // NoRoom: in this train, for one that is short
  Shorts emit_shorts(Instant now, const Room& room, Train& train);
  bool emit_packet(Instant now, core::SendWqe& wqe, const Room& room, Train& train);
  bool payload_of(core::SendWqe& wqe, const Cut& cut, PieceList& pieces);
  void advance(Instant now, core::SendWqe& wqe, std::uint32_t packets, bool asks_answer);
  void pass_psns(std::uint32_t packets) {
    const Psn before = state_.next;
    state_.next = state_.next + packets;
    if (core::planted(core::PlantedBug::PsnWrapOffByOne) && state_.next.value() < before.value())
      state_.next = state_.next + 1;
  }
  // From now on, if nothing was outstanding before.
  void expect_answer(Instant now, bool was_idle);
  std::uint32_t read_chunk_packets() const;
  [[gnu::cold]] void fail(CompletionStatus status);
  // The request at hand cannot be sent. Those before it still are, when we went back to them.
  bool at_failed() const { return state_.failed && state_.current == state_.failed_index; }

  Link& link_;
  SendState& state_;
  std::uint32_t full_train_ = 1;  // packets of the path MTU in the longest
};

using core::ack_timeout;
// PSNs of one READ request: requests are cut so that their answers fit a receive buffer.
std::uint32_t read_chunk_packets(const Link& link);
wire::Opcode opcode_of(SendOpcode opcode, bool first, bool last);
// Sequence numbers a message takes.
std::uint32_t packets_of(std::uint32_t bytes, std::uint32_t mtu);

}  // namespace verbena::roce
