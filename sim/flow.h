// SPDX-License-Identifier: Apache-2.0
// One direction of a connected pair: the reference model of an ideal device and the judge of every packet.
//
// The model keeps the requests in posting order and knows for each its sequence numbers, its content and its
// effect. Sequence numbers are counted in 64 bits, so that they do not wrap; the low 24 bits are the PSN.
//
//     oldest request     una          acked         next                   seen by the requester's side
//     --------|-----------|-------------|------------|------>
//                                   expected                               seen by the responder's side
//
// una      everything before it is done at the requester: acknowledged, READs and atomics answered in order
// acked    the peer said that everything before it has arrived
// next     one past the highest ever sent
// expected the most that the responder can have accepted
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sim/memory.h"
#include "sim/operation.h"
#include "sim/options.h"
#include "sim/ring.h"
#include "sim/shared_cells.h"
#include "sim/verdict.h"
#include "soft/wire/packet.h"

namespace verbena::sim {

// What one side of a pair knows that the judgement of its peer's requests needs.
struct ResponderView {
  std::uint64_t receives_posted = 0;
};

class Flow {
 public:
  struct Places {
    Area local;           // at the requester: sources and sinks
    Area target, stable;  // at the responder
    SharedCells* cells = nullptr;
    std::uint32_t lane = 0;  // of the shared counter
  };
  Flow(const Options& options, Verdict& verdict, std::string name);

  // ---- Life of one connection.
  void set_places(const Places& places);  // once, before the first open(); keys may change with each
  void set_regions(const core::MemoryRegion& local, const core::MemoryRegion& target,
                   const core::MemoryRegion& stable);
  void open(Psn first_psn, std::uint32_t path_mtu, Instant now);
  // All completions are polled and both queue pairs will not move again. `drained`: the requester was
  // flushed.
  void close(bool drained);
  bool is_idle() const { return next_completion_ == operations_.end(); }

  // ---- Posting. The operation is complete but for what the model adds; it is posted now.
  const Operation& add(const Operation& operation);
  std::uint64_t posted() const { return operations_.end(); }
  std::uint64_t unfinished() const { return operations_.end() - next_completion_; }
  std::uint64_t consumers() const { return consumers_.end(); }
  // The request that takes that receive, posted or not yet received.
  const Operation* consumer(std::uint64_t receive) const;
  // The target is no longer registered: nothing may touch it any more, and requests may be refused.
  void withdraw_target();
  // No new request may start.
  void set_draining(bool draining) { draining_ = draining; }
  void check_drained();
  bool has_defect() const { return fatal_ != kNone; }
  bool is_last_signaled() const { return is_idle() || operations_[operations_.end() - 1].signaled; }
  BufferRing& buffers() { return buffers_; }
  const Places& places() const { return places_; }
  std::uint64_t last_register() const { return last_register_; }

  // ---- Packets.
  void on_request_sent(const wire::Packet& packet, Instant now);
  void on_request_delivered(const wire::Packet& packet, const ResponderView& responder);
  void on_response_sent(const wire::Packet& packet);
  void on_response_delivered(const wire::Packet& packet, Instant now);
  Psn next_unsent() const { return Psn{static_cast<std::uint32_t>(next_)}; }
  std::uint64_t retransmitted() const { return retransmitted_; }

  // ---- Outcomes. `broken`: why this side's queue pair may be in ERR, beyond what this flow knows.
  void on_send_completion(const Completion& completion, bool broken, Instant now);
  // The receive with that ordinal completed with success. The content of `segments` is the message.
  void on_received(std::uint64_t receive, const Completion& completion,
                   std::span<const std::span<const std::byte>> parts);
  bool errored() const { return errored_; }
  // The responder has seen a request that puts its queue pair into ERR.
  bool has_broken_responder() const;

  // After everything: memory as the model says, to the last byte.
  void check_memory();

 private:
  struct Slot {
    std::uint8_t deliveries = 0;
    std::uint8_t sequence_naks = 0;
    bool answered = false;
  };

  bool fail(std::string_view oracle, std::string_view what, std::uint64_t number);
  std::string describe(const Operation& operation) const;

  // flow_requests.cc
  static std::uint64_t near(Psn psn, std::uint64_t to);
  std::uint64_t find(std::uint64_t sequence);
  bool matches(const Operation& op, const wire::Packet& packet, std::uint64_t sequence,
               std::uint32_t* packets);
  bool read_request_matches(const Operation& op, const wire::Packet& packet, std::uint64_t sequence,
                            std::uint32_t* packets);
  void note_first_packet(Operation& op, std::uint64_t number);
  bool place_in_sequence(std::uint64_t sequence, std::uint32_t packets);
  // flow_responses.cc
  void check_read_response(const Operation& op, const wire::Packet& packet, std::uint64_t sequence);
  void check_acknowledge(const wire::Packet& packet, std::uint64_t sequence);
  void check_nak(const wire::Packet& packet, std::uint64_t sequence);
  void check_rnr(std::uint64_t sequence);
  void check_msn(const wire::Packet& packet, std::uint64_t covered);
  std::uint64_t messages_within(std::uint64_t end) const;
  void acknowledge(std::uint64_t end, Instant now);
  void answer(std::uint64_t sequence, bool ends_operation, Instant now);
  // flow_outcomes.cc
  void succeed(std::uint64_t number);
  void confirm(std::uint64_t number);
  void apply(Operation& op, std::uint64_t number);
  void verify_write(const Operation& op, std::uint64_t number);
  void check_result(const Operation& op, std::uint64_t number);
  void check_read(const Operation& op, std::uint64_t number);
  bool changed_later(std::uint64_t number, std::uint64_t at, bool fences_count) const;
  bool justified(const Operation& op, std::uint64_t number, CompletionStatus status, bool broken,
                 Instant now) const;
  void retire();
  // flow_close.cc
  void resolve();
  bool apply_in_part(const Operation& op);
  bool target_matches() const;
  void resolve_shared(std::uint64_t first_unknown);

  const Options& options_;
  Verdict& verdict_;
  const std::string name_;
  Places places_;
  BufferRing buffers_;
  std::vector<std::byte> image_;  // the target as it must be
  std::uint32_t mtu_ = 1024;

  Ring<Operation> operations_;
  Ring<std::uint64_t> consumers_;  // by receive, the request's number
  Ring<Slot> slots_;               // by sequence number
  Ring<std::uint64_t> messages_;   // ends of the request messages on the wire
  std::uint64_t next_completion_ = 0, confirmed_ = 0, received_ = 0;
  std::uint64_t fatal_ = kNone;  // the first request that must fail
  std::uint64_t first_error_ = kNone;
  std::uint64_t hint_ = 0;

  std::uint64_t una_ = 0, acked_ = 0, next_ = 0, cursor_ = 0;
  std::uint64_t expected_ = 0, latest_delivered_ = 0, said_acked_ = 0;
  std::uint64_t run_next_ = kNone;  // sequence number that a READ answer goes on with
  std::uint32_t fetches_out_ = 0, without_ack_request_ = 0, fatal_naks_ = 0;
  Instant last_progress_;
  bool errored_ = false;
  bool draining_ = false, target_gone_ = false;
  std::vector<std::byte> last_target_;  // when it was withdrawn
  std::uint64_t retransmitted_ = 0;

  std::uint64_t lane_count_ = 0;     // additions executed, in order
  std::uint64_t last_register_ = 0;  // last value seen in the shared register
};

}  // namespace verbena::sim
