// SPDX-License-Identifier: Apache-2.0
// What a peer's REJ means for a user.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "verbena/base/error.h"

namespace verbena {

// REQ named a path MTU that the device there does not take.
inline constexpr int kRejectInvalidMtu = 26;
// The peer still held a connection, or a request, of the queue pair that asked; it ends that.
inline constexpr int kRejectStale = 10;

// "no such service", "consumer reject".
std::string reject_reason_text(int reason);
// Private data that is text is quoted. `is_ourselves`: the device that asked has that address itself.
Error rejection_error(const std::string& peer, int reason, std::span<const std::byte> private_data,
                      bool is_ourselves = false);

// Of who answers a request that nobody waits for any more.
Error given_up_error(const std::string& verb, const std::string& peer);

}  // namespace verbena
