// SPDX-License-Identifier: Apache-2.0
// What must not work: each NAK with the status it makes at the requester and what it leaves at the responder,
// receives that come late or never, peers that are gone.
#include "cases.h"

namespace verbena::interop {

namespace {

constexpr std::uint64_t kRegion = 4096;
constexpr std::uint64_t kReceives = 2;

using Status = CompletionStatus;

// What is asked that the responder refuses.
struct Asked {
  SendOpcode opcode = SendOpcode::RdmaWrite;
  std::uint32_t bytes = 64;
  std::int64_t offset = 0;       // from the start of the responder's region
  std::uint32_t key_change = 0;  // added to its key
  Access region_access = Access::All;
  Access pair_access = Access::All;
  bool deregistered = false;
  Status status = Status::RemoteAccessError;  // at the requester
};

// The refused request, and two innocent ones behind it that must be flushed.
std::vector<Request> with_followers(Request refused, const RegionHandle& local) {
  refused.id = 1;
  return {refused,
          {2, SendOpcode::Send, SendFlags::Signaled, {{local.id, 0, 8}}},
          {3, SendOpcode::Send, SendFlags::None, {{local.id, 0, 8}}}};
}

void expect_flushed_behind(World& w, const Link& link, Status status) {
  expect_outcomes(w, w.requester, link.requester, Queue::Send,
                  {{1, status}, {2, Status::Flushed}, {3, Status::Flushed}});
  expect_none(w, w.requester, link.requester, Queue::Send);
  expect_state(w, w.requester, link.requester, QueuePairState::Error);
}

void expect_event(World& w, const Link& link, AsyncEventType type) {
  if (w.report.failed()) return;
  bool found = false;
  for (const PairEvent& event : w.responder.events())
    found = found || (event.type == type && event.qpn == w.responder.qpn(link.responder));
  w.report.expect(found == w.responder.manners().refusal_raises_event,
                  w.responder.name() + ": " + (found ? "an unexpected " : "no ") +
                      std::string{to_string(type)} + " event");
}

void refused(World& w, const Asked& asked) {
  PairOptions responder;
  responder.access = asked.pair_access;
  const Link link = connect(w, {}, responder);
  const RegionHandle local = w.requester.make_region(kRegion);
  const RegionHandle remote = w.responder.make_region(kRegion, asked.region_access);
  const RegionHandle receives = w.responder.make_region(kRegion);
  if (w.report.failed()) return;
  for (std::uint64_t id = 0; id < kReceives; ++id)
    w.responder.post_receive(link.responder, id, {{receives.id, 0, 64}});
  if (asked.deregistered) w.responder.deregister(remote.id);

  Request request{1, asked.opcode, SendFlags::Signaled, {{local.id, 0, asked.bytes}}};
  request.remote_address = remote.address + static_cast<std::uint64_t>(asked.offset);
  request.rkey = RKey{remote.rkey.value() + asked.key_change};
  const bool takes_receive = asked.opcode == SendOpcode::RdmaWriteWithImmediate &&
                             w.responder.manners().refused_write_takes_receive &&
                             asked.status == Status::RemoteAccessError;
  w.requester.post_send(link.requester, with_followers(request, local));

  expect_flushed_behind(w, link, asked.status);
  expect_state(w, w.responder, link.responder, QueuePairState::Error);
  expect_outcomes(w, w.responder, link.responder, Queue::Receive,
                  {{0, takes_receive ? asked.status : Status::Flushed}, {1, Status::Flushed}});
  expect_event(w, link,
               asked.status == Status::RemoteAccessError ? AsyncEventType::QpAccessError
                                                         : AsyncEventType::QpRequestError);
  expect_untouched(w, w.responder, remote.id);
  expect_untouched(w, w.responder, receives.id);
  expect_untouched(w, w.requester, local.id);
}

// A message of which `room` bytes fit.
void too_long(World& w, std::uint32_t bytes, std::uint32_t room) {
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(bytes);
  const RegionHandle remote = w.responder.make_region(room + 256);
  if (w.report.failed()) return;
  w.responder.post_receive(link.responder, 0, {{remote.id, 128, room}});
  w.responder.post_receive(link.responder, 1, {{remote.id, 128, room}});
  w.requester.post_send(
      link.requester,
      with_followers({1, SendOpcode::Send, SendFlags::Signaled, {{local.id, 0, bytes}}}, local));
  const Manners manners = w.responder.manners();
  expect_flushed_behind(w, link, manners.too_long_at_requester);
  expect_outcomes(w, w.responder, link.responder, Queue::Receive,
                  {{0, manners.too_long_at_receive}, {1, Status::Flushed}});
  expect_state(w, w.responder, link.responder, QueuePairState::Error);
  expect_event(w, link, AsyncEventType::QpRequestError);
  if (!w.report.failed())
    w.report.expect(w.responder.digest(remote.id, 128, room).intact,
                    "bytes beside the buffer were overwritten");
}

// Nothing is transferred, so neither key nor address means anything.
void empty_needs_no_key(World& w, SendOpcode opcode) {
  const Link link = connect(w);
  if (w.report.failed()) return;
  const Request request{1, opcode, SendFlags::Signaled, {}, 0x1000, RKey{0xdeadbeef}};
  w.requester.post_send(link.requester, {&request, 1});
  expect_outcomes(w, w.requester, link.requester, Queue::Send, {{1}});
  // A responder that is slow to answer is asked again.
  if (opcode == SendOpcode::RdmaRead && w.responder.manners().repeated_empty_read_needs_key) return;
  expect_state(w, w.responder, link.responder, QueuePairState::Rts);
}

Request message(bool write, const RegionHandle& local, const RegionHandle& remote, std::uint32_t bytes) {
  return {1,
          write ? SendOpcode::RdmaWriteWithImmediate : SendOpcode::SendWithImmediate,
          SendFlags::Signaled,
          {{local.id, 64, bytes}},
          remote.address + 64,
          remote.rkey,
          0xfeed};
}

void receive_comes_late(World& w, bool write) {
  const std::uint32_t bytes = 2 * w.mtu + 5;
  const Link link = connect(w);
  const RegionHandle local = w.requester.make_region(bytes + 128);
  const RegionHandle remote = w.responder.make_region(bytes + 128);
  if (w.report.failed()) return;
  w.requester.fill(local.id, 64, bytes, w.seed);
  const Request request = message(write, local, remote, bytes);
  w.requester.post_send(link.requester, {&request, 1});
  const auto early = w.requester.poll(link.requester, Queue::Send, 1, 30);
  w.report.expect(early.empty(), "completed before there was a receive");
  w.responder.post_receive(link.responder, 9,
                           write ? std::vector<Piece>{} : std::vector<Piece>{{remote.id, 64, bytes}});
  expect_outcomes(w, w.requester, link.requester, Queue::Send, {{1}});
  const Outcome got = expect_outcomes(w, w.responder, link.responder, Queue::Receive, {{9}})[0];
  w.report.expect(w.report.failed() || got.bytes == bytes,
                  "receive reports " + std::to_string(got.bytes) + " bytes");
  expect_pattern(w, w.responder, remote.id, 64, bytes, w.seed);
}

void receive_never_comes(World& w, bool write, std::uint8_t rnr_retry) {
  PairOptions requester, responder;
  requester.rnr_retry = rnr_retry;
  responder.min_rnr_timer = 20;  // 10.24 ms
  const Link link = connect(w, requester, responder);
  const RegionHandle local = w.requester.make_region(kRegion);
  const RegionHandle remote = w.responder.make_region(kRegion);
  if (w.report.failed()) return;
  w.requester.post_send(link.requester, with_followers(message(write, local, remote, 64), local));
  expect_flushed_behind(w, link, Status::RnrRetryExceeded);
  // The responder lost nothing.
  expect_state(w, w.responder, link.responder, QueuePairState::Rts);
  expect_none(w, w.responder, link.responder, Queue::Receive);
}

enum class Gone { Destroyed, Reset, Error };

void nobody_answers(World& w, SendOpcode opcode, Gone gone, std::uint8_t retry_count) {
  PairOptions requester;
  requester.timeout = 14;  // 67 ms
  requester.retry_count = retry_count;
  const Link link = connect(w, requester);
  const RegionHandle local = w.requester.make_region(kRegion);
  const RegionHandle remote = w.responder.make_region(kRegion);
  if (w.report.failed()) return;
  if (gone == Gone::Destroyed)
    w.responder.destroy(link.responder);
  else
    w.responder.modify(link.responder, gone == Gone::Reset ? QueuePairState::Reset : QueuePairState::Error);
  w.requester.post_send(
      link.requester,
      with_followers({1, opcode, SendFlags::Signaled, {{local.id, 0, 64}}, remote.address, remote.rkey},
                     local));
  expect_flushed_behind(w, link, Status::RetryExceeded);
  expect_untouched(w, w.responder, remote.id);
}

Access without(Access right) {
  return static_cast<Access>(static_cast<std::uint32_t>(Access::All) & ~static_cast<std::uint32_t>(right));
}

}  // namespace

std::vector<Case> receive_cases() {
  std::vector<Case> cases;
  for (const bool write : {false, true}) {
    const std::string name = write ? "write_with_immediate" : "send";
    cases.push_back({"receive_late/" + name, [=](World& w) { receive_comes_late(w, write); }});
    for (const int retries : {0, 1, 2})
      cases.push_back({"receive_never/" + name + "/rnr_retry_" + std::to_string(retries),
                       [=](World& w) { receive_never_comes(w, write, static_cast<std::uint8_t>(retries)); }});
  }
  cases.push_back({"receive_too_small/one_packet", [](World& w) { too_long(w, 200, 100); }});
  cases.push_back({"receive_too_small/by_one_byte", [](World& w) { too_long(w, 101, 100); }});
  cases.push_back({"receive_too_small/last_of_three_packets",
                   [](World& w) { too_long(w, 2 * w.mtu + 10, 2 * w.mtu + 9); }});
  cases.push_back(
      {"receive_too_small/first_of_three_packets", [](World& w) { too_long(w, 3 * w.mtu, w.mtu / 2); }});
  return cases;
}

std::vector<Case> refusal_cases() {
  struct Operation {
    std::string name;
    SendOpcode opcode;
    std::uint32_t bytes;
    Access right;
  };
  const std::vector<Operation> operations{
      {"write", SendOpcode::RdmaWrite, 64, Access::RemoteWrite},
      {"write_with_immediate", SendOpcode::RdmaWriteWithImmediate, 64, Access::RemoteWrite},
      {"read", SendOpcode::RdmaRead, 64, Access::RemoteRead},
      {"compare_and_swap", SendOpcode::CompareAndSwap, 8, Access::RemoteAtomic},
      {"fetch_and_add", SendOpcode::FetchAndAdd, 8, Access::RemoteAtomic}};
  std::vector<Case> cases;
  for (const Operation& o : operations) {
    const auto add = [&](const std::string& why, const Asked& asked) {
      cases.push_back({"refused/" + o.name + "/" + why, [=](World& w) { refused(w, asked); }});
    };
    const Asked plain{o.opcode, o.bytes};
    const std::int64_t end = static_cast<std::int64_t>(kRegion) - o.bytes;
    Asked asked = plain;
    asked.key_change = 0x1000;
    add("wrong_key", asked);
    asked = plain;
    asked.deregistered = true;
    add("dead_key", asked);
    asked = plain;
    asked.offset = -8;
    add("before_the_region", asked);
    asked = plain;
    asked.offset = end + (o.bytes == 8 ? 8 : 1);
    add("behind_the_region", asked);
    asked = plain;
    asked.region_access = without(o.right);
    add("right_missing_on_region", asked);
    asked = plain;
    asked.pair_access = without(o.right);
    asked.status = Status::RemoteInvalidRequest;
    add("right_missing_on_pair", asked);
    if (o.bytes != 8) continue;
    asked = plain;
    asked.offset = 4;
    asked.status = Status::RemoteInvalidRequest;
    add("misaligned", asked);
    cases.back().posts_misaligned_atomic = true;
  }
  cases.push_back(
      {"empty/write_needs_no_key", [](World& w) { empty_needs_no_key(w, SendOpcode::RdmaWrite); }});
  cases.push_back({"empty/read_needs_no_key", [](World& w) { empty_needs_no_key(w, SendOpcode::RdmaRead); }});
  return cases;
}

std::vector<Case> silence_cases() {
  return {
      {"silence/send_to_destroyed_pair",
       [](World& w) { nobody_answers(w, SendOpcode::Send, Gone::Destroyed, 2); }},
      {"silence/read_from_destroyed_pair",
       [](World& w) { nobody_answers(w, SendOpcode::RdmaRead, Gone::Destroyed, 1); }},
      {"silence/no_retries", [](World& w) { nobody_answers(w, SendOpcode::RdmaWrite, Gone::Destroyed, 0); }},
      {"silence/pair_in_reset", [](World& w) { nobody_answers(w, SendOpcode::RdmaWrite, Gone::Reset, 2); }},
      {"silence/pair_in_error", [](World& w) { nobody_answers(w, SendOpcode::RdmaWrite, Gone::Error, 2); }},
  };
}

}  // namespace verbena::interop
