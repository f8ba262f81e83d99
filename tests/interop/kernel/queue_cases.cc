// SPDX-License-Identifier: Apache-2.0
// Many requests at once: segments, unsignaled and inline requests, fences, the bounds on READs, order.
#include <algorithm>

#include "cases.h"

namespace verbena::interop {

namespace {

constexpr std::uint32_t kMany = 64;

std::vector<Expected> ids(std::uint64_t count) {
  std::vector<Expected> expected;
  for (std::uint64_t i = 0; i < count; ++i) expected.push_back({i});
  return expected;
}

// Gathered from four odd segments, one of them empty, and scattered over three others; only the last is
// signaled.
void many_segments(World& w) {
  constexpr std::uint32_t kMessage = 1500;
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(kMany * kMessage);
  const RegionHandle remote = w.responder.make_region(kMany * kMessage);
  if (w.report.failed()) return;
  w.requester.fill(local.id, 0, kMany * kMessage, w.seed);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < kMany; ++i) {
    const std::uint64_t at = std::uint64_t{i} * kMessage;
    w.responder.post_receive(link.responder, i,
                             {{remote.id, at, 1}, {remote.id, at + 1, 1022}, {remote.id, at + 1023, 477}});
    requests.push_back(
        {i,
         SendOpcode::Send,
         i + 1 < kMany ? SendFlags::None : SendFlags::Signaled,
         {{local.id, at, 3}, {local.id, at + 3, 1000}, {local.id, at, 0}, {local.id, at + 1003, 497}}});
  }
  w.requester.post_send(link.requester, requests);
  expect_outcomes(w, w.requester, link.requester, Queue::Send, {{kMany - 1}});
  expect_none(w, w.requester, link.requester, Queue::Send);
  for (const Outcome& got : expect_outcomes(w, w.responder, link.responder, Queue::Receive, ids(kMany)))
    w.report.expect(w.report.failed() || got.bytes == kMessage,
                    "receive reports " + std::to_string(got.bytes) + " bytes");
  expect_pattern(w, w.responder, remote.id, 0, kMany * kMessage, w.seed);
}

// The bytes are taken at the post: what happens to the source afterwards does not matter.
void inline_requests(World& w, SendOpcode opcode) {
  constexpr std::uint32_t kBytes = 200;
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(kBytes);
  const RegionHandle remote = w.responder.make_region(kBytes);
  if (w.report.failed()) return;
  w.requester.fill(local.id, 0, kBytes, w.seed);
  const Request request{
      3,          opcode, SendFlags::Inline | SendFlags::Signaled, {{local.id, 0, kBytes}}, remote.address,
      remote.rkey};
  // The receive comes after the source is overwritten, so a SEND cannot have gone out by then.
  w.requester.post_send(link.requester, {&request, 1});
  w.requester.fill(local.id, 0, kBytes, w.seed + 1);
  if (opcode == SendOpcode::Send) w.responder.post_receive(link.responder, 4, {{remote.id, 0, kBytes}});
  expect_outcomes(w, w.requester, link.requester, Queue::Send, {{3}});
  expect_pattern(w, w.responder, remote.id, 0, kBytes, w.seed);
}

// What a READ brings is sent back by a fenced request posted with it.
void fence(World& w, SendOpcode opcode) {
  const std::uint32_t bytes = 3 * w.mtu + 1;
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(bytes);
  const RegionHandle source = w.responder.make_region(bytes);
  const RegionHandle target = w.responder.make_region(bytes);
  if (w.report.failed()) return;
  w.responder.fill(source.id, 0, bytes, w.seed);
  w.responder.post_receive(link.responder, 0, {{target.id, 0, bytes}});
  const std::vector<Request> requests{
      {0, SendOpcode::RdmaRead, SendFlags::None, {{local.id, 0, bytes}}, source.address, source.rkey},
      {1,
       opcode,
       SendFlags::Fence | SendFlags::Signaled,
       {{local.id, 0, bytes}},
       target.address,
       target.rkey}};
  w.requester.post_send(link.requester, requests);
  expect_outcomes(w, w.requester, link.requester, Queue::Send, {{1}});
  expect_pattern(w, w.responder, target.id, 0, bytes, w.seed);
}

// More READs than may be outstanding, a WRITE behind each: all complete in order, and nothing is mixed up.
void reads_with_writes(World& w, std::uint8_t bound) {
  constexpr std::uint32_t kReads = 24;
  const std::uint32_t bytes = 2 * w.mtu + 3;
  PairOptions options;
  options.max_rd_atomic = options.max_dest_rd_atomic = bound;
  const Link link = connect(w, options, options);
  const RegionHandle read_from = w.responder.make_region(kReads * bytes);
  const RegionHandle read_to = w.requester.make_region(kReads * bytes);
  const RegionHandle write_from = w.requester.make_region(kReads * bytes);
  const RegionHandle write_to = w.responder.make_region(kReads * bytes);
  if (w.report.failed()) return;
  w.responder.fill(read_from.id, 0, kReads * bytes, w.seed);
  w.requester.fill(write_from.id, 0, kReads * bytes, w.seed + 1);
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < kReads; ++i) {
    const std::uint64_t at = std::uint64_t{i} * bytes;
    requests.push_back({2 * i,
                        SendOpcode::RdmaRead,
                        SendFlags::Signaled,
                        {{read_to.id, at, bytes}},
                        read_from.address + at,
                        read_from.rkey});
    requests.push_back({2 * i + 1,
                        SendOpcode::RdmaWrite,
                        SendFlags::Signaled,
                        {{write_from.id, at, bytes}},
                        write_to.address + at,
                        write_to.rkey});
  }
  w.requester.post_send(link.requester, requests);
  expect_outcomes(w, w.requester, link.requester, Queue::Send, ids(2 * kReads));
  expect_pattern(w, w.requester, read_to.id, 0, kReads * bytes, w.seed);
  expect_pattern(w, w.responder, write_to.id, 0, kReads * bytes, w.seed + 1);
}

// A READ posted behind a WRITE sees what was written, an atomic behind both counts on.
void read_sees_the_write_before(World& w) {
  const std::uint32_t bytes = 4 * w.mtu;
  const Link link = connect(w);
  const RegionHandle from = w.requester.make_region(bytes);
  const RegionHandle back = w.requester.make_region(bytes);
  const RegionHandle remote = w.responder.make_region(bytes);
  if (w.report.failed()) return;
  w.requester.fill(from.id, 0, bytes, w.seed);
  const std::vector<Request> requests{
      {0, SendOpcode::RdmaWrite, SendFlags::Signaled, {{from.id, 0, bytes}}, remote.address, remote.rkey},
      {1, SendOpcode::RdmaRead, SendFlags::Signaled, {{back.id, 0, bytes}}, remote.address, remote.rkey}};
  w.requester.post_send(link.requester, requests);
  expect_outcomes(w, w.requester, link.requester, Queue::Send, ids(2));
  expect_pattern(w, w.requester, back.id, 0, bytes, w.seed);
}

// Rule O-2: the receive's completion says that the WRITE before it is there, whoever reads first.
void receive_means_write_is_there(World& w) {
  const std::uint32_t bytes = 5 * w.mtu + 1;
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(bytes);
  const RegionHandle remote = w.responder.make_region(bytes);
  if (w.report.failed()) return;
  w.requester.fill(local.id, 0, bytes, w.seed);
  w.responder.post_receive(link.responder, 0, {});
  const std::vector<Request> requests{
      {0, SendOpcode::RdmaWrite, SendFlags::None, {{local.id, 0, bytes}}, remote.address, remote.rkey},
      {1, SendOpcode::Send, SendFlags::Signaled, {}}};
  w.requester.post_send(link.requester, requests);
  expect_outcomes(w, w.responder, link.responder, Queue::Receive, ids(1));
  expect_pattern(w, w.responder, remote.id, 0, bytes, w.seed);
  expect_outcomes(w, w.requester, link.requester, Queue::Send, {{1}});
}

}  // namespace

std::vector<Case> queue_cases() {
  return {
      {"queue/many_segments_unsignaled", many_segments},
      {"queue/inline_send", [](World& w) { inline_requests(w, SendOpcode::Send); }},
      {"queue/inline_write", [](World& w) { inline_requests(w, SendOpcode::RdmaWrite); }},
      {"queue/fenced_send", [](World& w) { fence(w, SendOpcode::Send); }},
      {"queue/fenced_write", [](World& w) { fence(w, SendOpcode::RdmaWrite); }},
      {"queue/reads_with_writes/max_rd_atomic_1", [](World& w) { reads_with_writes(w, 1); }},
      {"queue/reads_with_writes/max_rd_atomic_16", [](World& w) { reads_with_writes(w, 16); }},
      {"queue/read_sees_the_write_before", read_sees_the_write_before},
      {"queue/receive_means_write_is_there", receive_means_write_is_there},
  };
}

}  // namespace verbena::interop
