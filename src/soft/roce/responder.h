// SPDX-License-Identifier: Apache-2.0
// Takes the peer's requests: sequence, opcode order, rights, room, length and keys are checked in this order, of a
// WRITE room last; then the request is executed and answered (R-020 … R-094). Each check is a function; one function
// walks through them.
#pragma once

#include <vector>

#include "soft/roce/conversation.h"
#include "soft/roce/link.h"
#include "soft/roce/responses.h"

namespace verbena::roce {

class Responder {
 public:
  explicit Responder(Link& link) : link_(link) {}

  void start();  // at RTR
  // How many READs and atomics may wait for their answers is changed in SQD.
  void follow_limits();
  void stop() { responses_.clear(); }

  void handle(Instant now, const wire::Packet& packet);

  Run open_run(const wire::Packet& packet, std::uint32_t count);
  void close_run(std::uint32_t count);
  // SENDs of one packet that repeat `packet` but for number and payload, in sequence behind it: whether they may be
  // taken one by one, which moves the sequence but owes nothing; that, or false where one is to be handled by itself;
  // and what is owed for those that were.
  bool opens_sends(const wire::Packet& packet) const;
  bool take_send(const wire::Packet& packet);
  void close_sends(Instant now, std::uint32_t count);

  // Whether emit() would add something to an empty train now.
  bool ready(Instant now, bool flush_acks) const {
    if (responses_.empty()) return false;
    if (!owes_acknowledge() && !owes_last()) return true;
    return flush_acks || responses_.front().prompt || now >= deadline();
  }
  bool emit(Instant now, bool flush_acks, Train& train);
  // Data of ours leaves now, with an acknowledgement owed or not.
  void note_reply(Instant now) {
    if (owes_acknowledge()) conversation_.on_reply(now, link_.config);
  }
  // Whether what is owed may wait a little for the peer's next request.
  bool holds_back(Instant now) const {
    if (owes_last()) return now == responses_.front().since;
    return owes_acknowledge() && conversation_.holds_back(now, link_.config);
  }
  // When what is owed must leave.
  Instant deadline() const {
    if (!owes_acknowledge() && !owes_last()) return Instant::never();
    return responses_.front().since + link_.config.max_owed_ack_time;
  }

  Psn expected() const { return expected_; }

 private:
  enum class Verdict : std::uint8_t {
    Continue,
    Drop,
    OutOfSequence,
    Duplicate,
    Rnr,
    InvalidRequest,
    AccessError,
    OperationError,
    ReceiveTooShort,
    MemoryFault,  // registered, and not mapped: met only when it is touched
  };
  enum class Open : std::uint8_t { None, Send, Write };
  // A READ or atomic that was executed, kept for its duplicates.
  struct Resource {
    bool valid = false;
    bool atomic = false;
    Psn first;
    std::uint32_t packets = 1;
    std::uint64_t va = 0;
    RKey rkey;
    std::uint32_t length = 0;
    std::uint64_t value = 0;
    std::uint32_t msn = 0;
  };

  // responder_checks.cc
  Verdict check(const wire::Packet& packet);
  Verdict check_sequence(const wire::Packet& packet) const;
  Verdict check_opcode_order(const wire::Packet& packet) const;
  Verdict check_allowed(const wire::Packet& packet) const;
  Verdict check_length(const wire::Packet& packet) const;
  Verdict check_resources(const wire::Packet& packet);
  Verdict check_memory(const wire::Packet& packet);
  bool take_receive();
  // Into pieces_, where that part of the message goes.
  bool find_receive_pieces(std::uint64_t offset, std::uint64_t bytes);

  // responder.cc
  void execute(Instant now, const wire::Packet& packet);
  // Stores what the packet brings. False when the memory is not there any more; then the packet did not happen.
  bool touch_memory(const wire::Packet& packet);
  void execute_send(const wire::Packet& packet);
  void execute_write(const wire::Packet& packet);
  void execute_read(const wire::Packet& packet);
  void execute_atomic(const wire::Packet& packet);
  void complete_receive(const wire::Packet& packet, CompletionOpcode opcode, std::uint32_t byte_count);
  [[gnu::cold]] void handle_duplicate(Instant now, const wire::Packet& packet);
  [[gnu::cold]] void repeat_read(const wire::Packet& packet);
  [[gnu::cold]] void repeat_atomic(const wire::Packet& packet);
  [[gnu::cold]] void refuse(const wire::Packet& packet, Verdict verdict);
  void owe_acknowledge(Instant now, Psn psn, std::uint32_t msn, bool prompt, std::uint32_t requests = 1);
  [[gnu::cold]] void acknowledge_again(Instant now, Psn duplicate);
  [[gnu::cold]] void say_nak(std::uint8_t syndrome, Psn psn);
  [[gnu::cold]] void fatal(wire::NakCode code, Psn psn, AsyncEventType event);
  Resource* resource_at(Psn psn);
  void remember(const Resource& resource);
  std::uint32_t consumed_psns(const wire::Packet& packet) const;

  // responder_emit.cc
  bool owes_acknowledge() const {
    return !responses_.empty() && responses_.front().kind == Response::Kind::Acknowledge;
  }
  // The last packet of a long answer begins a train, being longer than those before it. It waits for one more look at
  // what came: where READs follow each other, the first packets of the next answer ride with it.
  bool owes_last() const {
    if (responses_.size() != 1) return false;
    const Response& front = responses_.front();
    return front.filled && front.length <= link_.mtu();
  }
  bool may_be_read() const { return includes(link_.qp.attributes().access, Access::RemoteRead); }
  bool emit_read(Instant now, Train& train);
  bool emit_read_run(Instant now, Train& train);
  bool emit_short(Instant now, Train& train);
  wire::Packet answer(wire::Opcode opcode, const Response& response) const;
  enum class Added : std::uint8_t { Yes, NoRoom, Fault };
  Added add(Train& train, const wire::Packet& packet, std::span<const Piece> parts, std::size_t payload);
  [[gnu::cold]] void break_off_read(wire::NakCode code, AsyncEventType event);

  Link& link_;
  Psn expected_;
  std::uint32_t msn_ = 0;
  Open open_ = Open::None;
  bool nak_said_ = false;           // one sequence NAK per gap
  bool rnr_said_ = false;           // waiting for the refused packet
  bool rnr_stole_receive_ = false;  // planted bug RnrConsumesReceive

  core::ReceiveWqe receive_;
  std::vector<ScatterGather> receive_sges_;
  std::uint64_t received_ = 0;  // bytes of the open message stored
  PieceList pieces_;            // where the packet at hand goes
  std::uint64_t atomic_original_ = 0;

  std::uint64_t write_va_ = 0;  // rest of the open WRITE
  RKey write_rkey_;
  std::uint32_t write_left_ = 0, write_length_ = 0;

  std::vector<Resource> resources_;  // max_resources_ from the first READ or atomic on
  std::size_t max_resources_ = 0;
  std::size_t next_resource_ = 0;
  ResponseQueue responses_;
  Conversation conversation_;
};

}  // namespace verbena::roce
