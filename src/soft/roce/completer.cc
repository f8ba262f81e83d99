// SPDX-License-Identifier: Apache-2.0
#include "soft/roce/completer.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "soft/core/planted.h"
#include "soft/roce/requester.h"

namespace verbena::roce {

using core::planted;
using core::PlantedBug;
using core::SendWqe;

void Completer::start() {
  const QueuePairAttributes& a = link_.qp.attributes();
  const std::uint32_t head = link_.qp.send_queue().retired();
  state_ = SendState{};
  state_.unacked = state_.next = state_.highest = a.sq_psn;
  state_.resumed_at = a.sq_psn - 1;
  state_.current = head;
  state_.retries.reset(a);
  const std::uint32_t most =
      link_.trains_arrive_whole ? link_.config.max_window_packets_in_trains : link_.config.max_window_packets;
  state_.window.reset(link_.config, link_.mtu(), most, static_cast<std::uint32_t>(link_.random.below(256)));
}

inline SendWqe* Completer::oldest_started() {
  core::SendQueue& queue = link_.qp.send_queue();
  if (queue.retired() == queue.posted()) return nullptr;
  SendWqe& wqe = queue.at(queue.retired());
  return wqe.started ? &wqe : nullptr;
}

bool Completer::is_outstanding(Psn psn) const {
  const std::uint32_t ahead = (psn.value() - state_.unacked.value()) & Psn::kMask;
  return ahead < ((state_.highest.value() - state_.unacked.value()) & Psn::kMask);
}

void Completer::handle(Instant now, const wire::Packet& packet) {
  switch (packet.info().operation) {
    case wire::Operation::ReadResponse:
      handle_read_response(now, packet);
      break;
    case wire::Operation::AtomicAcknowledge:
      handle_atomic_response(now, packet);
      break;
    [[likely]] case wire::Operation::Acknowledge:
      switch (wire::aeth_kind(packet.aeth)) {
        [[likely]] case wire::AethKind::Ack:
          handle_acknowledge(now, packet);
          break;
        case wire::AethKind::RnrNak:
          handle_rnr_nak(now, packet);
          break;
        case wire::AethKind::Nak:
          handle_nak(now, packet);
          break;
        case wire::AethKind::Reserved:
          ++link_.counters.responses_dropped;
          break;
      }
      break;
    default:
      ++link_.counters.responses_dropped;
      break;
  }
  settle();
}

inline void Completer::complete_oldest(const SendWqe& wqe) {
  link_.counters.count_sent(wqe.opcode, wqe.length);
  const bool fetched = wqe.is_read_or_atomic();
  link_.qp.complete_oldest_send(CompletionStatus::Success, fetched ? wqe.length : 0);
}

void Completer::note_progress(Instant now) {
  state_.retries.reset(link_.qp.attributes());
  begin_period(now);
}

void Completer::begin_period(Instant now) {
  const std::uint8_t code = link_.qp.attributes().timeout;
  if (!state_.anything_sent() || code == 0) {
    state_.retransmit_at = state_.period_end = Instant::never();
    return;
  }
  state_.period_end = now + ack_timeout(code);
  state_.retransmit_at = now + std::min(state_.window.retransmission_time(), ack_timeout(code));
}

void Completer::advance_unacked(Instant now, Psn to) {
  const std::uint32_t packets = (to.value() - state_.unacked.value()) & Psn::kMask;
  if (packets == 0) return;
  const bool passed_next = packets > state_.in_flight();
  state_.unacked = to;
  state_.nak_answered = false;
  if (passed_next) go_back();  // acknowledged beyond where we resumed: nothing of it need be sent again
  state_.window.on_answer(to, now);
  state_.window.on_acknowledged(packets, to);
  note_progress(now);
}

bool Completer::acknowledge_before(Instant now, Psn end) {
  Psn reached = state_.unacked;
  bool complete = true;
  while (reached != end) {
    const SendWqe* wqe = oldest_started();
    if (wqe == nullptr) {
      VERBENA_ASSERT(planted(PlantedBug::PsnWrapOffByOne) || planted(PlantedBug::RetransmitFromWrongPsn));
      break;
    }
    if (wqe->is_read_or_atomic() && !planted(PlantedBug::CompleteReadOnAck)) {
      complete = planted(PlantedBug::IgnoreImpliedNak);
      break;
    }
    const std::uint32_t into = (end.value() - wqe->first_psn.value()) & Psn::kMask;
    if (into < wqe->packets) {  // part of a message
      reached = end;
      break;
    }
    reached = wqe->first_psn + wqe->packets;
    if (wqe->is_read_or_atomic() && state_.reads_out != 0) --state_.reads_out;
    complete_oldest(*wqe);
  }
  advance_unacked(now, reached);
  return complete;
}

void Completer::go_back() {
  state_.next = state_.unacked;
  state_.reads_out = 0;
  state_.since_ack_request = 0;
  state_.current = link_.qp.send_queue().retired();
  state_.current_packet = 0;
  if (const SendWqe* wqe = oldest_started())
    state_.current_packet = (state_.unacked.value() - wqe->first_psn.value()) & Psn::kMask;
  state_.resumed_at = state_.unacked;
  if (planted(PlantedBug::RetransmitFromWrongPsn) && state_.anything_sent() && oldest_started() != nullptr &&
      !oldest_started()->is_read_or_atomic() && state_.current_packet + 1 < oldest_started()->packets) {
    ++state_.current_packet;
    ++state_.next;
  }
}

void Completer::go_back_after_loss() {
  state_.window.on_loss(state_.highest);
  state_.retransmit_at = Instant::never();  // set anew by the first packet sent again
  go_back();
}

// A second NAK before anything moved is an echo of the first: what it asks for is under way or left to the
// timer.
void Completer::go_back_for_nak() {
  if (state_.nak_answered) return;
  state_.nak_answered = true;
  go_back_after_loss();
}

void Completer::fail_oldest(CompletionStatus status) {
  link_.qp.complete_oldest_send(status, 0);
  link_.qp.enter_error(std::nullopt);
}

void Completer::settle() {
  if (!state_.failed || state_.failed_index != link_.qp.send_queue().retired()) [[likely]] return;
  if (link_.qp.state() == QueuePairState::Error) return;
  state_.failed = false;
  fail_oldest(state_.failed_status);
}

void Completer::handle_acknowledge(Instant now, const wire::Packet& packet) {
  const Psn psn = packet.bth.psn;
  if (!is_outstanding(psn)) [[unlikely]] {
    if (!psn.is_before(state_.unacked)) ++link_.counters.ghost_acks;  // Q-012; behind us: Q-011
    if (!planted(PlantedBug::GhostAckAccepted) || psn.is_before(state_.unacked) || !state_.anything_sent())
      return;
    acknowledge_before(now, state_.highest);
    return;
  }
  if (acknowledge_before(now, psn + 1)) [[likely]] return;
  // the answer to a READ or atomic was lost. Its retransmission is asked for once per round.
  ++link_.counters.implied_nak_seq_err;
  go_back_for_nak();
}

void Completer::handle_nak(Instant now, const wire::Packet& packet) {
  const Psn psn = packet.bth.psn;
  const auto code = static_cast<wire::NakCode>(packet.aeth.syndrome);
  if (code == wire::NakCode::SequenceError) {
    ++link_.counters.rcvd_seq_err;
    // PSN is the one expected: all before it has arrived. One past the last sent is possible only as
    // a ghost.
    if (!is_outstanding(psn)) return;
    if (!acknowledge_before(now, psn)) ++link_.counters.implied_nak_seq_err;
    return go_back_for_nak();
  }
  if (!is_outstanding(psn)) return;
  if (!acknowledge_before(now, psn)) {
    ++link_.counters.implied_nak_seq_err;
    return go_back_for_nak();
  }
  switch (code) {
    case wire::NakCode::InvalidRequest:
      return fail_oldest(CompletionStatus::RemoteInvalidRequest);
    case wire::NakCode::RemoteAccess:
      return fail_oldest(CompletionStatus::RemoteAccessError);
    case wire::NakCode::RemoteOperation:
      return fail_oldest(CompletionStatus::RemoteOperationError);
    case wire::NakCode::SequenceError:
    case wire::NakCode::InvalidRdRequest:
      return fail_oldest(CompletionStatus::BadResponse);
  }
}

void Completer::handle_rnr_nak(Instant now, const wire::Packet& packet) {
  const Psn psn = packet.bth.psn;
  if (!is_outstanding(psn) || state_.rnr_waiting) return;
  ++link_.counters.rcvd_rnr_err;
  if (!acknowledge_before(now, psn)) {
    ++link_.counters.implied_nak_seq_err;
    return go_back_for_nak();
  }
  if (!state_.retries.take_rnr(link_.qp.attributes())) {
    ++link_.counters.retry_rnr_exceeded_err;
    return fail_oldest(CompletionStatus::RnrRetryExceeded);
  }
  state_.window.stop_sample();  // nor is the wait a part of the way
  state_.rnr_waiting = true;
  state_.rnr_until = now + core::rnr_wait(packet.aeth.syndrome, link_.random);
  state_.retransmit_at = state_.period_end = Instant::never();  // the peer is alive
  go_back();
  state_.rnr_only_one = planted(PlantedBug::ForgetTailAfterRnr);
}

bool Completer::read_response_fits(const SendWqe& wqe, const wire::Packet& packet,
                                   std::uint32_t* bytes) const {
  const std::uint32_t at = (packet.bth.psn.value() - wqe.first_psn.value()) & Psn::kMask;
  const std::uint32_t chunk = read_chunk_packets(link_);
  const std::uint32_t mtu = link_.mtu();
  const bool ends = at + 1 == wqe.packets || (at + 1) % chunk == 0;
  *bytes = std::min(mtu, wqe.length - at * mtu);
  const wire::OpcodeInfo& info = packet.info();
  if (info.last != ends || packet.payload.size() != *bytes) return false;
  // A response begins where a request began: at the chunk, or where we asked again.
  const bool may_begin = at % chunk == 0 || packet.bth.psn == state_.resumed_at;
  return info.first ? may_begin : at % chunk != 0;
}

// False when the memory is not there any more.
bool Completer::store(const PieceList& pieces, std::span<const std::byte> bytes) {
  if (core::store(pieces, bytes, true)) return true;
  ++link_.counters.memory_faults;
  return false;
}

void Completer::handle_read_response(Instant now, const wire::Packet& packet) {
  const Psn psn = packet.bth.psn;
  if (!is_outstanding(psn)) return;
  // A response also says that everything before it has arrived; an earlier READ without answer stands in the
  // way.
  SendWqe* wqe = oldest_started();
  while (wqe != nullptr && !wqe->is_read_or_atomic() && state_.unacked != psn) {
    acknowledge_before(
        now, wqe->first_psn + std::min((psn.value() - wqe->first_psn.value()) & Psn::kMask, wqe->packets));
    wqe = oldest_started();
  }
  if (state_.unacked != psn) {  // something before it was lost
    ++link_.counters.implied_nak_seq_err;
    return go_back_for_nak();
  }
  std::uint32_t bytes = 0;
  if (wqe == nullptr || wqe->opcode != SendOpcode::RdmaRead || !read_response_fits(*wqe, packet, &bytes))
    return fail_oldest(CompletionStatus::BadResponse);
  const std::uint32_t at = (psn.value() - wqe->first_psn.value()) & Psn::kMask;
  PieceList pieces;
  const auto sges = link_.qp.send_queue().sges(link_.qp.send_queue().retired());
  if (!find_pieces(link_, link_.pd(), sges, std::uint64_t{at} * link_.mtu(), bytes, Access::LocalWrite, pieces))
    return fail_oldest(CompletionStatus::LocalProtectionError);
  if (!store(pieces, packet.payload)) return fail_oldest(CompletionStatus::LocalProtectionError);
  if (packet.info().last && state_.reads_out != 0) --state_.reads_out;
  const bool done = at + 1 == wqe->packets;
  if (done) complete_oldest(*wqe);
  advance_unacked(now, psn + 1);
}

// As many as handle_read_response() would take one after the other.
Run Completer::open_run(const wire::Packet& packet, std::uint32_t count) {
  const SendWqe* wqe = oldest_started();
  if (wqe == nullptr || wqe->opcode != SendOpcode::RdmaRead || packet.bth.psn + 1 != state_.unacked) return {};
  const std::uint32_t at = (state_.unacked.value() - wqe->first_psn.value()) & Psn::kMask;
  const std::uint32_t chunk = read_chunk_packets(link_);
  if (at % chunk == 0 || at >= wqe->packets) return {};
  const std::uint32_t outstanding = (state_.highest.value() - state_.unacked.value()) & Psn::kMask;
  count = std::min({count, chunk - at % chunk - 1, wqe->packets - at - 1, outstanding});
  PieceList pieces;
  const auto sges = link_.qp.send_queue().sges(link_.qp.send_queue().retired());
  const std::uint64_t mtu = link_.mtu();
  if (!find_pieces(link_, link_.pd(), sges, at * mtu, count * mtu, Access::LocalWrite, pieces) || pieces.count != 1)
    return {};
  return {const_cast<std::byte*>(pieces.pieces[0].data), count};
}

void Completer::close_run(Instant now, std::uint32_t count) { advance_unacked(now, state_.unacked + count); }

void Completer::handle_atomic_response(Instant now, const wire::Packet& packet) {
  const Psn psn = packet.bth.psn;
  if (!is_outstanding(psn)) return;
  if (!acknowledge_before(now, psn)) {
    ++link_.counters.implied_nak_seq_err;
    return go_back_for_nak();
  }
  SendWqe* wqe = oldest_started();
  if (wqe == nullptr || !wqe->is_atomic() || wqe->first_psn != psn)
    return fail_oldest(CompletionStatus::BadResponse);
  PieceList pieces;
  const auto sges = link_.qp.send_queue().sges(link_.qp.send_queue().retired());
  if (!find_pieces(link_, link_.pd(), sges, 0, 8, Access::LocalWrite, pieces))
    return fail_oldest(CompletionStatus::LocalProtectionError);
  std::array<std::byte, 8> value;  // host order in memory
  std::memcpy(value.data(), &packet.atomic_original, 8);
  if (!store(pieces, value)) return fail_oldest(CompletionStatus::LocalProtectionError);
  if (state_.reads_out != 0) --state_.reads_out;
  complete_oldest(*wqe);
  advance_unacked(now, psn + 1);
}

void Completer::handle_timeout(Instant now) {
  if (state_.rnr_waiting) {
    if (now < state_.rnr_until) return;
    state_.rnr_waiting = false;
    state_.rnr_until = Instant::never();
    const std::uint8_t code = link_.qp.attributes().timeout;
    // What was refused may have been acknowledged meanwhile: then nothing is waited for.
    if (code != 0 && state_.anything_sent()) state_.period_end = now + ack_timeout(code);
    return;
  }
  if (!state_.anything_sent()) return;
  if (now >= state_.period_end) {
    ++link_.counters.local_ack_timeout_err;
    if (!state_.retries.take()) {
      ++link_.counters.retry_exceeded_err;
      return fail_oldest(CompletionStatus::RetryExceeded);
    }
    state_.period_end = now + ack_timeout(link_.qp.attributes().timeout);
    state_.window.on_expiry();
    state_.nak_answered = false;
    return go_back_after_loss();
  }
  if (now >= state_.retransmit_at) {
    ++link_.counters.adaptive_retransmissions;
    state_.window.on_expiry();
    state_.nak_answered = false;
    go_back_after_loss();
  }
}

}  // namespace verbena::roce
