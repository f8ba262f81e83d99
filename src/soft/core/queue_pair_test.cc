// SPDX-License-Identifier: Apache-2.0
#include "soft/core/queue_pair.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace verbena::core {
namespace {

using M = AttributeMask;
using S = QueuePairState;

class QueuePairTest : public ::testing::Test {
 protected:
  QueuePairTest() { make(false); }

  void make(bool signal_all) {
    QueuePairInit init;
    init.send_cq = &send_cq;
    init.receive_cq = &receive_cq;
    init.signal_all = signal_all;
    init.capabilities.max_send_requests = 8;
    init.capabilities.max_receive_requests = 8;
    qp = std::make_unique<QueuePair>(Qpn{77}, init, events);
  }

  static QueuePairAttributes values(S to) {
    QueuePairAttributes v;
    v.state = to;
    v.access = Access::RemoteRead;
    v.address.destination = Gid::from_ipv4(192, 0, 2, 1);
    v.path_mtu = 2048;
    v.destination = Qpn{88};
    v.rq_psn = Psn{100};
    v.sq_psn = Psn{200};
    v.max_rd_atomic = 3;
    v.max_dest_rd_atomic = 4;
    v.min_rnr_timer = 5;
    v.timeout = 6;
    v.retry_count = 7;
    v.rnr_retry = 2;
    return v;
  }
  static M mask(S to) {
    switch (to) {
      case S::Init:
        return M::State | M::PkeyIndex | M::Port | M::Access;
      case S::Rtr:
        return M::State | M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic |
               M::MinRnrTimer;
      case S::Rts:
        return M::State | M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout;
      case S::Reset:
      case S::Sqd:
      case S::Sqe:
      case S::Error:
        break;
    }
    return M::State;
  }
  bool go(S to) { return qp->modify(values(to), mask(to), AttributeLimits{}).has_value(); }
  void to_rts() { ASSERT_TRUE(go(S::Init) && go(S::Rtr) && go(S::Rts)); }
  PostResult send(std::uint64_t id, SendFlags flags = SendFlags::Signaled,
                  SendOpcode opcode = SendOpcode::Send) {
    SendRequest request;
    request.id = id;
    request.flags = flags;
    request.opcode = opcode;
    return qp->post_send({&request, 1});
  }
  PostResult receive(std::uint64_t id) {
    const ReceiveRequest request{id, {}};
    return qp->post_receive({&request, 1});
  }
  static std::vector<Completion> all(CompletionQueue& cq) {
    std::array<Completion, 32> out;
    const std::size_t n = cq.poll(out);
    return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(n)};
  }
  static std::vector<std::uint64_t> ids(const std::vector<Completion>& list, CompletionStatus status) {
    std::vector<std::uint64_t> out;
    for (const Completion& completion : list) {
      EXPECT_EQ(completion.status, status);
      EXPECT_EQ(completion.qpn, Qpn{77});
      out.push_back(completion.id);
    }
    return out;
  }

  EventQueue events;
  CompletionQueue send_cq{{1}, 16};
  CompletionQueue receive_cq{{2}, 16};
  std::unique_ptr<QueuePair> qp;
};

using Ids = std::vector<std::uint64_t>;

TEST_F(QueuePairTest, refers_to_its_completion_queues) {
  EXPECT_EQ(send_cq.users, 1u);
  EXPECT_EQ(receive_cq.users, 1u);
}

TEST_F(QueuePairTest, keeps_what_each_step_brought) {
  to_rts();
  const QueuePairAttributes& a = qp->attributes();
  EXPECT_EQ(a.state, S::Rts);
  EXPECT_EQ(qp->state(), S::Rts);
  EXPECT_EQ(a.access, Access::RemoteRead);
  EXPECT_EQ(a.address.destination, Gid::from_ipv4(192, 0, 2, 1));
  EXPECT_EQ(a.path_mtu, 2048u);
  EXPECT_EQ(a.destination, Qpn{88});
  EXPECT_EQ(a.rq_psn, Psn{100});
  EXPECT_EQ(a.sq_psn, Psn{200});
  EXPECT_EQ(a.max_rd_atomic, 3);
  EXPECT_EQ(a.max_dest_rd_atomic, 4);
  EXPECT_EQ(a.min_rnr_timer, 5);
  EXPECT_EQ(a.timeout, 6);
  EXPECT_EQ(a.retry_count, 7);
  EXPECT_EQ(a.rnr_retry, 2);
}

TEST_F(QueuePairTest, q070_refused_step_changes_nothing) {
  ASSERT_TRUE(go(S::Init));
  QueuePairAttributes wrong = values(S::Rtr);
  wrong.path_mtu = 1500;
  EXPECT_FALSE(qp->modify(wrong, mask(S::Rtr), AttributeLimits{}));
  wrong = values(S::Rtr);
  wrong.access = Access::All;
  EXPECT_FALSE(qp->modify(wrong, mask(S::Rtr) | M::Access | M::Qkey, AttributeLimits{}));
  EXPECT_EQ(qp->state(), S::Init);
  EXPECT_EQ(qp->attributes().state, S::Init);
  EXPECT_EQ(qp->attributes().access, Access::RemoteRead);
  EXPECT_EQ(qp->attributes().destination, Qpn{});
  EXPECT_EQ(qp->attributes().path_mtu, QueuePairAttributes{}.path_mtu);
  EXPECT_TRUE(go(S::Rtr));
}

TEST_F(QueuePairTest, attributes_change_in_place_without_a_state_in_the_mask) {
  to_rts();
  QueuePairAttributes v;
  v.access = Access::RemoteWrite;
  v.min_rnr_timer = 9;
  ASSERT_TRUE(qp->modify(v, M::Access | M::MinRnrTimer, AttributeLimits{}));
  EXPECT_EQ(qp->state(), S::Rts);
  EXPECT_EQ(qp->attributes().access, Access::RemoteWrite);
  EXPECT_EQ(qp->attributes().min_rnr_timer, 9);
  EXPECT_EQ(qp->attributes().timeout, 6);
}

TEST_F(QueuePairTest, q040_sends_are_refused_before_rts_and_receives_before_init) {
  EXPECT_EQ(send(1).status, PostStatus::WrongState);
  EXPECT_EQ(receive(1).status, PostStatus::WrongState);
  ASSERT_TRUE(go(S::Init));
  EXPECT_EQ(send(1).status, PostStatus::WrongState);
  EXPECT_TRUE(receive(1));
  ASSERT_TRUE(go(S::Rtr));
  EXPECT_EQ(send(1).status, PostStatus::WrongState);
  EXPECT_TRUE(receive(2));
  ASSERT_TRUE(go(S::Rts));
  EXPECT_TRUE(send(1));
  ASSERT_TRUE(go(S::Sqd));
  EXPECT_TRUE(send(2));
  EXPECT_TRUE(receive(3));
  ASSERT_TRUE(go(S::Error));
  EXPECT_TRUE(send(3));
  EXPECT_TRUE(receive(4));
}

TEST_F(QueuePairTest, q014_q034_only_signaled_success_completes) {
  to_rts();
  ASSERT_TRUE(send(1));
  ASSERT_TRUE(send(2, SendFlags::None));
  ASSERT_TRUE(send(3, SendFlags::Signaled, SendOpcode::RdmaRead));
  qp->complete_oldest_send(CompletionStatus::Success, 0);
  qp->complete_oldest_send(CompletionStatus::Success, 0);
  qp->complete_oldest_send(CompletionStatus::Success, 55);
  const auto list = all(send_cq);
  EXPECT_EQ(ids(list, CompletionStatus::Success), (Ids{1, 3}));
  EXPECT_EQ(list[0].opcode, CompletionOpcode::Send);
  EXPECT_EQ(list[1].opcode, CompletionOpcode::RdmaRead);
  EXPECT_EQ(list[1].byte_count, 55u);
}

TEST_F(QueuePairTest, q034_failure_of_an_unsignaled_request_completes) {
  to_rts();
  ASSERT_TRUE(send(1, SendFlags::None));
  qp->complete_oldest_send(CompletionStatus::RetryExceeded, 0);
  EXPECT_EQ(ids(all(send_cq), CompletionStatus::RetryExceeded), Ids{1});
}

TEST_F(QueuePairTest, q035_signal_all_signals_all) {
  make(true);
  to_rts();
  ASSERT_TRUE(send(1, SendFlags::None));
  qp->complete_oldest_send(CompletionStatus::Success, 0);
  EXPECT_EQ(ids(all(send_cq), CompletionStatus::Success), Ids{1});
}

TEST_F(QueuePairTest, every_operation_completes_under_its_own_name) {
  EXPECT_EQ(completion_opcode(SendOpcode::Send), CompletionOpcode::Send);
  EXPECT_EQ(completion_opcode(SendOpcode::SendWithImmediate), CompletionOpcode::Send);
  EXPECT_EQ(completion_opcode(SendOpcode::RdmaWrite), CompletionOpcode::RdmaWrite);
  EXPECT_EQ(completion_opcode(SendOpcode::RdmaWriteWithImmediate), CompletionOpcode::RdmaWrite);
  EXPECT_EQ(completion_opcode(SendOpcode::RdmaRead), CompletionOpcode::RdmaRead);
  EXPECT_EQ(completion_opcode(SendOpcode::CompareAndSwap), CompletionOpcode::CompareAndSwap);
  EXPECT_EQ(completion_opcode(SendOpcode::FetchAndAdd), CompletionOpcode::FetchAndAdd);
}

TEST_F(QueuePairTest, q051_error_flushes_both_queues_in_order_signaled_or_not) {
  to_rts();
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(send(i, i % 2 == 0 ? SendFlags::None : SendFlags::Signaled));
    ASSERT_TRUE(receive(10 + i));
  }
  qp->complete_oldest_send(CompletionStatus::RemoteAccessError, 0);
  qp->enter_error(AsyncEventType::QpAccessError);
  auto sent = all(send_cq);
  ASSERT_EQ(sent.size(), 4u);
  EXPECT_EQ(sent[0].status, CompletionStatus::RemoteAccessError);
  EXPECT_EQ(sent[0].id, 1u);
  sent.erase(sent.begin());
  EXPECT_EQ(ids(sent, CompletionStatus::Flushed), (Ids{2, 3, 4}));
  const auto received = all(receive_cq);
  EXPECT_EQ(ids(received, CompletionStatus::Flushed), (Ids{11, 12, 13, 14}));
  for (const Completion& completion : received) EXPECT_EQ(completion.opcode, CompletionOpcode::Receive);
  const auto event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::QpAccessError);
  EXPECT_EQ(event->qpn, Qpn{77});
  EXPECT_FALSE(events.poll());
}

TEST_F(QueuePairTest, q051_receive_of_an_unfinished_message_is_flushed_first_and_once) {
  to_rts();
  ASSERT_TRUE(receive(1));
  ASSERT_TRUE(receive(2));
  ReceiveWqe wqe;
  std::array<ScatterGather, kMaxSegments> sges;
  ASSERT_TRUE(qp->receive_queue().take(wqe, sges));
  qp->open_receive = {true, wqe.id};
  qp->enter_error(std::nullopt);
  EXPECT_EQ(ids(all(receive_cq), CompletionStatus::Flushed), (Ids{1, 2}));
  qp->enter_error(std::nullopt);
  qp->flush();
  EXPECT_TRUE(all(receive_cq).empty());
}

TEST_F(QueuePairTest, completed_receive_closes_the_open_one) {
  to_rts();
  qp->open_receive = {true, 5};
  Completion completion;
  completion.id = 5;
  completion.qpn = Qpn{77};
  qp->complete_receive(completion, false);
  EXPECT_FALSE(qp->open_receive.open);
  qp->enter_error(std::nullopt);
  EXPECT_EQ(ids(all(receive_cq), CompletionStatus::Success), Ids{5});
}

TEST_F(QueuePairTest, error_event_is_raised_once) {
  to_rts();
  qp->enter_error(AsyncEventType::QpFatal);
  qp->enter_error(AsyncEventType::QpAccessError);
  ASSERT_TRUE(events.poll());
  EXPECT_FALSE(events.poll());
}

TEST_F(QueuePairTest, q052_error_by_the_user_flushes_the_same_way_without_an_event) {
  to_rts();
  ASSERT_TRUE(send(1));
  ASSERT_TRUE(receive(2));
  ASSERT_TRUE(go(S::Error));
  EXPECT_EQ(qp->state(), S::Error);
  EXPECT_EQ(ids(all(send_cq), CompletionStatus::Flushed), Ids{1});
  EXPECT_EQ(ids(all(receive_cq), CompletionStatus::Flushed), Ids{2});
  EXPECT_FALSE(events.poll());
}

TEST_F(QueuePairTest, q040_posts_in_error_are_flushed_when_the_device_looks) {
  to_rts();
  ASSERT_TRUE(go(S::Error));
  ASSERT_TRUE(send(1, SendFlags::None));
  ASSERT_TRUE(receive(2));
  qp->flush();
  EXPECT_EQ(ids(all(send_cq), CompletionStatus::Flushed), Ids{1});
  EXPECT_EQ(ids(all(receive_cq), CompletionStatus::Flushed), Ids{2});
}

// The program posts while the device goes to ERR: who is told so has it flushed again.
TEST_F(QueuePairTest, q052_a_receive_posted_while_the_queue_pair_fails_is_flushed_once) {
  for (int round = 0; round < 500; ++round) {
    make(false);
    to_rts();
    std::atomic<int> ready{0};
    bool saw_error = false;
    std::thread program([&] {
      for (++ready; ready != 2;) continue;
      const ReceiveRequest request{1, {}};
      EXPECT_TRUE(qp->post_receive({&request, 1}, &saw_error));
    });
    for (++ready; ready != 2;) continue;
    qp->enter_error(std::nullopt);
    program.join();
    if (saw_error) qp->flush();
    ASSERT_EQ(ids(all(receive_cq), CompletionStatus::Flushed), Ids{1}) << round;
  }
}

TEST_F(QueuePairTest, q053_reset_discards_requests_and_completions_silently) {
  to_rts();
  ASSERT_TRUE(send(1));
  ASSERT_TRUE(send(2));
  ASSERT_TRUE(receive(3));
  qp->complete_oldest_send(CompletionStatus::Success, 0);
  Completion foreign;
  foreign.id = 99;
  foreign.qpn = Qpn{5};
  EXPECT_EQ(send_cq.push(foreign, false), CompletionQueue::Pushed::Stored);
  ASSERT_TRUE(go(S::Reset));
  EXPECT_EQ(qp->state(), S::Reset);
  const auto left = all(send_cq);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].id, 99u);
  EXPECT_TRUE(all(receive_cq).empty());
  EXPECT_EQ(qp->send_queue().posted(), qp->send_queue().retired());
  EXPECT_TRUE(qp->receive_queue().empty());
  EXPECT_EQ(qp->attributes().destination, Qpn{});
  to_rts();
  ASSERT_TRUE(send(4));
}

// On a shared receive queue that holds receives 1 to 4.
class SharedReceivesTest : public QueuePairTest {
 protected:
  SharedReceivesTest() {
    QueuePairInit init;
    init.send_cq = &send_cq;
    init.receive_cq = &receive_cq;
    init.srq = &srq;
    qp = std::make_unique<QueuePair>(Qpn{77}, init, events);
    const ReceiveRequest requests[4] = {{1, {}}, {2, {}}, {3, {}}, {4, {}}};
    EXPECT_TRUE(srq.post(requests));
  }
  void take() {
    ReceiveWqe wqe;
    std::array<ScatterGather, kMaxSegments> sges;
    ASSERT_TRUE(qp->take_receive(wqe, sges));
    qp->open_receive = {true, wqe.id};
  }
  SharedReceiveQueue srq{{3}, {9}, 4, 1, events};
};

TEST_F(SharedReceivesTest, queue_pair_refuses_receives_of_its_own) {
  EXPECT_EQ(srq.users, 1u);
  EXPECT_EQ(qp->receive_pd(), PdId{9});
  EXPECT_EQ(receive(5).status, PostStatus::SharedReceives);
  to_rts();
  EXPECT_EQ(receive(5).status, PostStatus::SharedReceives);
  EXPECT_EQ(srq.size(), 4u);
}

TEST_F(SharedReceivesTest, r077_error_flushes_what_was_taken_and_no_more_and_says_so_once) {
  to_rts();
  take();
  ASSERT_TRUE(send(11));
  qp->enter_error(AsyncEventType::QpAccessError);
  EXPECT_EQ(ids(all(receive_cq), CompletionStatus::Flushed), Ids{1});
  EXPECT_EQ(ids(all(send_cq), CompletionStatus::Flushed), Ids{11});
  EXPECT_EQ(srq.size(), 3u);
  EXPECT_EQ(events.poll()->type, AsyncEventType::QpAccessError);
  const auto last = events.poll();
  ASSERT_TRUE(last);
  EXPECT_EQ(last->type, AsyncEventType::LastWqeReached);
  EXPECT_EQ(last->qpn, Qpn{77});
  qp->flush();
  qp->enter_error(AsyncEventType::QpFatal);
  EXPECT_FALSE(events.poll());
}

TEST_F(SharedReceivesTest, r077_error_by_the_user_says_so_too_in_every_state_and_every_life) {
  for (int life = 0; life < 2; ++life) {
    to_rts();
    ASSERT_TRUE(go(S::Error));
    EXPECT_EQ(events.poll()->type, AsyncEventType::LastWqeReached);
    EXPECT_FALSE(events.poll());
    ASSERT_TRUE(go(S::Reset));
  }
  ASSERT_TRUE(go(S::Error));
  EXPECT_EQ(events.poll()->type, AsyncEventType::LastWqeReached);
  EXPECT_EQ(srq.size(), 4u);
}

TEST_F(SharedReceivesTest, r076_limit_fires_once_and_then_is_disarmed) {
  srq.arm(3);
  EXPECT_EQ(srq.limit(), 3u);
  take();
  EXPECT_FALSE(events.poll()) << "three are left";
  take();
  const auto event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::SrqLimitReached);
  EXPECT_EQ(event->srq, SrqId{3});
  EXPECT_EQ(srq.limit(), 0u);
  take();
  EXPECT_FALSE(events.poll());
  srq.arm(2);  // one is left: it is so already
  EXPECT_EQ(events.poll()->type, AsyncEventType::SrqLimitReached);
  srq.arm(1);
  EXPECT_FALSE(events.poll());
  EXPECT_TRUE(srq.withdraw(4));
  EXPECT_EQ(events.poll()->type, AsyncEventType::SrqLimitReached);
  srq.arm(0);
  EXPECT_FALSE(events.poll());
}

TEST_F(QueuePairTest, armed_queue_raises_its_event) {
  to_rts();
  send_cq.arm(false);
  ASSERT_TRUE(send(1));
  qp->complete_oldest_send(CompletionStatus::Success, 0);
  const auto event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, Event::Kind::Completion);
  EXPECT_EQ(event->cq, CqId{1});
}

TEST_F(QueuePairTest, r132_overrun_names_the_broken_queue_once) {
  CompletionQueue tiny{{9}, 1};
  QueuePairInit init;
  init.send_cq = &tiny;
  init.receive_cq = &tiny;
  qp = std::make_unique<QueuePair>(Qpn{77}, init, events);
  to_rts();
  for (std::uint64_t i = 1; i <= 3; ++i) ASSERT_TRUE(send(i));
  for (int i = 0; i < 3; ++i) qp->complete_oldest_send(CompletionStatus::Success, 0);
  EXPECT_EQ(events.poll_broken(), CqId{9});
  EXPECT_FALSE(events.poll_broken());
  const auto event = events.poll();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->type, AsyncEventType::CqError);
  EXPECT_FALSE(events.poll());
  EXPECT_EQ(ids(all(tiny), CompletionStatus::Success), Ids{1});
}

}  // namespace
}  // namespace verbena::core
