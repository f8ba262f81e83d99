// SPDX-License-Identifier: Apache-2.0
#include "cases.h"

namespace verbena::interop {

Link connect(World& w, PairOptions requester, PairOptions responder) {
  requester.mtu = responder.mtu = w.mtu;
  // Half of all cases pass the point where sequence numbers wrap.
  requester.first = Psn{w.seed % 2 == 0 ? 0xfffffeu : static_cast<std::uint32_t>(w.seed * 0x9e3779b9u)};
  responder.first = requester.first + 0x400000;
  const Link link{w.requester.make_pair(requester), w.responder.make_pair(responder)};
  if (w.report.failed()) return link;
  w.requester.connect(link.requester, {w.responder.gid(), w.responder.qpn(link.responder), responder.first});
  w.responder.connect(link.responder, {w.requester.gid(), w.requester.qpn(link.requester), requester.first});
  return link;
}

std::string describe(const Outcome& outcome) {
  return "request " + std::to_string(outcome.id) + " " + std::string{to_string(outcome.status)};
}

std::vector<Outcome> expect_outcomes(World& w, Side& side, std::uint64_t pair, Queue queue,
                                     const std::vector<Expected>& expected) {
  if (w.report.failed()) return std::vector<Outcome>(expected.size());
  std::string where = side.name();
  where += queue == Queue::Send ? " send queue: " : " receive queue: ";
  auto outcomes = side.poll(pair, queue, expected.size(), kWaitMs);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const std::string wanted = describe({expected[i].id, expected[i].status});
    if (i >= outcomes.size())
      w.report.fail(std::string{where}.append(wanted).append(" never came"));
    else if (outcomes[i].id != expected[i].id || outcomes[i].status != expected[i].status)
      w.report.fail(where + describe(outcomes[i]) + " instead of " + wanted);
  }
  outcomes.resize(expected.size());
  return outcomes;
}

void expect_none(World& w, Side& side, std::uint64_t pair, Queue queue) {
  if (w.report.failed()) return;
  for (const Outcome& outcome : side.poll(pair, queue, 1, 0))
    w.report.fail(side.name() + ": " + describe(outcome) + " was not expected");
}

void expect_state(World& w, Side& side, std::uint64_t pair, QueuePairState state) {
  if (w.report.failed()) return;
  const QueuePairState found = side.state(pair);
  w.report.expect(found == state, side.name() + ": queue pair in " + std::string{to_string(found)} +
                                      " instead of " + std::string{to_string(state)});
}

void expect_pattern(World& w, Side& side, std::uint64_t region, std::uint64_t offset, std::uint64_t bytes,
                    std::uint64_t seed) {
  if (w.report.failed()) return;
  const Digest digest = side.digest(region, offset, bytes);
  w.report.expect(digest.hash == pattern_hash(bytes, seed), side.name() + ": other bytes than those sent");
  w.report.expect(digest.intact, side.name() + ": bytes outside the target were overwritten");
}

void expect_untouched(World& w, Side& side, std::uint64_t region) {
  if (w.report.failed()) return;
  w.report.expect(side.digest(region, 0, 0).intact, side.name() + ": bytes were written that must not be");
}

}  // namespace verbena::interop
