// SPDX-License-Identifier: Apache-2.0
// The transport of one reliable connected queue pair over two rings in memory that it shares with its peer (ADR 0016):
// requester, responder and completer around one send state.
//
// One thread at a time. Time is handed in. Whenever handle_records() or emit() returned true, the caller looks at the
// peer's wake word: once, after both.
#pragma once

#include "soft/local/completer.h"
#include "soft/local/requester.h"
#include "soft/local/responder.h"
#include "soft/local/short_send.h"

namespace verbena::local {

class Transport final : private core::RequestRecall {
 public:
  // All references outlive it.
  Transport(core::QueuePair& qp, const Config& config, core::MemoryTable& memory, core::Counters& counters,
            RandomSource& random);
  ~Transport() override { detach(); }
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // After the queue pair's attributes changed from `before`. RESET detaches.
  void handle_state(QueuePairState before);
  // These changed, and the state did not.
  void follow_attributes(Instant now, AttributeMask changed);
  // Both ends agreed on these rings, which are fresh: nothing was written yet. Until then nothing is sent and posts
  // wait. Once in the life of a connection, from RESET to RESET. The memory stays until detach().
  void attach(Instant now, const Channel& channel);
  void detach();
  bool attached() const { return link_.channel.has_value(); }

  // ---- Memory that one side reaches by itself.
  // Grants the peer what `region` and the queue pair let it do. Nothing: that is nothing, or too much is
  // granted already. `mapped`: the peer will map it; otherwise it may read only, by PeerMemory::pull().
  std::optional<Grant> grant(const core::MemoryRegion& region, bool mapped);
  // Takes that back: no copy begins there once fence_grants() came after it. Nothing: it was not granted.
  std::optional<std::uint32_t> revoke(RKey rkey);
  // One that is granted still, if any.
  std::optional<RKey> any_granted() const;
  void fence_grants() { link_.channel->granter->fence(); }
  // After that: whether the peer said that it copies there, and not yet that it ended. Reads shared
  // memory.
  bool is_claimed(std::uint32_t slot) const { return link_.channel->granter->is_claimed(slot); }
  // After that: none goes on; or one that does, does not count any more.
  void clear(std::uint32_t slot) { link_.channel->granter->clear(slot); }
  void cut(std::uint32_t slot) { link_.channel->granter->cut(slot); }
  // The peer lets go: nothing that is copied to it would arrive.
  void stop_copying() { link_.peer_leaves = true; }
  // What RegionSource::ask() brought. False: nobody asked, and it is not used.
  bool handle_region(const PeerRegion& region, bool open);

  // One bounded turn over what the peer wrote, whose room goes back to it. True when anything was there. A turn that
  // found nothing makes owed acknowledgements due: call it again only after the application had a chance to answer.
  bool handle_records(Instant now);
  // Instead of a turn, where one waits: takes a short SEND that came. Its room waits for catch_up(), of which the next
  // turn is one; so does what it acknowledges, where nobody is to hear of that: of one request alone that is not
  // signaled, with room for another. False: nothing happened, ask handle_records().
  bool take_short(Instant now);
  void catch_up(Instant now);
  // What is owed does not wait for a turn that finds nothing.
  void make_owed_due() { responder_.handle_pause(); }
  // A short look: true when handle_records() would find nothing now, with time for nothing else. Where it cannot be
  // had, false.
  bool looks_empty() const;
  // Whether turns gave back so much room that a peer who waits for it is to be woken.
  bool gave_room();
  // The peer hung up: what it had published counts, then the oldest request ends as RetryExceeded with vendor error
  // core::kVendorPeerEnded, now or when it is posted. `gone`, and there was none: PeerEnded is raised.
  void handle_hang_up(Instant now, bool gone = false);
  // A copy out of its memory met no peer: nothing is read or written any more, and handle_hang_up() is due.
  bool lost_peer() const { return link_.peer_gone && !peer_ended_; }
  void handle_timeout(Instant now);
  // New work may be in the queues.
  void handle_doorbell();
  // The first request is told in RTS as in RTR, where alone R-133 wants it.
  void await_first_request() { first_request_awaited_ = true; }
  // Whether a request that is not done names that memory for the peer to copy; and the end of that: the oldest fails,
  // and what the peer copies from now on does not count.
  bool names(LKey lkey) const { return attached() && sends() && requester_.names(lkey); }
  [[gnu::cold]] void take_back_named();
  // The device puts the queue pair into ERR.
  [[gnu::cold]] void fail(AsyncEventType event);

  // Nothing is to be written now or later, unless something comes.
  bool idle() const { return requester_.is_idle() && !responder_.owes_answer() && !finished(); }
  // Likewise until deadline(), but for what is owed.
  bool rests() const {
    return sends() && requester_.is_idle() && !peer_ended_ && !link_.peer_gone &&
           (answers_.empty() || (answers_.is_only_owed() && !answers_.due()));
  }
  // Carries out a ShortWrite or ShortRead, which is not posted; see Requester::do_now(). handle_state() or emit()
  // follows when the queue pair is in ERR after it.
  template <class Short>
  bool do_now(const Short& request);
  // Whether emit() would write something. A request that only lacks room waits for the peer from now on, as one that
  // was written: ask again after whatever happened.
  bool ready(Instant now);
  // Writes what is due and finds room, a quarter of the ring of each kind at most, and publishes it at once. True when
  // something was published.
  bool emit(Instant now);
  // The short way of emit(), for what was posted alone. True: it was published, or failed, nothing else is ready, and
  // follow_short() is due: time is not looked for before.
  bool emit_short();
  void follow_short(Instant now);
  // The shortest way, for a SEND of a few bytes that is not posted yet: it is published and posted, and follow_short()
  // is due. False: it is to be posted.
  bool put_short(const SendRequest& request);
  Instant deadline() const;
  // In ERR, and the peer was told why: the socket may be closed.
  bool finished() const;
  void check_invariants() const;

 private:
  void recall() override;
  bool serves() const {
    return attached() && !broken_ && (sends() || link_.qp.state() == QueuePairState::Rtr);
  }
  bool reads() const { return serves() && !link_.peer_gone; }
  bool writes() const;
  bool sends() const {
    const QueuePairState state = link_.qp.state();
    return state == QueuePairState::Rts || state == QueuePairState::Sqd;
  }
  bool read_turn(Instant now);
  void handle_record(Instant now, const Record& record);
  void give_room();
  void acknowledge_short(Instant now, std::uint16_t acknowledged);
  bool handle_request(Instant now, std::uint16_t kind, std::span<const std::byte> record);
  bool handle_response(Instant now, std::uint16_t kind, std::span<const std::byte> record);
  template <class F>
  bool handle_answer(F&& handle);
  bool answers_before(bool data) const;
  bool write_turn(Instant now);
  // Nothing of what the peer says counts any more.
  [[gnu::cold]] void break_off();
  void settle();
  void check_drained();
  // The sending side failed: an error of our own ends what the responder still had to say.
  void fall_silent_after(QueuePairState before);

  Link link_;
  SendState send_;
  Answers answers_;
  Requester requester_;
  Completer completer_;
  Responder responder_;
  std::optional<ShortSend> taken_;  // by take_short(), until catch_up()
  std::uint64_t room_told_ = 0;  // where the peer's ring was when gave_room() last said so
  bool awaited_ = false;         // the last turn found nothing
  bool recalled_ = false;
  bool broken_ = false;
  bool peer_ended_ = false;
  bool answers_first_ = true;  // of two that want the room
  bool established_said_ = false;
  bool first_request_awaited_ = false;
};

}  // namespace verbena::local
