// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/mailbox.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "soft/driver/udp/rendezvous.h"

namespace verbena::soft::udp {
namespace {

constexpr std::size_t kMostBytes = 65'536;  // of one UDP payload
constexpr std::size_t kMostWaiting = 1024;  // strays

struct Head {
  Gid source;
  std::uint32_t segment_bytes = 0;
  std::uint16_t source_port = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
};

struct Name {
  sockaddr_un address{};
  socklen_t size;
  explicit Name(std::uint64_t incarnation) {
    address.sun_family = AF_UNIX;
    const int length = std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "verbena-mail-%016llx",
                                     static_cast<unsigned long long>(incarnation));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(length));
  }
  sockaddr* any() { return reinterpret_cast<sockaddr*>(&address); }
};

// Says who we are by the effective numbers, which are those of a member; by itself the kernel takes the real ones. It
// refuses numbers that are not ours.
class OwnCredentials {
 public:
  explicit OwnCredentials(msghdr& message) {
    message.msg_control = bytes_.data();
    message.msg_controllen = bytes_.size();
    cmsghdr* const item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_CREDENTIALS;
    item->cmsg_len = CMSG_LEN(sizeof(ucred));
    const ucred own{::getpid(), ::geteuid(), ::getegid()};
    std::memcpy(CMSG_DATA(item), &own, sizeof own);
  }

 private:
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> bytes_{};
};

// Whether the kernel says that the sender is of these users.
bool is_from(const AddressUsers& users, msghdr& message) {
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender{};
    std::memcpy(&sender, CMSG_DATA(item), sizeof sender);
    return users.include(sender.uid);
  }
  return false;
}

}  // namespace

Mailbox::Mailbox(Descriptor socket, const Gid& local, const AddressUsers& users)
    : socket_(std::move(socket)), local_(local), users_(users), letter_(sizeof(Head) + kMostBytes) {}

Result<Mailbox> Mailbox::open(std::uint64_t incarnation, const Gid& local, const AddressUsers& users) {
  Descriptor socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return Error::from_errno(errno, "make a Unix socket to share the address");
  Name at(incarnation);
  constexpr int kOn = 1;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &kOn, sizeof kOn) != 0 ||
      ::bind(socket.get(), at.any(), at.size) != 0)
    return Error::from_errno(errno, "open a mailbox to share the address");
  rendezvous::take_no_descriptors(socket.get());
  return Mailbox(std::move(socket), local, users);
}

bool Mailbox::send(std::uint64_t incarnation, const wire::Path& path, std::span<const std::byte> bytes,
                   std::size_t segment_bytes) const {
  Head head{path.source, static_cast<std::uint32_t>(segment_bytes), path.source_port, path.traffic_class,
            path.hop_limit};
  std::array<iovec, 2> pieces{iovec{&head, sizeof head},
                              iovec{const_cast<std::byte*>(bytes.data()), bytes.size()}};
  Name to(incarnation);
  msghdr message{};
  message.msg_name = to.any();
  message.msg_namelen = to.size;
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  const OwnCredentials credentials(message);
  if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
  if (errno != EPERM && errno != EINVAL) return false;
  message.msg_control = nullptr;  // our numbers are not known in this user namespace, perhaps
  message.msg_controllen = 0;
  return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

bool Mailbox::take(std::optional<Stray>& out) {
  out.reset();
  iovec piece{letter_.data(), letter_.size()};
  // Room for who sent it, which comes first, and for no descriptor: what is attached would be ours to close.
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(ucred))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  do got = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0) return false;
  const auto size = static_cast<std::size_t>(got);
  Head head;
  if (!is_from(users_, message) || (message.msg_flags & MSG_TRUNC) != 0 || size <= sizeof head) return true;
  std::memcpy(&head, letter_.data(), sizeof head);
  // Whoever answers sends by a socket of our address's family.
  if (head.segment_bytes == 0 || head.source.is_ipv4() != local_.is_ipv4()) return true;
  Stray stray;
  stray.path.source = head.source;
  stray.path.destination = local_;
  stray.path.source_port = head.source_port;
  stray.path.traffic_class = head.traffic_class;
  stray.path.hop_limit = head.hop_limit;
  stray.segment_bytes = head.segment_bytes;
  stray.bytes.assign(letter_.begin() + sizeof head, letter_.begin() + got);
  out = std::move(stray);
  return true;
}

Inbox::Inbox() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

bool Inbox::put(Stray stray) {
  const std::lock_guard guard(mutex_);
  if (strays_.size() >= kMostWaiting) return false;
  strays_.push_back(std::move(stray));
  waits_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(event_.get(), &one, sizeof one);
  return true;
}

std::vector<Stray> Inbox::take() {
  const std::lock_guard guard(mutex_);
  waits_.store(false);
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(event_.get(), &count, sizeof count);
  return std::exchange(strays_, {});
}

}  // namespace verbena::soft::udp
