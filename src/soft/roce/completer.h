// SPDX-License-Identifier: Apache-2.0
// Takes the peer's answers: acknowledgements, NAKs, READ and atomic responses; completes requests in order;
// goes back and waits where needed (Q-010 … Q-029).
#pragma once

#include <algorithm>

#include "soft/roce/link.h"
#include "soft/roce/send_state.h"

namespace verbena::roce {

class Completer {
 public:
  Completer(Link& link, SendState& state) : link_(link), state_(state) {}

  void start();  // at RTS
  void handle(Instant now, const wire::Packet& packet);
  // As Transport's.
  Run open_run(const wire::Packet& packet, std::uint32_t count);
  void close_run(Instant now, std::uint32_t count);
  void handle_timeout(Instant now);
  Instant deadline() const {
    return state_.rnr_waiting ? state_.rnr_until : std::min(state_.retransmit_at, state_.period_end);
  }

  // From now on the peer's silence counts anew, if anything is to be answered.
  void begin_period(Instant now);

  // A request that could not be sent fails once it is the oldest. Call after anything that may have changed
  // that.
  void settle();

 private:
  void handle_acknowledge(Instant now, const wire::Packet& packet);
  void handle_read_response(Instant now, const wire::Packet& packet);
  void handle_atomic_response(Instant now, const wire::Packet& packet);
  bool store(const PieceList& pieces, std::span<const std::byte> bytes);
  [[gnu::cold]] void handle_nak(Instant now, const wire::Packet& packet);
  [[gnu::cold]] void handle_rnr_nak(Instant now, const wire::Packet& packet);

  // Everything before `end` has reached the peer. False: a READ or atomic in between has no answer yet
  // (implied NAK).
  bool acknowledge_before(Instant now, Psn end);
  void advance_unacked(Instant now, Psn to);
  [[gnu::always_inline]] void complete_oldest(const core::SendWqe& wqe);
  [[gnu::cold]] void go_back();
  [[gnu::cold]] void go_back_after_loss();
  [[gnu::cold]] void go_back_for_nak();
  void note_progress(Instant now);
  [[gnu::cold]] void fail_oldest(CompletionStatus status);
  [[gnu::always_inline]] core::SendWqe* oldest_started();
  bool is_outstanding(Psn psn) const;
  bool read_response_fits(const core::SendWqe& wqe, const wire::Packet& packet, std::uint32_t* bytes) const;

  Link& link_;
  SendState& state_;
};

}  // namespace verbena::roce
