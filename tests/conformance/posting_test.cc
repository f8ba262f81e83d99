// SPDX-License-Identifier: Apache-2.0
// Order, fences and limits of the send queue, refusals at the post, errors and flushes (Q-030 to Q-055,
//
#include <cerrno>
#include <cstring>

#include "bench.h"

namespace verbena::conformance {
namespace {

using S = QueuePairState;

struct PostingRig {
  Rig rig;
  Memory& memory;

  explicit PostingRig(const Given& given = {}) : rig(given), memory(rig.memory(32768)) {}
  void write(std::uint64_t id, std::uint32_t length = 8, SendFlags flags = SendFlags::Signaled) {
    rig.post(id, SendOpcode::RdmaWrite, {memory.sge(0, length)}, kRemote, kRkey, flags);
  }
  void read(std::uint64_t id, SendFlags flags = SendFlags::Signaled) {
    rig.post(id, SendOpcode::RdmaRead, {memory.sge(0, 8)}, kRemote, kRkey, flags);
  }
  void fetch_add(std::uint64_t id, SendFlags flags = SendFlags::Signaled) {
    rig.post(id, SendOpcode::FetchAndAdd, {memory.sge(0, 8)}, kRemote, kRkey, flags);
  }
  void answer_read(std::uint32_t n) {
    rig.deliver(rig.read_response(Opcode::RcReadResponseOnly, rig.our(n), pattern(8)));
  }
  bool step(S to) {
    QueuePairAttributes values;
    values.state = to;
    return rig.modify(values, AttributeMask::State).has_value();
  }
};

TEST(Posting, q030_no_more_reads_and_atomics_are_out_than_allowed) {
  for (unsigned limit = 1; limit <= 4; ++limit) {
    Given given;
    given.max_rd_atomic = static_cast<std::uint8_t>(limit);
    PostingRig a(given);
    for (std::uint64_t id = 0; id < 8; ++id) id % 2 == 0 ? a.read(id) : a.fetch_add(id);
    EXPECT_EQ(a.rig.take_all().size(), limit);
    for (std::uint32_t n = 0; n < 8; ++n) {
      if (n % 2 == 0)
        a.answer_read(n);
      else
        a.rig.deliver(a.rig.atomic_response(a.rig.our(n), 1));
      a.rig.expect_send(n);
      EXPECT_EQ(a.rig.take_all().size(), n + limit < 8 ? 1u : 0u);
    }
  }
}

TEST(Posting, q030_what_follows_a_waiting_read_waits_behind_it_in_order) {
  Given given;
  given.max_rd_atomic = 1;
  PostingRig a(given);
  a.read(1);
  a.read(2);
  a.write(3);
  EXPECT_EQ(a.rig.take_all().size(), 1u);
  a.answer_read(0);
  a.rig.expect(Opcode::RcReadRequest, a.rig.our(1));
  a.rig.expect(Opcode::RcWriteOnly, a.rig.our(2));
  a.rig.expect_silence();
}

TEST(Posting, q030_pieces_of_one_read_count_each) {
  Given given;
  given.max_rd_atomic = 2;
  given.transport.read_chunk_bytes = kMtu;
  PostingRig a(given);
  a.rig.post(1, SendOpcode::RdmaRead, {a.memory.sge(0, 5 * kMtu)}, kRemote, kRkey);
  EXPECT_EQ(a.rig.take_all().size(), 2u);
}

TEST(Posting, q030_limit_holds_when_reads_are_asked_for_again) {
  Given given;
  given.max_rd_atomic = 2;
  PostingRig a(given);
  for (std::uint64_t id = 1; id <= 4; ++id) a.read(id);
  EXPECT_EQ(a.rig.take_all().size(), 2u);
  a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));
  EXPECT_EQ(a.rig.take_all().size(), 2u);
  a.answer_read(0);
  EXPECT_EQ(a.rig.take_all().size(), 1u);
}

TEST(Posting, q030_read_or_atomic_on_a_queue_pair_that_may_have_none_fails) {
  Given given;
  given.max_rd_atomic = 0;
  for (const bool atomic : {true, false}) {
    PostingRig a(given);
    a.write(1);
    if (atomic)
      a.fetch_add(2);
    else
      a.read(2);
    a.rig.expect(Opcode::RcWriteOnly, a.rig.our(0));
    a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
    a.rig.expect_send(1);
    a.rig.expect_send(2, CompletionStatus::LocalQpOperationError);
    EXPECT_EQ(a.rig.state(), S::Error);
    a.rig.expect_silence();
  }
}

TEST(Posting, q031_fenced_request_starts_when_all_earlier_reads_and_atomics_are_done) {
  for (const bool atomic : {true, false}) {
    PostingRig a;
    a.read(1);
    if (atomic)
      a.fetch_add(2);
    else
      a.read(2);
    a.write(3, 8, SendFlags::Signaled | SendFlags::Fence);
    a.write(4);
    EXPECT_EQ(a.rig.take_all().size(), 2u);
    a.answer_read(0);
    a.rig.expect_silence();
    if (atomic)
      a.rig.deliver(a.rig.atomic_response(a.rig.our(1), 1));
    else
      a.answer_read(1);
    a.rig.expect(Opcode::RcWriteOnly, a.rig.our(2));
    a.rig.expect(Opcode::RcWriteOnly, a.rig.our(3));
  }
}

TEST(Posting, q031_fenced_read_waits_for_the_reads_before_it) {
  PostingRig a;
  a.read(1);
  a.read(2, SendFlags::Signaled | SendFlags::Fence);
  EXPECT_EQ(a.rig.take_all().size(), 1u);
  a.answer_read(0);
  a.rig.expect(Opcode::RcReadRequest, a.rig.our(1));
}

TEST(Posting, q031_fence_waits_for_nothing_else) {
  PostingRig a;
  a.write(1);
  a.write(2, 8, SendFlags::Signaled | SendFlags::Fence);
  EXPECT_EQ(a.rig.take_all().size(), 2u);
}

TEST(Posting, q033_inline_data_is_copied_at_the_post_and_its_key_is_not_looked_at) {
  Rig rig;
  char text[] = "inline";
  rig.post(1, SendOpcode::Send, {{reinterpret_cast<std::uint64_t>(text), 6, LKey{0xbad}}}, 0, {},
           SendFlags::Signaled | SendFlags::Inline);
  std::memset(text, 'x', 6);
  rig.deliver(rig.nak(NakCode::SequenceError, rig.our(0)));
  const std::vector<Sent> packets = rig.take_all();
  ASSERT_EQ(packets.size(), 2u);
  for (const Sent& sent : packets) {
    ASSERT_EQ(sent.packet.payload.size(), 6u);
    EXPECT_EQ(std::memcmp(sent.packet.payload.data(), "inline", 6), 0);
  }
}

TEST(Posting, q033_inline_that_is_too_long_or_fetches_is_refused) {
  Rig rig;
  std::array<std::byte, 128> bytes{};
  ScatterGather sge{reinterpret_cast<std::uint64_t>(bytes.data()), 65, LKey{}};
  SendRequest request;
  request.local = {&sge, 1};
  request.flags = SendFlags::Inline;
  EXPECT_EQ(rig.try_post(request).status, PostStatus::InlineTooLong);
  sge.length = 8;
  for (const SendOpcode op : {SendOpcode::RdmaRead, SendOpcode::CompareAndSwap, SendOpcode::FetchAndAdd}) {
    request.opcode = op;
    EXPECT_EQ(rig.try_post(request).status, PostStatus::InvalidRequest);
  }
  rig.expect_silence();
  rig.expect_no_completion();
}

TEST(Posting, q034_unsignaled_success_completes_silently_and_unsignaled_failure_does_not) {
  PostingRig a;
  a.write(1, 8, SendFlags::None);
  a.write(2);
  a.write(3, 8, SendFlags::None);
  a.write(4, 8, SendFlags::None);
  a.rig.take_all();
  a.rig.deliver(a.rig.ack(a.rig.our(1), 2));
  a.rig.expect_send(2);
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.nak(NakCode::RemoteAccess, a.rig.our(2)));
  a.rig.expect_send(3, CompletionStatus::RemoteAccessError);
  a.rig.expect_send(4, CompletionStatus::Flushed);
}

TEST(Posting, q035_queue_pair_that_signals_all_completes_each) {
  Given given;
  given.signal_all = true;
  PostingRig a(given);
  a.write(1, 8, SendFlags::None);
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
}

TEST(Posting, q040_posts_are_refused_before_the_queue_pair_runs) {
  for (const S state : {S::Reset, S::Init, S::Rtr}) {
    Given given;
    given.state = state;
    Rig rig(given);
    EXPECT_EQ(rig.try_post({}).status, PostStatus::WrongState);
    EXPECT_EQ(rig.try_post({}).posted, 0u);
    const ReceiveRequest receive{};
    EXPECT_EQ(static_cast<bool>(rig.queues().post_receive({&receive, 1})), state != S::Reset);
    rig.expect_silence();
  }
}

TEST(Posting, q040_requests_before_a_refused_one_stay_posted) {
  PostingRig a;
  const ScatterGather good = a.memory.sge(0, 8);
  const std::array<ScatterGather, 5> wide{};
  std::array<SendRequest, 4> list;
  for (std::size_t i = 0; i < list.size(); ++i) {
    list[i].id = i + 1;
    list[i].local = {&good, 1};
  }
  list[2].local = wide;
  const PostResult result = a.rig.queues().post_send(list);
  EXPECT_EQ(result.status, PostStatus::TooManySegments);
  EXPECT_EQ(result.posted, 2u);
  a.rig.nic.ring_doorbell(a.rig.queues());
  a.rig.nic.handle_doorbells(a.rig.now);
  EXPECT_EQ(a.rig.take_all().size(), 2u);
}

TEST(Posting, q040_posts_in_error_are_flushed) {
  Given given;
  given.state = S::Error;
  PostingRig a(given);
  a.write(1, 8, SendFlags::None);
  a.rig.post_receive(2);
  a.rig.expect_send(1, CompletionStatus::Flushed);
  a.rig.expect_receive(2, CompletionStatus::Flushed);
  a.rig.expect_silence();
}

TEST(Posting, q041_full_send_queue_refuses_and_loses_nothing) {
  Given given;
  given.capabilities.max_send_requests = 4;
  PostingRig a(given);
  for (std::uint64_t id = 1; id <= 4; ++id) a.write(id);
  EXPECT_EQ(a.rig.try_post({}).status, PostStatus::QueueFull);
  EXPECT_EQ(to_errno(PostStatus::QueueFull), ENOMEM);
  EXPECT_EQ(a.rig.take_all().size(), 4u);
  a.rig.deliver(a.rig.ack(a.rig.our(1), 2));
  a.write(5);
  a.write(6);
  EXPECT_EQ(a.rig.try_post({}).status, PostStatus::QueueFull);
  a.rig.deliver(a.rig.ack(a.rig.our(5), 6));
  for (std::uint64_t id = 1; id <= 6; ++id) a.rig.expect_send(id);
}

TEST(Posting, q042_more_segments_than_the_queue_was_made_for_are_refused) {
  Rig rig;
  const std::array<ScatterGather, 5> wide{};
  SendRequest request;
  request.local = wide;
  EXPECT_EQ(rig.try_post(request).status, PostStatus::TooManySegments);
  EXPECT_EQ(to_errno(PostStatus::TooManySegments), EINVAL);
  const ReceiveRequest receive{1, wide};
  EXPECT_EQ(rig.queues().post_receive({&receive, 1}).status, PostStatus::TooManySegments);
}

TEST(Posting, q050_request_with_bad_local_memory_fails_and_nothing_of_it_is_sent) {
  for (int kind = 0; kind < 5; ++kind)
    for (const SendOpcode op :
         {SendOpcode::Send, SendOpcode::RdmaWrite, SendOpcode::RdmaRead, SendOpcode::FetchAndAdd}) {
      PostingRig a;
      Memory& readonly = a.rig.memory(64, Access::RemoteRead);
      Memory& foreign = a.rig.memory_of(a.rig.nic.create_pd().value(), 64);
      Memory& dead = a.rig.memory(64);
      ASSERT_TRUE(a.rig.nic.deregister_memory(dead.lkey()));
      const bool fetches = op == SendOpcode::RdmaRead || op == SendOpcode::FetchAndAdd;
      if (kind == 4 && !fetches) continue;
      const ScatterGather bad[] = {{a.memory.va(), 8, LKey{1}},
                                   {a.memory.va(32761), 8, a.memory.lkey()},
                                   foreign.sge(0, 8),
                                   dead.sge(0, 8),
                                   readonly.sge(0, 8)};
      a.rig.post_receive(9);
      a.rig.post(1, op, {bad[kind]}, kRemote, kRkey, SendFlags::None);
      a.rig.expect_send(1, CompletionStatus::LocalProtectionError);
      a.rig.expect_receive(9, CompletionStatus::Flushed);
      a.rig.expect_silence();
      EXPECT_EQ(a.rig.state(), S::Error);
    }
}

TEST(Posting, q050_bad_request_fails_in_its_turn) {
  PostingRig a;
  a.write(1);
  a.read(2);
  a.rig.post(3, SendOpcode::Send, {{a.memory.va(), 8, LKey{1}}});
  a.write(4);
  EXPECT_EQ(a.rig.take_all().size(), 2u);
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
  a.rig.expect_no_completion();
  a.answer_read(1);
  a.rig.expect_send(2);
  a.rig.expect_send(3, CompletionStatus::LocalProtectionError);
  a.rig.expect_send(4, CompletionStatus::Flushed);
  a.rig.expect_silence();
}

TEST(Posting, q050_bad_request_does_not_keep_those_before_it_from_being_sent_again) {
  for (const SendOpcode op : {SendOpcode::Send, SendOpcode::RdmaRead}) {
    PostingRig a;
    a.write(1);
    a.write(2);
    a.rig.post(3, op, {{a.memory.va(), 8, LKey{1}}}, kRemote, kRkey);
    EXPECT_EQ(a.rig.take_all().size(), 2u);
    a.rig.deliver(a.rig.nak(NakCode::SequenceError, a.rig.our(0)));
    a.rig.expect(Opcode::RcWriteOnly, a.rig.our(0));
    a.rig.expect(Opcode::RcWriteOnly, a.rig.our(1));
    a.rig.expect_silence();
    a.rig.deliver(a.rig.ack(a.rig.our(1), 2));
    a.rig.expect_send(1);
    a.rig.expect_send(2);
    a.rig.expect_send(3, CompletionStatus::LocalProtectionError);
  }
}

TEST(Posting, q050_message_whose_later_segment_is_bad_stops_there) {
  PostingRig a;
  a.rig.post(1, SendOpcode::RdmaWrite, {a.memory.sge(0, 2 * kMtu), {a.memory.va(), 2 * kMtu, LKey{1}}},
             kRemote, kRkey);
  a.rig.take_all();
  a.rig.expect_send(1, CompletionStatus::LocalProtectionError);
  a.rig.advance(Duration::seconds(1));
  a.rig.expect_silence();
}

TEST(Posting, q050_memory_that_goes_while_a_read_is_out_is_not_written) {
  PostingRig a;
  Memory& target = a.rig.memory(64);
  a.rig.post(1, SendOpcode::RdmaRead, {target.sge(0, 8)}, kRemote, kRkey);
  a.rig.take_all();
  ASSERT_TRUE(a.rig.nic.deregister_memory(target.lkey()));
  a.answer_read(0);
  a.rig.expect_send(1, CompletionStatus::LocalProtectionError);
  EXPECT_TRUE(target.all(std::byte{0}));
}

TEST(Posting, q051_failure_gives_each_request_exactly_one_outcome_in_order) {
  PostingRig a;
  Memory& receives = a.rig.memory(1024);
  for (std::uint64_t id = 1; id <= 6; ++id) {
    a.write(id, 8, id % 2 == 0 ? SendFlags::None : SendFlags::Signaled);
    a.rig.post_receive(10 + id, {receives.sge(0, 1024)});
  }
  a.rig.take_all();
  // A message is half received when it happens.
  a.rig.deliver(a.rig.request(Opcode::RcSendFirst, a.rig.their(0), pattern(kMtu), false));
  a.rig.deliver(a.rig.nak(NakCode::RemoteOperation, a.rig.our(2)));
  a.rig.expect_send(1);
  a.rig.expect_send(3, CompletionStatus::RemoteOperationError);
  for (std::uint64_t id = 4; id <= 6; ++id) a.rig.expect_send(id, CompletionStatus::Flushed);
  for (std::uint64_t id = 1; id <= 6; ++id) a.rig.expect_receive(10 + id, CompletionStatus::Flushed);
  a.rig.expect_no_completion();
  a.rig.deliver(a.rig.ack(a.rig.our(5), 6));
  a.rig.deliver(a.rig.request(Opcode::RcSendLast, a.rig.their(1), pattern(5)));
  a.rig.advance(Duration::seconds(10));
  a.rig.expect_no_completion();
  a.rig.expect_silence();
}

TEST(Posting, q051_failure_at_the_responder_flushes_the_send_queue_too) {
  PostingRig a;
  a.write(1);
  a.write(2, 8, SendFlags::None);
  a.rig.post_receive(3);
  a.rig.take_all();
  a.rig.deliver(a.rig.request(Opcode::RcSendMiddle, a.rig.their(0), pattern(kMtu)));
  a.rig.expect_nak(NakCode::InvalidRequest, a.rig.their(0));
  a.rig.expect_send(1, CompletionStatus::Flushed);
  a.rig.expect_send(2, CompletionStatus::Flushed);
  a.rig.expect_receive(3, CompletionStatus::Flushed);
  a.rig.expect_no_completion();
}

TEST(Posting, q051_timers_of_what_was_outstanding_end_with_it) {
  Given given;
  given.retry_count = 0;
  given.timeout = 1;  // so short that the period ends before anything is sent again
  PostingRig a(given);
  a.write(1);
  a.rig.take_all();
  a.rig.deliver(a.rig.request(Opcode::RcSendMiddle, a.rig.their(0), pattern(kMtu)));
  a.rig.expect_nak(NakCode::InvalidRequest, a.rig.their(0));
  a.rig.expect_send(1, CompletionStatus::Flushed);
  a.rig.advance(Duration::seconds(10));
  a.rig.expect_no_completion();
  a.rig.expect_silence();
}

TEST(Posting, q052_error_by_the_user_flushes_the_same_way) {
  PostingRig a;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    a.write(id, 8, SendFlags::None);
    a.rig.post_receive(10 + id);
  }
  a.rig.take_all();
  ASSERT_TRUE(a.step(S::Error));
  for (std::uint64_t id = 1; id <= 3; ++id) a.rig.expect_send(id, CompletionStatus::Flushed);
  for (std::uint64_t id = 1; id <= 3; ++id) a.rig.expect_receive(10 + id, CompletionStatus::Flushed);
  a.rig.expect_no_completion();
  a.rig.expect_no_event();
  a.rig.advance(Duration::seconds(10));
  a.rig.expect_silence();
}

TEST(Posting, q052_error_is_reached_from_every_state) {
  for (const S state : {S::Reset, S::Init, S::Rtr, S::Rts, S::Sqd, S::Error}) {
    Given given;
    given.state = state;
    PostingRig a(given);
    if (state != S::Reset) a.rig.post_receive(1);
    ASSERT_TRUE(a.step(S::Error)) << to_string(state);
    EXPECT_EQ(a.rig.state(), S::Error);
    if (state != S::Reset) a.rig.expect_receive(1, CompletionStatus::Flushed);
    a.rig.expect_no_completion();
  }
}

TEST(Posting, q053_reset_discards_requests_and_completions_without_a_word) {
  PostingRig a;
  Memory& receives = a.rig.memory(64);
  a.write(1);
  a.write(2);
  a.rig.post_receive(11, {receives.sge(0, 64)});
  a.rig.post_receive(12);
  a.rig.take_all();
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.deliver(a.rig.request(Opcode::RcSendOnly, a.rig.their(0), pattern(8)));
  ASSERT_TRUE(a.step(S::Reset));
  a.rig.expect_no_completion();
  a.rig.expect_silence();
  a.rig.deliver(a.rig.ack(a.rig.our(1), 2));
  a.rig.advance(Duration::seconds(10));
  a.rig.expect_no_completion();
  a.rig.expect_silence();
  EXPECT_TRUE(a.rig.nic.next_deadline().is_never());
}

TEST(Posting, q053_queue_pair_lives_anew_after_reset) {
  PostingRig a;
  Memory& receives = a.rig.memory(64);
  a.write(1);
  a.rig.take_all();
  a.rig.deliver(a.rig.request(Opcode::RcWriteMiddle, a.rig.their(0), pattern(kMtu)));  // kills it
  a.rig.take_all();
  ASSERT_EQ(a.rig.state(), S::Error);
  ASSERT_TRUE(a.step(S::Reset));
  a.rig.move_to(S::Rts);
  a.write(5);
  a.rig.expect(Opcode::RcWriteOnly, a.rig.our(0));
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(5);
  a.rig.post_receive(6, {receives.sge(0, 64)});
  a.rig.deliver(a.rig.request(Opcode::RcSendOnly, a.rig.their(0), pattern(8)));
  a.rig.expect_ack(a.rig.their(0), 1);
  a.rig.expect_receive(6);
}

TEST(Posting, q053_reset_keeps_the_completions_of_others) {
  Given given;
  Device device(given);
  const core::CqId cq = device.nic.create_cq(64).value();
  Memory& memory = device.memory(64);
  Line a(device, given, cq, cq);
  given.peer_qpn = Qpn{0x777};
  Line b(device, given, cq, cq);
  for (Line* line : {&a, &b, &a, &b}) {
    line->post(line == &a ? 1 : 2, SendOpcode::RdmaWrite, {memory.sge(0, 8)}, kRemote, kRkey);
    line->take_all();
  }
  for (std::uint32_t n = 0; n < 2; ++n)
    for (Line* line : {&a, &b}) line->deliver(line->ack(line->our(n), n + 1));
  QueuePairAttributes values;
  ASSERT_TRUE(a.modify(values, AttributeMask::State));
  b.expect_send(2);
  b.expect_send(2);
  b.expect_no_completion();
}

TEST(Posting, q055_drained_queue_pair_finishes_what_runs_and_starts_nothing) {
  Given given;
  given.transport.initial_window_packets = 4;
  PostingRig a(given);
  a.write(1, 6 * kMtu);
  a.write(2);
  a.rig.take_all();
  ASSERT_TRUE(a.step(S::Sqd));
  a.write(3);
  a.rig.expect_silence();
  a.rig.deliver(a.rig.ack(a.rig.our(3)));
  const std::vector<Sent> rest = a.rig.take_all();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[1].opcode(), Opcode::RcWriteLast);
  a.rig.deliver(a.rig.ack(a.rig.our(5), 1));
  a.rig.expect_send(1);
  a.rig.expect_silence();
  a.rig.expect_no_event();  // nobody asked to be told
  ASSERT_TRUE(a.step(S::Rts));
  a.rig.expect(Opcode::RcWriteOnly, a.rig.our(6));
  a.rig.expect(Opcode::RcWriteOnly, a.rig.our(7));
  a.rig.deliver(a.rig.ack(a.rig.our(7), 3));
  a.rig.expect_send(2);
  a.rig.expect_send(3);
}

Result<void> drain(Rig& rig) {
  QueuePairAttributes values;
  values.state = S::Sqd;
  values.sq_drained_event = true;
  return rig.modify(values, AttributeMask::State | AttributeMask::SqDrainedEvent);
}

TEST(Posting, q055_end_of_the_drain_is_told_once_when_asked_for) {
  Given given;
  given.transport.initial_window_packets = 4;
  PostingRig a(given);
  a.write(1, 6 * kMtu);
  a.write(2);
  a.rig.take_all();
  ASSERT_TRUE(drain(a.rig));
  a.rig.expect_no_event();
  // All that is out is acknowledged, and the message is not at its end; nothing is sent in between.
  const Bytes ack = a.rig.emit(a.rig.ack(a.rig.our(3)));
  a.rig.nic.handle_datagram(a.rig.now, a.rig.path_in(), 0, ack);
  a.rig.expect_no_event();
  a.rig.take_all();
  a.rig.deliver(a.rig.ack(a.rig.our(5), 1));
  a.rig.expect_send(1);
  a.rig.expect_event(AsyncEventType::SqDrained);
  a.rig.advance(Duration::seconds(1));
  a.rig.expect_no_event();
  ASSERT_TRUE(a.step(S::Rts));
  a.rig.take_all();
  a.rig.deliver(a.rig.ack(a.rig.our(6), 2));
  a.rig.expect_no_event();
}

TEST(Posting, q055_idle_queue_pair_is_drained_at_once) {
  PostingRig a;
  ASSERT_TRUE(drain(a.rig));
  a.rig.expect_event(AsyncEventType::SqDrained);
  a.rig.expect_no_event();
}

TEST(Posting, q055_the_end_of_each_drain_is_told_to_who_asks_for_that_one) {
  PostingRig a;
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(drain(a.rig));
    a.rig.expect_event(AsyncEventType::SqDrained);
    ASSERT_TRUE(a.step(S::Rts));
  }
  ASSERT_TRUE(a.step(S::Sqd));
  a.rig.expect_no_event();
}

TEST(Posting, q055_drain_waits_for_an_answer_that_was_refused_for_lack_of_a_receive) {
  PostingRig a;
  a.rig.post(1, SendOpcode::Send, {a.memory.sge(0, 8)});
  a.rig.take_all();
  ASSERT_TRUE(drain(a.rig));
  a.rig.deliver(a.rig.rnr_nak(1, a.rig.our(0)));
  a.rig.expect_no_event();
  a.rig.advance(Duration::milliseconds(1));
  a.rig.expect(Opcode::RcSendOnly, a.rig.our(0));
  a.rig.deliver(a.rig.ack(a.rig.our(0), 1));
  a.rig.expect_send(1);
  a.rig.expect_event(AsyncEventType::SqDrained);
}

TEST(Posting, q055_drained_queue_pair_still_serves_its_peer) {
  Given given;
  given.state = S::Sqd;
  PostingRig a(given);
  a.rig.deliver(a.rig.read(a.rig.their(0), {a.memory.va(), a.memory.rkey(), 8}));
  a.rig.expect_read_response(Opcode::RcReadResponseOnly, a.rig.their(0), a.memory.bytes(0, 8));
}

TEST(Posting, q070_wrong_attributes_are_refused_with_einval_and_change_nothing) {
  Given given;
  given.state = S::Init;
  Rig rig(given);
  const QueuePairAttributes before = rig.nic.query_qp(rig.qpn()).value();
  for (std::uint32_t bit = 1; bit < (1u << 21); bit <<= 1) {
    const auto flag = static_cast<AttributeMask>(bit);
    if (flag == AttributeMask::State || flag == AttributeMask::CurrentState) continue;
    const AttributeMask whole = required_mask(S::Rtr);
    const bool optional = flag == AttributeMask::PkeyIndex || flag == AttributeMask::Access;
    if (optional) continue;
    QueuePairAttributes values;
    values.state = S::Rtr;
    values.address.destination = given.peer;
    values.destination = Qpn{5};
    values.path_mtu = 512;
    values.max_dest_rd_atomic = 3;
    values.min_rnr_timer = 3;
    const auto refused = rig.modify(values, any(whole & flag) ? whole & ~flag : whole | flag);
    ASSERT_FALSE(refused) << bit;
    EXPECT_EQ(refused.error().native(), EINVAL);
    EXPECT_EQ(refused.error().domain(), ErrorDomain::Errno);
    const QueuePairAttributes after = rig.nic.query_qp(rig.qpn()).value();
    EXPECT_EQ(after.state, S::Init);
    EXPECT_EQ(after.destination, before.destination);
    EXPECT_EQ(after.path_mtu, before.path_mtu);
    EXPECT_EQ(after.max_dest_rd_atomic, before.max_dest_rd_atomic);
    EXPECT_EQ(after.min_rnr_timer, before.min_rnr_timer);
  }
  rig.move_to(S::Rts);
  EXPECT_EQ(rig.state(), S::Rts);
}

TEST(Posting, q070_every_pair_of_states_is_a_step_or_is_refused) {
  constexpr S kStates[] = {S::Reset, S::Init, S::Rtr, S::Rts, S::Sqd, S::Error};
  for (const S from : kStates)
    for (const S to : {S::Reset, S::Init, S::Rtr, S::Rts, S::Sqd, S::Sqe, S::Error}) {
      Given given;
      given.state = from;
      Rig rig(given);
      QueuePairAttributes values;
      values.state = to;
      const bool bare = to == S::Reset || to == S::Error || (from == S::Init && to == S::Init) ||
                        (from == S::Rts && (to == S::Rts || to == S::Sqd)) ||
                        (from == S::Sqd && (to == S::Sqd || to == S::Rts));
      EXPECT_EQ(rig.modify(values, AttributeMask::State).has_value(), bare)
          << to_string(from) << " " << to_string(to);
      EXPECT_EQ(rig.state(), bare ? to : from);
    }
}

}  // namespace
}  // namespace verbena::conformance
