// SPDX-License-Identifier: Apache-2.0
// A shared receive queue whose requests are operations. Their completions come through one completion queue,
// whichever connection took them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "async/operation_queue.h"
#include "verbena/async/receive_pool.h"

namespace verbena {

class Channel;

class ReceivePoolState final : public OperationQueue, private EventHandler {
 public:
  static Result<std::unique_ptr<ReceivePoolState>> create(EngineState& engine,
                                                          const ReceivePoolOptions& options);
  // No channel uses it any more. Ends what is in flight and waits for it.
  ~ReceivePoolState() override;

  const ReceivePoolOptions& options() const { return options_; }
  AttachedDevice& device() { return device_; }
  provider::SrqId id() const { return id_; }
  const CompletionShard& shard() const { return *shard_; }
  std::size_t in_flight() const { return slots_.in_flight(); }
  Result<void> on_low(std::uint32_t limit, std::function<void()> f);

  // ---- For channels, whose receives end here.
  void join(Channel& channel);
  void leave(Channel& channel);

  void abort(Operation& operation, Operation::Ending ending) override;
  bool completes_in(const CompletionShard& shard) const override { return shard_ == &shard; }
  void handle_completion(const Completion& completion) override;
  void tend() override;

 private:
  ReceivePoolState(EngineState& engine, AttachedDevice& device, const ReceivePoolOptions& options)
      : OperationQueue(engine), device_(device), options_(options) {}
  Result<void> open();
  void handle_event(const provider::Event& event) override;
  Refusal post(Operation& operation) override;
  // Receives end and begin no more.
  void end(std::string why);
  Channel* channel_of(Qpn qpn) const;
  std::string subject(const Operation& operation, const Channel* channel) const;
  Error flush_error(const Operation& operation, Qpn qpn) const;
  std::uint64_t id_of(std::uint32_t slot) const { return std::uint64_t{key_} << 32 | slot; }

  AttachedDevice& device_;
  const ReceivePoolOptions options_;
  std::uint32_t key_ = 0;
  provider::SrqId id_{};
  provider::SharedReceiveQueueOps* ops_ = nullptr;
  CompletionShard* shard_ = nullptr;
  Slots slots_;
  std::unordered_map<std::uint32_t, Channel*> channels_;  // by QPN
  std::function<void()> on_low_;
  std::optional<std::string> ended_;  // why
};

}  // namespace verbena
