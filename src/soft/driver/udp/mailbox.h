// SPDX-License-Identifier: Apache-2.0
// How the processes that share an address hand each other what reached the wrong one. A mailbox is a Unix datagram
// socket whose abstract name only members can know; it takes letters of the users who share the address alone.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/address_users.h"
#include "soft/wire/path.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp {

// Datagrams of one path, back to back, each of segment_bytes but for a shorter last.
struct Stray {
  wire::Path path;
  std::vector<std::byte> bytes;
  std::size_t segment_bytes = 0;
};

class Mailbox {
 public:
  // `incarnation`: random, of the process that reads. `local`: the address they share.
  static Result<Mailbox> open(std::uint64_t incarnation, const Gid& local, const AddressUsers& users = {});

  int fd() const { return socket_.get(); }
  // Any thread. False when nobody reads there or the box is full: lost, as on any network.
  bool send(std::uint64_t incarnation, const wire::Path& path, std::span<const std::byte> bytes,
            std::size_t segment_bytes) const;
  // Reads one letter, without waiting: false when there is none. `out` is empty when it was not fit to be taken.
  bool take(std::optional<Stray>& out);

 private:
  Mailbox(Descriptor socket, const Gid& local, const AddressUsers& users);

  Descriptor socket_;
  Gid local_;
  AddressUsers users_;
  std::vector<std::byte> letter_;
};

// Strays that wait for the device. Any thread.
class Inbox {
 public:
  Inbox();
  // Readable while something waits; -1 when the process had no descriptor left.
  int fd() const { return event_.get(); }
  bool waits() const { return waits_.load(std::memory_order_relaxed); }
  // False, and lost, when too much waits.
  bool put(Stray stray);
  std::vector<Stray> take();

 private:
  std::mutex mutex_;
  std::vector<Stray> strays_;
  std::atomic<bool> waits_{false};  // strays_ is not empty; written under mutex_
  Descriptor event_;
};

}  // namespace verbena::soft::udp
