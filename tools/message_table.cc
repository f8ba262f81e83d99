// SPDX-License-Identifier: Apache-2.0
#include "tools/message_table.h"

#include <fmt/format.h>

namespace verbena::tools {

std::string message_header(MessageMeasure measure) {
  if (measure == MessageMeasure::Latency)
    return " #bytes   #iterations  t_min[usec]  t_typical[usec]  t_avg[usec]  t_stdev[usec]  99%[usec]  99.9%[usec]  "
           "t_max[usec]\n";
  return " #bytes   #messages    BW[GB/sec]   MsgRate[Mmsg/sec]  o[usec]   sender[KiB]   receiver[KiB]\n";
}

std::string message_line(const MessageRow& row) {
  if (row.test.is_latency())
    return fmt::format(" {:<8} {:<12} {:<12.2f} {:<16.2f} {:<12.2f} {:<14.2f} {:<10.2f} {:<12.2f} {:.2f}\n",
                       row.test.size, row.messages, row.minimum, row.typical, row.average, row.deviation, row.p99,
                       row.p999, row.maximum);
  const auto kibibytes = [](std::uint64_t bytes) { return (bytes + 1023) / 1024; };
  return fmt::format(" {:<8} {:<12} {:<12.4f} {:<18.6f} {:<9.3f} {:<13} {}\n", row.test.size, row.messages,
                     row.bytes_per_second() * 1e-9, row.messages_per_second() * 1e-6, row.overhead,
                     kibibytes(row.sender_bytes), kibibytes(row.receiver_bytes));
}

}  // namespace verbena::tools
