// SPDX-License-Identifier: Apache-2.0
// What programs hand each other to find one's memory or queue pair: as bytes, as bytes with their check made right, and
// as text (byte 0 chooses). What is taken says the same again; what is not says why.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/wire_bytes.h"
#include "verbena/base/gid.h"
#include "verbena/connection/description.h"
#include "verbena/connection/endpoint.h"
#include "verbena/device/queue_pair.h"
#include "verbena/device/remote_memory.h"
#include "verbena/messaging/protocol.h"

namespace {

using namespace verbena;

void must(bool condition) {
  if (!condition) std::abort();
}

template <class T>
bool is_taken(const Result<T>& result) {
  must(result || !result.error().to_string().empty());
  return result.has_value();
}

template <class T>
void try_bytes(std::span<const std::byte> bytes) {
  const Result<T> value = T::from_bytes(bytes);
  if (!is_taken(value)) return;
  const auto again = value->to_bytes();
  must(again.size() <= bytes.size() && std::ranges::equal(again, bytes.first(again.size())));
}

template <class T>
void try_text(std::string_view text) {
  const Result<T> value = T::parse(text);
  if (!is_taken(value)) return;
  const Result<T> again = T::parse(value->to_string());
  must(again.has_value() && *again == *value);
}

// A description that has any chance is as long as its first two bytes say.
void seal(std::span<std::byte> bytes, char kind) {
  if (kind == 'C') {
    if (bytes.size() < ConnectionDescription::kMinWireBytes || bytes.size() > 0xffff) return;
    wire_bytes::store_le16(bytes.data(), static_cast<std::uint16_t>(bytes.size()));
  }
  const std::size_t size = kind == 'Q' ? QueuePairAddress::kWireBytes
                           : kind == 'C' ? bytes.size()
                                         : RemoteMemory::kWireBytes;
  if (bytes.size() >= size) wire_bytes::seal(bytes.first(size), kind);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(data) + 1,
                               reinterpret_cast<const std::byte*>(data) + size);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool sealed = data[0] >= 128;
  switch (data[0] % 8) {
    case 0:
      if (sealed) seal(bytes, 'V');
      try_bytes<RemoteMemory>(bytes);
      break;
    case 1:
      if (sealed) seal(bytes, 'Q');
      try_bytes<QueuePairAddress>(bytes);
      break;
    case 2:
      if (sealed) seal(bytes, 'C');
      try_bytes<ConnectionDescription>(bytes);
      break;
    case 3: try_text<RemoteMemory>(text); break;
    case 4: try_text<ConnectionDescription>(text); break;
    case 5: try_text<Endpoint>(text); break;
    case 6: try_text<Url>(text); break;
    case 7:
      try_text<Gid>(text);
      if (const auto kind = messaging::parse_kind(text); is_taken(kind)) {
        const auto again = messaging::parse_kind(messaging::to_string(*kind));
        must(again.has_value() && *again == *kind);
      }
      break;
  }
  return 0;
}
