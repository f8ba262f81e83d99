// SPDX-License-Identifier: Apache-2.0
// Takes the peer's answers: completes requests in order, stores what was fetched, waits where the peer has no receive,
// and for a peer that is silent (Q-010 … Q-028 as far as nothing is lost).
#pragma once

#include "soft/local/link.h"
#include "soft/local/send_state.h"

namespace verbena::local {

class Completer {
 public:
  Completer(Link& link, SendState& state) : link_(link), state_(state) {}

  void start();  // at RTS
  // `payload`: of a READ's answer, in shared memory. False: no honest peer says that.
  bool handle(Instant now, const Response& response, std::span<const std::byte> payload);
  // What a request says in passing: the lower half of the number up to which all is done.
  bool handle_acknowledged(Instant now, std::uint16_t low);
  // Whether an honest peer may say that now.
  bool is_outstanding(std::uint16_t low) const {
    return behind_oldest(low) < state_.current - link_.qp.send_queue().retired();
  }
  void handle_timeout(Instant now);
  Instant deadline() const { return state_.rnr_waiting ? state_.rnr_until : state_.period_end; }

  // A request that could not be sent, or that nobody will answer, fails once it is the oldest. Call after anything that
  // may have changed that.
  void settle(bool peer_ended);
  // And the queue pair is in ERR.
  [[gnu::cold]] void fail_oldest(CompletionStatus status, std::uint32_t vendor_error = 0);
  // From now on the peer's silence counts anew, if anything is to be answered.
  void begin_period(Instant now);

 private:
  bool is_answerable(const Response& response) const;
  std::uint16_t behind_oldest(std::uint16_t low) const {
    return static_cast<std::uint16_t>(low - (link_.qp.send_queue().retired() - state_.first));
  }
  bool acknowledge_before(std::uint32_t index);
  void complete_oldest();
  [[gnu::cold]] void handle_not_ready(Instant now, const Response& response);
  [[gnu::cold]] void handle_refuse(const Response& response);
  bool has_payload();
  void handle_read_data(const Response& response, std::span<const std::byte> payload);
  void handle_atomic_result(const Response& response);
  bool store(std::uint64_t offset, std::span<const std::byte> bytes, bool publish);
  core::SendWqe* oldest_started();
  bool is_oldest(std::uint32_t index) const { return index == link_.qp.send_queue().retired(); }

  Link& link_;
  SendState& state_;
};

}  // namespace verbena::local
