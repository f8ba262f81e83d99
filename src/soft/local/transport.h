// SPDX-License-Identifier: Apache-2.0
// The transport of one reliable connected queue pair over two rings in memory that it shares with its peer (ADR 0016).
//
// One thread at a time. Time is handed in. Whenever handle_records(), handle_hang_up() or emit() returned true, the
// caller looks at the peer's wake word: once, after all of them.
#pragma once

#include "soft/local/ring.h"
#include "base/random.h"
#include "soft/core/counters.h"
#include "soft/core/queue_pair.h"
#include "soft/local/config.h"

namespace verbena::local {

// The two rings of a connection. Their memory is the driver's.
struct Channel {
  RingProducer out;
  RingConsumer in;
};

class Transport {
 public:
  // All references outlive it.
  Transport(core::QueuePair& qp, const Config& config, core::MemoryTable& memory, core::Counters& counters,
            RandomSource& random);

  // After the queue pair's attributes changed from `before`.
  void handle_state(QueuePairState before);
  // Both ends agreed on these rings, which are fresh: nothing was written yet. Until then nothing is sent and posts wait.
  // The memory stays until detach().
  void attach(Instant now, const Channel& channel);
  void detach();
  bool attached() const;

  // One bounded turn over what the peer wrote, whose room goes back to it. True when anything was there. A turn that
  // found nothing makes what is owed due: call it again only after the application had a chance to answer.
  bool handle_records(Instant now);
  // The peer is gone: what it had published counts, then the oldest request ends as RetryExceeded with vendor error
  // core::kVendorPeerEnded, now or when it is posted.
  bool handle_hang_up(Instant now);
  void handle_timeout(Instant now);
  // New work may be in the queues.
  void handle_doorbell();
  // The first request is told in RTS as in RTR, where alone R-133 wants it.
  void await_first_request();
  // The device puts the queue pair into ERR.
  void fail(AsyncEventType event);

  // Whether emit() would write something.
  bool ready(Instant now) const;
  // Writes what is due and finds room, and publishes it at once. True when something was published.
  bool emit(Instant now);
  Instant deadline() const;
  // In ERR, and the peer was told why: the socket may be closed.
  bool finished() const;
  void check_invariants() const;
};

}  // namespace verbena::local
