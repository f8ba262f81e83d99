// SPDX-License-Identifier: Apache-2.0
// The kernel's answers, with this process at both ends.
#include "soft/driver/local/process_memory.h"

#include <gmock/gmock.h>
#include <sys/un.h>

#include <cstring>
#include <optional>

#include "soft/driver/local/test_process.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;
using verbena::local::CookieAt;
using verbena::local::Piece;
using verbena::local::Pulled;
using verbena::local::PullWords;

class ProcessMemoryTest : public ::testing::Test {
 protected:
  ProcessMemoryTest() : ends(socket_pair()) {
    auto adopted = PeerSocket::adopt(std::move(ends[0]));
    EXPECT_TRUE(adopted);
    socket.emplace(std::move(*adopted));
    for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + i / 256);
  }

  ProcessMemory meet(const CookieAt& offered) {
    theirs().offer(offered);
    return {*socket, PullWords(line(ours)), theirs()};
  }
  bool said() const { return ours[2] == 1; }
  struct Door {
    Descriptor socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    sockaddr_un address{};
    socklen_t size = sizeof(sa_family_t);  // the kernel names it

    Door() {
      address.sun_family = AF_UNIX;
      EXPECT_EQ(::bind(socket.get(), as_sockaddr(), size), 0);
      EXPECT_EQ(::listen(socket.get(), 1), 0);
      size = sizeof address;
      EXPECT_EQ(::getsockname(socket.get(), as_sockaddr(), &size), 0);
    }
    sockaddr* as_sockaddr() { return reinterpret_cast<sockaddr*>(&address); }
  };
  PullWords theirs() { return PullWords(line(their_words)); }
  static std::byte* line(std::array<std::uint64_t, 8>& words) { return reinterpret_cast<std::byte*>(words.data()); }
  Piece named(std::size_t offset, std::uint32_t bytes) {
    return {0, bytes, reinterpret_cast<std::uintptr_t>(source.data()) + offset};
  }
  core::Piece to(std::size_t offset, std::size_t bytes) { return {target.data() + offset, bytes}; }

  std::array<Descriptor, 2> ends;
  std::optional<PeerSocket> socket;
  alignas(64) std::array<std::uint64_t, 8> ours{}, their_words{};
  const Cookie cookie = Cookie::make();
  std::array<std::byte, 20'000> source{}, target{};
};

TEST_F(ProcessMemoryTest, fills_the_target_from_what_is_named_and_nothing_beside) {
  ProcessMemory memory = meet(cookie.at());
  if (!said()) GTEST_SKIP() << memory.explain();
  EXPECT_THAT(memory.explain(), HasSubstr("large messages from it take one copy, those to it two"));
  theirs().say_can_pull();
  EXPECT_TRUE(memory.is_granted());
  EXPECT_THAT(memory.explain(), HasSubstr("large messages from it take one copy, large ones to it one"));
  const Piece from[] = {named(1, 5000), named(9000, 3)};
  const core::Piece into[] = {to(10, 4999), to(6000, 0), to(7000, 4)};
  EXPECT_EQ(memory.pull(from, into), Pulled::Whole);
  EXPECT_EQ(std::memcmp(&target[10], &source[1], 4999), 0);
  EXPECT_EQ(target[7000], source[5000]);
  EXPECT_EQ(std::memcmp(&target[7001], &source[9000], 3), 0);
  for (const std::size_t beside : {0u, 9u, 5009u, 6000u, 6999u, 7004u})
    EXPECT_EQ(target[beside], std::byte{}) << beside;
}

TEST_F(ProcessMemoryTest, F21_addresses_where_nothing_is_are_a_fault) {
  ProcessMemory memory = meet(cookie.at());
  if (!said()) GTEST_SKIP() << memory.explain();
  for (const std::uint64_t address : {std::uint64_t{16}, ~std::uint64_t{0} - 100, std::uint64_t{1} << 63}) {
    const Piece from[] = {named(0, 8), Piece{0, 100, address}};
    const core::Piece into[] = {to(0, 108)};
    EXPECT_EQ(memory.pull(from, into), Pulled::Fault) << address;
    EXPECT_EQ(target[108], std::byte{});
  }
  const Piece from[] = {named(0, 8)};
  const core::Piece nowhere[] = {{reinterpret_cast<const std::byte*>(16), 8}};
  EXPECT_EQ(memory.pull(from, nowhere), Pulled::Fault);
}

TEST_F(ProcessMemoryTest, F16_a_peer_that_has_become_another_is_gone) {
  auto other = std::make_unique<std::uint64_t>(5);
  ProcessMemory memory = meet({reinterpret_cast<std::uintptr_t>(other.get()), 5});
  if (!said()) GTEST_SKIP() << memory.explain();
  const Piece from[] = {named(0, 8)};
  const core::Piece into[] = {to(0, 8)};
  EXPECT_EQ(memory.pull(from, into), Pulled::Whole);
  *other = 6;
  EXPECT_EQ(memory.pull(from, into), Pulled::PeerGone);
  *other = 5;
  ends[1] = Descriptor();
  EXPECT_EQ(memory.pull(from, into), Pulled::Whole) << "it hung up, and took nothing back";
  const Piece nowhere[] = {Piece{0, 8, 16}};
  EXPECT_EQ(memory.pull(nowhere, into), Pulled::PeerGone);
}

TEST_F(ProcessMemoryTest, F16_a_process_that_was_killed_or_runs_another_program_is_gone) {
  const Piece from[] = {named(0, 8)};
  const core::Piece into[] = {to(0, 8)};
  for (const bool killed : {true, false}) {
    Door door;
    TestProcess process([this, &door, killed] {
      source[0] = std::byte{42};
      const Descriptor caller(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      char go = 0;
      if (::connect(caller.get(), door.as_sockaddr(), door.size) != 0 || ::send(caller.get(), "", 1, 0) != 1 ||
          ::recv(caller.get(), &go, 1, 0) != 1)
        return 1;
      if (!killed) ::execlp("sleep", "sleep", "60", nullptr);
      ::pause();
      return 1;
    });
    Descriptor accepted(::accept4(door.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    char came = 0;
    ASSERT_EQ(::recv(accepted.get(), &came, 1, 0), 1);
    const int other_end = accepted.get();
    auto peer = PeerSocket::adopt(std::move(accepted));
    ASSERT_TRUE(peer);
    socket.emplace(std::move(*peer));
    ProcessMemory memory = meet(cookie.at());
    if (!said()) GTEST_SKIP() << memory.explain();
    EXPECT_EQ(memory.pull(from, into), Pulled::Whole);
    EXPECT_EQ(target[0], std::byte{42}) << "of the other process";
    ASSERT_EQ(::send(other_end, "", 1, 0), 1);
    if (killed) process.kill_and_wait();
    while (!socket->has_hung_up()) ::usleep(1000);
    EXPECT_EQ(memory.pull(from, into), Pulled::PeerGone) << killed;
  }
}

TEST_F(ProcessMemoryTest, what_a_peer_takes_back_does_not_count) {
  ProcessMemory memory = meet(cookie.at());
  if (!said()) GTEST_SKIP() << memory.explain();
  const Piece from[] = {named(0, 8)}, nowhere[] = {Piece{0, 8, 16}};
  const core::Piece into[] = {to(0, 8)};
  EXPECT_EQ(memory.pull(from, into), Pulled::Whole);
  memory.refuse();
  EXPECT_EQ(memory.pull(from, into), Pulled::Whole) << "of ours; it says nothing of the peer's";
  EXPECT_TRUE(PullWords(line(ours)).refuses());
  theirs().refuse();
  source[0] = std::byte{9};
  EXPECT_EQ(memory.pull(from, into), Pulled::PeerGone);
  EXPECT_EQ(memory.pull(nowhere, into), Pulled::PeerGone);
  EXPECT_NE(target[0], source[0]) << "nor is it looked at";
}

TEST_F(ProcessMemoryTest, who_cannot_says_why_and_says_nothing_to_the_peer) {
  EXPECT_THAT(meet({}).explain(), HasSubstr("two copies, because the peer lets nobody read its memory"));
  EXPECT_THAT(meet({16, 1}).explain(), HasSubstr("two copies, because process_vm_readv says"));
  const CookieAt right = cookie.at();
  const std::string wrong = meet({right.address, right.value + 1}).explain();
  EXPECT_TRUE(wrong.find("is another here") != std::string::npos || wrong.find("readv says") != std::string::npos);
  EXPECT_FALSE(said());
}

}  // namespace
}  // namespace verbena::soft::local
