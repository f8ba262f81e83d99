// SPDX-License-Identifier: Apache-2.0
// The invariant CRC (format reference 3): CRC-32 over masked IP, UDP and BTH headers and all that follows,
// through ISA-L.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/byte_order.h"
#include "soft/wire/path.h"

namespace verbena::wire {

// The sum over what the masked pseudo headers of one path have in common. `dont_fragment` counts on IPv4 only.
class IcrcStart {
 public:
  explicit IcrcStart(const Path& path, bool dont_fragment = true);
  // The sum goes on over the datagram from its BTH on, as emitted; `bytes` holds at least that. datagram_bytes is the
  // whole UDP payload with ICRC. `identification` counts on IPv4 only.
  std::uint32_t over(std::uint16_t identification, std::size_t datagram_bytes, std::span<const std::byte> bytes);
  bool is_ipv4() const { return is_ipv4_; }

 private:
  void add_lengths(std::size_t datagram_bytes);

  std::uint32_t sum_ = 0;
  std::uint32_t sum_with_lengths_ = 0;  // of a datagram as long as the last: the next one mostly is
  std::size_t datagram_bytes_ = 0;
  bool is_ipv4_;
};

// Continues over more bytes.
std::uint32_t icrc_extend(std::uint32_t crc, std::span<const std::byte> bytes);
// The sum over a datagram that lies in one piece; `covered` is the UDP payload without its ICRC, at least a
// BTH.
std::uint32_t icrc_of(const Path& path, std::uint16_t identification, std::span<const std::byte> covered,
                      bool dont_fragment = true);
// Least significant byte first.
inline void store_icrc(std::byte* to, std::uint32_t crc) { store_be32(to, __builtin_bswap32(crc)); }
inline std::uint32_t load_icrc(const std::byte* from) { return __builtin_bswap32(load_be32(from)); }

// How a received ICRC was found right.
enum class IcrcVerdict : std::uint8_t {
  Bad,
  Exact,   // all 32 bits checked: IPv6, or an identification that is known, 0, or the likely one
  Solved,  // IPv4 with an identification we cannot see: one of the 65,536 explains the sum, 16 bits checked
};

// Checks received datagrams, most of them of one path. One thread at a time.
class IcrcVerifier {
 public:
  // `identification` when the receive path shows it (raw socket, simulator, capture); otherwise nullopt:
  // solved for. *found receives the identification that explains the sum (0 on IPv6); `found` may be null. A
  // datagram shorter than BTH and ICRC is Bad, and so is one longer than any packet of the largest path MTU
  // whose identification must be solved for. `likely` is tried before solving: the place in a train.
  IcrcVerdict check(const Path& path, std::optional<std::uint16_t> identification,
                    std::span<const std::byte> datagram, std::uint16_t* found, bool dont_fragment = true,
                    std::uint16_t likely = 0);
  // The same in two: of many datagrams of a path, which then is not looked at for each.
  void set_path(const Path& path, bool dont_fragment = true);
  IcrcVerdict check(std::optional<std::uint16_t> identification, std::span<const std::byte> datagram,
                    std::uint16_t* found, std::uint16_t likely);

 private:
  [[gnu::cold]] static IcrcVerdict solve(std::uint32_t difference, std::size_t datagram_bytes, std::uint16_t* found,
                                          std::uint16_t assumed);

  // Of the last datagram; the next one is mostly its like.
  Path path_;
  bool dont_fragment_ = true;
  IcrcStart start_{path_};
};

}  // namespace verbena::wire
