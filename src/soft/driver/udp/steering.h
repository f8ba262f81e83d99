// SPDX-License-Identifier: Apache-2.0
// Which of the sockets that share an address a datagram belongs to: the rule, as code and as a filter for the kernel.
// Queue pair numbers and communication ids begin with their owner's slot; requests to connect go by service.
#pragma once

#include <linux/filter.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace verbena::soft::udp {

inline constexpr unsigned kSlotBits = 6;
inline constexpr unsigned kSlots = 1u << kSlotBits;
// The place behind the slots: for what no id or service gives an owner.
inline constexpr unsigned kLobby = kSlots;

// A service is the low half of a service id: port space, port.
struct ServiceRoute {
  std::uint32_t service = 0;
  unsigned slot = 0;
};

// The slot, or kLobby for what has no id of its receiver. For a UDP payload at port 4791, of any length.
unsigned place_of(std::span<const std::byte> datagram);
// The service a request to connect asks for.
std::optional<std::uint32_t> service_of(std::span<const std::byte> datagram);
// A refusal that names no id of its receiver: it concerns one owner, nobody knows which.
bool is_for_everybody(std::span<const std::byte> datagram);

// For SO_ATTACH_REUSEPORT_CBPF: place_of(), but what asks for one of these services goes to its slot.
std::vector<sock_filter> steering_filter(std::span<const ServiceRoute> routes);

}  // namespace verbena::soft::udp
