// SPDX-License-Identifier: Apache-2.0
// ibv_rc_pingpong's exchange over a queue pair made by hand: SENDs there and back, one message in flight each way.
#pragma once

#include <memory>
#include <optional>

#include "tools/pingpong_protocol.h"
#include "tools/tcp_link.h"
#include "verbena/verbena.h"

namespace verbena::tools {

struct PingpongSettings {
  bool client = false;  // sends first
  std::uint32_t size = 4096;      // bytes per message
  std::uint32_t mtu = 1024;       // bytes per packet
  std::uint32_t rx_depth = 500;   // receives posted at a time
  std::uint32_t iterations = 1000;
  bool events = false;  // sleep until something completes
  bool check = false;   // the bytes received
  Duration timeout = Duration::seconds(10);  // of every wait for the peer
};

class Pingpong {
 public:
  // `stopped` ends every wait, with Cancelled. Errors: ResourceExhausted and those of Device::create_queue_pair().
  static Result<std::unique_ptr<Pingpong>> create(ProgressEngine& engine, Device& device,
                                                  const PingpongSettings& settings, StopQuestion stopped);
  Pingpong(const Pingpong&) = delete;
  Pingpong& operator=(const Pingpong&) = delete;

  PingpongAddress local() const { return {0, pair_->qpn(), pair_->address().psn, pair_->address().gid}; }
  // Tells the peer where we are and learns where it is; afterwards the queue pair is connected.
  // Errors: ProtocolError (no pingpong there, or one without a GID), Unreachable, TimedOut, those of QueuePair.
  Result<PingpongAddress> exchange(TcpLink& link);
  // All iterations; how long they took. Errors: TimedOut (a wait for the peer), CorruptData, those of completions.
  Result<Duration> run();
  // The peer may ask again for the last acknowledgement: stay to give it.
  void linger();

 private:
  static constexpr std::uint64_t kReceiveId = 1, kSendId = 2;

  Pingpong(ProgressEngine& engine, const PingpongSettings& settings, StopQuestion stopped)
      : engine_(engine), settings_(settings), stopped_(std::move(stopped)) {}
  Result<void> prepare(Device& device);
  Result<void> connect(const PingpongAddress& peer);
  Result<void> post_receives();
  Result<void> post_send();
  Result<void> wait_for_completions();
  Result<void> handle(const Completion& completion);
  void fill_message();
  Result<void> check_message() const;
  std::span<std::byte> incoming() const { return memory_.bytes().first(settings_.size); }
  // A server sends back what came.
  std::span<std::byte> outgoing() const {
    return settings_.client ? memory_.bytes().last(settings_.size) : incoming();
  }

  ProgressEngine& engine_;
  const PingpongSettings settings_;
  const StopQuestion stopped_;
  MemoryRegion memory_;
  std::optional<CompletionQueue> completions_;
  std::optional<QueuePair> pair_;
  PingpongAddress peer_;
  std::uint32_t posted_receives_ = 0;
  std::uint32_t received_ = 0, sent_ = 0;  // completed
  std::uint32_t sends_posted_ = 0;
};

}  // namespace verbena::tools
