// SPDX-License-Identifier: Apache-2.0
// The queue pairs a measurement runs on: made by hand with addresses that the control link carries, or (-R) those of
// connections. Requests and completions are the same of both.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tools/bench_control.h"
#include "tools/bench_settings.h"
#include "tools/path_taken.h"
#include "verbena/verbena.h"

namespace verbena::tools {

class BenchPairs {
 public:
  // Errors: InvalidArgument (a flag over the device's limit), ResourceExhausted.
  static Result<std::unique_ptr<BenchPairs>> create(ProgressEngine& engine, Device& device,
                                                    const BenchSettings& settings);
  BenchPairs(const BenchPairs&) = delete;
  BenchPairs& operator=(const BenchPairs&) = delete;

  // Both ends at once. `host` is where the client's connections go. Errors: those of the control link, of QueuePair and
  // of Connection.
  Result<void> connect(BenchControl& control, const std::string& host, const StopQuestion& stopped);
  std::uint32_t mtu() const { return mtu_; }
  // Of all pairs, which go between the same devices.
  PathTaken wait_path() const;

  // Of pair `index`; with --use-srq a receive is any pair's. Ids are receive_id() and send_id(). Refusals are Internal:
  // the caller counts.
  Result<void> post_send(std::uint32_t index, std::span<const SendRequest> requests);
  Result<void> post_receive(std::uint32_t index, const ScatterGather& piece);
  static std::uint64_t send_id(std::uint32_t index) { return std::uint64_t{index} << 1; }
  static std::uint64_t receive_id(std::uint32_t index) { return std::uint64_t{index} << 1 | 1; }

  // Drives the device and hands over what completed. False when nothing did.
  using Handler = std::function<void(const Completion&)>;
  bool poll(const Handler& handler);
  // When poll() found nothing: sleeps (-e) until there may be something, or hands over what has come meanwhile.
  void wait(Instant until, const Handler& handler);

 private:
  BenchPairs(ProgressEngine& engine, Device& device, const BenchSettings& settings)
      : engine_(engine), device_(device), settings_(settings) {}
  Result<void> prepare();
  Result<void> check_limits() const;
  Result<void> exchange_addresses(BenchControl& control);
  Result<void> accept_connections(BenchControl& control, const StopQuestion& stopped);
  Result<void> make_connections(BenchControl& control, const std::string& host);
  void watch(Connection& connection);
  QueuePairCapabilities capabilities() const;
  ReliabilityOptions reliability() const;
  std::uint64_t completions() const;

  ProgressEngine& engine_;
  Device& device_;
  const BenchSettings settings_;
  std::uint32_t mtu_ = 0;
  std::optional<CompletionQueue> completions_;
  std::optional<SharedReceiveQueue> shared_;  // --use-srq
  std::vector<QueuePair> by_hand_;
  std::deque<Completion> seen_;  // of connections, until poll()
  std::vector<Connection> connections_;
};

}  // namespace verbena::tools
