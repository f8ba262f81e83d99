// SPDX-License-Identifier: Apache-2.0
// One pool of receives for many connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "verbena/async/operation.h"
#include "verbena/async/progress_engine.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"

namespace verbena {

class ProtectionDomain;
class ReceivePoolState;

struct ReceivePoolOptions {
  std::uint32_t max_receives = 1024;              // in flight at once
  std::uint32_t max_segments = 4;                 // per receive, at most 4
  Device* device = nullptr;                       // one of the engine's; nullptr: its first
  ProtectionDomain* protection_domain = nullptr;  // of that device; nullptr: the device's own
};

// Receives that belong to no connection: the next message of any connection made with ConnectionOptions::receive_pool
// takes the oldest, and OperationOutcome::qpn says whose it is. A server with thousands of quiet connections needs
// memory for the messages of the busy ones only.
//
//   auto pool = ReceivePool::create(engine);
//   pool->receive(operation, region.local());
//   auto connection = request.accept({.receive_pool = &*pool});
//
// While the pool is empty, senders wait and ask again, as often as their ReliabilityOptions::rnr_retry says; on_low()
// tells in time.
//
// A receive that no message has begun to fill can be taken back: cancelled, past its deadline or destroyed, it ends
// alone, and no connection notices. Once a message has begun, it is that connection's: it ends with the message,
// however late, or with the connection (as Disconnected, ConnectionLost, Flushed; LocalLengthError and
// LocalProtectionError break that connection, and no other).
//
// Lifetime: the engine and the device outlive it; it outlives the connections made with it. Destroying it ends its
// receives as Flushed. Threads: the engine's.
class ReceivePool {
 public:
  // Errors: InvalidArgument (sizes the device does not take, a device that is not the engine's), ResourceExhausted.
  static Result<ReceivePool> create(ProgressEngine& engine, const ReceivePoolOptions& options = {});
  ReceivePool(ReceivePool&& other) noexcept;
  ReceivePool& operator=(ReceivePool&& other) noexcept;
  ~ReceivePool();

  // Done when a message, or a WRITE with immediate, of any connection has arrived. Errors, besides those above:
  // QueueFull (max_receives are in flight), InvalidArgument, Cancelled, DeadlineExceeded.
  Operation receive(Segments local);
  Operation& receive(Operation& operation, Segments local);

  // Runs f() from the engine once, as soon as fewer than `limit` receives wait for a message; f may call this again. A
  // limit of 0 takes it back. Errors: InvalidArgument (more than the pool holds).
  Result<void> on_low(std::uint32_t limit, std::function<void()> f);

  std::size_t receives_in_flight() const;
  const ReceivePoolOptions& options() const;

  // For the library's upper layers.
  ReceivePoolState& state() { return *state_; }

 private:
  explicit ReceivePool(std::unique_ptr<ReceivePoolState> state);
  detail::Inner<std::unique_ptr<ReceivePoolState>, "ReceivePool"> state_;
};

}  // namespace verbena
