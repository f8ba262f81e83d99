// SPDX-License-Identifier: Apache-2.0
// What both ends of a transfer count, tell and put up with.
#pragma once

#include <cstdint>
#include <string>

#include "tools/file_protocol.h"

namespace verbena::tools {

inline constexpr double kIdleSeconds = 30;  // an other end that does nothing for so long is given up

struct TransferTotals {
  std::uint64_t files = 0;        // arrived, digest verified, named
  std::uint64_t directories = 0;
  std::uint64_t bytes = 0;        // of those files
  std::uint64_t failures = 0;
  std::uint64_t skipped = 0;      // links and the like
};

// Told what happens, as it happens. Paths are as on disk, not made printable.
class TransferObserver {
 public:
  virtual ~TransferObserver() = default;
  virtual void file_begun(const std::string& path) = 0;
  virtual void moved(std::uint64_t bytes) = 0;  // more
  virtual void file_done(const std::string& path, std::uint64_t size, const DigestBytes& digest) = 0;
  virtual void failed(const std::string& path, const std::string& why) = 0;
  virtual void skipped(const std::string& path, const std::string& why) = 0;
};

}  // namespace verbena::tools
