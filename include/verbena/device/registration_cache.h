// SPDX-License-Identifier: Apache-2.0
// Registrations of memory the program owns, kept for the next time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/verbs.h"
#include "verbena/device/memory_region.h"
#include "verbena/device/protection_domain.h"

namespace verbena {

class RegistrationCacheCore;
struct CachedRegion;

struct RegistrationCacheOptions {
  std::size_t max_regions = 1024;                       // kept and in use together
  std::uint64_t max_bytes = std::uint64_t{1} << 30;     // of all of them
  Access access = Access::LocalWrite;  // with rights for peers: read what RegistrationCache says of keys
};

// Use of a registered range; empty after it was moved from. While it is there, the registration stays.
// Lifetime: it may outlive its cache, not the device. Threads: one at a time; any.
class Registration {
 public:
  Registration() = default;
  Registration(Registration&& other) noexcept { *this = std::move(other); }
  Registration& operator=(Registration&& other) noexcept;
  ~Registration() { release(); }

  std::span<std::byte> bytes() const { return bytes_; }
  bool empty() const { return region_ == nullptr; }
  // All of the range that was asked for; of 4 GiB and more the first 4 GiB - 1.
  ScatterGather local() const;
  RemoteMemory remote() const;
  void release();

 private:
  friend class RegistrationCacheCore;
  std::shared_ptr<RegistrationCacheCore> core_;
  std::shared_ptr<CachedRegion> region_;
  std::span<std::byte> bytes_;
};

// Registers ranges of memory when they are first used, and finds them again: by a range that lies inside one. What
// nobody uses is kept until the limits want room for others, least recently used first.
//
// Memory may be unmapped and mapped again behind the cache's back: a registration names addresses, and a request meets
// what stands there then. A request that meets nothing fails (LocalProtectionError here, RemoteOperationError at a
// peer) and breaks its connection, and no other. But a key given to a peer stays good while its range is kept: before
// memory that peers may reach is used for something else, forget() it.
//
// Lifetime: the protection domain stays where it is and outlives the cache and what it gave out, as the device does.
// Destroyed, the cache keeps what is in use until it is given back. Threads: any.
class RegistrationCache {
 public:
  explicit RegistrationCache(ProtectionDomain& domain, const RegistrationCacheOptions& options = {});
  RegistrationCache(RegistrationCache&& other) noexcept;
  RegistrationCache& operator=(RegistrationCache&& other) noexcept;
  ~RegistrationCache();

  // Errors: InvalidArgument (0 bytes; not mapped, when it has to be registered), ResourceExhausted (no room beside what
  // is in use; the device's limit).
  Result<Registration> acquire(std::span<std::byte> memory);
  // Drops every registration that touches the range: now, or when its last user gives it back. New users get new ones.
  void forget(std::span<std::byte> memory);

  struct Statistics {
    std::size_t regions = 0;  // kept and in use
    std::uint64_t bytes = 0;  // of them
    std::size_t in_use = 0;   // of them, by somebody
    std::uint64_t hits = 0, misses = 0, evictions = 0;
  };
  Statistics statistics() const;

 private:
  detail::Inner<std::shared_ptr<RegistrationCacheCore>, "RegistrationCache"> core_;
};

}  // namespace verbena
