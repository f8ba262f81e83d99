// SPDX-License-Identifier: Apache-2.0
// Everything that a simulated run depends on. Drawn from one seed, or set by hand.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "soft/core/planted.h"
#include "soft/roce/config.h"
#include "verbena/base/time.h"
#include "verbena/base/verbs.h"

namespace verbena::sim {

// What the network does to datagrams, every direction alike. Probabilities per datagram.
struct NetworkOptions {
  Duration delay = Duration::microseconds(5);
  Duration jitter;  // up to this much more, order kept
  std::uint64_t bits_per_second = 100'000'000'000;
  std::uint32_t queue_bytes = 1u << 20;  // what waits for the wire; the rest is lost
  double loss = 0;
  double burst_begin = 0, burst_end = 0.3;  // Gilbert-Elliott: all is lost in the bad state
  double reorder = 0;                       // overtaken by others
  Duration reorder_delay;
  double duplicate = 0;
  std::uint32_t max_duplicates = 1;
  double replay = 0;  // comes again much later
  Duration replay_delay;
  double corrupt = 0;      // bits flipped, cut short, made longer
  double hostile = 0;      // another datagram follows it that a device must ignore, with a right ICRC
  double ghost = 0;        // before a response: an acknowledgement for what was never sent
  std::uint32_t cuts = 0;  // times when nothing gets through in one direction
  Duration cut_time;
  std::vector<std::uint64_t> lose;  // ordinals, from 0 and in order, of datagrams to lose
  struct Flip {
    std::uint64_t ordinal = 0;
    std::uint32_t bit = 0;  // counted from the first of the UDP payload
  };
  std::optional<Flip> flip;  // that datagram arrives with that bit the other way round
};

// How the programs that drive the devices behave.
struct HostOptions {
  Duration max_poll_delay;  // from arrival to the driver's look at it
  Duration max_timer_delay;
  std::uint32_t receive_buffer_bytes = 212'992;
  std::uint32_t pauses = 0;  // stopped as by SIGSTOP
  Duration pause_time;
  double lazy_poll = 0;    // completions are left for later
  bool flush_acks = true;  // sends owed acknowledgements after each look
  bool hide_identification = false;
  bool notify = false;  // completion queues are armed, and events must be right
  std::uint32_t train_datagrams = 64, gather_from_bytes = 2048;
  std::uint32_t source_ports = 1;
};

struct QueueOptions {
  std::uint32_t path_mtu = 1024;
  bool near_wrap = false;  // sequence numbers start near 2^24
  std::uint32_t send_depth = 32, receive_depth = 32;
  std::uint32_t segments = 4, inline_bytes = 64;
  bool signal_all = false;
  std::uint8_t rd_atomic = 4;
  std::uint8_t timeout = 12, retry_count = 7, rnr_retry = 7, min_rnr_timer = 4;
  bool through_cm = false;  // queue pairs are connected by the connection manager
  bool quick_cm = false;    // its timers are short
};

// One request of a scripted run.
struct ScriptedRequest {
  SendOpcode opcode = SendOpcode::Send;
  std::uint32_t length = 0;
  SendFlags flags = SendFlags::Signaled;
};

struct WorkOptions {
  std::uint32_t pairs = 1;
  std::uint32_t operations = 200;                             // send requests in all
  std::array<std::uint32_t, 7> weights{4, 2, 4, 2, 3, 1, 1};  // by SendOpcode
  std::uint32_t max_packets = 8;                              // per message
  Duration think = Duration::microseconds(5);
  double unsignaled = 0.3, fence = 0.1, solicited = 0.1, inlined = 0.3;
  double late_receive = 0;              // a receive is not posted when it could be
  double invalid = 0;                   // a request that must fail
  double drain = 0;                     // per look: a send queue is drained (SQD) and resumed
  double misuse = 0;                    // per look: a call that must be refused
  double kill = 0;                      // per look at a pair: a queue pair goes to ERR or is destroyed
  std::vector<ScriptedRequest> script;  // instead of random requests: these, on the first pair, one way
  Duration patience = Duration::seconds(120);  // after the faults end, for everything to finish
};

struct Options {
  std::uint64_t seed = 1;
  std::uint32_t nodes = 2;
  bool ipv6 = false;
  Instant start;
  NetworkOptions network;
  HostOptions host;
  QueueOptions queues;
  WorkOptions work;
  roce::Config transport;
  core::PlantedBug bug = core::PlantedBug::None;  // obeyed by the test-only copy of the device
};

// A random subset of faults with random strength (swarm). Half of all seeds start near a wrap.
Options options_for_seed(std::uint64_t seed);
// On several lines, for people.
std::string to_string(const Options& options);

std::string_view to_string(core::PlantedBug bug);

}  // namespace verbena::sim
