// SPDX-License-Identifier: Apache-2.0
// A process that was alone becomes one of a group while datagrams come.
#include "soft/driver/udp/socket_group.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "base/byte_order.h"
#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/steering.h"
#include "soft/driver/udp/test_network.h"

namespace {
std::function<void()> before_filter;  // of a group
}

// In place of the library's: what happens in the moment before there is a filter can be made to happen.
extern "C" int setsockopt(int fd, int level, int name, const void* value, socklen_t size) noexcept {
  if (level == SOL_SOCKET && name == SO_ATTACH_REUSEPORT_CBPF && before_filter) std::exchange(before_filter, {})();
  return static_cast<int>(::syscall(SYS_setsockopt, fd, level, name, value, size));
}

namespace verbena::soft::udp {
namespace {

constexpr unsigned kSenders = 32;  // ports, so that the kernel's hash knows many flows
constexpr unsigned kMostUnderWay = 64;

// Numbered datagrams for slot 0, no more under way than any buffer takes.
class Stream {
 public:
  explicit Stream(const LocalAddress& to) : to_(to.gid, wire::kRocePort, to.interface_index), seen_(1u << 20) {
    for (unsigned i = 0; i < kSenders; ++i) sockets_.push_back(std::move(*make_udp_socket(to.gid)));
    thread_ = std::thread([this] { run(); });
  }
  void finish() {
    stop_ = true;
    thread_.join();
  }
  void take(std::span<const std::byte> datagram) {
    EXPECT_EQ(datagram.size(), 16u);
    EXPECT_FALSE(seen_[load_be32(&datagram[8])].exchange(true)) << "came twice";
    ++came_;
  }
  unsigned sent() const { return sent_; }
  unsigned came() const { return came_; }
  // It waits: all that is under way stands in sockets that nobody reads yet.
  bool is_held() const { return sent_ + 1 - came_ >= kMostUnderWay; }

 private:
  void run() {
    for (; !stop_ && sent_ < seen_.size(); ++sent_) {
      std::array<std::byte, 16> datagram{};
      store_be24(&datagram[5], 0x1234);
      store_be32(&datagram[8], sent_);
      const int from = sockets_[sent_ % kSenders].get();
      EXPECT_EQ(::sendto(from, datagram.data(), datagram.size(), 0, &to_.any, to_.size), 16);
      while (is_held() && !stop_) std::this_thread::yield();
    }
  }
  SocketAddress to_;
  std::vector<std::atomic<bool>> seen_;
  std::vector<Descriptor> sockets_;
  std::atomic<unsigned> sent_{0}, came_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

template <class F>
bool wait_until(F f) {
  for (int tries = 0; tries < 5'000 && !f(); ++tries) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return f();
}

class GrowingGroup : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!testing::TestNetwork::enter().is_private()) GTEST_SKIP() << "needs a network of its own";
    const auto local = find_local_address(*Gid::parse(GetParam()));
    if (!local) GTEST_SKIP() << "no such address here";
    local_ = *local;
  }
  LocalAddress local_;
};

TEST_P(GrowingGroup, loses_nothing_while_it_grows) {
  constexpr int kRounds = 20, kMostRounds = 500;  // where the machine is busy, nothing may go astray in many of them
  unsigned strays = 0;
  for (int round = 0; round < kRounds || (strays == 0 && round < kMostRounds); ++round) {
    auto first = bind_alone(local_);
    ASSERT_TRUE(first) << first.error().to_string();
    std::atomic<bool> stop{false};
    Stream stream(local_);
    std::thread reader([&] {
      std::array<std::byte, 64> bytes;
      while (!stop) {
        const ssize_t size = ::recv(first->get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (size >= 0) stream.take(std::span(bytes).first(static_cast<std::size_t>(size)));
      }
    });
    before_filter = [&] {
      // Where this thread was slow, what the second socket got is as much as may be under way.
      EXPECT_TRUE(wait_until(
          [&, then = stream.sent()] { return stream.sent() >= then + kSenders || stream.is_held(); }));
    };
    auto others = join_others(first->get(), local_, [&](const ReceivedTrain& train) {
      EXPECT_EQ(train.path.destination, local_.gid);
      std::span<const std::byte> rest = train.bytes;
      for (; !rest.empty(); rest = rest.subspan(train.segment_bytes), ++strays)
        stream.take(rest.first(train.segment_bytes));
    });
    ASSERT_TRUE(others) << others.error().to_string();
    ASSERT_EQ(others->size(), kLobby);
    EXPECT_EQ(attach_filter(first->get(), steering_filter({})), 0);
    EXPECT_TRUE(wait_until([&, then = stream.came()] { return stream.came() >= then + 1'000; }));
    stream.finish();
    EXPECT_TRUE(wait_until([&] { return stream.came() == stream.sent(); })) << stream.sent() - stream.came();
    stop = true;
    reader.join();
    std::byte byte;
    for (const Descriptor& other : *others) EXPECT_LT(::recv(other.get(), &byte, 1, MSG_DONTWAIT), 0);
  }
  EXPECT_GT(strays, 0u);
}

TEST_P(GrowingGroup, stays_as_it_was_when_descriptors_run_out_and_may_try_again) {
  auto first = bind_alone(local_);
  ASSERT_TRUE(first) << first.error().to_string();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto none = [](const ReceivedTrain&) { ADD_FAILURE(); };
  for (const int more : {0, 1, 63, 64}) {
    const rlimit little{static_cast<rlim_t>(Descriptor(::dup(0)).get() + more), before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &little), 0);
    const auto refused = join_others(first->get(), local_, none);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    ASSERT_FALSE(refused) << more;
    EXPECT_EQ(refused.error().native(), EMFILE);
    EXPECT_EQ(attach_filter(first->get(), steering_filter({})), EINVAL) << "it is no group";
  }
  EXPECT_TRUE(join_others(first->get(), local_, none));
}

INSTANTIATE_TEST_SUITE_P(Ip, GrowingGroup, ::testing::Values("127.0.0.1", "::1"),
                         [](const auto& of) { return std::string(of.param[0] == ':' ? "v6" : "v4"); });

TEST(SocketGroup, is_not_begun_where_another_socket_of_this_user_would_share_the_port) {
  if (!testing::TestNetwork::enter().is_private()) GTEST_SKIP() << "needs a network of its own";
  const LocalAddress local = *find_local_address(Gid::from_ipv4(127, 0, 0, 1));
  const Descriptor foreign = std::move(*make_udp_socket(local.gid));
  const int on = 1;
  ASSERT_EQ(::setsockopt(foreign.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
  ASSERT_EQ(bind_to(foreign.get(), local, wire::kRocePort), 0);
  EXPECT_EQ(bind_alone(local).error().code(), ErrorCode::AddressInUse);
}

}  // namespace
}  // namespace verbena::soft::udp
