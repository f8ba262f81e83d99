// SPDX-License-Identifier: Apache-2.0
#include "rings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace verbena::conformance {

using namespace verbena::local;

// Of the same process: what the peer named can be read as it stands.
class OwnMemory final : public PeerMemory {
 public:
  OwnMemory(bool& refused, const bool& refused_by_peer) : refused_(refused), refused_by_peer_(refused_by_peer) {}
  Pulled pull(std::span<const Piece> from, std::span<const core::Piece> to) override {
    if (refused_by_peer_) return Pulled::PeerGone;
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
  void refuse() override { refused_ = true; }

 private:
  bool& refused_;
  const bool& refused_by_peer_;
};

// What one side asked of the other.
struct Wishes final : RegionSource {
  void ask(RKey rkey) override { asked.push_back(rkey); }
  void drop(RKey rkey) override { dropped.push_back(rkey); }
  void take_back_all() override {}  // the device does, before its next turn
  std::vector<RKey> asked, dropped;
};

// Two rings; of each side a wake word, a table of grants and a claim, on lines of their own.
struct Rings::Segment {
  explicit Segment(std::uint32_t ring_capacity)
      : lines(std::make_unique<Line[]>((2 * ring_bytes(ring_capacity) + 2 * kSideBytes) / kLineBytes)),
        capacity(ring_capacity) {}

  static constexpr std::uint64_t kSideBytes = 2 * kWriterBytes + kGrantTableBytes;

  struct alignas(kLineBytes) Line {
    std::byte bytes[kLineBytes] = {};
  };
  std::byte* base() const { return lines[0].bytes; }
  RingMemory ring(std::size_t i) const { return {base() + i * ring_bytes(capacity), capacity}; }
  std::byte* word(std::size_t i) const { return base() + 2 * ring_bytes(capacity) + i * kSideBytes; }
  std::byte* claim(std::size_t i) const { return word(i) + kWriterBytes; }
  std::byte* grants(std::size_t i) const { return word(i) + 2 * kWriterBytes; }
  soft::LocalLink link(std::size_t side, const Copies& copies) {
    const std::size_t other = 1 - side;
    Channel channel{RingProducer(ring(side)), RingConsumer(ring(other)), copies.pulls ? &memories[side] : nullptr};
    if (copies.direct) {
      channel.granter.emplace(GrantMemory(grants(side), claim(other)));
      channel.claimer.emplace(GrantMemory(grants(other), claim(side)));
      channel.regions = &wishes[side];
    }
    return {channel, Sleeper(WakeMemory(word(side))), Waker(WakeMemory(word(other)))};
  }

  std::unique_ptr<Line[]> lines;
  std::uint32_t capacity;
  std::array<bool, 2> refused{};
  std::array<OwnMemory, 2> memories{OwnMemory(refused[0], refused[1]), OwnMemory(refused[1], refused[0])};
  std::array<Wishes, 2> wishes;
  std::array<Qpn, 2> qpns;
};

Rings::Rings(Copies copies, std::uint32_t capacity) : copies_(copies), capacity_(capacity) {}
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
  Segment& segment = *segments_.back();
  segment.qpns = {near.self, far.self};
  nics[0]->use_local(now, near.self, segment.link(0, copies_));
  nics[1]->use_local(now, far.self, segment.link(1, copies_));
  return true;
}

bool Rings::End::wait_for_copy(Qpn, const std::function<bool()>& copies) { return !copies(); }

bool Rings::End::renew_pages(const core::MemoryRegion&, int) {
  ADD_FAILURE() << "a copy goes on while its region is taken back";
  return true;
}

bool Rings::is_open(std::size_t side, Qpn self, Qpn peer) const {
  return std::ranges::any_of(ends_[side].entered, [&](const End::Entered& e) {
    return e.open && e.self == self && e.peer == peer;
  });
}

// The answers to what one side asked, and what it drops, as two drivers would carry them.
bool Rings::bring_grants(std::array<soft::Nic*, 2> nics, Segment& segment, std::size_t asker) {
  const std::size_t owner = 1 - asker;
  Wishes& wishes = segment.wishes[asker];
  const std::vector<RKey> asked = std::exchange(wishes.asked, {}), dropped = std::exchange(wishes.dropped, {});
  if (!is_open(asker, segment.qpns[asker], segment.qpns[owner])) return false;
  if (!is_open(owner, segment.qpns[owner], segment.qpns[asker])) return false;
  for (const RKey rkey : dropped) nics[owner]->take_back(segment.qpns[owner], rkey);
  for (const RKey rkey : asked) {
    const auto grant = nics[owner]->grant(segment.qpns[owner], rkey);
    PeerRegion region;
    region.rkey = rkey;
    if (grant) {
      region = {rkey, grant->iova, grant->length, grant->access, grant->slot, nullptr, grant->address};
      if (grant->file >= 0) region.base = reinterpret_cast<std::byte*>(grant->address);
    }
    if (!nics[asker]->handle_region(segment.qpns[asker], region, grant.has_value()) && grant)
      nics[owner]->take_back(segment.qpns[owner], rkey);
  }
  return !asked.empty() || !dropped.empty();
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
        nics[1 - side]->handle_hang_up(now, other.self, now);
        any = true;
      }
    }
  }
  for (End::Entered& near : ends_[0].entered)
    for (End::Entered& far : ends_[1].entered) any |= open(now, nics, near, far);
  for (const auto& segment : segments_)
    for (const std::size_t asker : {0u, 1u}) any |= bring_grants(nics, *segment, asker);
  return any;
}

}  // namespace verbena::conformance
