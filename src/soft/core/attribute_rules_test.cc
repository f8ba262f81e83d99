// SPDX-License-Identifier: Apache-2.0
#include "soft/core/attribute_rules.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace verbena::core {
namespace {

using M = AttributeMask;
using S = QueuePairState;

constexpr S kStates[] = {S::Reset, S::Init, S::Rtr, S::Rts, S::Sqd, S::Sqe, S::Error};
constexpr AttributeLimits kLimits{4096, 16, 16};

struct Sets {
  M required = M::None;
  M optional = M::None;
};

// The steps of a reliable connected queue pair as the manual page of ibv_modify_qp and the kernel's table
// have them, without what means nothing on RoCE (alternate path, path migration).
std::map<std::pair<S, S>, Sets> expected_steps() {
  std::map<std::pair<S, S>, Sets> steps;
  for (const S from : kStates) steps[{from, S::Reset}] = steps[{from, S::Error}] = {};
  const M who = M::PkeyIndex | M::Port | M::Access;
  steps[{S::Reset, S::Init}] = {who, M::None};
  steps[{S::Init, S::Init}] = {M::None, who};
  steps[{S::Init, S::Rtr}] = {
      M::Address | M::PathMtu | M::DestinationQpn | M::RqPsn | M::MaxDestRdAtomic | M::MinRnrTimer,
      M::PkeyIndex | M::Access};
  steps[{S::Rtr, S::Rts}] = {M::SqPsn | M::MaxRdAtomic | M::RetryCount | M::RnrRetry | M::Timeout,
                             M::Access | M::MinRnrTimer};
  steps[{S::Rts, S::Rts}] = {M::None, M::Access | M::MinRnrTimer};
  steps[{S::Rts, S::Sqd}] = {M::None, M::SqDrainedEvent};
  steps[{S::Sqd, S::Rts}] = {M::None, M::Access | M::MinRnrTimer};
  steps[{S::Sqd, S::Sqd}] = {M::None, who | M::Address | M::MaxRdAtomic | M::MaxDestRdAtomic |
                                          M::MinRnrTimer | M::RetryCount | M::RnrRetry | M::Timeout};
  return steps;
}

QueuePairAttributes good_values(S from, S to) {
  QueuePairAttributes values;
  values.state = to;
  values.current_state = from;
  values.access = Access::All;
  values.address.destination = Gid::from_ipv4(192, 0, 2, 1);
  values.path_mtu = 1024;
  values.destination = Qpn{77};
  values.max_rd_atomic = 16;
  values.max_dest_rd_atomic = 16;
  values.min_rnr_timer = 31;
  values.timeout = 31;
  values.retry_count = 7;
  values.rnr_retry = 7;
  return values;
}

bool allowed(S from, S to, M mask, const QueuePairAttributes& values) {
  return check_transition(QueuePairType::ReliableConnected, from, to, mask, values, kLimits).has_value();
}
bool allowed(S from, S to, M mask) { return allowed(from, to, mask, good_values(from, to)); }

std::vector<M> bits() {
  std::vector<M> list;
  for (std::uint32_t bit = 1; bit != 0; bit <<= 1) list.push_back(static_cast<M>(bit));
  return list;
}
M without(M mask, M bit) { return mask & ~bit; }

std::string name(S from, S to) { return std::string(to_string(from)) + " to " + std::string(to_string(to)); }

TEST(AttributeRules, q070_only_the_steps_of_the_state_diagram_exist) {
  const auto steps = expected_steps();
  for (const S from : kStates)
    for (const S to : kStates) {
      const auto step = steps.find({from, to});
      if (step != steps.end()) {
        EXPECT_TRUE(allowed(from, to, M::State | step->second.required)) << name(from, to);
        EXPECT_TRUE(allowed(from, to, M::State | step->second.required | step->second.optional))
            << name(from, to);
        continue;
      }
      EXPECT_FALSE(allowed(from, to, M::State)) << name(from, to);
      for (const auto& [other, sets] : steps)
        EXPECT_FALSE(allowed(from, to, M::State | sets.required | sets.optional)) << name(from, to);
    }
}

TEST(AttributeRules, q070_each_required_attribute_is_required) {
  for (const auto& [step, sets] : expected_steps())
    for (const M bit : bits()) {
      if (!any(bit & sets.required)) continue;
      EXPECT_FALSE(allowed(step.first, step.second, M::State | without(sets.required, bit)))
          << name(step.first, step.second) << " without bit " << static_cast<std::uint32_t>(bit);
    }
}

TEST(AttributeRules, q070_each_optional_attribute_is_taken_and_every_other_refused) {
  for (const auto& [step, sets] : expected_steps())
    for (const M bit : bits()) {
      const M known = M::State | M::CurrentState | sets.required | sets.optional;
      EXPECT_EQ(allowed(step.first, step.second, M::State | sets.required | bit), any(bit & known))
          << name(step.first, step.second) << " with bit " << static_cast<std::uint32_t>(bit);
    }
}

TEST(AttributeRules, wrong_current_state_is_refused) {
  for (const auto& [step, sets] : expected_steps())
    for (const S claimed : kStates) {
      QueuePairAttributes values = good_values(step.first, step.second);
      values.current_state = claimed;
      EXPECT_EQ(allowed(step.first, step.second, M::State | M::CurrentState | sets.required, values),
                claimed == step.first);
    }
}

// Largest good and smallest bad value of one attribute, set by a function.
struct Range {
  M bit;
  void (*set)(QueuePairAttributes&, unsigned);
  std::vector<unsigned> good, bad;
};

std::vector<Range> ranges() {
  using A = QueuePairAttributes;
  return {
      {M::PathMtu,
       [](A& a, unsigned v) { a.path_mtu = v; },
       {256, 512, 1024, 2048, 4096},
       {0, 1, 255, 257, 1500, 4095, 8192}},
      {M::MaxRdAtomic,
       [](A& a, unsigned v) { a.max_rd_atomic = static_cast<std::uint8_t>(v); },
       {0, 1, 16},
       {17, 128, 255}},
      {M::MaxDestRdAtomic,
       [](A& a, unsigned v) { a.max_dest_rd_atomic = static_cast<std::uint8_t>(v); },
       {0, 1, 16},
       {17, 255}},
      {M::MinRnrTimer,
       [](A& a, unsigned v) { a.min_rnr_timer = static_cast<std::uint8_t>(v); },
       {0, 31},
       {32, 255}},
      {M::Timeout, [](A& a, unsigned v) { a.timeout = static_cast<std::uint8_t>(v); }, {0, 31}, {32, 255}},
      {M::RetryCount,
       [](A& a, unsigned v) { a.retry_count = static_cast<std::uint8_t>(v); },
       {0, 7},
       {8, 255}},
      {M::RnrRetry, [](A& a, unsigned v) { a.rnr_retry = static_cast<std::uint8_t>(v); }, {0, 7}, {8, 255}},
      {M::Port, [](A& a, unsigned v) { a.port = static_cast<std::uint8_t>(v); }, {1}, {0, 2, 255}},
      {M::PkeyIndex,
       [](A& a, unsigned v) { a.pkey_index = static_cast<std::uint16_t>(v); },
       {0},
       {1, 0xffff}},
      {M::Access, [](A& a, unsigned v) { a.access = static_cast<Access>(v); }, {0, 1, 15}, {16, 1u << 31}},
      {M::Address,
       [](A& a, unsigned v) { a.address.destination = v == 0 ? Gid{} : Gid::from_ipv4(1, 2, 3, 4); },
       {1},
       {0}},
  };
}

TEST(AttributeRules, values_are_held_to_their_range_wherever_they_may_come) {
  for (const auto& [step, sets] : expected_steps())
    for (const Range& range : ranges()) {
      if (!any(range.bit & (sets.required | sets.optional))) continue;
      const M mask = M::State | sets.required | range.bit;
      QueuePairAttributes values = good_values(step.first, step.second);
      for (const unsigned v : range.good) {
        range.set(values, v);
        EXPECT_TRUE(allowed(step.first, step.second, mask, values))
            << name(step.first, step.second) << " " << v;
      }
      for (const unsigned v : range.bad) {
        range.set(values, v);
        EXPECT_FALSE(allowed(step.first, step.second, mask, values))
            << name(step.first, step.second) << " " << v;
      }
    }
}

TEST(AttributeRules, values_that_are_not_named_in_the_mask_are_not_looked_at) {
  QueuePairAttributes values = good_values(S::Rts, S::Rts);
  for (const Range& range : ranges()) range.set(values, range.bad.front());
  EXPECT_TRUE(allowed(S::Rts, S::Rts, M::State, values));
}

TEST(AttributeRules, path_mtu_above_the_devices_is_refused) {
  const M mask = M::State | expected_steps()[{S::Init, S::Rtr}].required;
  QueuePairAttributes values = good_values(S::Init, S::Rtr);
  values.path_mtu = 2048;
  const AttributeLimits limits{1024, 16, 16};
  EXPECT_FALSE(check_transition(QueuePairType::ReliableConnected, S::Init, S::Rtr, mask, values, limits));
  values.path_mtu = 1024;
  EXPECT_TRUE(check_transition(QueuePairType::ReliableConnected, S::Init, S::Rtr, mask, values, limits));
}

TEST(AttributeRules, error_names_the_step_and_what_is_missing_or_too_much) {
  const M required = expected_steps()[{S::Rtr, S::Rts}].required;
  const auto missing =
      check_transition(QueuePairType::ReliableConnected, S::Rtr, S::Rts, without(required, M::RetryCount),
                       good_values(S::Rtr, S::Rts), kLimits);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::InvalidArgument);
  EXPECT_NE(missing.error().context().find("RTR to RTS"), std::string::npos);
  EXPECT_NE(missing.error().context().find("RETRY_CNT"), std::string::npos);
  const auto extra = check_transition(QueuePairType::ReliableConnected, S::Rtr, S::Rts, required | M::Qkey,
                                      good_values(S::Rtr, S::Rts), kLimits);
  ASSERT_FALSE(extra);
  EXPECT_NE(extra.error().context().find("QKEY"), std::string::npos);
}

TEST(AttributeRules, other_transports_are_not_supported) {
  for (const QueuePairType type : {QueuePairType::UnreliableConnected, QueuePairType::UnreliableDatagram}) {
    const auto result =
        check_transition(type, S::Reset, S::Init, M::State, good_values(S::Reset, S::Init), kLimits);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code(), ErrorCode::NotSupported);
  }
}

}  // namespace
}  // namespace verbena::core
