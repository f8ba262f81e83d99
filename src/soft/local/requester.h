// SPDX-License-Identifier: Apache-2.0
// Turns send requests into records, within room, order, fence and READ limits.
#pragma once

#include "soft/local/answers.h"
#include "soft/local/link.h"
#include "soft/local/send_state.h"

namespace verbena::local {

class Requester {
 public:
  Requester(Link& link, SendState& state, Answers& answers) : link_(link), state_(state), answers_(answers) {}

  // Whether there is something that may be written, room or not.
  bool ready() const;
  // All requests are written.
  bool is_idle() const { return next_request() == nullptr; }
  // Lets go of what the peer took back. Reads shared memory.
  void look_for_revocations();
  // The length of the next record; only when ready.
  std::uint32_t next_record_bytes() const;
  // Writes records until work or room ends, or `limit` bytes are written. What can be copied to or from the
  // peer's memory is, instead: that is done then.
  Written write(Instant now, std::uint32_t limit);
  // A SEND of a few bytes that is not posted yet and finds nothing else waiting: it is published, and posted behind
  // that; await_peer() is due. False: it is to be posted; or the ring is lost.
  bool put_short(const SendRequest& request);
  // One request that nothing else waits with, short and to be carried in its record: writes that, or fails it;
  // await_peer() is due. False: nothing happened, and write() is to be asked.
  bool write_short();
  // Something written waits for the peer's answer, or what is ready for room: its silence counts.
  void await_peer(Instant now);
  // Whether records of requests that are not done name that memory.
  [[gnu::cold]] bool names(LKey lkey) const;
  // Carry out what is not posted, when all that is posted is done and the memory is granted. What it names here is
  // this process's own, whatever the keys. False: it is to be posted; a part of it may be done.
  bool do_now(const ShortWrite& write);
  bool do_now(const ShortRead& read);

 private:
  struct Cut;    // one record's place in its message
  struct Fetch;  // requests that are done by one call
  enum class Way : std::uint8_t { Ring, Direct, Wait };

  core::SendWqe* next_request() const;
  bool may_start(const core::SendWqe& wqe) const;
  Cut cut_of(const core::SendWqe& wqe) const;
  Cut pulled_cut_of(const core::SendWqe& wqe, Cut cut) const;
  bool is_to_be_pulled(const core::SendWqe& wqe) const;
  bool begin(core::SendWqe& wqe);
  // A request posted now would not be the next to be written, and alone.
  bool is_held_up() const { return state_.began || state_.waits || state_.failed || state_.rnr_waiting; }
  bool is_short(const core::SendWqe& wqe) const;
  bool load_short(const SendRequest& request, std::uint32_t length, std::byte* to) const;
  // requester_direct.cc
  const PeerRegion* granted(RKey rkey, std::uint64_t address, std::uint64_t bytes, Access wanted);
  const PeerRegion* reach(const core::SendWqe& wqe);
  Way way_of(const core::SendWqe& wqe);
  std::uint32_t copy_directly(const core::SendWqe& wqe, const PeerRegion& region, std::uint32_t limit);
  template <class Short, class Copy>
  bool copy_now(SendOpcode opcode, const Short& request, Copy copy);
  bool update_word(const core::SendWqe& wqe, const PeerRegion& region);
  bool copy_part(const core::SendWqe& wqe, const PeerRegion& region, std::uint32_t bytes);
  static bool load(const core::PieceList& pieces, const std::byte* there, bool past_cache);
  bool add_to(Fetch& fetch, std::uint32_t index, std::uint32_t offset, const PeerRegion& region);
  bool may_follow(const Fetch& fetch, const core::SendWqe& wqe, const PeerRegion& region) const;
  std::uint32_t fetch(const PeerRegion& region);
  bool lose(const PeerRegion& region);
  void begin_again();
  void advance_directly(const core::SendWqe& wqe, std::uint32_t bytes);
  void count_direct(SendOpcode opcode, std::uint32_t bytes);
  bool put_record(core::SendWqe& wqe, const Cut& cut, std::byte* to);
  bool write_record(core::SendWqe& wqe, const Cut& cut, std::byte* to);
  bool write_names(core::SendWqe& wqe, const Cut& cut, std::byte* to);
  RequestHead make_head(const core::SendWqe& wqe, Placement placement);
  bool copy_payload(const core::SendWqe& wqe, const Cut& cut, std::byte* to);
  bool peer_maps(std::span<const ScatterGather> sges) const;
  RKey region_to_map(std::span<const ScatterGather> sges) const;
  bool name_payload(const Cut& cut, PieceSet& named);
  void advance(const core::SendWqe& wqe, const Cut& cut);
  [[gnu::cold]] void fail(CompletionStatus status);
  bool at_failed() const { return state_.failed && state_.current == state_.failed_index; }

  Link& link_;
  SendState& state_;
  Answers& answers_;  // requests carry acknowledgements
};

}  // namespace verbena::local
