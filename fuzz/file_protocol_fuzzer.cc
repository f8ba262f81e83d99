// SPDX-License-Identifier: Apache-2.0
// Messages of the file protocol from a peer: what is taken can be written again, byte for byte.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "tools/file_protocol.h"
#include "tools/safe_path.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbena::tools;
  const auto bytes = std::as_bytes(std::span(data, size));
  (void)check_file_greeting(bytes);
  (void)printable({reinterpret_cast<const char*>(data), size});
  const auto message = parse_message(bytes);
  if (!message) return 0;
  std::array<std::byte, kMaxMessageBytes> again;
  const std::size_t length = emit_message(*message, again);
  if (length != size || std::memcmp(again.data(), data, size) != 0) std::abort();
  return 0;
}
