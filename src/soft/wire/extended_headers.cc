// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/extended_headers.h"

#include "base/byte_order.h"

namespace verbena::wire {

Reth parse_reth(const std::byte* from) {
  return {load_be64(from), RKey{load_be32(from + 8)}, load_be32(from + 12)};
}

AtomicEth parse_atomic_eth(const std::byte* from) {
  return {load_be64(from), RKey{load_be32(from + 8)}, load_be64(from + 12), load_be64(from + 20)};
}

Deth parse_deth(const std::byte* from) {
  return {load_be32(from), load_u8(from + 4), Qpn{load_be24(from + 5)}};
}

Feth parse_feth(const std::byte* from) { return {load_be32(from)}; }

Aeth parse_aeth(const std::byte* from) { return {load_u8(from), load_be24(from + 1)}; }

void emit(const Reth& header, std::byte* to) {
  store_be64(to, header.va);
  store_be32(to + 8, header.rkey.value());
  store_be32(to + 12, header.length);
}

void emit(const AtomicEth& header, std::byte* to) {
  store_be64(to, header.va);
  store_be32(to + 8, header.rkey.value());
  store_be64(to + 12, header.swap_or_add);
  store_be64(to + 20, header.compare);
}

void emit(const Deth& header, std::byte* to) {
  store_be32(to, header.qkey);
  store_u8(to + 4, header.reserved);
  store_be24(to + 5, header.source.value());
}

void emit(const Feth& header, std::byte* to) { store_be32(to, header.value); }

void emit(const Aeth& header, std::byte* to) {
  store_u8(to, header.syndrome);
  store_be24(to + 1, header.msn);
}

}  // namespace verbena::wire
