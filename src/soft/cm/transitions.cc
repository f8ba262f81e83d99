// SPDX-License-Identifier: Apache-2.0
// How a connection moves from state to state, and what time does to it.
#include <algorithm>

#include "base/assert.h"
#include "soft/cm/manager.h"

namespace verbena::cm {

void Manager::raise(Connection& c, EventType type, std::uint16_t reason) {
  if (c.owned) events_.post(c, type, reason);
}

// Ends what the protocol still owed; what remains is the owner's handle, if there is one.
void Manager::finish(Connection& c) {
  table_.set_state(c, State::Idle);
  if (c.owned && c.announced) return;
  events_.withdraw_all(c);
  table_.erase(c);
}

void Manager::fail(Connection& c, EventType type, std::uint16_t reason) {
  c.reason = reason;
  c.ended = true;
  events_.withdraw(c, EventType::ConnectResponse);
  if (c.announced) raise(c, type, reason);
  finish(c);
}

void Manager::to_established(Connection& c) {
  table_.disarm(c);
  table_.set_state(c, State::Established);
  raise(c, EventType::Established);
}

void Manager::begin_retries(Instant now, Connection& c) {
  c.retries_left = c.max_retries;
  send(c, c.message);
  arm_retry(now, c);
}

void Manager::arm_retry(Instant now, Connection& c) { table_.arm(c, now + jittered(c.interval, random_)); }

void Manager::start_disconnect(Instant now, Connection& c) {
  table_.set_state(c, State::DreqSent);
  c.message = build_dreq(c, random_.next_u64());
  begin_retries(now, c);
}

void Manager::enter_timewait(Instant now, Connection& c) {
  table_.set_state(c, State::TimeWait);
  if (!c.ended) raise(c, EventType::Disconnected, c.reason);
  c.ended = true;
  table_.arm(c, now + code_duration(capped(c.parameters.ack_timeout_code)));
}

// C-02: the peer has forgotten this connection and uses its queue pair again.
void Manager::tear_down_stale(Instant now, Connection& c) {
  c.reason = static_cast<std::uint16_t>(RejectReason::StaleConnection);
  if (c.state == State::Established) {
    start_disconnect(now, c);
  } else if (awaits_rtu(c.state)) {
    raise(c, EventType::ConnectError, c.reason);
    c.ended = true;
    start_disconnect(now, c);
  } else if (is_pending(c) || c.state == State::RepReceived) {
    fail(c, EventType::ConnectError, c.reason);
  }
}

// The REJ is kept for a while, so that duplicates of the peer's message meet the same answer.
void Manager::send_reject(Instant now, Connection& c, std::span<const std::byte> private_data,
                          RejectReason reason) {
  c.message = build_reject(c, private_data, reason);
  c.ended = true;
  send(c, c.message);
  events_.withdraw_all(c);
  if (table_.rejections() >= config_.rejections_kept) return finish(c);
  table_.set_state(c, State::RejectSent);
  table_.arm(c, now + c.interval * 2);
}

void Manager::send_timeout_reject(Connection& c) {
  ++counters_.cm_rej_timeout;
  send(c, build_timeout_reject(c, config_.ca_guid));
}

void Manager::resend_on_timer(Instant now, Connection& c) {
  if (c.retries_left == 0) return give_up(now, c);
  --c.retries_left;
  ++counters_.cm_retries;
  if (c.state == State::MraReqReceived) table_.set_state(c, State::ReqSent);
  if (c.state == State::MraRepReceived) table_.set_state(c, State::RepSent);
  send(c, c.message);
  arm_retry(now, c);
}

void Manager::give_up(Instant now, Connection& c) {
  const auto timeout = static_cast<std::uint16_t>(RejectReason::Timeout);
  if (awaits_rep(c.state)) {
    send_timeout_reject(c);
    fail(c, EventType::Unreachable, timeout);
  } else if (c.state == State::DreqSent) {
    enter_timewait(now, c);
  } else {
    // The peer may be established without our knowing: it must learn that we are not.
    VERBENA_ASSERT(awaits_rtu(c.state));
    c.reason = timeout;
    c.ended = true;
    raise(c, EventType::Unreachable, timeout);
    start_disconnect(now, c);
  }
}

void Manager::expire(Instant now, Connection& c) {
  switch (c.state) {
    case State::ReqSent:
    case State::MraReqReceived:
    case State::RepSent:
    case State::MraRepReceived:
    case State::DreqSent:
      return resend_on_timer(now, c);
    case State::ReqReceived:
    case State::MraReqSent:  // the requester has stopped asking (C-20)
      ++counters_.cm_rej_timeout;
      send(c, build_reject(c, {}, RejectReason::NoResources));
      return fail(c, EventType::Unreachable, static_cast<std::uint16_t>(RejectReason::Timeout));
    case State::TimeWait:
      raise(c, EventType::TimewaitExit);
      return finish(c);
    case State::RejectSent:
      return finish(c);
    case State::Idle:
    case State::RepReceived:
    case State::Established:
      break;
  }
  VERBENA_ASSERT(false);
}

void Manager::handle_timeout(Instant now) {
  while (Connection* c = table_.due(now)) {
    table_.disarm(*c);
    expire(now, *c);
  }
}

}  // namespace verbena::cm
