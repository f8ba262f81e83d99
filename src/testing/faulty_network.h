// SPDX-License-Identifier: Apache-2.0
// Datagrams on their way between hosts: what arrives when, and what does not. It knows no device, and no clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "soft/roce/train.h"
#include "soft/wire/path.h"
#include "verbena/base/result.h"
#include "verbena/testing/network_faults.h"

namespace verbena::testing {

struct Datagram {
  wire::Path path;
  std::uint16_t identification = 0;
  std::vector<std::byte> bytes;
};

// What has come to a host, and what is on its way there, by when it arrives.
struct Inbox {
  std::multimap<Instant, Datagram> datagrams;
  bool held = false;  // its host does not look
};

// Sees what hosts send. For tests of the library that put in what no device sends.
class DatagramObserver {
 public:
  virtual ~DatagramObserver() = default;
  // Before anything happens to it. May call FaultyNetwork::deliver().
  virtual void on_sent(Instant now, const Datagram& datagram) = 0;
};

// Lifetime: inboxes live as long as the network. Threads: one at a time.
class FaultyNetwork {
 public:
  // Errors: InvalidArgument.
  static Result<void> check(const NetworkFaults& faults);

  FaultyNetwork(std::uint64_t seed, const NetworkFaults& faults) : faults_(faults), random_(seed) {}
  FaultyNetwork(const FaultyNetwork&) = delete;
  FaultyNetwork& operator=(const FaultyNetwork&) = delete;

  // They were checked.
  void change(const NetworkFaults& faults) { faults_ = faults; }
  void observe(DatagramObserver* observer) { observer_ = observer; }
  // From here on something arrives at that address.
  Inbox& open_inbox(const Gid& address) { return inboxes_[address]; }
  void cut(const Gid& from, const Gid& to) { cuts_.emplace(from, to); }
  void mend() { cuts_.clear(); }
  // Nothing comes from there any more, and nothing gets there.
  void silence(const Gid& address);

  void send(Instant now, const roce::Train& train);
  // It arrives, after the usual delay and up to `late` more, unless there is no room.
  void deliver(Instant now, Datagram datagram, Duration late);
  // The next datagram at a host that looks.
  Instant next_arrival() const;

  SeededRandom& random() { return random_; }
  std::uint64_t hash() const { return hash_; }
  const NetworkCounters& counters() const { return counters_; }

 private:
  static constexpr std::size_t kMostHeld = 64;  // datagrams

  bool has_way(const wire::Path& path) const;
  bool happens(double probability) { return probability != 0 && random_.chance(probability); }
  bool is_in_burst(Instant now, const wire::Path& path);
  Duration up_to(Duration most);
  void damage(std::vector<std::byte>& bytes);
  void note(Instant at, const std::vector<std::byte>& bytes);

  NetworkFaults faults_;
  SeededRandom random_;
  DatagramObserver* observer_ = nullptr;
  std::uint64_t hash_ = 0;
  NetworkCounters counters_;
  std::map<Gid, Inbox> inboxes_;
  std::set<Gid> silent_;
  std::set<std::pair<Gid, Gid>> cuts_;             // from, to
  std::map<std::pair<Gid, Gid>, Instant> bursts_;  // from, to: all is lost until then
};

}  // namespace verbena::testing
