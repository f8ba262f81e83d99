// SPDX-License-Identifier: Apache-2.0
#include "rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace verbena::conformance {

namespace {

using namespace verbena::local;

// Of the same process: what the peer named can be read as it stands.
class OwnMemory final : public PeerMemory {
 public:
  Pulled pull(std::span<const Piece> from, std::span<const core::Piece> to) override {
    std::vector<std::byte> all;
    for (const Piece& piece : from) {
      const auto* const at = reinterpret_cast<const std::byte*>(piece.address);
      all.insert(all.end(), at, at + piece.bytes);
    }
    std::size_t used = 0;
    for (const core::Piece& piece : to) {
      std::copy_n(all.data() + used, piece.size, const_cast<std::byte*>(piece.data));
      used += piece.size;
    }
    EXPECT_EQ(used, all.size());
    return Pulled::Whole;
  }
  bool is_granted() const override { return true; }
  void refuse() override {}  // nobody pulls while another has its turn
};

}  // namespace

// Two rings and two wake words, on lines of their own.
struct Rings::Segment {
  explicit Segment(std::uint32_t ring_capacity)
      : lines(std::make_unique<Line[]>((2 * ring_bytes(ring_capacity) + 2 * kWriterBytes) / kLineBytes)),
        capacity(ring_capacity) {}

  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes] = {};
  };
  std::byte* base() const { return lines[0].bytes; }
  RingMemory ring(std::size_t i) const { return {base() + i * ring_bytes(capacity), capacity}; }
  std::byte* word(std::size_t i) const { return base() + 2 * ring_bytes(capacity) + i * kWriterBytes; }
  soft::LocalLink link(std::size_t side, bool pulls) {
    return {{RingProducer(ring(side)), RingConsumer(ring(1 - side)), pulls ? &memory : nullptr},
            Sleeper(WakeMemory(word(side))),
            Waker(WakeMemory(word(1 - side)))};
  }

  std::unique_ptr<Line[]> lines;
  std::uint32_t capacity;
  OwnMemory memory;
};

Rings::Rings(bool pulls, std::uint32_t capacity) : pulls_(pulls), capacity_(capacity) {}
Rings::~Rings() = default;

Result<void> Rings::End::enter(Instant, const Endpoint& self, const Endpoint& peer) {
  entered.push_back({self.qpn, peer.qpn});
  return {};
}

void Rings::End::handle_packet(Instant, Qpn) { ADD_FAILURE() << "nothing leaves as a packet"; }

void Rings::End::leave(Qpn qpn, bool) {
  if (std::erase_if(entered, [qpn](const Entered& e) { return e.self == qpn; }) != 0) left.push_back(qpn);
}

bool Rings::open(Instant now, std::array<soft::Nic*, 2> nics, End::Entered& near, End::Entered& far) {
  if (near.open || far.open || near.self != far.peer || near.peer != far.self) return false;
  near.open = far.open = true;
  segments_.push_back(std::make_unique<Segment>(capacity_));
  nics[0]->use_local(now, near.self, segments_.back()->link(0, pulls_));
  nics[1]->use_local(now, far.self, segments_.back()->link(1, pulls_));
  return true;
}

bool Rings::settle(Instant now, std::array<soft::Nic*, 2> nics) {
  bool any = false;
  for (std::size_t side : {0u, 1u}) {
    const std::vector<Qpn> left = std::move(ends_[side].left);
    ends_[side].left.clear();
    for (const Qpn gone : left) {
      const std::vector<End::Entered> others = ends_[1 - side].entered;
      for (const End::Entered& other : others) {
        if (other.peer != gone || !other.open) continue;
        nics[1 - side]->handle_hang_up(now, other.self);
        any = true;
      }
    }
  }
  for (End::Entered& near : ends_[0].entered)
    for (End::Entered& far : ends_[1].entered) any |= open(now, nics, near, far);
  return any;
}

}  // namespace verbena::conformance
