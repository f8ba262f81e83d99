// SPDX-License-Identifier: Apache-2.0
// Connecting again and again, until the peer is there.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/connection/connection.h"

namespace verbena {

class AttachedDevice;

// The pause after the n-th failure is drawn from [p / 2, p], p = first_pause * 2^(n-1), at most longest_pause: many
// clients of one server do not come back all at once.
struct RetryPolicy {
  Duration first_pause = Duration::milliseconds(50);
  Duration longest_pause = Duration::seconds(5);
  std::uint32_t max_attempts = 0;                 // 0: no limit
  Duration give_up_after = Duration::seconds(30);  // since connect() began; forever(): never
};

// Connects to one address, and connects again when that connection is lost.
//
// What no repetition cures ends connect() at once: InvalidArgument, PermissionDenied, WrongState, NotSupported, and
// Rejected but for a connection that is stale (reason 10), which the peer ends.
// Lifetime: the engine outlives it. Threads: the engine's; stop() from any.
class Reconnector {
 public:
  Reconnector(ProgressEngine& engine, std::string_view address, const ConnectionOptions& options = {},
              const RetryPolicy& policy = {}, std::span<const std::byte> private_data = {});

  // Drives the engine until there is a connection. attempts() counts from 1 again each time. Errors: the last
  // attempt's, in the same code, when the policy allows no more: its text says how many there were. Cancelled: stop()
  // was called; the text says why the last attempt failed.
  Result<Connection> connect();
  // Ends the present connect() and every later one, as Cancelled. An attempt on its way is awaited first.
  void stop();

  // Runs f(error, attempt, pause until the next) from connect() after each attempt that another follows. It may
  // call stop().
  void on_failure(std::function<void(const Error&, std::uint32_t, Duration)> handler);
  std::uint32_t attempts() const { return attempts_; }
  // Why the last attempt failed; empty before the first failure and after a success.
  const std::optional<Error>& last_error() const { return last_error_; }

 private:
  Error final_error(const std::string& reason) const;
  Duration pause_after(std::uint32_t failures);

  EngineState& engine_;
  AttachedDevice* const device_;
  const std::string address_;
  const ConnectionOptions options_;
  const RetryPolicy policy_;
  const std::vector<std::byte> private_data_;
  std::shared_ptr<std::function<void(const Error&, std::uint32_t, Duration)>> on_failure_;
  std::atomic<bool> stopped_{false};
  std::uint32_t attempts_ = 0;
  std::optional<Error> last_error_;
};

// The same for a single time.
Result<Connection> connect_with_retry(ProgressEngine& engine, std::string_view address,
                                      const ConnectionOptions& options = {}, const RetryPolicy& policy = {},
                                      std::span<const std::byte> private_data = {});

}  // namespace verbena
