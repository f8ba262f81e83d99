// SPDX-License-Identifier: Apache-2.0
#include "sim/run.h"

#include "sim/workload.h"

namespace verbena::sim {

void Coverage::add(const Coverage& other) {
  for (std::size_t i = 0; i < statuses.size(); ++i) statuses[i] += other.statuses[i];
  for (std::size_t i = 0; i < cm_events.size(); ++i) cm_events[i] += other.cm_events[i];
  for (std::size_t i = 0; i < defects.size(); ++i) defects[i] += other.defects[i];
  sequence_naks += other.sequence_naks;
  rnr_naks += other.rnr_naks;
  implied_naks += other.implied_naks;
  timeouts += other.timeouts;
  ghosts += other.ghosts;
  atomic_replays += other.atomic_replays;
  duplicates += other.duplicates;
  bad_icrc += other.bad_icrc;
  drained += other.drained;
  resets += other.resets;
  withdrawals += other.withdrawals;
  bells += other.bells;
  refusals += other.refusals;
}

namespace {

void count(Coverage& coverage, const soft::Counters& c) {
  coverage.sequence_naks += c.send_seq_err;
  coverage.rnr_naks += c.send_rnr_err;
  coverage.implied_naks += c.implied_nak_seq_err;
  coverage.timeouts += c.local_ack_timeout_err;
  coverage.ghosts += c.ghost_acks;
  coverage.atomic_replays += c.atomic_replays;
  coverage.duplicates += c.duplicate_request;
  coverage.bad_icrc += c.dropped[static_cast<std::size_t>(wire::DropReason::BadIcrc)];
}

}  // namespace

RunResult run(const Options& options, const TraceSink& trace) {
#ifdef VERBENA_PLANTED_BUGS
  core::active_planted_bug = options.bug;
#endif
  Verdict verdict;
  World world(options, Workload::memory_per_node(options), verdict, trace);
  Workload workload(world);
  workload.start();
  while (!verdict.failed() && !workload.is_done())
    if (!world.step())
      verdict.fail("liveness", "nothing is left to happen, and not everything came to an end");
  if (!verdict.failed()) workload.finish();

  RunResult result;
  result.failed_oracle = verdict.oracle();
  result.detail = verdict.detail();
  result.packets = world.packets();
  result.completions = workload.completions();
  result.connections = workload.connections();
  result.coverage = workload.coverage();
  for (std::uint8_t n = 0; n < world.nodes(); ++n) {
    result.retransmitted += world.node(n).nic.counters().retransmitted_pkts;
    count(result.coverage, world.node(n).nic.counters());
  }
  result.virtual_time = world.now() - options.start;
  result.hash = world.hash();
  return result;
}

SeedsResult run_seeds(std::uint64_t first, std::uint64_t count, core::PlantedBug bug, bool until_failure) {
  SeedsResult total;
  for (std::uint64_t seed = first; seed != first + count; ++seed) {
    Options options = options_for_seed(seed);
    options.bug = bug;
    RunResult one = run(options);
    ++total.seeds;
    total.packets += one.packets;
    total.retransmitted += one.retransmitted;
    total.completions += one.completions;
    total.connections += one.connections;
    total.coverage.add(one.coverage);
    total.virtual_time = total.virtual_time + one.virtual_time;
    if (one.ok()) continue;
    if (total.failures++ == 0) {
      total.first_failed_seed = seed;
      total.first_failure = std::move(one);
    }
    if (until_failure) break;
  }
  return total;
}

}  // namespace verbena::sim
