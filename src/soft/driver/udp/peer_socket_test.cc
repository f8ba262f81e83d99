// SPDX-License-Identifier: Apache-2.0
// What comes from one peer alone comes by a socket that leads to it, with its source, and nothing is lost or overtaken
// when that begins, when others come between, and when the address is shared.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <optional>

#include "soft/driver/udp/socket_group.h"
#include "soft/driver/udp/test_shared_address.h"
#include "soft/driver/udp/test_sockets.h"

namespace verbena::soft::udp {
namespace {

using namespace testing;

const Gid kHere = Gid::from_ipv4(10, 77, 0, 1), kThere = Gid::from_ipv4(10, 77, 0, 2);
constexpr unsigned kDatagrams = 400;

class PeerSocketTest : public SharedAddressTest {
 protected:
  void SetUp() override {
    SharedAddressTest::SetUp();
    if (IsSkipped()) return;
    ASSERT_TRUE(TestNetwork::add_address("lo:1", 1) && TestNetwork::add_address("lo:2", 2));
  }
};

// A device's side of a shared address, as UdpPort has it.
struct Here {
  explicit Here(const Gid& address) : shared(std::move(*SharedAddress::open(address))) {
    auto opened = SocketSet::open(shared->local(), std::move(*shared->receiving_socket()), {}, shared->peer_fd());
    EXPECT_TRUE(opened) << opened.error().to_string();
    sockets.emplace(std::move(*opened));
  }
  ~Here() {
    shared->let_go();
    sockets.reset();
  }
  Here(const Here&) = delete;
  Here& operator=(const Here&) = delete;

  // What has come, by the 16-bit number in it; behind it stands the port that it was sent from.
  std::vector<unsigned> read(std::size_t wanted) {
    std::vector<unsigned> numbers;
    const auto take = [&numbers](const wire::Path& path, const auto& bytes) {
      numbers.push_back(load_be16(bytes.data() + 8));
      EXPECT_EQ(load_be16(bytes.data() + 10), path.source_port);
    };
    for (int idle = 0; numbers.size() < wanted && idle < 100;) {
      for (const Stray& stray : shared->inbox().take()) take(stray.path, stray.bytes);
      if (const wire::Path* peer = sockets->busy_peer())
        sockets->set_led(shared->peer_socket().lead_to(*peer));
      else if (sockets->is_led() && (sockets->wants_rest() || shared->is_shared()))
        sockets->set_led(!shared->peer_socket().lead_nowhere());
      const auto trains = sockets->receive();
      for (const ReceivedTrain& train : trains) take(train.path, train.bytes);
      idle = trains.empty() ? idle + 1 : 0;
      if (trains.empty() && idle % 50 == 0) ::usleep(2'000);
    }
    return numbers;
  }
  std::uint64_t connected() { return sockets->counters().received_connected; }

  const std::unique_ptr<SharedAddress> shared;
  std::optional<SocketSet> sockets;
};

// Sends data for slot 0 that is numbered.
class There {
 public:
  explicit There(const Gid& at = kThere, const Gid& to = kHere)
      : socket_(std::move(*make_udp_socket(at))), to_(to, wire::kRocePort, 0) {
    EXPECT_EQ(bind_to(socket_.get(), *find_local_address(at), 0), 0);
    SocketAddress own;
    EXPECT_EQ(::getsockname(socket_.get(), &own.any, &own.size), 0);
    port_ = own.port();
  }
  void send(unsigned number) const {
    std::vector<std::byte> bytes = data_for(0, 32);
    store_be16(&bytes[8], static_cast<std::uint16_t>(number));
    store_be16(&bytes[10], port_);
    EXPECT_EQ(::sendto(socket_.get(), bytes.data(), bytes.size(), 0, &to_.any, to_.size), 32);
  }

 private:
  Descriptor socket_;
  SocketAddress to_;
  std::uint16_t port_ = 0;
};

std::vector<unsigned> numbers(unsigned from, unsigned to) {
  std::vector<unsigned> all;
  for (unsigned i = from; i < to; ++i) all.push_back(i);
  return all;
}

TEST_F(PeerSocketTest, what_comes_from_one_peer_comes_by_it_and_in_order) {
  Here here(kHere);
  const There there;
  ASSERT_GE(here.shared->peer_fd(), 0);
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  EXPECT_GT(here.connected(), kDatagrams / 2);
  EXPECT_LT(here.connected(), kDatagrams);
}

// It leads there in the middle of what waits.
TEST_F(PeerSocketTest, what_came_before_is_read_before) {
  Here here(kHere);
  const There there;
  std::vector<unsigned> got;
  unsigned sent = 0;
  for (int rounds = 0; rounds < 40; ++rounds) {
    for (unsigned i = 0; i < 9; ++i) there.send(sent++);
    const auto some = here.read(sent - 5 - got.size());  // or more; what is left was sent before what follows
    got.insert(got.end(), some.begin(), some.end());
  }
  const auto rest = here.read(sent - got.size());
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, numbers(0, sent));
  EXPECT_GT(here.connected(), 0u);
}

// Messages by one connection, acknowledgements of those that go the other way by another.
TEST_F(PeerSocketTest, of_two_ports_it_leads_to_the_one_that_sends_most) {
  Here here(kHere);
  const There messages, acknowledgements;
  for (unsigned i = 0; i < 2 * kDatagrams; ++i) {
    (i % 4 == 3 ? acknowledgements : messages).send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  EXPECT_GT(here.connected(), kDatagrams / 2);
  EXPECT_TRUE(here.sockets->is_led());
}

TEST_F(PeerSocketTest, it_leads_to_the_other_port_when_that_sends_most) {
  Here here(kHere);
  const There one, other;
  const auto send = [&here](const There& most, const There& few) {
    for (unsigned i = 0; i < 6 * kDatagrams; ++i) {
      (i % 4 == 3 ? few : most).send(i);
      ASSERT_EQ(here.read(1), numbers(i, i + 1));
    }
  };
  send(one, other);
  const std::uint64_t before = here.connected();
  send(other, one);
  EXPECT_GT(here.connected(), before + 3 * kDatagrams);  // half; the first sends a quarter
}

TEST_F(PeerSocketTest, much_at_once_makes_it_wait_though_another_port_sends_in_between) {
  Here here(kHere);
  const There messages, acknowledgements;
  std::uint64_t before = 0;
  for (int rounds = 0; rounds < 8; ++rounds) {
    before = here.connected();
    for (unsigned i = 0; i < kDatagrams; ++i) {
      (i % 4 == 3 ? acknowledgements : messages).send(i);
      ASSERT_EQ(here.read(1), numbers(i, i + 1));
    }
    for (unsigned i = 0; i < 200; ++i) messages.send(i);
    ASSERT_EQ(here.read(200), numbers(0, 200));
  }
  EXPECT_GT(before, 0u);
  EXPECT_EQ(here.connected(), before);
}

TEST_F(PeerSocketTest, of_two_that_send_as_much_it_leads_to_none) {
  Here here(kHere);
  const There one, other;
  for (unsigned i = 0; i < kDatagrams; ++i) {
    (i % 2 == 0 ? one : other).send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  EXPECT_EQ(here.connected(), 0u);
}

TEST_F(PeerSocketTest, others_are_read_as_well_and_another_may_take_its_place) {
  Here here(kHere);
  const There one, other;
  for (unsigned i = 0; i < kDatagrams; ++i) {
    one.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  for (unsigned i = 0; i < 50; ++i) {
    one.send(2 * i);
    other.send(2 * i + 1);
  }
  std::vector<unsigned> both = here.read(100);
  std::sort(both.begin(), both.end());
  EXPECT_EQ(both, numbers(0, 100));
  const std::uint64_t before = here.connected();
  for (unsigned i = 0; i < kDatagrams; ++i) {
    other.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  EXPECT_GT(here.connected(), before + kDatagrams / 2);
  one.send(7);
  EXPECT_EQ(here.read(1), numbers(7, 8));
}

// Who sleeps on it would be woken for ever.
TEST_F(PeerSocketTest, what_icmp_says_to_it_is_read) {
  Here here(kHere);
  const Descriptor port = std::move(*here.shared->receiving_socket());
  const SocketAddress nowhere(kHere, 9, 0);
  EXPECT_EQ(::sendto(port.get(), "x", 1, 0, &nowhere.any, nowhere.size), 1);
  pollfd waiting{here.shared->peer_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 1000), 1);
  EXPECT_TRUE(here.sockets->receive(true).empty());
  EXPECT_EQ(::poll(&waiting, 1, 0), 0);
}

// It joins no trains: what comes faster than that is read where it is joined.
TEST_F(PeerSocketTest, it_is_left_when_much_comes_at_once) {
  Here here(kHere);
  const There there;
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  std::uint64_t before = 0;
  for (int rounds = 0; rounds < 3; ++rounds) {
    before = here.connected();
    for (unsigned i = 0; i < 200; ++i) there.send(i);
    EXPECT_EQ(here.read(200), numbers(0, 200));
  }
  EXPECT_EQ(here.connected(), before);
  EXPECT_FALSE(here.sockets->is_led());
}

TEST_F(PeerSocketTest, it_ends_without_a_loss_when_the_address_is_shared) {
  std::optional<Here> here(kHere);
  const There there;
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here->read(1), numbers(i, i + 1));
  }
  EXPECT_GT(here->connected(), 0u);
  for (unsigned i = 0; i < 50; ++i) there.send(i);
  Here second(kHere);
  EXPECT_LT(second.shared->peer_fd(), 0);
  for (unsigned i = 50; i < 100; ++i) there.send(i);
  EXPECT_EQ(here->read(100), numbers(0, 100));
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here->read(1), numbers(i, i + 1));
  }
  EXPECT_TRUE(second.read(1).empty());
  EXPECT_EQ(here->sockets->counters().receive_drops, 0u);
  // The port is nobody else's at any time.
  EXPECT_EQ(bind_alone(*find_local_address(kHere)).error().code(), ErrorCode::AddressInUse);
}

TEST_F(PeerSocketTest, a_process_joins_while_it_is_there) {
  Member guest(kHere, Member::When::Later);
  Here here(kHere);
  const There there;
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  guest.come();
  ASSERT_TRUE(guest.is_in()) << guest.greeting;
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
}

TEST_F(PeerSocketTest, there_is_one_on_loopback) {
  const Gid address = Gid::from_ipv4(127, 0, 0, 77);
  Here here(address);
  const There there(Gid::from_ipv4(127, 0, 0, 78), address);
  for (unsigned i = 0; i < kDatagrams; ++i) {
    there.send(i);
    ASSERT_EQ(here.read(1), numbers(i, i + 1));
  }
  EXPECT_GT(here.connected(), kDatagrams / 2);
}

}  // namespace
}  // namespace verbena::soft::udp
