// SPDX-License-Identifier: Apache-2.0
// How long a UDP_SEGMENT train may be: asked of the kernel with empty words to a socket nobody reads.
#include <netinet/udp.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "soft/driver/udp/sender.h"

namespace verbena::soft::udp {
namespace {

constexpr unsigned kCeiling = 1'024;
constexpr int kSegmentBytes = 8;
// Assumed when the option is there but the address cannot be sent to: the limit of every kernel that has it.
constexpr unsigned kFirstLimit = 64;

}  // namespace

unsigned probe_max_segments(const Gid& local, std::uint32_t scope) {
  const int kind = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  const Descriptor sink(::socket(family_of(local), kind, 0));
  const Descriptor source(::socket(family_of(local), kind, 0));
  SocketAddress to(local, 0, scope);
  if (!sink || !source || ::bind(sink.get(), &to.any, to.size) != 0) return 1;
  if (::getsockname(sink.get(), &to.any, &to.size) != 0) return 1;
  if (::setsockopt(source.get(), IPPROTO_UDP, UDP_SEGMENT, &kSegmentBytes, sizeof kSegmentBytes) != 0)
    return 1;

  const std::array<std::byte, std::size_t{kCeiling} * kSegmentBytes> zeros{};
  unsigned taken = 1;
  unsigned refused = kCeiling + 1;
  while (taken + 1 < refused) {
    const unsigned middle = (taken + refused) / 2;
    const std::size_t bytes = std::size_t{middle} * kSegmentBytes;
    if (::sendto(source.get(), zeros.data(), bytes, 0, &to.any, to.size) >= 0) {
      taken = middle;
    } else if (errno == EINVAL || errno == EIO || errno == EMSGSIZE || errno == EOPNOTSUPP) {
      refused = middle;
    } else {
      return kFirstLimit;
    }
  }
  return taken;
}

}  // namespace verbena::soft::udp
