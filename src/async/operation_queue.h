// SPDX-License-Identifier: Apache-2.0
// What operations are started on and their completions come back to: a connection's channel, or a pool of
// receives.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "async/engine_state.h"
#include "verbena/async/operation.h"

namespace verbena {

class OperationQueue {
 public:
  explicit OperationQueue(EngineState& engine) : engine_(engine) {}
  virtual ~OperationQueue() = default;
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  EngineState& engine() { return engine_; }

  // ---- For operations.
  void start(Operation& operation);
  // Posted, and not wanted any more: it is to end as `ending` says.
  virtual void abort(Operation& operation, Operation::Ending ending) = 0;
  void withdraw(Operation& operation);  // has failed, and will not be told
  void told(Operation& operation);      // has failed, and is told now

  // ---- For the engine. These may destroy the queue.
  virtual bool completes_in(const CompletionShard& shard) const = 0;
  virtual void handle_completion(const Completion& completion) = 0;
  virtual void tend() = 0;
  virtual void keep_alive(Instant /*now*/) {}

 protected:
  // Refuses the operation, or posts it.
  virtual std::optional<Error> post(Operation& operation) = 0;
  // Not in flight any more: the engine tells it with its next turn.
  void fail_later(Operation& operation, Error error);
  // Nothing is in flight any more: whatever is started now ends without being told.
  void fall_silent() { silent_ = true; }
  // Operations that have failed and do not know.
  std::size_t untold() const { return untold_; }

  // A request in flight: an operation's, or the user's own.
  struct Slot {
    bool taken = false;
    bool tells_success = true;       // the user's own
    Operation* operation = nullptr;  // null for the user's own
    std::uint64_t id = 0;            // the user's
  };
  // One direction. Whatever is posted has a slot until its completion is dispatched: the completion queue was
  // promised no more.
  struct Slots {
    std::vector<Slot> all;
    std::vector<std::uint32_t> free;
    void open(std::uint32_t count);
    std::size_t in_flight() const { return all.size() - free.size(); }
    void take(Slot what);
    Slot give_back(std::uint32_t index);
  };

  EngineState& engine_;

 private:
  std::size_t untold_ = 0;
  bool silent_ = false;
};

}  // namespace verbena
