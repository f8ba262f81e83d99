// SPDX-License-Identifier: Apache-2.0
// The packet transport of one reliable connected queue pair: requester, responder and completer around one
// send state.
#pragma once

#include "soft/roce/completer.h"
#include "soft/roce/requester.h"
#include "soft/roce/responder.h"

namespace verbena::roce {

class Transport {
 public:
  Transport(core::QueuePair& qp, const Config& config, core::MemoryTable& memory, Counters& counters,
            RandomSource& random, std::uint16_t pkey);

  // After the queue pair's attributes changed from `before`. `path`: towards the peer, valid from RTR on.
  void handle_state(QueuePairState before, const wire::Path& path, std::uint32_t source_index);
  // These changed, and the state did not.
  void follow_attributes(Instant now, AttributeMask changed);
  // A packet for this queue pair, validated and admitted.
  void handle_packet(Instant now, const wire::Packet& packet);
  // Packets that repeat `packet` but for number and payload. Nothing happens before the second call, which says how
  // many of them were right and are stored.
  Run open_run(const wire::Packet& packet, std::uint32_t count);
  void close_run(Instant now, const wire::Packet& packet, std::uint32_t count);
  // See Responder.
  bool opens_sends(const wire::Packet& packet) const { return responder_.opens_sends(packet); }
  bool take_send(const wire::Packet& packet) { return responder_.take_send(packet); }
  void close_sends(Instant now, std::uint32_t count) { responder_.close_sends(now, count); }
  void handle_timeout(Instant now);
  // New work may be in the queues.
  void handle_doorbell();
  // The first request is told in RTS as in RTR, where alone R-133 wants it.
  void await_first_request() { first_request_awaited_ = true; }
  // The device puts the queue pair into ERR.
  [[gnu::cold]] void fail(AsyncEventType event);

  // What its device must know of it, after anything that happened to it.
  struct Outlook {
    bool ready = false;  // emit() would add something now, though it were not to flush acknowledgements
    bool owes = false;   // something that only that or time sends
    Instant deadline = Instant::never();
  };
  Outlook outlook(Instant now);
  // One train; false when there was nothing to send.
  bool emit(Instant now, bool flush_acks, Train& train);
  // The same for a request that is not posted yet; see Requester::put_short(). What is owed does not ride with it, it
  // follows: behind what answers comes a wait, in which an acknowledgement keeps nobody.
  bool put_short(const SendRequest& request, Train& train);
  void follow_short(Instant now, const Train& train);
  // Whether there were requests of ours in the last one.
  bool sent_requests() const { return sent_requests_; }
  // Requests left for this peer by another queue pair.
  void note_reply(Instant now) { responder_.note_reply(now); }
  const Gid& peer() const { return link_.path.destination; }
  // What is owed may wait a little although there is nothing else to do.
  bool holds_back(Instant now) const { return responder_.holds_back(now); }
  Instant deadline() const;

  const SendState& send_state() const { return send_; }
  const Responder& responder() const { return responder_; }
  void check_invariants() const;

 private:
  void check_drained();
  // The sending side failed: an error of our own ends what the responder still had to say.
  void fall_silent_after(QueuePairState before);

  Link link_;
  SendState send_;
  Requester requester_;
  Completer completer_;
  Responder responder_;
  bool sent_requests_ = false;
  bool established_said_ = false;
  bool first_request_awaited_ = false;
};

}  // namespace verbena::roce
