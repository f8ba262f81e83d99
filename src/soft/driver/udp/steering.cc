// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/steering.h"

#include "base/byte_order.h"
#include "soft/wire/mad.h"

namespace verbena::soft::udp {
namespace {

using wire::CmAttribute;

// Offsets into the UDP payload: BTH (12), DETH (8), MAD header (24), CM message.
constexpr unsigned kDestinationAt = 4;  // reserved (1), queue pair number (3)
constexpr unsigned kAttributeAt = 36;
constexpr unsigned kReceiverIdAt = 48;
constexpr unsigned kServiceSpaceAt = 52;  // the high half of a service id: 0 in those with ports
constexpr unsigned kServiceAt = 56;
constexpr unsigned kManagementQpn = 1;
constexpr unsigned kQpnShift = 24 - kSlotBits;
constexpr unsigned kIdShift = 32 - kSlotBits;

constexpr std::uint32_t code(CmAttribute attribute) { return static_cast<std::uint32_t>(attribute); }

CmAttribute attribute_of(std::span<const std::byte> datagram) {
  return static_cast<CmAttribute>(load_be16(datagram.data() + kAttributeAt));
}

bool is_management(std::span<const std::byte> datagram, std::size_t least) {
  return datagram.size() >= least && load_be24(datagram.data() + kDestinationAt + 1) == kManagementQpn;
}

}  // namespace

// What is too short for a question is slot 0's: the kernel answers so, too.
unsigned place_of(std::span<const std::byte> datagram) {
  if (datagram.size() < kDestinationAt + 4) return 0;
  const std::uint32_t qpn = load_be24(datagram.data() + kDestinationAt + 1);
  if (qpn != kManagementQpn) return qpn >> kQpnShift;
  if (datagram.size() < kAttributeAt + 2) return 0;
  const CmAttribute attribute = attribute_of(datagram);
  if (attribute == CmAttribute::Req || attribute == CmAttribute::SidrReq) return kLobby;
  if (datagram.size() < kReceiverIdAt + 4) return 0;
  const std::uint32_t id = load_be32(datagram.data() + kReceiverIdAt);
  return id == 0 ? kLobby : id >> kIdShift;
}

std::optional<std::uint32_t> service_of(std::span<const std::byte> datagram) {
  if (!is_management(datagram, kServiceAt + 4) || attribute_of(datagram) != CmAttribute::Req) return std::nullopt;
  if (load_be32(datagram.data() + kServiceSpaceAt) != 0) return std::nullopt;
  return load_be32(datagram.data() + kServiceAt);
}

bool is_for_everybody(std::span<const std::byte> datagram) {
  return is_management(datagram, kReceiverIdAt + 4) && attribute_of(datagram) == CmAttribute::Rej &&
         load_be32(datagram.data() + kReceiverIdAt) == 0;
}

// The kernel's offsets begin behind the UDP header. A jump's two numbers count the instructions it skips.
std::vector<sock_filter> steering_filter(std::span<const ServiceRoute> routes) {
  const auto if_equal = [](std::uint32_t value, std::uint8_t yes, std::uint8_t no) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no);
  };
  const auto answer = [](std::uint32_t index) { return sock_filter BPF_STMT(BPF_RET | BPF_K, index); };
  const auto load = [](std::uint16_t size, std::uint32_t at) {
    return sock_filter BPF_STMT(static_cast<std::uint16_t>(BPF_LD | BPF_ABS | size), at);
  };
  const auto shift = [](std::uint32_t by) { return sock_filter BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, by); };
  const sock_filter answer_result = BPF_STMT(BPF_RET | BPF_A, 0);
  std::vector<sock_filter> program{
      load(BPF_W, kDestinationAt),
      sock_filter BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff'ffff),
      if_equal(kManagementQpn, 2, 0),
      shift(kQpnShift),
      answer_result,
      load(BPF_H, kAttributeAt),
      if_equal(code(CmAttribute::Req), 6, 0),
      if_equal(code(CmAttribute::SidrReq), 4, 0),
      load(BPF_W, kReceiverIdAt),
      if_equal(0, 2, 0),
      shift(kIdShift),
      answer_result,
      answer(kLobby),
      load(BPF_W, kServiceSpaceAt),
      if_equal(0, 1, 0),
      answer(kLobby),
      load(BPF_W, kServiceAt),
  };
  for (const ServiceRoute& route : routes) {
    program.push_back(if_equal(route.service, 0, 1));
    program.push_back(answer(route.slot));
  }
  program.push_back(answer(kLobby));
  return program;
}

}  // namespace verbena::soft::udp
