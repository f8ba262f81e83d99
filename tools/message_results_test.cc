// SPDX-License-Identifier: Apache-2.0
#include "tools/message_results.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tools/message_session.h"
#include "tools/message_table.h"

namespace verbena::tools {
namespace {

MessageTest unusual_test() {
  MessageTest test;
  test.kind = *messaging::parse_kind("buffered-write/reversed/read/double-mapped");
  test.path = PathChoice::Local;
  test.measure = MessageMeasure::Rate;
  test.size = kMaxMessageSize;
  test.senders = 17;
  test.threads = 3;
  test.batch = 31;
  test.window = 300;
  test.ring_bytes = kMaxMessageRing;
  test.inline_bytes = 7;
  test.iterations = kMaxMessageIterations;
  test.duration = 9;
  return test;
}

TEST(MessageTestJson, brings_every_member_there_and_back) {
  for (const MessageTest& test : {MessageTest{}, unusual_test()}) {
    const auto text = to_json(test).dump();
    const auto read = message_test_of(nlohmann::json::parse(text));
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(to_json(*read), to_json(test));
    EXPECT_EQ(read->kind, test.kind);
    EXPECT_EQ(read->path, test.path);
    EXPECT_EQ(read->measure, test.measure);
    EXPECT_EQ(read->size, test.size);
    EXPECT_EQ(read->senders, test.senders);
    EXPECT_EQ(read->threads, test.threads);
    EXPECT_EQ(read->batch, test.batch);
    EXPECT_EQ(read->window, test.window);
    EXPECT_EQ(read->ring_bytes, test.ring_bytes);
    EXPECT_EQ(read->inline_bytes, test.inline_bytes);
    EXPECT_EQ(read->iterations, test.iterations);
    EXPECT_EQ(read->duration, test.duration);
  }
}

TEST(MessageTestJson, that_lacks_a_member_is_refused_by_its_name) {
  const nlohmann::json whole = to_json(MessageTest{});
  ASSERT_EQ(whole.size(), 12u);
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json part = whole;
    part.erase(key);
    const auto read = message_test_of(part);
    ASSERT_FALSE(read) << key;
    EXPECT_EQ(read.error().code(), ErrorCode::ProtocolError);
    EXPECT_NE(read.error().context().find("\"" + key + "\""), std::string::npos) << read.error().to_string();
  }
}

TEST(MessageTestJson, with_a_member_that_is_wrong_is_refused_by_its_name) {
  const nlohmann::json wrong[] = {-1, 1.5, true, nullptr, "8", std::uint64_t{1} << 63, nlohmann::json::array({1}),
                                  nlohmann::json::object()};
  const nlohmann::json whole = to_json(MessageTest{});
  for (const auto& [key, value] : whole.items())
    for (const nlohmann::json& other : wrong) {
      nlohmann::json bad = whole;
      bad[key] = other;
      const auto read = message_test_of(bad);
      ASSERT_FALSE(read) << bad.dump();
      EXPECT_EQ(read.error().code(), ErrorCode::ProtocolError);
      EXPECT_NE(read.error().context().find("\"" + key + "\""), std::string::npos) << read.error().to_string();
    }
  for (const char* key : {"senders", "threads", "batch", "window", "ring_bytes"}) {
    nlohmann::json bad = whole;
    bad[key] = 0;
    EXPECT_FALSE(message_test_of(bad)) << key;
  }
  for (const nlohmann::json& other : wrong) EXPECT_FALSE(message_test_of(other)) << other.dump();
}

TEST(MessageTestCheck, names_what_no_end_can_run) {
  const auto why = [](auto change) {
    MessageTest test;
    change(test);
    const auto sound = check_message_test(test);
    return sound ? std::string("sound") : sound.error().to_string();
  };
  EXPECT_EQ(why([](MessageTest&) {}), "sound");
  EXPECT_EQ(why([](MessageTest& t) { t.size = 0; }), "sound");
  EXPECT_EQ(why([](MessageTest& t) { t.senders = 2, t.threads = 2; }), "sound");
  EXPECT_EQ(why([](MessageTest& t) { t.batch = 2; }),
            "InvalidArgument: send-receive lat, 8 bytes: a latency is that of one message at a time, and no batch");
  EXPECT_NE(why([](MessageTest& t) { t.iterations = 0; }).find("neither a number"), std::string::npos);
  EXPECT_EQ(why([](MessageTest& t) { t.iterations = 0, t.duration = 1; }), "sound");
  for (const MessageMeasure measure : {MessageMeasure::Bandwidth, MessageMeasure::Rate})
    EXPECT_NE(why([&](MessageTest& t) { t.measure = measure, t.size = 0; }).find("no bytes"), std::string::npos);
}

TEST(MessageRowJson, tells_what_was_measured_and_times_of_a_latency_alone) {
  MessageRow row;
  row.test = unusual_test();
  row.test.size = 100;
  row.kind = *messaging::parse_kind("buffered-write");
  row.messages = 500;
  row.elapsed = Duration::milliseconds(250);
  row.overhead = 0.25;
  row.sender_bytes = 4096;
  row.receiver_bytes = 8192;
  nlohmann::json json = to_json(row);
  EXPECT_EQ(json["settled"], messaging::to_string(row.kind));
  EXPECT_EQ(json["test"], to_json(row.test));
  EXPECT_EQ(json["messages"], 500);
  EXPECT_EQ(json["seconds"], 0.25);
  EXPECT_EQ(json["messages_per_s"], 2000);
  EXPECT_EQ(json["bytes_per_s"], 200'000);
  EXPECT_EQ(json["overhead_us"], 0.25);
  EXPECT_EQ(json["sender_bytes"], 4096);
  EXPECT_EQ(json["receiver_bytes"], 8192);
  EXPECT_FALSE(json.contains("time_us"));
  EXPECT_EQ(json["runs"], 1);
  EXPECT_FALSE(json.contains("spread"));
  row.merits = {2000, 3000, 1500};
  json = to_json(row);
  EXPECT_EQ(json["runs"], 3);
  EXPECT_EQ(json["spread"], 1);
  row.test.measure = MessageMeasure::Latency;
  row.p999 = 12.5;
  json = to_json(row);
  EXPECT_EQ(json["time_us"]["p99.9"], 12.5);
  EXPECT_EQ(json["time_us"].size(), 7u);
}

TEST(MessageTable, has_a_column_for_each_heading) {
  const auto words = [](const std::string& text) {
    std::size_t count = 0;
    for (std::size_t i = 1; i < text.size(); ++i) count += text[i] != ' ' && text[i - 1] == ' ' ? 1u : 0u;
    return count;
  };
  for (const MessageMeasure measure : {MessageMeasure::Latency, MessageMeasure::Bandwidth, MessageMeasure::Rate}) {
    MessageRow row;
    row.test.measure = measure;
    EXPECT_EQ(words(message_line(row)), words(message_header(measure))) << message_line(row);
    EXPECT_EQ(message_line(row).back(), '\n');
  }
}

TEST(MessageHello, is_refused_where_a_flag_that_both_name_differs) {
  const nlohmann::json client{{"-s", "8"}, {"PROTOCOL", "send-receive"}}, none = nlohmann::json::object();
  const Gid address = Gid::from_ipv4(127, 0, 0, 9);
  const auto meet = [&](const nlohmann::json& ours, const nlohmann::json& hello) {
    const auto remote = remote_of_hello(hello, ours);
    return remote ? *remote : remote.error().to_string();
  };
  EXPECT_EQ(meet(client, message_hello(none, address)), "127.0.0.9");
  EXPECT_EQ(meet(none, message_hello(client, address)), "127.0.0.9");
  EXPECT_EQ(meet({{"-s", "8"}, {"-n", "1"}}, message_hello(client, address)), "127.0.0.9");
  EXPECT_EQ(meet({{"-s", "16"}}, message_hello(client, address)),
            "InvalidArgument: the two ends differ: -s is 16 here and 8 there");
  EXPECT_NE(meet(client, message_hello({{"-s", 8}}, address)).find("-s is 8 here and 8 there"), std::string::npos);
}

TEST(MessageHello, of_another_test_is_refused_by_its_name) {
  const auto remote = remote_of_hello({{"bench", "write bw"}, {"flags", nlohmann::json::array()}, {"address", "x"}},
                                      nlohmann::json::object());
  ASSERT_FALSE(remote);
  EXPECT_EQ(remote.error().to_string(),
            "InvalidArgument: the two ends run different tests: `verbena bench message` here, and `verbena bench write "
            "bw` there");
}

TEST(MessageHello, of_anything_else_is_refused) {
  const nlohmann::json none = nlohmann::json::object();
  for (const char* text :
       {"{}", R"({"flags":{},"address":"x"})",
        R"({"bench":"message","flags":[],"address":"x"})", R"({"bench":"message","flags":{}})",
        R"({"bench":"message","flags":{},"address":7})", R"({"bench":1,"flags":{},"address":"x"})"}) {
    const auto remote = remote_of_hello(nlohmann::json::parse(text), none);
    ASSERT_FALSE(remote) << text;
    EXPECT_EQ(remote.error().code(), ErrorCode::ProtocolError) << text;
  }
}

}  // namespace
}  // namespace verbena::tools
