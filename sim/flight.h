// SPDX-License-Identifier: Apache-2.0
// A datagram between two nodes. The pool reuses their memory: nothing is allocated per packet in the long
// run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "soft/wire/packet.h"

namespace verbena::sim {

struct Flight {
  std::vector<std::byte> bytes;  // UDP payload
  wire::Path path;
  std::uint16_t identification = 0;
  wire::Packet packet;    // what `bytes` say; its payload points into them
  bool readable = false;  // `packet` holds something
  bool genuine = true;    // as a device made it
  std::uint8_t from = 0, to = 0;
  std::uint64_t ordinal = 0;  // of the datagram it is, or was made from
  std::uint32_t uses = 0;
};

class FlightPool {
 public:
  // With one use.
  std::uint32_t take() {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(flights_.size()));
      flights_.push_back(std::make_unique<Flight>());
    }
    const std::uint32_t index = free_.back();
    free_.pop_back();
    flights_[index]->uses = 1;
    return index;
  }
  Flight& operator[](std::uint32_t index) { return *flights_[index]; }
  void release(std::uint32_t index) {
    VERBENA_ASSERT(flights_[index]->uses != 0);
    if (--flights_[index]->uses == 0) free_.push_back(index);
  }

 private:
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<std::uint32_t> free_;
};

}  // namespace verbena::sim
