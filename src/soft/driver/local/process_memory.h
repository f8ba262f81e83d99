// SPDX-License-Identifier: Apache-2.0
// Copies from the memory of the process at the other end of a socket, where the kernel lets us: process_vm_readv(2).
#pragma once

#include <memory>
#include <string>

#include "soft/driver/local/peer_socket.h"
#include "soft/local/peer_memory.h"
#include "soft/local/pull_words.h"

namespace verbena::soft::local {

// A random word of this process, at one address as long as it lives.
class Cookie {
 public:
  static Cookie make();
  verbena::local::CookieAt at() const { return {reinterpret_cast<std::uintptr_t>(word_.get()), *word_}; }

 private:
  explicit Cookie(std::uint64_t value) : word_(std::make_unique<std::uint64_t>(value)) {}

  std::unique_ptr<const std::uint64_t> word_;
};

class ProcessMemory final : public verbena::local::PeerMemory {
 public:
  // Tries it once, and says in `ours` how it went. `socket` and the words outlive it; the words may be memory whose
  // pages the peer took away.
  ProcessMemory(const PeerSocket& socket, verbena::local::PullWords ours, verbena::local::PullWords theirs);

  verbena::local::Pulled pull(std::span<const verbena::local::Piece> from,
                              std::span<const core::Piece> to) override;
  // Whether we can.
  bool works() const { return obstacle_.empty(); }
  bool is_granted() const override { return theirs_.can_pull(); }
  void refuse() override;
  // How many copies large messages take in each direction, and why not one.
  std::string explain() const;

 private:
  std::string try_it();
  bool sees_cookie() const;
  bool is_offered() const;
  bool is_refused() const;

  const PeerSocket& socket_;
  const verbena::local::PullWords ours_;
  const verbena::local::PullWords theirs_;
  verbena::local::CookieAt cookie_;
  std::string obstacle_;  // empty: we can
};

}  // namespace verbena::soft::local
