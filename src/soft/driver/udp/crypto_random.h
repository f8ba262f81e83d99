// SPDX-License-Identifier: Apache-2.0
// Random numbers an attacker cannot guess: the kernel's, a page at a time.
#pragma once

#include <sys/types.h>

#include "base/random.h"

namespace verbena::soft::udp {

// Used words are wiped. A forked child does not repeat its parent. One thread at a time.
class CryptoRandom final : public RandomSource {
 public:
  CryptoRandom();
  ~CryptoRandom() override;
  CryptoRandom(const CryptoRandom&) = delete;
  CryptoRandom& operator=(const CryptoRandom&) = delete;

  std::uint64_t next_u64() override;

 private:
  struct Page;  // 4 KiB that the kernel wipes in a forked child, where it so reads as empty
  void refill();

  Page* page_;
  bool wiped_on_fork_;
  pid_t filled_by_ = 0;  // looked at when the kernel cannot wipe
};

}  // namespace verbena::soft::udp
