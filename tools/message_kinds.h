// SPDX-License-Identifier: Apache-2.0
// The kinds of message protocols that are measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "verbena/base/result.h"
#include "verbena/messaging/protocol.h"

namespace verbena::tools {

bool has_ring(const messaging::Kind& kind);
// Its short messages can go in the request (messaging::Options::inline_bytes).
bool goes_inline(const messaging::Kind& kind);

// As messaging::parse_kind(), whose errors name what there is, too, and what was probably meant.
Result<messaging::Kind> kind_named(std::string_view name);

// What messaging::Options::ring_bytes comes to: the next power of two, of whole pages.
std::uint64_t ring_in_force(std::uint64_t bytes);
// One that holds so many messages of `size` bytes, with their headers; and the least worth having, which holds four.
std::uint64_t ring_for(std::uint64_t messages, std::uint32_t size);
inline std::uint64_t least_ring(std::uint32_t size) { return ring_for(4, size); }

// Every protocol with every choice it has.
std::vector<messaging::Kind> all_kinds();
// All but those whose ring is mapped twice: their traits are those of the others.
std::vector<messaging::Kind> plain_kinds();
// Those worth a comparison: of a ring's choices the usual, the one within one WRITE, and those that leave the receiver
// idle.
std::vector<messaging::Kind> compared_kinds();
// Of names; "all" are all. No name: compared_kinds(). Errors: those of messaging::parse_kind().
Result<std::vector<messaging::Kind>> kinds_named(const std::vector<std::string>& names);

}  // namespace verbena::tools
