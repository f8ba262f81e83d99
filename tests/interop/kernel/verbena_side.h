// SPDX-License-Identifier: Apache-2.0
// Verbena's device as one end of a case.
#pragma once

#include <map>
#include <memory>

#include "side.h"
#include "verbena/device/device.h"

namespace verbena::interop {

class VerbenaSide final : public Side {
 public:
  VerbenaSide(Report& report, Device& device) : Side(report), device_(device) {}

  std::string name() const override { return "verbena"; }
  Gid gid() const override { return device_.address(); }
  Manners manners() const override { return {}; }
  std::uint32_t largest_mtu() const override { return device_.info().active_mtu; }
  RegionHandle make_region(std::uint64_t bytes, Access access) override;
  void fill(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes, std::uint64_t seed) override;
  Digest digest(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) override;
  void store(std::uint64_t region, std::uint64_t offset, std::uint64_t value) override;
  std::uint64_t load(std::uint64_t region, std::uint64_t offset) override;
  void deregister(std::uint64_t region) override;
  std::uint64_t make_pair(const PairOptions& options) override;
  Qpn qpn(std::uint64_t pair) override;
  void connect(std::uint64_t pair, const PairAddress& peer) override;
  void post_receive(std::uint64_t pair, std::uint64_t id, const std::vector<Piece>& pieces) override;
  void post_send(std::uint64_t pair, std::span<const Request> requests) override;
  std::vector<Outcome> poll(std::uint64_t pair, Queue queue, std::size_t count,
                            std::uint32_t wait_ms) override;
  QueuePairState state(std::uint64_t pair) override;
  void modify(std::uint64_t pair, QueuePairState state) override;
  void destroy(std::uint64_t pair) override;
  std::vector<PairEvent> events() override;
  void release() override;

 private:
  struct Region {
    explicit Region(std::uint64_t size) : bytes(size) {}
    GuardedBytes bytes;
    MemoryRegion memory;
    std::uint64_t address = 0;
    LKey lkey;
  };
  // The queues outlive the queue pair.
  struct Pair {
    PairOptions options;
    CompletionQueue send_queue, receive_queue;
    QueuePair queue_pair;
  };

  std::vector<ScatterGather> segments(const std::vector<Piece>& pieces) const;
  template <class T>
  bool done(const Result<T>& result) {
    if (!result) report_.fail("verbena: " + result.error().to_string());
    return result.has_value();
  }

  Device& device_;
  std::map<std::uint64_t, std::unique_ptr<Region>> regions_;
  std::map<std::uint64_t, Pair> pairs_;
  std::uint64_t next_id_ = 1;
};

}  // namespace verbena::interop
