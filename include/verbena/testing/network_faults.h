// SPDX-License-Identifier: Apache-2.0
// What a network in virtual time does to datagrams, and what it did.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbena/base/time.h"

namespace verbena::testing {

// What happens to each datagram. Probabilities are 0 to 1, times 0 to a day.
struct NetworkFaults {
  double loss = 0;
  double duplicate = 0;  // a second one comes besides
  double corrupt = 0;    // one bit of it is another
  double burst = 0;      // with it, and for up to burst_time behind it, all that goes the same way is lost
  Duration burst_time = Duration::microseconds(500);
  Duration delay = Duration::microseconds(5);    // how long each is on its way
  Duration jitter = Duration::microseconds(20);  // and up to so much longer: they overtake one another
  Duration replay{};                             // a second one comes up to so much later still
  std::size_t room = 0;  // datagrams that are on their way to a host, or wait there; more are dropped. 0: no end
};

// Since the network was made, in datagrams.
struct NetworkCounters {
  std::uint64_t sent = 0;        // by hosts
  std::uint64_t lost = 0;        // by loss and bursts
  std::uint64_t duplicated = 0;  // second ones that came besides
  std::uint64_t corrupted = 0;
  std::uint64_t cut_off = 0;     // no way led there: it was cut, one of the hosts had crashed, or there is none
  std::uint64_t overflowed = 0;  // the receiving host had no room: NetworkFaults::room, or 64 while it is paused
};

}  // namespace verbena::testing
