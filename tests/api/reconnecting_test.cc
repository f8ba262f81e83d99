// SPDX-License-Identifier: Apache-2.0
// Reconnector: stopped during an attempt, and policies that make no sense.
#include <limits>

#include "test_pair.h"
#include "verbena/testing/virtual_network.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::Pair;
using verbena::testing::VirtualHost;
using verbena::testing::VirtualNetwork;

// "Ends the present connect() and every later one, as Cancelled. An attempt on its way is awaited first."
TEST(Reconnector, stop_ends_the_present_connect_though_its_attempt_succeeds) {
  Pair pair;
  Reconnector reconnector(pair.engine, pair.listener->address().to_string());
  pair.listener->on_request([&] {
    reconnector.stop();
    auto request = pair.listener->poll_request();
    if (request) pair.accepted.push_back(must(request->accept()));
  });
  expect_error(reconnector.connect(), ErrorCode::Cancelled);
}

TEST(Reconnector, stop_ends_the_present_connect_though_its_last_attempt_fails) {
  Pair pair;
  Reconnector reconnector(pair.engine, pair.listener->address().to_string(), {}, {.max_attempts = 1});
  pair.listener->on_request([&] {
    reconnector.stop();
    auto request = pair.listener->poll_request();
    if (request) must(request->reject());
  });
  expect_error(reconnector.connect(), ErrorCode::Cancelled);
}

TEST(Reconnector, last_error_is_empty_before_the_first_failure) {
  Pair pair;
  RetryPolicy policy{.first_pause = Duration{}, .longest_pause = Duration{}, .max_attempts = 3};
  Reconnector reconnector(pair.engine, "127.0.0.1:1", {}, policy);
  expect_error(reconnector.connect(), ErrorCode::ConnectionRefused, "attempt 3");
  Reconnector none(pair.engine, "127.0.0.1:1", {}, {.max_attempts = 1, .give_up_after = Duration{-5}});
  EXPECT_FALSE(none.connect());
}

TEST(Reconnector, pauses_of_an_absurd_policy_do_not_overflow) {
  VirtualNetwork network = must(VirtualNetwork::create(8));
  VirtualHost host = must(network.add_host());
  for (const Duration first : {Duration{-1}, Duration{std::numeric_limits<std::int64_t>::max() / 2 + 1}}) {
    RetryPolicy policy{.first_pause = first, .longest_pause = Duration::forever(), .max_attempts = 80};
    policy.give_up_after = Duration::forever();
    Reconnector reconnector(host.engine(), "10.0.0.1:1", {}, policy);
    int shown = 0;
    reconnector.on_failure([&](const Error&, std::uint32_t attempt, Duration pause) {
      if (pause.ns < 0 && shown++ == 0) ADD_FAILURE() << "attempt " << attempt << ": a pause of " << pause.ns << " ns";
      if (attempt > 75 || pause.ns > Duration::seconds(1000000).ns) reconnector.stop();
    });
    static_cast<void>(reconnector.connect());
  }
}

}  // namespace
}  // namespace verbena
