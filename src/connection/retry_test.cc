// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "connection/curable.h"
#include "connection/reject_reason.h"

namespace verbena {
namespace {

constexpr int kNoResources = 3, kUnsupported = 5, kNoListener = 8, kConsumer = 28;

TEST(Curable, a_refusal_for_good_is_not_and_one_that_passes_is) {
  for (const int reason : {kRejectStale, kNoListener, kNoResources})
    EXPECT_TRUE(is_curable(rejection_error("there:1", reason, {}))) << reason;
  for (const int reason : {kConsumer, kUnsupported})
    EXPECT_FALSE(is_curable(rejection_error("there:1", reason, {}))) << reason;
  EXPECT_FALSE(is_curable(Error(ErrorCode::InvalidArgument, "no port", kRejectStale, ErrorDomain::Errno)));
  EXPECT_FALSE(is_curable(Error(ErrorCode::Rejected, "no", kRejectStale, ErrorDomain::Errno)));
  for (const ErrorCode code : {ErrorCode::Unreachable, ErrorCode::TimedOut})
    EXPECT_TRUE(is_curable(Error(code, "nobody answered")));
}

}  // namespace
}  // namespace verbena
