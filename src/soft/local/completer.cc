// SPDX-License-Identifier: Apache-2.0
#include "soft/local/completer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "soft/core/dma.h"

namespace verbena::local {

using core::SendWqe;

void Completer::start() {
  state_ = SendState{};
  state_.first = state_.current = link_.qp.send_queue().retired();
  state_.retries.reset(link_.qp.attributes());
}

SendWqe* Completer::oldest_started() {
  core::SendQueue& queue = link_.qp.send_queue();
  if (queue.retired() == queue.posted()) return nullptr;
  SendWqe& wqe = queue.at(queue.retired());
  return wqe.started ? &wqe : nullptr;
}

// Only what was written can be answered; of a request that is written in part only that it will not be done.
bool Completer::is_answerable(const Response& response) const {
  const bool refused = response.kind == RecordKind::NotReady || response.kind == RecordKind::Refuse;
  const std::uint32_t retired = link_.qp.send_queue().retired();
  const std::uint32_t written = state_.current - retired + (refused && state_.began && !state_.direct ? 1 : 0);
  return state_.first + response.number - retired < written;
}

bool Completer::handle(Instant now, const Response& response, std::span<const std::byte> payload) {
  if (response.placement != Placement::InRecord || !is_answerable(response)) return false;
  const std::uint32_t index = state_.first + response.number;
  const std::uint32_t oldest = link_.qp.send_queue().retired();
  const bool acknowledges = response.kind == RecordKind::Acknowledge;
  // a READ or atomic ends by its own answer alone, and none is lost here.
  if (!acknowledge_before(acknowledges ? index + 1 : index)) {
    fail_oldest(CompletionStatus::BadResponse);
    return true;
  }
  const bool refused = response.kind == RecordKind::NotReady;
  if (!refused || !is_oldest(oldest)) state_.retries.reset(link_.qp.attributes());
  switch (response.kind) {
    case RecordKind::NotReady:
      handle_not_ready(now, response);
      return true;
    case RecordKind::Refuse:
      handle_refuse(response);
      return true;
    case RecordKind::ReadData:
      handle_read_data(response, payload);
      break;
    case RecordKind::AtomicResult:
      handle_atomic_result(response);
      break;
    default:
      break;
  }
  begin_period(now);
  return true;
}

bool Completer::handle_acknowledged(Instant now, std::uint16_t low) {
  if (!is_outstanding(low)) return false;
  if (acknowledge_before(link_.qp.send_queue().retired() + behind_oldest(low) + 1)) {
    state_.retries.reset(link_.qp.attributes());
    begin_period(now);
  } else {
    fail_oldest(CompletionStatus::BadResponse);
  }
  return true;
}

void Completer::complete_oldest() {
  core::SendQueue& queue = link_.qp.send_queue();
  const SendWqe& wqe = queue.at(queue.retired());
  link_.counters.count_sent(wqe.opcode, wqe.length);
  const bool fetched = wqe.is_read_or_atomic();
  if (fetched) --state_.reads_out;
  link_.qp.complete_oldest_send(CompletionStatus::Success, fetched ? wqe.length : 0);
}

// False: a READ or atomic stands before it.
bool Completer::acknowledge_before(std::uint32_t index) {
  core::SendQueue& queue = link_.qp.send_queue();
  while (queue.retired() != index) {
    if (queue.at(queue.retired()).is_read_or_atomic()) return false;
    complete_oldest();
  }
  return true;
}

void Completer::fail_oldest(CompletionStatus status, std::uint32_t vendor_error) {
  link_.qp.complete_oldest_send(status, 0, vendor_error);
  link_.qp.enter_error(std::nullopt);
}

void Completer::settle(bool peer_ended) {
  const QueuePairState state = link_.qp.state();
  if (state != QueuePairState::Rts && state != QueuePairState::Sqd) return;
  if (state_.failed && is_oldest(state_.failed_index)) return fail_oldest(state_.failed_status);
  if (!peer_ended) return;
  core::SendQueue& queue = link_.qp.send_queue();
  if (queue.retired() == queue.posted()) return;
  if (state == QueuePairState::Sqd && oldest_started() == nullptr) return;
  ++link_.counters.retry_exceeded_err;
  fail_oldest(CompletionStatus::RetryExceeded, core::kVendorPeerEnded);
}

void Completer::handle_not_ready(Instant now, const Response& response) {
  ++link_.counters.rcvd_rnr_err;
  const SendOpcode opcode = oldest_started()->opcode;
  if (opcode == SendOpcode::RdmaWrite || opcode >= SendOpcode::RdmaRead)
    return fail_oldest(CompletionStatus::BadResponse);  // it needs none
  if (!state_.retries.take_rnr(link_.qp.attributes())) {
    ++link_.counters.retry_rnr_exceeded_err;
    return fail_oldest(CompletionStatus::RnrRetryExceeded);
  }
  state_.rnr_waiting = true;
  state_.rnr_until = now + core::rnr_wait(response.code, link_.random);
  state_.period_end = Instant::never();  // the peer is alive
  // from there on all is written again, for nothing behind it was done.
  state_.current = link_.qp.send_queue().retired();
  state_.began = state_.direct = state_.waits = false;
  state_.written = state_.reads_out = 0;
}

void Completer::handle_refuse(const Response& response) {
  switch (static_cast<Refusal>(response.code)) {
    case Refusal::InvalidRequest:
      return fail_oldest(CompletionStatus::RemoteInvalidRequest);
    case Refusal::RemoteAccess:
      return fail_oldest(CompletionStatus::RemoteAccessError);
    case Refusal::RemoteOperation:
      return fail_oldest(has_payload() ? CompletionStatus::RemoteOperationError
                                       : CompletionStatus::LocalProtectionError);
  }
}

// A peer that could not copy the payload out of our memory does not know why. A byte of each page says it.
bool Completer::has_payload() {
  constexpr std::size_t kPageBytes = 4096;
  const SendWqe& wqe = *oldest_started();
  if (wqe.opcode >= SendOpcode::RdmaRead || has_flag(wqe.flags, SendFlags::Inline)) return true;
  core::PieceList pieces;
  const auto sges = link_.qp.send_queue().sges(link_.qp.send_queue().retired());
  if (!core::find_pieces(link_.memory, link_.pd(), sges, 0, wqe.length, Access::None, pieces)) return false;
  for (const core::Piece& piece : pieces.span())
    for (std::size_t at = 0; at < piece.size + kPageBytes - 1; at += kPageBytes) {
      std::byte one;
      if (core::dma_read(&one, {piece.data + std::min(at, piece.size - 1), 1})) continue;
      ++link_.counters.memory_faults;
      return false;
    }
  return true;
}

// False: the request ended with an error.
bool Completer::store(std::uint64_t offset, std::span<const std::byte> bytes, bool publish) {
  core::PieceList pieces;
  const auto sges = link_.qp.send_queue().sges(link_.qp.send_queue().retired());
  if (core::find_pieces(link_.memory, link_.pd(), sges, offset, bytes.size(), Access::LocalWrite, pieces)) {
    if (core::store(pieces, bytes, publish)) return true;
    ++link_.counters.memory_faults;
  }
  fail_oldest(CompletionStatus::LocalProtectionError);
  return false;
}

void Completer::handle_read_data(const Response& response, std::span<const std::byte> payload) {
  const SendWqe& wqe = *oldest_started();
  const std::uint32_t left = wqe.length - state_.read_bytes;
  if (wqe.opcode != SendOpcode::RdmaRead || response.payload_bytes > left || (payload.empty() && left != 0))
    return fail_oldest(CompletionStatus::BadResponse);
  const bool last = response.payload_bytes == left;
  if (!store(state_.read_bytes, payload, last)) return;
  state_.read_bytes += response.payload_bytes;
  if (!last) return;
  state_.read_bytes = 0;
  complete_oldest();
}

void Completer::handle_atomic_result(const Response& response) {
  if (!oldest_started()->is_atomic()) return fail_oldest(CompletionStatus::BadResponse);
  std::array<std::byte, 8> value;  // host order in memory
  std::memcpy(value.data(), &response.value, sizeof response.value);
  if (store(0, value, true)) complete_oldest();
}

void Completer::begin_period(Instant now) {
  state_.period_end = Instant::never();
  if (!state_.began && is_oldest(state_.current)) return;
  state_.begin_period(now, link_.qp.attributes().timeout, link_.channel->out.consumed());
}

void Completer::handle_timeout(Instant now) {
  if (state_.rnr_waiting) {
    if (now < state_.rnr_until) return;
    state_.rnr_waiting = false;
    state_.rnr_until = Instant::never();
    return;  // writing begins a period
  }
  if (now < state_.period_end) return;
  link_.channel->out.refresh();
  if (link_.channel->out.consumed() != state_.consumed) {  // it reads: it will answer
    state_.retries.reset_periods(link_.qp.attributes());
    return begin_period(now);
  }
  ++link_.counters.local_ack_timeout_err;
  if (!state_.retries.take()) {
    ++link_.counters.retry_exceeded_err;
    return fail_oldest(CompletionStatus::RetryExceeded);
  }
  begin_period(now);
}

}  // namespace verbena::local
