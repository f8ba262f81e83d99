// SPDX-License-Identifier: Apache-2.0
// The record of a SEND that is short and says nothing else but what it acknowledges: what goes to and fro where latency
// counts. It is the record that message.h describes, in words that both sides load and store one by one; whatever it
// cannot say or has wrong is left to the long way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "soft/local/message.h"
#include "soft/local/ring.h"

namespace verbena::local {

struct ShortSend {
  static constexpr std::uint32_t kHeadBytes = 16;
  // It goes alone.
  static constexpr std::uint32_t kMostBytes = kMostLines * RingMemory::kLine - kRecordHeaderBytes - kHeadBytes;
  static constexpr std::size_t kWords = (kHeadBytes + kMostBytes) / 8;             // of a record

  std::uint32_t number = 0;
  std::uint32_t length = 0;
  bool acknowledges = false;
  std::uint16_t acknowledged = 0;

  constexpr std::uint64_t first_word() const {
    return number | std::uint64_t{acknowledges} << kAcknowledgesBit | std::uint64_t{acknowledged} << 48;
  }
  constexpr std::uint64_t second_word() const { return length; }

  // Nothing: parse() says what it is.
  static constexpr std::optional<ShortSend> of(std::uint64_t first, std::uint64_t second, std::uint32_t record_bytes) {
    const auto acknowledged = static_cast<std::uint16_t>(first >> 48);
    const ShortSend send{static_cast<std::uint32_t>(first), record_bytes - kHeadBytes,
                         (first >> kAcknowledgesBit & 1) != 0, acknowledged};
    if (send.first_word() != first || second != send.length) return std::nullopt;
    if (acknowledged != 0 && !send.acknowledges) return std::nullopt;
    return send;
  }

 private:
  static constexpr int kAcknowledgesBit = 33;
};

}  // namespace verbena::local
