// SPDX-License-Identifier: Apache-2.0
#include "verbena/connection/retry.h"

#include <algorithm>

#include "async/describe.h"
#include "async/engine_state.h"
#include "connection/curable.h"
#include "connection/reject_reason.h"

namespace verbena {

bool is_curable(const Error& error) {
  switch (error.code()) {
    case ErrorCode::Rejected:  // a stale connection is the peer's to end; every attempt has a queue pair of its own
      return error.domain() == ErrorDomain::CmReject && error.native() == kRejectStale;
    case ErrorCode::InvalidArgument:
    case ErrorCode::PermissionDenied:
    case ErrorCode::WrongState:
    case ErrorCode::NotSupported:
      return false;
    default:
      return true;
  }
}

Reconnector::Reconnector(ProgressEngine& engine, std::string_view address, const ConnectionOptions& options,
                         const RetryPolicy& policy, std::span<const std::byte> private_data)
    : engine_(engine.state()),
      device_(engine_.find(options.device)),
      address_(address),
      options_(options),
      policy_(policy),
      private_data_(private_data.begin(), private_data.end()) {}

void Reconnector::stop() {
  stopped_.store(true);
  engine_.wake();
}

void Reconnector::on_failure(std::function<void(const Error&, std::uint32_t, Duration)> handler) {
  using Handler = std::function<void(const Error&, std::uint32_t, Duration)>;
  on_failure_ = handler ? std::make_shared<Handler>(std::move(handler)) : nullptr;
}

Duration Reconnector::pause_after(std::uint32_t failures) {
  const Duration longest = std::max(policy_.longest_pause, Duration{});
  Duration pause = std::clamp(policy_.first_pause, Duration{}, longest);
  for (std::uint32_t i = 1; i < failures && pause < longest; ++i)
    pause = pause.ns > longest.ns / 2 ? longest : pause * 2;
  const auto half = static_cast<std::uint64_t>(pause.ns / 2);
  const std::uint64_t drawn = engine_.first().context().random() % (half + 1);
  return Duration{pause.ns - static_cast<std::int64_t>(drawn)};
}

Error Reconnector::final_error(const std::string& reason) const {
  return Error(last_error_->code(),
               reason + " after attempt " + std::to_string(attempts_) + "; the last one: " + last_error_->context(),
               last_error_->native(), last_error_->domain());
}

Result<Connection> Reconnector::connect() {
  attempts_ = 0;
  const Instant end = engine_.now() + policy_.give_up_after;
  while (!stopped_.load()) {
    ConnectionOptions options = options_;
    if (device_ != nullptr) options.device = &device_->device();
    options.connect_timeout = std::min(options.connect_timeout, std::max(end - engine_.now(), Duration{}));
    ++attempts_;
    auto connection = Connection::connect(engine_.owner(), address_, options, private_data_);
    if (connection)
      last_error_.reset();
    else
      last_error_ = connection.error();
    if (stopped_.load()) break;
    if (connection) return connection;
    if (!is_curable(*last_error_)) return *last_error_;
    if (policy_.max_attempts != 0 && attempts_ >= policy_.max_attempts)
      return final_error("gave up as the policy says");
    const Duration pause = pause_after(attempts_);
    const Instant next = engine_.now() + pause;
    if (next >= end) return final_error("gave up, out of time,");
    // It may set another, and must not go down while it runs.
    if (const auto handler = on_failure_) (*handler)(*last_error_, attempts_, pause);
    engine_.run_until([this] { return stopped_.load(); }, next);
  }
  const std::string why = last_error_ ? "; the last attempt: " + last_error_->to_string() : "";
  return Error(ErrorCode::Cancelled,
               "connect to " + address_ + ": stopped after " + std::to_string(attempts_) + " attempts" + why);
}

Result<Connection> connect_with_retry(ProgressEngine& engine, std::string_view address,
                                      const ConnectionOptions& options, const RetryPolicy& policy,
                                      std::span<const std::byte> private_data) {
  return Reconnector(engine, address, options, policy, private_data).connect();
}

}  // namespace verbena
