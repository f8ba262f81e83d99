// SPDX-License-Identifier: Apache-2.0
// The device behind verbs_peer as one end of a case.
#pragma once

#include <map>
#include <memory>

#include "line.h"
#include "side.h"
#include "verbena/base/result.h"

namespace verbena::interop {

class PeerSide final : public Side {
 public:
  // Connects and opens the device there. Errors: Unreachable, ConnectionRefused, InvalidArgument (no such
  // device; the peer's words).
  static Result<std::unique_ptr<PeerSide>> connect(Report& report, const std::string& host_and_port,
                                                   const std::string& device, std::uint32_t gid_index);

  std::string name() const override { return "peer"; }
  Gid gid() const override { return gid_; }
  Manners manners() const override { return manners_; }
  std::uint32_t largest_mtu() const override { return mtu_; }
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

  // The connection broke: no case after this can run.
  bool lost() const { return lost_; }

 private:
  struct Pair {
    PairOptions options;
    Qpn qpn;
  };

  PeerSide(Report& report, int descriptor) : Side(report), socket_(descriptor) {}
  // The peer's answer; an "error" is reported.
  Line call(const std::string& command);

  LineSocket socket_;
  Gid gid_;
  Manners manners_;
  std::uint32_t mtu_ = 0;
  std::map<std::uint64_t, Pair> pairs_;
  bool lost_ = false;
};

}  // namespace verbena::interop
