// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/crypto_random.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "base/assert.h"

namespace verbena::soft::udp {

struct CryptoRandom::Page {
  std::size_t remaining = 0;
  std::array<std::uint64_t, 511> words{};
};

CryptoRandom::CryptoRandom() {
  static_assert(sizeof(Page) == 4096);
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  VERBENA_ASSERT(memory != MAP_FAILED);
  page_ = new (memory) Page;
  wiped_on_fork_ = ::madvise(memory, sizeof(Page), MADV_WIPEONFORK) == 0;
}

CryptoRandom::~CryptoRandom() { ::munmap(page_, sizeof(Page)); }

std::uint64_t CryptoRandom::next_u64() {
  if (!wiped_on_fork_ && filled_by_ != ::getpid()) page_->remaining = 0;
  if (page_->remaining == 0) refill();
  return std::exchange(page_->words[--page_->remaining], 0);
}

void CryptoRandom::refill() {
  auto* at = reinterpret_cast<std::byte*>(page_->words.data());
  for (std::size_t missing = sizeof page_->words; missing > 0;) {
    const ssize_t got = ::getrandom(at, missing, 0);
    if (got < 0 && errno == EINTR) continue;
    VERBENA_ASSERT(got > 0);
    at += got;
    missing -= static_cast<std::size_t>(got);
  }
  page_->remaining = page_->words.size();
  filled_by_ = ::getpid();
}

}  // namespace verbena::soft::udp
