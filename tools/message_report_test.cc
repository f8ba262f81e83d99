// SPDX-License-Identifier: Apache-2.0
#include "tools/message_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/message_choice.h"
#include "tools/message_runs.h"
#include "tools/message_kinds.h"
#include "tools/test_message_rows.h"

namespace verbena::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const messaging::Kind kPlain = test_kind("send-receive"), kRing = test_kind("buffered-write/reversed/read"),
                      kRead = test_kind("direct-read");
// Soonest; most small messages; most bytes.
constexpr TestCosts kQuick{{0.2, 0.0002}, {1.8, 0.0005}, {0.9, 0.0004}};
constexpr TestCosts kDense{{0.1, 0.0002}, {2.8, 0.0005}, {0.25, 0.0005}};
constexpr TestCosts kLarge{{0.3, 0}, {6, 0.0001}, {2, 0.0001}};

MessageRow crowd(const messaging::Kind& kind, std::uint32_t senders, const TestCosts& costs, std::uint64_t memory) {
  MessageRow row = test_row(kind, MessageMeasure::Rate, 64, costs);
  row.test.senders = senders;
  row.receiver_bytes = memory;
  return row;
}

std::vector<MessageRow> contest() {
  std::vector<MessageRow> rows;
  for (const auto& [kind, costs] : {std::pair{kPlain, kQuick}, {kRing, kDense}, {kRead, kLarge}})
    for (const MessageRow& row : test_rows(kind, costs)) rows.push_back(row);
  return rows;
}

std::string chosen(const std::vector<MessageRow>& rows, MessageWish wish, PathChoice path = PathChoice::Roce) {
  const auto choice = recommend_measured(rows, wish, path);
  return choice ? choice->reason : choice.error().to_string();
}

TEST(MessageChoice, names_the_best_with_its_numbers_and_the_next_best) {
  const auto rows = contest();
  EXPECT_EQ(chosen(rows, MessageWish::Latency),
            "send-receive: 2.01 µs for 8 bytes, one way; next is buffered-write/reversed/read with 2.91 µs");
  EXPECT_EQ(chosen(rows, MessageWish::SmallMessages),
            "buffered-write/reversed/read: 3.94 million messages/s of 8 bytes; next is send-receive with 1.11 million "
            "messages/s");
  EXPECT_EQ(chosen(rows, MessageWish::LargeBandwidth),
            "direct-read: 9.81 GB/s in messages of 1048576 bytes; next is send-receive with 2.49 GB/s");
  EXPECT_EQ(recommend_measured(rows, MessageWish::LargeBandwidth, PathChoice::Roce)->row.kind, kRead);
}

TEST(MessageChoice, takes_the_fastest_of_those_that_take_an_eighth_of_the_most_memory) {
  TestCosts half = kQuick, slow = kQuick;
  half.gap.fixed *= 1.9, slow.gap.fixed *= 3;
  std::vector<MessageRow> rows{crowd(kPlain, 16, kQuick, 1000), crowd(kPlain, 64, kQuick, 64'000'000),
                               crowd(test_kind("shared-receive"), 64, half, 300'000),
                               crowd(test_kind("shared-write"), 64, slow, 100'000)};
  EXPECT_EQ(chosen(rows, MessageWish::ManySenders),
            "shared-receive: 300 kB at the receiver for 0.576 million messages/s of 64 bytes from 64 senders; next is "
            "shared-write with 100 kB at the receiver for 0.367 million messages/s; the fastest of those with at most "
            "an eighth of the 64.0 MB of send-receive");
  rows.pop_back();
  rows.push_back(crowd(test_kind("shared-write"), 64, kQuick, 100'000));
  EXPECT_EQ(recommend_measured(rows, MessageWish::ManySenders, PathChoice::Roce)->row.kind, test_kind("shared-write"));
  // Of those that the runs do not tell apart, who takes least.
  std::vector<MessageRow> runs[] = {{rows[2]}, {rows[3]}};
  for (std::vector<MessageRow>& of_one : runs)
    for (const double factor : {0.4, 2.5}) {
      of_one.push_back(of_one.front());
      of_one.back().elapsed.ns = std::llround(static_cast<double>(of_one.back().elapsed.ns) * factor);
    }
  std::vector<MessageRow> repeated{rows[1], middle_of(runs[0]), middle_of(runs[1])};
  repeated[2].elapsed = repeated[1].elapsed + repeated[1].elapsed / 10;
  EXPECT_THAT(chosen(repeated, MessageWish::ManySenders), HasSubstr("shared-write: 100 kB"));
  EXPECT_THAT(chosen(repeated, MessageWish::ManySenders), HasSubstr("within the noise of these runs: shared-receive"));
  rows[1].receiver_bytes = 700'000;
  EXPECT_THAT(chosen(rows, MessageWish::ManySenders), HasSubstr("; the least memory of all"));
}

TEST(MessageChoice, compares_only_what_can_be_compared) {
  auto rows = contest();
  rows.push_back(test_row(kRead, MessageMeasure::Latency, 8, {{0, 0}, {0.1, 0}, {0.01, 0}}));
  rows.back().test.senders = 4;  // tells of no single one
  // Other paths, rows in which nothing went, more than one thread, and sizes only one kind was measured at.
  auto other = test_row(kRead, MessageMeasure::Latency, 8, {{0, 0}, {0.1, 0}, {0.01, 0}}, PathChoice::Local);
  rows.push_back(other);
  other.test.path = PathChoice::Roce;
  other.messages = 0;
  rows.push_back(other);
  other = test_row(kRead, MessageMeasure::Rate, 8, {{0, 0}, {0.1, 0}, {0.01, 0}});
  other.test.threads = 4;
  rows.push_back(other);
  EXPECT_THAT(chosen(rows, MessageWish::Latency), HasSubstr("send-receive: 2.01"));
  EXPECT_THAT(chosen(rows, MessageWish::SmallMessages), HasSubstr("buffered-write/reversed/read: 3.94"));
  EXPECT_EQ(chosen(rows, MessageWish::Latency, PathChoice::Local), "direct-read: 0.10 µs for 8 bytes, one way");
}

TEST(MessageChoice, says_what_the_runs_do_not_tell_apart_and_takes_what_is_recommended) {
  const auto repeated = [](const char* kind, double typical, double noise) {
    std::vector<MessageRow> runs;
    for (const double factor : {1.0, 1 + noise, 1 - noise}) {
      runs.push_back(test_row(test_kind(kind), MessageMeasure::Latency, 8, kQuick));
      runs.back().typical = typical * factor;
    }
    return middle_of(std::move(runs));
  };
  // A single run that was better than all, and does not count.
  std::vector<MessageRow> rows{test_row(test_kind("buffered-read"), MessageMeasure::Latency, 8, {{0, 0}, {0.1, 0}, {}}),
                               repeated("send-receive", 1.02, 0.1), repeated("direct-write", 1, 0.1),
                               repeated("shared-write", 2, 0.1)};
  EXPECT_EQ(chosen(rows, MessageWish::Latency),
            "send-receive: 1.02 µs for 8 bytes, one way; within the noise of these runs: direct-write with 1.00 µs; "
            "unsteady: the best of 3 runs was 22 % better than the worst");
  rows.push_back(repeated("buffered-write/reversed", 1.05, 0.01));
  const auto choice = recommend_measured(rows, MessageWish::Latency, PathChoice::Roce);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->reason,
            "buffered-write/reversed: 1.05 µs for 8 bytes, one way; within the noise of these runs: direct-write with "
            "1.00 µs, send-receive with 1.02 µs");
  EXPECT_EQ(choice->alike.size(), 2u);
  for (MessageRow& row : rows)
    if (is_repeated(row)) row = repeated(to_string(row.kind).c_str(), row.typical, 0.001);
  EXPECT_EQ(chosen(rows, MessageWish::Latency),
            "direct-write: 1.00 µs for 8 bytes, one way; next is send-receive with 1.02 µs");
}

TEST(MessageChoice, says_when_nothing_tells) {
  EXPECT_THAT(chosen(contest(), MessageWish::ManySenders), HasSubstr("nothing was measured over packets that tells of "
                                                                     "many senders, little memory"));
  for (const MessageWish wish : kMessageWishes)
    EXPECT_EQ(recommend_measured({}, wish, PathChoice::Local).error().code(), ErrorCode::NotFound);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// Every element that is opened is closed, in order, and every attribute is quoted. What a parser says of the whole is a
// test of the command.
void expect_balanced(const std::string& page) {
  std::vector<std::string> open;
  for (std::size_t at = page.find("<html"); at != std::string::npos; at = page.find('<', at + 1)) {
    const std::size_t end = page.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = page.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find(' '));
    if (tag.starts_with('/')) {
      ASSERT_FALSE(open.empty());
      EXPECT_EQ(tag.substr(1), open.back());
      open.pop_back();
    } else if (!tag.ends_with('/')) {
      open.push_back(name);
    }
  }
  EXPECT_TRUE(open.empty());
}

TEST(MessageReport, shows_plots_choices_properties_models_and_numbers) {
  MessageReport report{"127.0.0.1", "127.0.0.2", contest(), {}, {}};
  for (const std::uint32_t senders : {1u, 4u, 16u})
    report.rows.push_back(crowd(kPlain, senders, kQuick, std::uint64_t{1000} * senders));
  for (const std::uint32_t senders : {4u, 16u}) {
    report.rows.push_back(test_row(kPlain, MessageMeasure::Latency, 64, kQuick));
    report.rows.back().test.senders = senders;
  }
  for (const std::uint32_t threads : {1u, 2u}) {
    report.rows.push_back(crowd(kRing, 1, kDense, 1000));
    report.rows.back().test.threads = threads;
  }
  const std::string page = message_page(report);
  expect_balanced(page);
  EXPECT_THAT(page, HasSubstr("127.0.0.1 to 127.0.0.2: 43 tests of message protocols. "));
  for (const char* title :
       {"Latency by size, packets", "Bandwidth by size, packets", "Messages by size, packets",
        "Messages of 64 bytes by senders to one receiver (N:1)", "Memory at the receiver by senders",
        "Latency of 64 bytes by senders, one after the other", "Messages of 64 bytes by pairs of threads (N:N)"})
    EXPECT_EQ(count(page, "<title>" + std::string(title) + "</title>"), 1u) << title;
  EXPECT_EQ(count(page, "<svg"), 7u);
  // Thirteen kinds have properties, three have a model, and each has its points.
  EXPECT_EQ(count(page, "buffered-write/reversed/read, 512 bytes: "), 3u);
  EXPECT_EQ(count(page, "send-receive, 16 senders: "), 3u);
  // Whose latencies are just what the model says.
  EXPECT_EQ(count(page, "dashed\" points"), 3u);
  const std::size_t at = page.find("s0\" points=") + 11, dashed = page.find("s0 dashed\" points=") + 18;
  EXPECT_EQ(page.substr(at, page.find('/', at) - at), page.substr(dashed, page.find('/', dashed) - dashed));
  for (const char* kind : {"direct-read/fenced", "buffered-write/offset", "shared-write", "buffered-read"})
    EXPECT_THAT(page, HasSubstr("<td class=\"word\">" + std::string(kind) + "</td>"));
  EXPECT_THAT(page, HasSubstr("send-receive: 2.01 µs for 8 bytes"));
  EXPECT_THAT(page, HasSubstr("<td>0.20</td><td>0.200</td><td>1.80</td><td>0.500</td><td>0.90</td><td>0.400</td>"));
  EXPECT_THAT(page, HasSubstr("<td>2.01 µs</td><td>2.01 µs</td>"));
  EXPECT_THAT(page, Not(HasSubstr("over shared memory")));
  EXPECT_THAT(page, Not(HasSubstr("What did not come to its end")));
  for (const char* beside : {"src=", "href=", "<link", "url(", "@import"}) EXPECT_THAT(page, Not(HasSubstr(beside)));
}

TEST(MessageReport, keeps_the_tests_that_failed_and_what_peers_wrote_out_of_its_markup) {
  MessageReport report{"127.0.0.1", "<b>&\"", {}, {}, {}};
  report.failures.push_back({crowd(kRead, 1, kLarge, 0).test, "Rejected: <too> \"many\" & more"});
  const std::string page = message_page(report);
  expect_balanced(page);
  EXPECT_THAT(page, HasSubstr("127.0.0.1 to &lt;b&gt;&amp;&quot;: 1 tests of message protocols, 1 of which failed."));
  EXPECT_THAT(page, HasSubstr("Nothing was measured."));
  EXPECT_THAT(page, HasSubstr("Rejected: &lt;too&gt; &quot;many&quot; &amp; more"));
}

TEST(MessageReport, says_that_it_is_not_all_when_the_tests_were_ended) {
  MessageReport report{"a", "b", contest(), {}, {}};
  EXPECT_THAT(message_page(report), Not(HasSubstr("Not all")));
  report.incomplete = "Cancelled: <interrupted>";
  const std::string page = message_page(report);
  expect_balanced(page);
  EXPECT_THAT(page, HasSubstr("Not all of what was planned: it ended before (Cancelled: &lt;interrupted&gt;)."));
}

TEST(MessageReport, warns_of_a_model_that_does_not_fit) {
  MessageReport report{"a", "b", contest(), {}, {}};
  EXPECT_THAT(message_page(report), Not(HasSubstr("Not to be trusted")));
  // No line in the size is near such latencies and rates.
  for (MessageRow& row : report.rows) {
    if (row.kind != kRead || (row.test.size != 8 && row.test.size != 512 && row.test.size != 65536)) continue;
    row.typical *= 64;
    row.elapsed.ns *= 64;
  }
  const std::string page = message_page(report);
  expect_balanced(page);
  EXPECT_EQ(count(page, "Not to be trusted"), 1u);
  EXPECT_THAT(page, HasSubstr("measured of direct-read over packets (typical error "));
}

TEST(MessageReport, gives_each_path_plots_of_its_own) {
  MessageReport report{"a", "b", test_rows(kPlain, kQuick), {}, {}};
  for (const MessageRow& row : test_rows(kPlain, kLarge, PathChoice::Local)) report.rows.push_back(row);
  const std::string page = message_page(report);
  expect_balanced(page);
  EXPECT_EQ(count(page, "<svg"), 6u);
  EXPECT_EQ(count(page, "<h2>Over packets</h2>"), 1u);
  EXPECT_EQ(count(page, "<h2>Over shared memory</h2>"), 1u);
  EXPECT_EQ(count(page, "send-receive, 4096 bytes: "), 6u);
}

TEST(MessageReport, says_of_a_plot_in_parts_which_part_it_is) {
  MessageReport report{"a", "b", {}, {}, {}};
  for (const messaging::Kind& kind : all_kinds())
    for (const MessageRow& row : test_rows(kind, kQuick)) report.rows.push_back(row);
  const std::string page = message_page(report);
  expect_balanced(page);
  EXPECT_EQ(count(page, "<svg"), 9u);
  for (const char* part : {"1 of 3", "2 of 3", "3 of 3"})
    EXPECT_EQ(count(page, "<title>Latency by size, packets (" + std::string(part) + ")</title>"), 1u) << part;
  for (const messaging::Kind& kind : all_kinds())
    EXPECT_EQ(count(page, ">" + to_string(kind) + ", 512 bytes: "), 3u) << to_string(kind);
}

}  // namespace
}  // namespace verbena::tools
