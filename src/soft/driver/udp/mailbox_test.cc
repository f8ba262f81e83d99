// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/mailbox.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <string>

#include "soft/driver/test_other_user.h"

namespace verbena::soft::udp {
namespace {

constexpr std::uint64_t kIncarnation = 0x1234'5678'9abc'def1;
const Gid kLocal = Gid::from_ipv4(127, 0, 0, 1);

std::size_t descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

// Whoever can read the table of Unix sockets can write to a mailbox. False: the kernel refuses what is attached.
bool send_with_descriptors(std::size_t bytes, std::size_t count) {
  const std::string name = "verbena-mail-123456789abcdef1";
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  std::vector<std::byte> letter(bytes);
  iovec piece{letter.data(), letter.size()};
  const std::vector<int> attached(count, STDIN_FILENO);
  std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(rights), attached.data(), count * sizeof(int));
  const Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const ssize_t sent = ::sendmsg(socket.get(), &message, 0);
  EXPECT_TRUE(sent == static_cast<ssize_t>(bytes) || (sent < 0 && errno == EPERM)) << errno;
  return sent >= 0;
}

TEST(Mailbox, descriptors_that_come_with_a_letter_are_not_taken) {
  auto box = Mailbox::open(kIncarnation, kLocal);
  ASSERT_TRUE(box);
  const std::size_t before = descriptors();
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{600}}) {
    const bool came = send_with_descriptors(bytes, 10);
    std::optional<Stray> stray;
    EXPECT_EQ(box->take(stray), came);
    EXPECT_FALSE(stray) << "a letter without length of its datagrams";
    EXPECT_EQ(descriptors(), before);
  }
}

TEST(Mailbox, a_letter_from_an_address_of_another_family_is_not_fit_to_be_taken) {
  auto box = Mailbox::open(kIncarnation, kLocal);
  auto from = Mailbox::open(kIncarnation + 1, kLocal);
  ASSERT_TRUE(box && from);
  wire::Path path;
  path.source = *Gid::parse("::1");
  ASSERT_TRUE(from->send(kIncarnation, path, std::vector<std::byte>(100), 100));
  std::optional<Stray> stray;
  EXPECT_TRUE(box->take(stray));
  EXPECT_FALSE(stray);
}

TEST(Mailbox, a_letter_of_a_member_comes_whole) {
  auto box = Mailbox::open(kIncarnation, kLocal);
  auto from = Mailbox::open(kIncarnation + 1, kLocal);
  ASSERT_TRUE(box && from);
  wire::Path path;
  path.source = Gid::from_ipv4(127, 0, 0, 2);
  path.source_port = 4242;
  const std::vector<std::byte> bytes(300, std::byte{7});
  ASSERT_TRUE(from->send(kIncarnation, path, bytes, 100));
  std::optional<Stray> stray;
  EXPECT_TRUE(box->take(stray));
  ASSERT_TRUE(stray);
  EXPECT_EQ(stray->path.source, path.source);
  EXPECT_EQ(stray->path.source_port, 4242);
  EXPECT_EQ(stray->segment_bytes, 100u);
  EXPECT_EQ(stray->bytes, bytes);
}

// As programs with the set-user-ID bit do.
TEST(Mailbox, a_letter_of_who_acts_as_this_user_and_is_really_another_is_taken) {
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr int kCannot = 77;
    if (::setresuid(::getuid(), kOtherUser, ::getuid()) != 0) ::_exit(kCannot);
    auto box = Mailbox::open(kIncarnation, kLocal);
    auto from = Mailbox::open(kIncarnation + 1, kLocal);
    wire::Path path;
    path.source = Gid::from_ipv4(127, 0, 0, 2);
    std::optional<Stray> stray;
    const bool came = box && from && from->send(kIncarnation, path, std::vector<std::byte>(100), 100) &&
                      box->take(stray) && stray;
    ::_exit(came ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace verbena::soft::udp
