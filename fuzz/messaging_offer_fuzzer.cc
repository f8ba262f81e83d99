// SPDX-License-Identifier: Apache-2.0
// What a peer sends as private data for its offer of a message protocol: any bytes, and any with their check made right
// (byte 0 chooses). An offer that is taken says the same in bytes again, and two ends settle alike or not at all.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "device/wire_bytes.h"
#include "messaging/offer.h"

namespace {

using namespace verbena;
using namespace verbena::messaging;

void must(bool condition) {
  if (!condition) std::abort();
}

void try_offer(std::span<const std::byte> bytes) {
  const auto theirs = Offer::from_bytes(bytes);
  if (!theirs) {
    must(!theirs.error().to_string().empty());
    return;
  }
  must(theirs->max_message_bytes != 0 && theirs->depth != 0);
  const auto again = theirs->to_bytes();
  must(std::ranges::equal(again, bytes.first(Offer::kWireBytes)));
  for (const Role role : {Role::Sender, Role::Receiver})
    for (const Protocol protocol : all_protocols()) {
      Offer ours;
      ours.role = role;
      ours.kind.protocol = protocol;
      ours.max_message_bytes = 4096;
      ours.depth = 64;
      const auto here = settle(ours, *theirs), there = settle(*theirs, ours);
      must(here.has_value() == there.has_value());
      if (!here) continue;
      must(here->kind == there->kind && here->depth == there->depth);
      must(here->max_message_bytes <= 4096 && here->max_message_bytes == there->max_message_bytes);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1,
                               reinterpret_cast<const std::byte*>(data) + size);
  if (data[0] % 2 != 0 && bytes.size() >= Offer::kWireBytes)
    wire_bytes::seal(std::span(bytes).first<Offer::kWireBytes>(), 'M');
  try_offer(bytes);
  return 0;
}
