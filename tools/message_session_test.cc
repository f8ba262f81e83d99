// SPDX-License-Identifier: Apache-2.0
#include "tools/message_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tools/message_server.h"
#include "tools/test_must.h"

namespace verbena::tools {
namespace {

// A server in a thread of this process, and what came of it.
class MessageServerThread {
 public:
  MessageServerThread()
      : devices_(must(MessageDevices::open({}, nullptr))),
        listener_(must(TcpListener::create(devices_.address(), 0))),
        thread_([this] {
          MessageServerOptions options;
          options.flags = nlohmann::json::object();
          options.stopped = [this] { return stop_.load(); };
          options.on_served = [this](const MessageTest& test, const Result<void>& how) {
            served_.push_back(test.name() + (how ? "" : " failed"));
          };
          auto link = listener_.accept(options.stopped);
          outcome_ = link ? MessageServer(std::move(*link), devices_, options).serve() : link.error();
        }) {}
  MessageServerThread(const MessageServerThread&) = delete;
  MessageServerThread& operator=(const MessageServerThread&) = delete;
  ~MessageServerThread() {
    stop();
    if (thread_.joinable()) thread_.join();
  }

  Endpoint address() const { return {devices_.address().to_string(), listener_.port()}; }
  void stop() { stop_.store(true); }
  const Result<void>& outcome() {
    thread_.join();
    return outcome_;
  }
  const std::vector<std::string>& served() const { return served_; }

 private:
  MessageDevices devices_;
  TcpListener listener_;
  std::atomic<bool> stop_{false};
  Result<void> outcome_;
  std::vector<std::string> served_;
  std::thread thread_;
};

MessageTest quick_test(std::string_view kind, MessageMeasure measure) {
  MessageTest test;
  test.kind = must(messaging::parse_kind(kind));
  test.measure = measure;
  test.iterations = 50;
  return test;
}

TEST(MessageSession, runs_one_test_after_the_other_with_one_server) {
  MessageServerThread server;
  auto session = must(MessageSession::connect(server.address(), {}));
  EXPECT_EQ(session->remote(), server.address().host);
  std::vector<std::string> expected;
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local, PathChoice::Auto})
    for (const MessageMeasure measure : {MessageMeasure::Latency, MessageMeasure::Bandwidth, MessageMeasure::Rate}) {
      MessageTest test = quick_test("buffered-write", measure);
      test.path = path;
      test.size = static_cast<std::uint32_t>(16 + expected.size());
      if (measure == MessageMeasure::Rate) test.threads = 2, test.senders = 2, test.batch = 4;
      const MessageRow row = must(session->run(test));
      EXPECT_EQ(row.messages, measure == MessageMeasure::Rate ? 200u : 50u);
      EXPECT_EQ(row.test.name(), test.name());
      EXPECT_EQ(row.path.name(), path == PathChoice::Roce ? "roce" : "local") << row.path.reason;
      EXPECT_EQ(row.minimum > 0, measure == MessageMeasure::Latency);
      EXPECT_GE(row.receiver_bytes, test.ring_bytes * test.threads * test.senders);
      expected.push_back(test.name());
    }
  session.reset();
  EXPECT_TRUE(server.outcome()) << server.outcome().error().to_string();
  EXPECT_EQ(server.served(), expected);
}

TEST(MessageSession, goes_on_after_a_test_that_either_end_cannot_run) {
  MessageServerThread server;
  auto session = must(MessageSession::connect(server.address(), {}));
  MessageTest test = quick_test("send-receive", MessageMeasure::Latency);
  test.batch = 2;  // refused here
  EXPECT_EQ(session->run(test).error().code(), ErrorCode::InvalidArgument);
  test = quick_test("shared-receive", MessageMeasure::Rate);
  test.senders = 65;  // over its window: refused there
  const auto refused = session->run(test);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::Rejected);
  EXPECT_NE(refused.error().context().find("each needs one"), std::string::npos) << refused.error().to_string();
  EXPECT_FALSE(session->over());
  EXPECT_EQ(must(session->run(quick_test("send-receive", MessageMeasure::Latency))).messages, 50u);
  session.reset();
  const auto& outcome = server.outcome();
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(server.served().size(), 2u);
}

TEST(MessageSession, sends_no_more_in_a_request_than_the_device_takes_and_says_so) {
  MessageServerThread server;
  auto session = must(MessageSession::connect(server.address(), {}));
  const std::uint32_t most = session->devices().at(0).info().max_inline_bytes;
  MessageTest test = quick_test("send-receive", MessageMeasure::Latency);
  test.inline_bytes = most + 1;
  const auto refused = session->run(test);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::InvalidArgument);
  EXPECT_NE(refused.error().context().find("takes " + std::to_string(most) + " at most"), std::string::npos);
  test.inline_bytes = most;
  EXPECT_EQ(must(session->run(test)).test.inline_bytes, most);
  test = quick_test("buffered-read", MessageMeasure::Latency);
  test.inline_bytes = most + 1;
  EXPECT_TRUE(session->run(test)) << "of this protocol none goes so";
}

TEST(MessageSession, is_over_when_it_is_stopped_however_busy_it_is) {
  for (const MessageMeasure measure : {MessageMeasure::Latency, MessageMeasure::Rate}) {
    MessageServerThread server;
    std::atomic<bool> stop{false};
    MessageSessionOptions options;
    options.stopped = [&] { return stop.load(); };
    auto session = must(MessageSession::connect(server.address(), options));
    MessageTest test = quick_test("buffered-write/reversed", measure);
    test.duration = 600;
    const auto row = session->run(test, {}, [&](std::uint64_t messages) { stop = messages > 100; });
    ASSERT_FALSE(row);
    EXPECT_EQ(row.error().code(), ErrorCode::Cancelled);
    EXPECT_TRUE(session->over());
    EXPECT_EQ(session->run(test).error().code(), ErrorCode::Cancelled);
    session.reset();
    const auto& outcome = server.outcome();
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().code(), ErrorCode::Rejected);
    EXPECT_NE(outcome.error().context().find("interrupted"), std::string::npos) << outcome.error().to_string();
  }
}

TEST(MessageSession, learns_why_its_server_ends) {
  MessageServerThread server;
  auto session = must(MessageSession::connect(server.address(), {}));
  MessageTest test = quick_test("direct-read", MessageMeasure::Rate);
  test.duration = 600;
  const auto row = session->run(test, {}, [&](std::uint64_t messages) {
    if (messages > 100) server.stop();
  });
  ASSERT_FALSE(row);
  EXPECT_EQ(row.error().code(), ErrorCode::Rejected) << row.error().to_string();
  EXPECT_NE(row.error().context().find("interrupted"), std::string::npos) << row.error().to_string();
  EXPECT_TRUE(session->over());
  session.reset();
  EXPECT_EQ(server.outcome().error().code(), ErrorCode::Cancelled);
}

}  // namespace
}  // namespace verbena::tools
