// SPDX-License-Identifier: Apache-2.0
// One request at a time: every operation at the sizes where segmentation changes, and the atomics.
#include <algorithm>
#include <tuple>

#include "cases.h"

namespace verbena::interop {

namespace {

// Neither aligned nor at the region's edge.
constexpr std::uint64_t kOffset = 67;

bool with_immediate(SendOpcode opcode) {
  return opcode == SendOpcode::SendWithImmediate || opcode == SendOpcode::RdmaWriteWithImmediate;
}
bool is_send(SendOpcode opcode) {
  return opcode == SendOpcode::Send || opcode == SendOpcode::SendWithImmediate;
}
CompletionOpcode completes_as(SendOpcode opcode) {
  if (is_send(opcode)) return CompletionOpcode::Send;
  return opcode == SendOpcode::RdmaRead ? CompletionOpcode::RdmaRead : CompletionOpcode::RdmaWrite;
}

std::vector<Piece> piece(const RegionHandle& region, std::uint32_t bytes) {
  if (bytes == 0) return {};
  return {{region.id, kOffset, bytes}};
}

void expect_receive(World& w, const Link& link, SendOpcode opcode, std::uint32_t bytes,
                    std::uint32_t immediate) {
  const Outcome got = expect_outcomes(w, w.responder, link.responder, Queue::Receive, {{7}})[0];
  if (w.report.failed()) return;
  w.report.expect(got.opcode == (is_send(opcode) ? CompletionOpcode::Receive
                                                 : CompletionOpcode::ReceiveRdmaWithImmediate),
                  "receive completed as " + std::string{to_string(got.opcode)});
  w.report.expect(got.bytes == bytes, "receive reports " + std::to_string(got.bytes) + " bytes");
  w.report.expect(got.immediate.has_value() == with_immediate(opcode), "immediate reported wrongly");
  if (got.immediate) w.report.expect(*got.immediate == immediate, "another immediate than was sent");
}

void transfer(World& w, SendOpcode opcode, std::uint32_t bytes) {
  const bool reads = opcode == SendOpcode::RdmaRead;
  const auto immediate = static_cast<std::uint32_t>(0x01020304 + w.seed);
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(bytes + 2 * kOffset);
  const RegionHandle remote = w.responder.make_region(bytes + 2 * kOffset);
  if (w.report.failed()) return;
  if (reads)
    w.responder.fill(remote.id, kOffset, bytes, w.seed);
  else
    w.requester.fill(local.id, kOffset, bytes, w.seed);
  if (is_send(opcode)) w.responder.post_receive(link.responder, 7, piece(remote, bytes));
  if (opcode == SendOpcode::RdmaWriteWithImmediate) w.responder.post_receive(link.responder, 7, {});

  const Request request{
      5, opcode, SendFlags::Signaled, piece(local, bytes), remote.address + kOffset, remote.rkey, immediate};
  w.requester.post_send(link.requester, {&request, 1});
  const Outcome sent = expect_outcomes(w, w.requester, link.requester, Queue::Send, {{5}})[0];
  if (w.report.failed()) return;
  w.report.expect(sent.opcode == completes_as(opcode), "completed as " + std::string{to_string(sent.opcode)});
  if (reads) w.report.expect(sent.bytes == bytes, "READ reports " + std::to_string(sent.bytes) + " bytes");
  if (is_send(opcode) || with_immediate(opcode)) expect_receive(w, link, opcode, bytes, immediate);
  expect_none(w, w.requester, link.requester, Queue::Send);
  expect_none(w, w.responder, link.responder, Queue::Receive);
  expect_pattern(w, w.requester, local.id, kOffset, bytes, w.seed);
  expect_pattern(w, w.responder, remote.id, kOffset, bytes, w.seed);
}

// One atomic on a word that holds `before`.
void atomic(World& w, SendOpcode opcode, std::uint64_t before, std::uint64_t compare,
            std::uint64_t swap_or_add, std::uint64_t after) {
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(16);
  const RegionHandle remote = w.responder.make_region(64);
  if (w.report.failed()) return;
  w.responder.store(remote.id, 24, before);
  const Request request{5, opcode,  SendFlags::Signaled, {{local.id, 8, 8}}, remote.address + 24, remote.rkey,
                        0, compare, swap_or_add};
  w.requester.post_send(link.requester, {&request, 1});
  const Outcome outcome = expect_outcomes(w, w.requester, link.requester, Queue::Send, {{5}})[0];
  if (w.report.failed()) return;
  w.report.expect(outcome.opcode == (opcode == SendOpcode::FetchAndAdd ? CompletionOpcode::FetchAndAdd
                                                                       : CompletionOpcode::CompareAndSwap),
                  "completed as " + std::string{to_string(outcome.opcode)});
  w.report.expect(w.requester.load(local.id, 8) == before, "another value came back than was there");
  w.report.expect(w.responder.load(remote.id, 24) == after, "the word is not what the atomic makes of it");
  w.report.expect(w.responder.digest(remote.id, 24, 8).intact, "bytes beside the word were overwritten");
  w.report.expect(w.requester.digest(local.id, 8, 8).intact, "bytes beside the result were overwritten");
}

// Whatever is sent twice on the way, each counts once, in order.
void atomics_count_once(World& w) {
  constexpr std::uint64_t kCount = 100;
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(8 * kCount);
  const RegionHandle remote = w.responder.make_region(8);
  if (w.report.failed()) return;
  w.responder.store(remote.id, 0, 0);
  std::vector<Request> requests;
  std::vector<Expected> expected;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    requests.push_back({i,
                        SendOpcode::FetchAndAdd,
                        SendFlags::Signaled,
                        {{local.id, 8 * i, 8}},
                        remote.address,
                        remote.rkey,
                        0,
                        0,
                        1});
    expected.push_back({i});
  }
  w.requester.post_send(link.requester, requests);
  expect_outcomes(w, w.requester, link.requester, Queue::Send, expected);
  if (w.report.failed()) return;
  w.report.expect(w.responder.load(remote.id, 0) == kCount, "the counter is not at the number of additions");
  for (const std::uint64_t i : {std::uint64_t{0}, kCount / 2, kCount - 1})
    w.report.expect(w.requester.load(local.id, 8 * i) == i, "an addition saw another value than its turn's");
}

}  // namespace

std::vector<Case> transfer_cases(std::uint32_t mtu) {
  const std::vector<std::pair<std::string, SendOpcode>> operations{
      {"send", SendOpcode::Send},
      {"send_with_immediate", SendOpcode::SendWithImmediate},
      {"write", SendOpcode::RdmaWrite},
      {"write_with_immediate", SendOpcode::RdmaWriteWithImmediate},
      {"read", SendOpcode::RdmaRead}};
  std::vector<Case> cases;
  for (const auto& [name, opcode] : operations)
    for (const std::uint32_t bytes : {0u, 1u, mtu - 1, mtu, mtu + 1, 2 * mtu + 1, 64u << 10, 1u << 20}) {
      const SendOpcode operation = opcode;
      cases.push_back({name + "/" + std::to_string(bytes), [=](World& w) { transfer(w, operation, bytes); }});
    }
  return cases;
}

std::vector<Case> atomic_cases() {
  constexpr std::uint64_t kBig = 0xfedcba9876543210u;
  return {
      {"compare_and_swap/hit",
       [](World& w) {
         atomic(w, SendOpcode::CompareAndSwap, kBig, kBig, 0x1122334455667788u, 0x1122334455667788u);
       }},
      {"compare_and_swap/miss",
       [](World& w) { atomic(w, SendOpcode::CompareAndSwap, kBig, kBig ^ 1, 0x1122334455667788u, kBig); }},
      {"fetch_and_add/plain",
       [](World& w) { atomic(w, SendOpcode::FetchAndAdd, kBig, 0, 0x10, kBig + 0x10); }},
      {"fetch_and_add/wraps",
       [](World& w) { atomic(w, SendOpcode::FetchAndAdd, ~std::uint64_t{0}, 0, 3, 2); }},
      {"fetch_and_add/hundred_count_once", atomics_count_once},
  };
}

}  // namespace verbena::interop
