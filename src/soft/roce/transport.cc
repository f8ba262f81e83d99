// SPDX-License-Identifier: Apache-2.0
#include "soft/roce/transport.h"

#include <algorithm>

#include "base/assert.h"

namespace verbena::roce {

Transport::Transport(core::QueuePair& qp, const Config& config, core::MemoryTable& memory, Counters& counters,
                     RandomSource& random, std::uint16_t pkey)
    : link_{qp, config, memory, counters, random, pkey, {}, wire::IcrcStart({}), 0, false},
      requester_(link_, send_),
      completer_(link_, send_),
      responder_(link_) {}

void Transport::handle_state(QueuePairState before, const wire::Path& path, std::uint32_t source_index) {
  const QueuePairState state = link_.qp.state();
  link_.path = path;
  link_.icrc_start = wire::IcrcStart(path);
  link_.source_index = source_index;
  link_.trains_arrive_whole = path.destination.is_loopback();
  if (state == before) return;
  if (state == QueuePairState::Rtr) {
    established_said_ = first_request_awaited_ = false;
    responder_.start();
  }
  if (state == QueuePairState::Rts && before == QueuePairState::Rtr) completer_.start();
  if (state == QueuePairState::Reset || state == QueuePairState::Error) {
    responder_.stop();
    send_ = SendState{};
  }
  check_drained();
}

void Transport::follow_attributes(Instant now, AttributeMask changed) {
  send_.retries.follow(link_.qp.attributes(), changed);
  if (any(changed & AttributeMask::Timeout) && !send_.rnr_waiting) completer_.begin_period(now);
  responder_.follow_limits();
}

void Transport::handle_packet(Instant now, const wire::Packet& packet) {
  if (!packet.info().request) {
    const QueuePairState before = link_.qp.state();
    completer_.handle(now, packet);
    fall_silent_after(before);
  } else {
    const QueuePairState state = link_.qp.state();
    const bool told = state == QueuePairState::Rtr ||
                      (state == QueuePairState::Rts && first_request_awaited_);
    if (told && !established_said_) {
      established_said_ = true;
      link_.qp.raise(AsyncEventType::CommEstablished);
    }
    responder_.handle(now, packet);
  }
  check_drained();
}

Run Transport::open_run(const wire::Packet& packet, std::uint32_t count) {
  const wire::OpcodeInfo& info = packet.info();
  if (info.first || info.last || packet.bth.ack_request || packet.payload.size() != link_.mtu()) return {};
  return info.request ? responder_.open_run(packet, count) : completer_.open_run(packet, count);
}

void Transport::close_run(Instant now, const wire::Packet& packet, std::uint32_t count) {
  packet.info().request ? responder_.close_run(count) : completer_.close_run(now, count);
}

void Transport::fall_silent_after(QueuePairState before) {
  if (before != QueuePairState::Error && link_.qp.state() == QueuePairState::Error) responder_.stop();
}

void Transport::fail(AsyncEventType event) {
  link_.qp.enter_error(event);
  responder_.stop();
}

void Transport::handle_timeout(Instant now) {
  const QueuePairState before = link_.qp.state();
  // The responder may have put the queue pair into ERR, and nothing is outstanding any more.
  if (before != QueuePairState::Rts && before != QueuePairState::Sqd) return;
  completer_.handle_timeout(now);
  fall_silent_after(before);
  check_drained();
}

void Transport::handle_doorbell() {
  if (link_.qp.state() == QueuePairState::Error) link_.qp.flush();
}

// in SQD everything that was started has ended.
void Transport::check_drained() {
  if (!link_.qp.drains() || send_.anything_sent()) return;
  core::SendQueue& queue = link_.qp.send_queue();
  // All that left is acknowledged, but the message is not at its end.
  if (queue.retired() != queue.posted() && queue.at(queue.retired()).started) return;
  link_.qp.say_drained();
}

Transport::Outlook Transport::outlook(Instant now) {
  const QueuePairState state = link_.qp.state();
  const bool sends = state == QueuePairState::Rts || state == QueuePairState::Sqd;
  if (!sends && state != QueuePairState::Rtr && state != QueuePairState::Error) return {};  // in ERR: the last NAK
  const Instant owed = responder_.deadline();
  Outlook next;
  next.ready = responder_.ready(now, false) || (sends && requester_.ready());
  next.owes = !owed.is_never();
  if (state != QueuePairState::Error) next.deadline = sends ? std::min(completer_.deadline(), owed) : owed;
  return next;
}

bool Transport::emit(Instant now, bool flush_acks, Train& train) {
  train.clear();
  train.set_path(link_.path, link_.icrc_start, link_.source_index);
  const QueuePairState state = link_.qp.state();
  sent_requests_ = false;
  if (state == QueuePairState::Rts || state == QueuePairState::Sqd) {
    sent_requests_ = requester_.emit(now, train);
    if (sent_requests_) {
      responder_.note_reply(now);
      // One that is to leave after the data anyway rides in their train: one datagram less for the kernel.
      flush_acks = flush_acks || !responder_.holds_back(now);
    }
    completer_.settle();
    fall_silent_after(state);
  }
  responder_.emit(now, flush_acks, train);
  train.finish();
  check_drained();
  return !train.empty();
}

bool Transport::put_short(const SendRequest& request, Train& train) {
  if (link_.qp.state() != QueuePairState::Rts) return false;
  train.clear();
  train.set_path(link_.path, link_.icrc_start, link_.source_index);
  if (!requester_.put_short(request, train)) return false;
  train.finish();
  return true;
}

void Transport::follow_short(Instant now, const Train& train) {
  requester_.follow_short(now, train);
  responder_.note_reply(now);
}

Instant Transport::deadline() const {
  switch (link_.qp.state()) {
    case QueuePairState::Rts:
    case QueuePairState::Sqd:
      return std::min(completer_.deadline(), responder_.deadline());
    case QueuePairState::Rtr:
      return responder_.deadline();
    case QueuePairState::Reset:
    case QueuePairState::Init:
    case QueuePairState::Sqe:
    case QueuePairState::Error:
      break;
  }
  return Instant::never();
}

void Transport::check_invariants() const {
  const std::uint32_t sent = (send_.highest.value() - send_.unacked.value()) & Psn::kMask;
  VERBENA_ASSERT(send_.in_flight() <= sent);
  VERBENA_ASSERT(sent < (1u << 23));
  core::SendQueue& queue = link_.qp.send_queue();
  const std::uint32_t live = queue.posted() - queue.retired();
  if (link_.qp.state() == QueuePairState::Rts) VERBENA_ASSERT(send_.current - queue.retired() <= live);
}

}  // namespace verbena::roce
