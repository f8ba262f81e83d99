// SPDX-License-Identifier: Apache-2.0
// The simulated world: a clock, nodes with a device each, and the network between them. One thread, one seed,
// no waiting.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/random.h"
#include "sim/event_queue.h"
#include "sim/flight.h"
#include "sim/memory.h"
#include "sim/options.h"
#include "sim/trace.h"
#include "sim/verdict.h"
#include "soft/nic.h"

namespace verbena::sim {

// What a device was seen to do, to be compared with what it counted.
struct NodeTally {
  std::uint64_t sent = 0, sent_bytes = 0, sequence_naks = 0, rnr_naks = 0, management_sent = 0;
  std::uint64_t received = 0;
};

// A host: its device, and what the driver's loop needs.
struct Node {
  Node(const soft::NicConfig& config, std::uint64_t seed, std::uint64_t memory_bytes)
      : random(seed), nic(config, random), memory(memory_bytes) {}

  SeededRandom random;  // the device's own
  soft::Nic nic;
  Memory memory;
  NodeTally tally;
  std::vector<std::uint32_t> inbox;  // flights that arrived and were not looked at
  std::uint64_t inbox_bytes = 0;
  Moment next_poll;  // not in the queue: it is drawn nearer again and again
  bool paused = false;
  std::uint32_t idle_polls = 0;  // in a row, without time passing
};

// What runs on the nodes and watches the wire.
class Application {
 public:
  // A device sent this. Before the network decides about it.
  virtual void on_sent(const Flight& flight) = 0;
  // A genuine datagram is about to reach the device.
  virtual void on_delivery(const Flight& flight) = 0;
  // The driver has finished a turn: completions may wait.
  virtual void on_polled(std::uint8_t node) = 0;
  virtual void on_event(std::uint8_t node, const core::Event& event) = 0;
  virtual void on_tick(std::uint32_t argument) = 0;
  // One past the last sequence number ever sent by the queue pair that `flight`, a response, answers; false:
  // not known.
  virtual bool next_unsent(const Flight& flight, Psn& psn) = 0;

 protected:
  ~Application() = default;
};

class World {
 public:
  // `verdict` and `trace` outlive the world.
  World(const Options& options, std::uint64_t memory_bytes, Verdict& verdict, const TraceSink& trace);

  void attach(Application& application) { application_ = &application; }
  const Options& options() const { return options_; }
  Instant now() const { return now_; }
  Verdict& verdict() { return verdict_; }

  std::uint8_t nodes() const { return static_cast<std::uint8_t>(nodes_.size()); }
  Node& node(std::uint8_t index) { return *nodes_[index]; }
  static Gid address_of(const Options& options, std::uint8_t node);

  // on_tick(argument) then.
  void tick_at(Instant at, std::uint32_t argument) { queue_.push(at, EventKind::Tick, 0, argument); }
  // Lets the driver of a node look soon: after posting.
  void wake(std::uint8_t node) { schedule_poll(node, now_); }

  // Does the next thing. False when nothing is left to happen.
  bool step();
  // From now on the network and the hosts do their best.
  void heal();

  std::uint64_t packets() const { return packets_; }
  std::uint64_t in_flight() const { return in_flight_; }
  std::uint64_t hash() const { return hash_; }
  void mix(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15u + (hash_ >> 29); }

 private:
  struct Link {
    Instant free_at;  // the wire is busy until then
    Instant last_arrival;
    Instant cut_until;
    bool bad = false;  // inside a burst
  };

  // world.cc
  void schedule_poll(std::uint8_t node, Instant at);
  std::optional<std::uint8_t> first_to_poll() const;
  void happen(const Event& event);
  void arrive(std::uint8_t node, std::uint32_t flight);
  void poll(std::uint8_t index);
  std::size_t joined(const Node& node, std::size_t first);
  void deliver(Node& node, std::size_t first, std::size_t count);
  void transmit_all(std::uint8_t index);
  void plan_disturbances();
  // network.cc
  void transmit(std::uint32_t flight);
  void send(Link& link, std::uint32_t flight, Instant arrival);
  bool loses(Link& link, const Flight& flight);
  void send_copy(Link& link, std::uint32_t flight, Instant arrival, Fate fate);
  void send_corrupted(Link& link, const Flight& original, Instant arrival);
  void send_flipped(Link& link, const Flight& original, std::uint32_t bit, Instant arrival);
  void send_hostile(Link& link, const Flight& original, Instant arrival);
  std::uint32_t clone(const Flight& original);
  void deliver_ghost(Node& node, const Flight& original);
  void record(const Flight& flight, Instant arrives, Fate fate);
  Link& link(std::uint8_t from, std::uint8_t to) { return links_[std::size_t{from} * nodes_.size() + to]; }
  Duration random_up_to(Duration limit);

  const Options options_;
  Verdict& verdict_;
  const TraceSink& trace_;
  Application* application_ = nullptr;
  NetworkOptions network_;
  HostOptions host_;
  SeededRandom random_;
  std::vector<std::byte> train_bytes_;
  Instant now_;
  EventQueue queue_;
  FlightPool pool_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Link> links_;
  roce::Train train_;
  std::size_t next_to_lose_ = 0;
  std::uint64_t packets_ = 0, in_flight_ = 0, hash_ = 0;
};

}  // namespace verbena::sim
