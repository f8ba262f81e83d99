// SPDX-License-Identifier: Apache-2.0
// Goodput by loss: 10 Gb/s, round trip 100 us, 4 KiB packets, WRITEs of 1 MiB.
#include "sim/goodput.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace verbena::sim {
namespace {

TEST(Goodput, all_data_arrives_up_to_30_percent_loss) {
  double lossless = 0;
  for (const double loss : {0.0, 0.001, 0.01, 0.05, 0.1, 0.3}) {
    GoodputOptions options;
    options.loss = loss;
    if (loss > 0.01) options.messages = 16;
    const GoodputResult result = goodput(options);
    EXPECT_EQ(result.completed, options.messages) << "at loss " << loss << ' ' << result.failure;
    EXPECT_TRUE(result.data_right) << "at loss " << loss;
    if (loss == 0) lossless = result.bits_per_second;
    std::printf("loss %5.1f %%: %7.3f Gb/s, ratio %.4f, %llu packets, %llu sent again\n", loss * 100,
                result.bits_per_second * 1e-9, result.bits_per_second / lossless,
                static_cast<unsigned long long>(result.packets),
                static_cast<unsigned long long>(result.retransmitted));
  }
}

}  // namespace
}  // namespace verbena::sim
