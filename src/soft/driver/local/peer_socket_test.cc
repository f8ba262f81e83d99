// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/peer_socket.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <cstring>

#include "soft/driver/local/segment.h"
#include "soft/driver/local/test_process.h"
#include "soft/local/ring.h"

namespace verbena::soft::local {
namespace {

using verbena::local::Hello;
using verbena::local::kHelloBytes;
using verbena::local::layout_of;
using verbena::local::RingConsumer;
using verbena::local::RingMemory;
using verbena::local::RingProducer;

constexpr std::uint32_t kOfferedCapacity = 4096;

Hello some_hello() {
  return {kOfferedCapacity, {Gid::from_ipv4(127, 0, 0, 1), Qpn{0x11}}, {Gid::from_ipv4(127, 0, 0, 2), Qpn{0x22}}};
}

PeerSocket adopted(Descriptor& socket) {
  auto peer = PeerSocket::adopt(std::move(socket));
  EXPECT_TRUE(peer);
  return std::move(*peer);
}

// Waits, as an event loop would.
Result<std::optional<Offer>> receive(PeerSocket& peer) {
  for (;;) {
    auto offer = peer.try_receive();
    if (!offer) return std::move(offer).error();
    if (*offer) return std::optional<Offer>(std::get<Offer>(std::move(**offer)));
    pollfd look{peer.descriptor(), POLLIN, 0};
    ::poll(&look, 1, 10'000);
  }
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}

// As a peer would that keeps to nothing.
void send_raw(int socket, std::span<const std::byte> bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::vector<char> control(CMSG_SPACE(descriptors.size() * sizeof(int)));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size() * sizeof(int));
  }
  EXPECT_EQ(::sendmsg(socket, &message, 0), static_cast<ssize_t>(bytes.size()));
}

std::array<std::byte, kHelloBytes> hello_bytes() {
  std::array<std::byte, kHelloBytes> bytes;
  verbena::local::emit(some_hello(), bytes);
  return bytes;
}

// Sends numbered records until nobody takes them any more.
int offer_and_produce_for_ever(PeerSocket peer) {
  auto segment = Segment::create(layout_of(kOfferedCapacity).bytes);
  if (!segment || !peer.send(some_hello(), segment->descriptor())) return 1;
  RingProducer ring(RingMemory(segment->memory().data() + layout_of(kOfferedCapacity).opener_ring, kOfferedCapacity));
  for (std::uint64_t number = 0;;) {
    const auto at = ring.try_reserve(1, 64);
    if (!at) continue;
    for (std::size_t i = 0; i < 8; ++i) std::memcpy(ring.memory().data() + *at + 8 * i, &number, 8);
    if (++number % 3 == 0) ring.publish();
  }
}

TEST(PeerSocket, F8_of_a_peer_that_is_killed_whole_records_remain_and_its_end_is_told) {
  for (int round = 0; round < 20; ++round) {
    auto ends = socket_pair();
    TestProcess process([&ends] {
      ends[0] = Descriptor();
      return offer_and_produce_for_ever(adopted(ends[1]));
    });
    ends[1] = Descriptor();
    PeerSocket peer = adopted(ends[0]);
    auto offer = receive(peer);
    ASSERT_TRUE(offer) << offer.error().to_string();
    EXPECT_EQ((*offer)->hello, some_hello());
    auto segment = Segment::accept(std::move((*offer)->segment), layout_of(kOfferedCapacity).bytes);
    ASSERT_TRUE(segment) << segment.error().to_string();
    EXPECT_FALSE(peer.has_hung_up());

    RingConsumer ring(RingMemory(segment->memory().data() + layout_of(kOfferedCapacity).opener_ring, kOfferedCapacity));
    std::uint64_t expected = 0;
    bool dead = false;
    for (;;) {
      const auto record = ring.peek();
      if (!record && dead) break;
      if (!record) {
        ring.release();
        dead = peer.has_hung_up();  // then one look more: what was published before is there
        continue;
      }
      ASSERT_EQ(record->payload_bytes, 64u);
      for (std::size_t i = 0; i < 8; ++i)
        ASSERT_EQ(std::memcmp(ring.memory().data() + record->offset + 8 * i, &expected, 8), 0) << expected;
      ring.pop();
      if (++expected == 1000 + 7 * static_cast<std::uint64_t>(round)) process.kill_and_wait();
    }
    EXPECT_EQ(ring.state(), verbena::local::RingState::Open);
    EXPECT_EQ(expected % 3, 0u) << "half a batch";
    EXPECT_EQ(peer.try_receive().error().code(), ErrorCode::ConnectionLost);
    const Error end = peer.send(some_hello(), segment->descriptor()).error();
    EXPECT_EQ(end.code(), ErrorCode::ConnectionLost);
    EXPECT_NE(end.context().find("has ended or hung up"), std::string::npos) << end.context();
  }
}

TEST(PeerSocket, it_says_who_is_there) {
  auto ends = socket_pair();
  PeerSocket peer = adopted(ends[0]);
  EXPECT_EQ(peer.peer().pid, ::getpid());
  EXPECT_EQ(peer.peer().uid, ::getuid());
  EXPECT_FALSE(*peer.try_receive()) << "nothing has come";
}

TEST(PeerSocket, other_sockets_are_not_taken) {
  auto stream = socket_pair(SOCK_STREAM);
  EXPECT_EQ(PeerSocket::adopt(std::move(stream[0])).error().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(PeerSocket::adopt(Descriptor(::open("/dev/null", O_RDWR | O_CLOEXEC))).error().code(),
            ErrorCode::InvalidArgument);
  EXPECT_EQ(PeerSocket::adopt(Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0))).error().code(),
            ErrorCode::InvalidArgument);
}

TEST(PeerSocket, descriptors_that_nobody_asked_for_are_closed) {
  auto ends = socket_pair();
  PeerSocket peer = adopted(ends[0]);
  const Descriptor some(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto hello = hello_bytes();
  const std::size_t before = open_descriptors();
  for (const std::size_t count : {std::size_t{0}, std::size_t{2}, std::size_t{253}}) {
    send_raw(ends[1].get(), hello, std::vector<int>(count, some.get()));
    const auto offer = peer.try_receive();
    ASSERT_FALSE(offer);
    EXPECT_EQ(offer.error().code(), ErrorCode::ProtocolError);
    EXPECT_NE(offer.error().context().find(std::to_string(count) + " descriptors"), std::string::npos);
  }
  for (const std::size_t length : {std::size_t{1}, kHelloBytes - 1}) {
    send_raw(ends[1].get(), std::span(hello).first(length), {some.get()});
    EXPECT_EQ(peer.try_receive().error().code(), ErrorCode::ProtocolError);
  }
  std::vector<std::byte> longer(hello.begin(), hello.end());
  longer.resize(4096);
  send_raw(ends[1].get(), longer, {some.get()});
  EXPECT_EQ(peer.try_receive().error().code(), ErrorCode::ProtocolError);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(PeerSocket, a_bell_rings_and_whoever_has_none_signals) {
  auto ends = socket_pair();
  PeerSocket waker = adopted(ends[0]), sleeper = adopted(ends[1]);
  const auto is_readable = [](int descriptor) {
    pollfd look{descriptor, POLLIN, 0};
    return ::poll(&look, 1, 0) == 1;
  };
  const Descriptor bell(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  waker.ring();
  EXPECT_TRUE(is_readable(sleeper.descriptor()));
  sleeper.take_signal();
  EXPECT_FALSE(is_readable(sleeper.descriptor()) || sleeper.bell() >= 0);
  ASSERT_TRUE(sleeper.send_bell(bell.get()));
  waker.take_signal();
  ASSERT_GE(waker.bell(), 0);
  waker.ring();
  EXPECT_TRUE(is_readable(bell.get()));
  EXPECT_FALSE(is_readable(sleeper.descriptor()));
  waker.signal();
  EXPECT_TRUE(is_readable(sleeper.descriptor()));
}

TEST(PeerSocket, a_bell_that_cannot_ring_is_none) {
  auto ends = socket_pair();
  PeerSocket waker = adopted(ends[0]);
  std::array<int, 2> pipe;
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
  ::close(pipe[0]);
  const Descriptor broken(pipe[1]);  // who writes there is sent SIGPIPE
  const std::size_t before = open_descriptors();
  send_raw(ends[1].get(), std::array{std::byte{0}}, {broken.get()});
  waker.take_signal();
  EXPECT_LT(waker.bell(), 0);
  const Descriptor two(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  send_raw(ends[1].get(), std::array{std::byte{0}}, {two.get(), two.get()});
  waker.take_signal();
  EXPECT_LT(waker.bell(), 0);
  EXPECT_EQ(open_descriptors(), before + 1);
  waker.ring();
  pollfd look{ends[1].get(), POLLIN, 0};
  EXPECT_EQ(::poll(&look, 1, 0), 1) << "it signals, as without";
}

TEST(PeerSocket, a_region_is_asked_for_and_lent_with_its_file_or_without) {
  auto ends = socket_pair();
  PeerSocket asker = adopted(ends[0]), owner = adopted(ends[1]);
  const verbena::local::Want want{some_hello().from, some_hello().to, RKey{77}};
  EXPECT_FALSE(*asker.try_receive_loan()) << "nothing has come";
  ASSERT_TRUE(asker.send(want));
  const auto came = owner.try_receive();
  ASSERT_TRUE(came && *came);
  EXPECT_EQ(std::get<verbena::local::Want>(**came), want);
  const verbena::local::Lend lend{RKey{77}, 3, Access::RemoteRead, 0x1000, 64, 0x2000};
  const Descriptor some(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int file : {-1, some.get()}) {
    ASSERT_TRUE(owner.send(lend, file));
    const auto loan = asker.try_receive_loan();
    ASSERT_TRUE(loan && *loan);
    EXPECT_EQ((**loan).lend, lend);
    EXPECT_EQ(static_cast<bool>((**loan).file), file >= 0);
  }
  std::array<std::byte, verbena::local::kWantBytes> bytes;
  emit(want, bytes);
  const std::size_t before = open_descriptors();
  send_raw(asker.descriptor(), bytes, {some.get()});
  EXPECT_EQ(owner.try_receive().error().code(), ErrorCode::ProtocolError) << "a wish brings nothing";
  std::array<std::byte, verbena::local::kLendBytes> twice;
  emit(lend, twice);
  send_raw(owner.descriptor(), twice, {some.get(), some.get()});
  EXPECT_EQ(asker.try_receive_loan().error().code(), ErrorCode::ProtocolError);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(PeerSocket, without_a_descriptor_left_the_error_says_so) {
  auto ends = socket_pair();
  TestProcess process([&ends] {
    PeerSocket peer = adopted(ends[0]);
    const auto hello = hello_bytes();
    send_raw(ends[1].get(), hello, {ends[1].get()});
    rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const auto offer = peer.try_receive();
    return !offer && offer.error().code() == ErrorCode::ResourceExhausted &&
                   offer.error().context().find("ulimit -n") != std::string::npos
               ? 0
               : 1;
  });
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace verbena::soft::local
