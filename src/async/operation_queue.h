// SPDX-License-Identifier: Apache-2.0
// What operations are started on and their completions come back to: a connection's channel, or a pool of
// receives.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "async/engine_state.h"
#include "base/assert.h"
#include "verbena/async/operation.h"

namespace verbena {

class OperationQueue {
 public:
  explicit OperationQueue(EngineState& engine) : engine_(engine) {}
  virtual ~OperationQueue();
  OperationQueue(const OperationQueue&) = delete;
  OperationQueue& operator=(const OperationQueue&) = delete;

  EngineState& engine() { return engine_; }

  // ---- For operations.
  void start(Operation& operation);
  // It ends, or is started elsewhere.
  void forget(Operation& operation);
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
  using Refusal = std::unique_ptr<Error>;  // null: none
  template <class... Args>
  static Refusal refuse(Args&&... args) {
    return std::make_unique<Error>(std::forward<Args>(args)...);
  }
  // Refuses the operation, or posts it.
  virtual Refusal post(Operation& operation) = 0;
  // Not in flight any more: the engine tells it with its next turn.
  void fail_later(Operation& operation, Refusal error);
  // Nothing is in flight any more: whatever is started now ends without being told.
  void fall_silent() { silent_ = true; }
  // Operations that have failed and do not know.
  std::size_t untold() const { return untold_; }

  // A request in flight: an operation's, or the user's own.
  struct Slot {
    bool taken = true;
    bool tells_success = true;       // the user's own
    Operation* operation = nullptr;  // null for the user's own
    std::uint64_t id = 0;            // the user's
  };
  // One direction. Whatever is posted has a slot until its completion is dispatched: the completion queue was
  // promised no more.
  class Slots {
   public:
    void open(std::uint32_t count);
    const std::vector<Slot>& all() const { return all_; }
    std::size_t in_flight() const { return all_.size() - free_; }
    std::size_t free() const { return free_; }
    bool none_free() const { return free_ == 0; }
    // The one take() takes when it was called so many times from now on.
    std::uint32_t next(std::size_t ahead = 0) const { return order_[free_ - 1 - ahead]; }
    // Member by member: what was just stored in parts is slow to load as a whole.
    void take(Operation* operation, std::uint64_t id = 0, bool tells_success = true) {
      Slot& slot = all_[order_[--free_]];
      slot.taken = true;
      slot.tells_success = tells_success;
      slot.operation = operation;
      slot.id = id;
    }
    Slot give_back(std::uint32_t index) {
      const Slot slot = all_[index];
      VERBENA_ASSERT(slot.taken);
      all_[index].taken = false;
      order_[free_++] = index;
      return slot;
    }

   private:
    std::vector<Slot> all_;
    std::vector<std::uint32_t> order_;  // the first `free_` are free
    std::size_t free_ = 0;
  };

  EngineState& engine_;

 private:
  void remember(Operation& operation);

  Operation* bound_ = nullptr;  // the first of those that were started here last
  std::size_t untold_ = 0;
  bool silent_ = false;
};

}  // namespace verbena
