// SPDX-License-Identifier: Apache-2.0
// The rule in code and the filter in the kernel must agree: whatever is sent lands where place_of() says.
#include "soft/driver/udp/steering.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "base/byte_order.h"
#include "base/random.h"
#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/driver/udp/test_member.h"
#include "soft/driver/udp/test_sockets.h"
#include "soft/wire/mad.h"

namespace verbena::soft::udp {
namespace {

using wire::CmAttribute;
using testing::Bytes;
using testing::kTcp;

Bytes data_packet(std::uint32_t qpn) {
  Bytes bytes(64);
  store_be24(&bytes[5], qpn);
  return bytes;
}

Bytes management(CmAttribute attribute, std::uint32_t receiver_id, std::uint64_t service = 0) {
  Bytes bytes(280);
  store_be24(&bytes[5], 1);
  store_be16(&bytes[36], static_cast<std::uint16_t>(attribute));
  store_be32(&bytes[44], 0xabcd'0123);  // the sender's id
  store_be32(&bytes[48], receiver_id);
  store_be64(&bytes[52], service);
  return bytes;
}

// A group of kSlots + 1 sockets with a filter, and one that sends to it.
class Group {
 public:
  Group(const Gid& address, std::span<const ServiceRoute> routes) : local_(*find_local_address(address)) {
    for (unsigned i = 0; i <= kLobby; ++i) {
      sockets_.push_back(std::move(*make_udp_socket(address)));
      const int on = 1;
      EXPECT_EQ(::setsockopt(sockets_.back().get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
      EXPECT_EQ(bind_to(sockets_.back().get(), local_, kPort), 0);
    }
    std::vector<sock_filter> filter = steering_filter(routes);
    const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    EXPECT_EQ(::setsockopt(sockets_[0].get(), SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program), 0);
    sender_ = std::move(*make_udp_socket(address));
  }

  // The index of the socket it came to.
  unsigned landing(const Bytes& datagram) {
    const SocketAddress to(local_.gid, kPort, 0);
    EXPECT_EQ(::sendto(sender_.get(), datagram.data(), datagram.size(), 0, &to.any, to.size),
              static_cast<ssize_t>(datagram.size()));
    unsigned found = ~0u;
    for (unsigned i = 0; i <= kLobby; ++i) {
      Bytes got(512);
      if (::recv(sockets_[i].get(), got.data(), got.size(), MSG_DONTWAIT) >= 0) found = i;
    }
    return found;
  }

 private:
  static constexpr std::uint16_t kPort = 24'791;
  LocalAddress local_;
  std::vector<Descriptor> sockets_;
  Descriptor sender_;
};

class Steering : public ::testing::TestWithParam<const char*> {
 protected:
  Steering() {
    if (!testing::TestNetwork::enter().is_private()) return;
    address_ = *Gid::parse(GetParam());
  }
  void SetUp() override {
    if (address_.is_zero()) GTEST_SKIP() << "needs a network of its own";
    if (!find_local_address(address_)) GTEST_SKIP() << "no such address here";
  }
  Gid address_;
};

TEST_P(Steering, kernel_and_code_agree_on_queue_pair_numbers_and_communication_ids) {
  Group group(address_, {});
  SeededRandom random(1);
  for (int i = 0; i < 300; ++i) {
    const Bytes data = data_packet(random.next_u32() & 0xff'ffff);
    EXPECT_EQ(group.landing(data), place_of(data));
    const auto attribute = static_cast<CmAttribute>(0x10 + random.below(11));
    const Bytes message = management(attribute, random.below(8) == 0 ? 0 : random.next_u32(), random.next_u64());
    EXPECT_EQ(group.landing(message), place_of(message)) << static_cast<int>(attribute);
  }
}

TEST_P(Steering, numbers_go_to_the_slot_they_begin_with) {
  Group group(address_, {});
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    EXPECT_EQ(group.landing(data_packet(slot << 18 | 0x2'4321)), slot);
    EXPECT_EQ(group.landing(management(CmAttribute::Rtu, slot << 26 | 0x123'4567)), slot);
  }
}

TEST_P(Steering, requests_go_to_the_slot_that_listens_and_all_others_to_the_lobby) {
  const std::vector<ServiceRoute> routes{{0x0106'1d2f, 7}, {0x0106'1d30, 63}, {0x0106'8000, 0}};
  Group group(address_, routes);
  EXPECT_EQ(group.landing(management(CmAttribute::Req, 0, kTcp | 0x1d2f)), 7u);
  EXPECT_EQ(group.landing(management(CmAttribute::Req, 0, kTcp | 0x1d30)), 63u);
  EXPECT_EQ(group.landing(management(CmAttribute::Req, 0, kTcp | 0x8000)), 0u);
  EXPECT_EQ(group.landing(management(CmAttribute::Req, 0, kTcp | 0x1d31)), kLobby);
  EXPECT_EQ(group.landing(management(CmAttribute::Req, 0, std::uint64_t{1} << 32 | kTcp | 0x1d2f)), kLobby);
  EXPECT_EQ(group.landing(management(CmAttribute::SidrReq, 0, kTcp | 0x1d2f)), kLobby);
  EXPECT_EQ(group.landing(management(CmAttribute::Rej, 0)), kLobby);
}

TEST_P(Steering, takes_as_many_services_as_the_filter_is_given) {
  std::vector<ServiceRoute> routes;
  for (unsigned i = 0; i < 512; ++i) routes.push_back({0x0106'0000 + i, i % kSlots});
  Group group(address_, routes);
  for (const unsigned i : {0u, 1u, 300u, 511u})
    EXPECT_EQ(group.landing(management(CmAttribute::Req, 0, kTcp | i)), i % kSlots);
}

TEST_P(Steering, what_is_too_short_lands_somewhere_and_both_agree_where) {
  Group group(address_, {});
  const Bytes whole = management(CmAttribute::Rtu, 0xffff'ffff);
  for (std::size_t size = 0; size < 60; ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(group.landing(cut), place_of(cut)) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(Ip, Steering, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& of) { return std::string(of.param[0] == ':' ? "v6" : "v4"); });

TEST(Steering, a_request_names_its_service_and_a_refusal_without_an_id_is_for_everybody) {
  EXPECT_EQ(service_of(management(CmAttribute::Req, 0, kTcp | 7471)), 0x0106'0000u | 7471);
  EXPECT_FALSE(service_of(management(CmAttribute::Req, 0, std::uint64_t{1} << 32 | 7471)));
  EXPECT_FALSE(service_of(management(CmAttribute::Rep, 0, kTcp | 7471)));
  EXPECT_FALSE(service_of(data_packet(77)));
  EXPECT_TRUE(is_for_everybody(management(CmAttribute::Rej, 0)));
  EXPECT_FALSE(is_for_everybody(management(CmAttribute::Rej, 1)));
  EXPECT_FALSE(is_for_everybody(management(CmAttribute::Req, 0)));
}

}  // namespace
}  // namespace verbena::soft::udp
