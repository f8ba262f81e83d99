// SPDX-License-Identifier: Apache-2.0
// Takes the peer's requests: rights, resources, length and keys are checked in this order, then the request is executed
// and answered (R-060 … R-094 as far as nothing is lost or comes twice).
#pragma once

#include <vector>

#include "soft/local/answers.h"
#include "soft/local/link.h"

namespace verbena::local {

class Responder {
 public:
  Responder(Link& link, Answers& answers) : link_(link), answers_(answers) {}

  void start();  // at RTR
  // How many READs and atomics may wait for their answers is changed in SQD.
  void follow_limits();
  void stop() { answers_.clear(); }

  // `record`: in shared memory. Reads the head of a request, until the next is read. Null: no honest peer says that.
  const RequestHead* read(std::uint16_t kind, std::span<const std::byte> record);
  // What was read. False: no honest peer says that.
  bool handle(Instant now, std::span<const std::byte> record);
  // The short way of both, for a SEND that came whole: its payload is where it belongs, and finish_short() is due.
  // False: nothing happened, or a receive was taken for it; read it.
  bool store_short(std::uint32_t number, std::span<const std::byte> payload);
  void finish_short(Instant now, std::uint32_t length);
  bool handle_continuation(Instant now, std::span<const std::byte> record);
  // A turn pulls what one record may name, and that record's worth more at most.
  void begin_turn() { pulled_ = 0; }
  bool has_pulled_enough() const { return pulled_ >= kMaxPulledBytes; }
  // The peer's ring was found empty: what is owed waits no longer.
  void handle_pause() { answers_.make_due(); }

  // Whether there is something to say, room or not. `with_data`: requests of ours leave now.
  bool ready(Instant now, bool with_data) const;
  // The length of the next record; only when there is something to say.
  std::uint32_t next_record_bytes() const;
  // Writes answers until they or the room end, or `limit` bytes are written.
  Written write(Instant now, bool with_data, std::uint32_t limit);
  // When what is owed must leave.
  Instant deadline() const;
  bool owes_answer() const { return !answers_.empty(); }

 private:
  enum class Verdict : std::uint8_t {
    Continue,
    NotReady,
    InvalidRequest,
    AccessError,
    OperationError,
    ReceiveTooShort,
    MemoryFault,  // registered, and not mapped: met only when it is touched
    PeerFault,    // of what the peer named
    PeerGone,
  };
  struct Payload;

  bool is_agreed(Placement placement) const;
  // A record with payload for the open message, or the one record of another. False: broken.
  void execute(Instant now, const Payload& payload);
  Verdict check(std::size_t bytes, bool last, core::PieceList& pieces);
  Verdict check_allowed() const;
  Verdict check_resources(bool last);
  Verdict check_memory(std::size_t bytes, core::PieceList& pieces) const;
  Verdict touch_memory(const core::PieceList& pieces, const Payload& payload, bool last);
  bool touch_word(const core::PieceList& pieces);
  Pulled fetch(std::span<const Piece> from, std::span<const core::Piece> to);
  bool copy_granted(const Piece& from, std::span<const core::Piece> to);
  Verdict pull(core::PieceList pieces, std::span<const Piece> from, std::uint32_t bytes, bool last);
  Verdict pull_by_parts(const core::PieceList& pieces, std::span<const Piece> from, bool last);
  void finish(Instant now);
  void complete_receive(CompletionOpcode opcode);
  void push_fetch();
  [[gnu::cold]] void refuse(Verdict verdict);
  [[gnu::cold]] void fatal(Refusal refusal, AsyncEventType event);

  bool write_fetch(std::uint32_t bytes);
  bool write_response(const Response& response);
  void break_off_read(Refusal refusal, AsyncEventType event);
  bool is_due(Instant now, bool with_data) const;

  Link& link_;
  std::uint32_t expected_ = 0;  // number of the next request
  bool open_ = false;           // request_ came in part
  bool not_ready_ = false;      // all is dropped until `expected_` comes again
  Request request_;             // at hand
  std::uint32_t received_ = 0;  // bytes of it stored
  std::uint32_t pulled_ = 0;    // bytes in this turn
  core::ReceiveWqe receive_;
  std::vector<ScatterGather> receive_sges_;
  std::uint64_t atomic_original_ = 0;
  Answers& answers_;
};

}  // namespace verbena::local
