// SPDX-License-Identifier: Apache-2.0
// Which parts of a ring in a peer's memory to READ next, into an image of it that is laid out the same way.
//
// The peer's tail is hostile input: it is taken once, checked against what this side granted by telling its
// head, and only what is behind the last fetch and before the tail is ever asked for. So no READ goes over
// what was not released, or over what another READ still fills.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "messaging/ring/geometry.h"

namespace verbena::ring {

// One READ, from and to the same place.
struct Span {
  std::uint64_t offset = 0;  // in the ring and in its image
  std::uint32_t bytes = 0;

  bool operator==(const Span&) const = default;
};

// Of a ring with Commit::Offset. One thread at a time. READs are done in the order they were asked for.
class FetchPlan {
 public:
  static constexpr std::size_t kMostSpans = 4;  // asked for at once
  static constexpr std::uint32_t kMostBytes = 1u << 30;

  // `most_bytes`: of a span, whole units.
  explicit FetchPlan(const Geometry& geometry, std::uint32_t most_bytes = kMostBytes);

  // The tail as it came from the peer, whole frames before it. A fault is for good.
  Fault handle_tail(std::uint64_t tail);
  // The next part to READ; nothing while all that is known is asked for, or enough is.
  std::optional<Span> next();
  // The oldest that was asked for is in the image.
  void handle_fetched();
  // The head that the peer was told: it may write up to a ring's length behind it.
  void handle_told(std::uint64_t head);

  // Frames before it are in the image, whole.
  std::uint64_t whole() const { return whole_; }
  std::size_t asked() const { return count_; }
  bool has_all_known() const { return whole_ == tail_; }
  // No tail can be farther than the one that is known.
  bool is_full() const { return tail_ - told_ == geometry_.capacity; }

 private:
  friend struct Inspect;
  Geometry geometry_;
  std::uint32_t most_bytes_;
  std::uint64_t told_ = 0;
  std::uint64_t whole_ = 0;
  std::uint64_t asked_ = 0;  // up to where
  std::uint64_t tail_ = 0;
  Fault fault_ = Fault::None;
  // How far it is whole with each that was asked for, oldest first from oldest_ on, in a circle.
  std::array<std::uint64_t, kMostSpans> whole_with_{};
  std::size_t oldest_ = 0;
  std::size_t count_ = 0;
};

}  // namespace verbena::ring
