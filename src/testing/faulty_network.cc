// SPDX-License-Identifier: Apache-2.0
#include "testing/faulty_network.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "soft/wire/bth.h"

namespace verbena::testing {

namespace {

constexpr Duration kLongest = Duration::seconds(86'400);

Error refused(const char* name, const std::string& value, const char* allowed) {
  return {ErrorCode::InvalidArgument,
          "faults of a virtual network: " + std::string(name) + " is " + value + ", and may be " + allowed};
}

}  // namespace

Result<void> FaultyNetwork::check(const NetworkFaults& faults) {
  const std::array<std::pair<const char*, double>, 4> probabilities{{{"loss", faults.loss},
                                                                     {"duplicate", faults.duplicate},
                                                                     {"corrupt", faults.corrupt},
                                                                     {"burst", faults.burst}}};
  for (const auto& [name, value] : probabilities)
    if (!(value >= 0 && value <= 1)) return refused(name, std::to_string(value), "0 to 1");
  const std::array<std::pair<const char*, Duration>, 4> times{{{"burst_time", faults.burst_time},
                                                               {"delay", faults.delay},
                                                               {"jitter", faults.jitter},
                                                               {"replay", faults.replay}}};
  for (const auto& [name, value] : times)
    if (value < Duration{} || value > kLongest)
      return refused(name, std::to_string(value.ns) + " ns", "0 to a day");
  return {};
}

void FaultyNetwork::silence(const Gid& address) {
  silent_.insert(address);
  inboxes_[address].datagrams.clear();
}

bool FaultyNetwork::has_way(const wire::Path& path) const {
  return inboxes_.contains(path.destination) && !silent_.contains(path.source) &&
         !silent_.contains(path.destination) && !cuts_.contains({path.source, path.destination});
}

void FaultyNetwork::send(Instant now, const roce::Train& train) {
  counters_.sent += train.datagrams();
  if (!has_way(train.path())) {
    counters_.cut_off += train.datagrams();
    return;
  }
  for (std::uint32_t i = 0; i < train.datagrams(); ++i) {
    Datagram datagram{train.path(), static_cast<std::uint16_t>(i), {}};
    train.flatten(i, datagram.bytes);
    if (observer_ != nullptr) observer_->on_sent(now, datagram);
    if (happens(faults_.duplicate)) {
      ++counters_.duplicated;
      deliver(now, datagram, faults_.replay);
    }
    if (is_in_burst(now, datagram.path) || happens(faults_.loss))
      ++counters_.lost;
    else
      deliver(now, std::move(datagram), {});
  }
}

bool FaultyNetwork::is_in_burst(Instant now, const wire::Path& path) {
  if (faults_.burst == 0) return false;
  Instant& end = bursts_[{path.source, path.destination}];
  if (now >= end && random_.chance(faults_.burst)) end = now + up_to(faults_.burst_time) + Duration{1};
  return now < end;
}

Duration FaultyNetwork::up_to(Duration most) {
  return Duration{static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>(most.ns) + 1))};
}

void FaultyNetwork::deliver(Instant now, Datagram datagram, Duration late) {
  if (happens(faults_.corrupt)) damage(datagram.bytes);
  const Instant at = now + faults_.delay + up_to(faults_.jitter + late);
  note(at, datagram.bytes);
  Inbox& inbox = inboxes_.at(datagram.path.destination);
  const std::size_t waiting = inbox.datagrams.size();
  if ((inbox.held && waiting >= kMostHeld) || (faults_.room != 0 && waiting >= faults_.room))
    ++counters_.overflowed;
  else
    inbox.datagrams.emplace(at, std::move(datagram));
}

void FaultyNetwork::damage(std::vector<std::byte>& bytes) {
  const std::uint64_t bit = random_.below(bytes.size() * 8);
  bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
  ++counters_.corrupted;
}

// What follows the base header may tell addresses of memory.
void FaultyNetwork::note(Instant at, const std::vector<std::byte>& bytes) {
  hash_ = (hash_ ^ static_cast<std::uint64_t>(at.ns)) * 0x9e3779b97f4a7c15u + bytes.size();
  for (const std::byte b : std::span(bytes).first(std::min(bytes.size(), wire::kBthBytes)))
    hash_ = (hash_ ^ std::to_integer<std::uint64_t>(b)) * 0x100000001b3u;
}

Instant FaultyNetwork::next_arrival() const {
  Instant next = Instant::never();
  for (const auto& [address, inbox] : inboxes_)
    if (!inbox.held && !inbox.datagrams.empty()) next = std::min(next, inbox.datagrams.begin()->first);
  return next;
}

}  // namespace verbena::testing
