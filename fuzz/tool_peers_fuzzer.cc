// SPDX-License-Identifier: Apache-2.0
// What the peers of ping, pingpong and rping say, rdma-core's among them (byte 0 chooses). What is taken says the same
// again; what is not says why, and nothing that comes from a peer reaches a terminal as it is.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "tools/ping_protocol.h"
#include "tools/pingpong_protocol.h"
#include "tools/rping_protocol.h"
#include "tools/safe_path.h"

namespace {

using namespace verbena;
using namespace verbena::tools;

void must(bool condition) {
  if (!condition) std::abort();
}

bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

template <class T>
bool is_taken(const Result<T>& result) {
  if (result) return true;
  const std::string shown = printable(result.error().to_string());
  must(!shown.empty() && std::ranges::none_of(shown, [](unsigned char c) { return c < ' ' || c == 0x7f; }));
  return false;
}

template <class T>
void try_bytes(std::span<const std::byte> bytes) {
  const Result<T> value = T::from_bytes(bytes);
  if (!is_taken(value)) return;
  const auto again = T::from_bytes(value->to_bytes());
  must(again.has_value() && *again == *value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0: try_bytes<PingRequest>(bytes); break;
    case 1: try_bytes<RpingAdvertisement>(bytes); break;
    case 2:
      if (const auto address = PingpongAddress::from_wire(text); is_taken(address)) {
        must(is_printable(address->to_string()));
        const auto wire = address->to_wire();
        const auto again = PingpongAddress::from_wire({wire.data(), wire.size()});
        must(again.has_value() && *again == *address);
      }
      break;
    case 3:
      must(is_printable(rping_text(bytes)));
      if (bytes.size() >= kMinRpingBytes) static_cast<void>(is_taken(check_rping_payload(bytes, data[0])));
      break;
  }
  return 0;
}
