// SPDX-License-Identifier: Apache-2.0
// What happens to a datagram between two nodes.
#include <algorithm>

#include "base/byte_order.h"
#include "sim/forging.h"
#include "sim/world.h"

namespace verbena::sim {

void World::record(const Flight& flight, Instant arrives, Fate fate) {
  if (!trace_) return;
  trace_({now_, arrives, flight.ordinal, flight.from, flight.to, fate, flight.path, flight.identification,
          flight.bytes});
}

std::uint32_t World::clone(const Flight& original) {
  const std::uint32_t index = pool_.take();
  Flight& copy = pool_[index];
  copy.bytes = original.bytes;
  copy.path = original.path;
  copy.identification = original.identification;
  copy.readable = false;
  copy.genuine = false;
  copy.from = original.from;
  copy.to = original.to;
  copy.ordinal = original.ordinal;
  return index;
}

bool World::loses(Link& l, const Flight& flight) {
  const bool listed = next_to_lose_ < network_.lose.size() && network_.lose[next_to_lose_] == flight.ordinal;
  if (listed) ++next_to_lose_;
  if (network_.burst_begin != 0)
    l.bad = l.bad ? !random_.chance(network_.burst_end) : random_.chance(network_.burst_begin);
  const bool unlucky = network_.loss != 0 && random_.chance(network_.loss);
  return listed || unlucky || l.bad || now_ < l.cut_until;
}

void World::send_copy(Link& l, std::uint32_t index, Instant arrival, Fate fate) {
  const Flight& flight = pool_[index];
  l.last_arrival = std::max(l.last_arrival, arrival);
  ++in_flight_;
  record(flight, arrival, fate);
  queue_.push(arrival, EventKind::Arrival, flight.to, index);
}

void World::transmit(std::uint32_t index) {
  Flight& flight = pool_[index];
  flight.to = 0xff;
  for (std::uint8_t i = 0; i < nodes(); ++i)
    if (nodes_[i]->nic.config().address == flight.path.destination) flight.to = i;
  const wire::DropReason reason = wire::parse(flight.bytes, flight.packet);
  flight.readable = reason == wire::DropReason::None;
  if (!flight.readable)
    return verdict_.fail("wire",
                         "a device sent what cannot be read: " + std::string(wire::to_string(reason)));
  if (flight.to == 0xff) return verdict_.fail("wire", "a device sent to an address nobody has");
  mix(wire::load_icrc(&flight.bytes[flight.bytes.size() - wire::kIcrcBytes]) ^
      static_cast<std::uint64_t>(now_.ns) << 8 ^ flight.bytes.size() << 40);
  application_->on_sent(flight);

  Link& l = link(flight.from, flight.to);
  const Instant start = std::max(now_, l.free_at);
  const auto backlog = static_cast<std::uint64_t>((start - now_).ns);
  const std::uint64_t wire_bytes = flight.bytes.size() + (options_.ipv6 ? 48u : 28u);
  const std::uint64_t rate = network_.bits_per_second;
  if (backlog * (rate / 1'000'000) / 8000 + wire_bytes > network_.queue_bytes) {
    record(flight, Instant::never(), Fate::QueueFull);
    return pool_.release(index);
  }
  l.free_at = start + Duration{static_cast<std::int64_t>(wire_bytes * 8'000'000 / (rate / 1000) + 1)};
  Instant arrival = l.free_at + network_.delay + random_up_to(network_.jitter);
  arrival = std::max(arrival, l.last_arrival + Duration{1});
  if (loses(l, flight)) {
    record(flight, Instant::never(), Fate::Lost);
    return pool_.release(index);
  }
  send(l, index, arrival);
}

// What is not lost: once, more often, damaged, or late.
void World::send(Link& l, std::uint32_t index, Instant arrival) {
  Flight& flight = pool_[index];
  if (network_.duplicate != 0 && random_.chance(network_.duplicate)) {
    for (std::uint64_t n = 1 + random_.below(network_.max_duplicates); n != 0; --n) {
      ++flight.uses;
      send_copy(l, index, arrival + random_up_to(network_.delay), Fate::Duplicated);
    }
  }
  if (network_.replay != 0 && random_.chance(network_.replay)) {
    ++flight.uses;
    ++in_flight_;
    const Instant late = arrival + random_up_to(network_.replay_delay);
    record(flight, late, Fate::Replayed);
    queue_.push(late, EventKind::Arrival, flight.to, index);
  }
  if (network_.flip && network_.flip->ordinal == flight.ordinal) {
    send_flipped(l, flight, network_.flip->bit, arrival);
    return pool_.release(index);
  }
  if (network_.hostile != 0 && random_.chance(network_.hostile)) send_hostile(l, flight, arrival);
  if (network_.corrupt != 0 && random_.chance(network_.corrupt)) {
    send_corrupted(l, flight, arrival);
    return pool_.release(index);
  }
  if (network_.reorder != 0 && random_.chance(network_.reorder)) {
    const Instant late = arrival + random_up_to(network_.reorder_delay);
    ++in_flight_;
    record(flight, late, Fate::Delivered);
    return queue_.push(late, EventKind::Arrival, flight.to, index);
  }
  send_copy(l, index, arrival, Fate::Delivered);
}

// Damage that the ICRC or the length must show. Bytes it does not cover are left alone.
void World::send_corrupted(Link& l, const Flight& original, Instant arrival) {
  const std::uint32_t index = clone(original);
  std::vector<std::byte>& bytes = pool_[index].bytes;
  switch (random_.below(4)) {
    case 0:
      bytes.resize(random_.below(bytes.size()));
      break;
    case 1:
      bytes.resize(bytes.size() + 1 + random_.below(16), std::byte{0});
      break;
    default:
      for (std::uint64_t n = 1 + random_.below(3); n != 0; --n) {
        std::size_t at = random_.below(bytes.size());
        if (at == 4) at = 5;
        bytes[at] ^= static_cast<std::byte>(1u << random_.below(8));
      }
      // Flips may have undone each other.
      if (bytes == original.bytes) bytes[0] ^= std::byte{1};
      break;
  }
  send_copy(l, index, arrival, Fate::Corrupted);
}

void World::send_flipped(Link& l, const Flight& original, std::uint32_t bit, Instant arrival) {
  const std::uint32_t index = clone(original);
  pool_[index].bytes[bit / 8 % original.bytes.size()] ^= static_cast<std::byte>(1u << bit % 8);
  send_copy(l, index, arrival, Fate::Corrupted);
}

void World::send_hostile(Link& l, const Flight& original, Instant arrival) {
  const std::uint32_t index = clone(original);
  Flight& forged = pool_[index];
  forge(forged.path, forged.identification, forged.bytes, random_);
  send_copy(l, index, arrival, Fate::Forged);
}

void World::deliver_ghost(Node& node, const Flight& original) {
  Psn next;
  if (!original.readable || original.packet.info().operation != wire::Operation::Acknowledge) return;
  if (!application_->next_unsent(original, next)) return;
  const std::uint32_t index = clone(original);
  Flight& ghost = pool_[index];
  ghost.bytes[wire::kBthBytes] = std::byte{wire::kSyndromeAck};
  store_be24(&ghost.bytes[9], (next + static_cast<std::uint32_t>(random_.below(1000))).value());
  seal(ghost.path, ghost.identification, ghost.bytes);
  record(ghost, now_, Fate::Forged);
  ++node.tally.received;
  std::optional<std::uint16_t> identification;
  if (!host_.hide_identification) identification = ghost.identification;
  node.nic.handle_datagram(now_, ghost.path, identification, ghost.bytes);
  pool_.release(index);
}

}  // namespace verbena::sim
