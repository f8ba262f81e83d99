// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/meeting_point.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/assert.h"
#include "soft/driver/network.h"

namespace verbena::soft::local {

namespace {

constexpr int kBacklog = 4096;  // the system's limit is net.core.somaxconn

struct Address {
  sockaddr_un un{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
};

Address address_of(const std::string& name) {
  Address address;
  VERBENA_ASSERT(name.size() < sizeof address.un.sun_path);
  address.un.sun_family = AF_UNIX;
  std::memcpy(address.un.sun_path, name.data(), name.size());
  if (name.front() == '@') address.un.sun_path[0] = '\0';
  // A path ends with a zero byte, an abstract name where it ends.
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size() + (name.front() == '@' ? 0 : 1));
  return address;
}

Result<Descriptor> open_socket(const std::string& shown) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return Error::from_errno(errno, "socket for " + shown);
  return socket;
}

}  // namespace

std::string MeetingPoint::name() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "@verbena/";
  for (const std::uint8_t byte : gid.bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text + "/" + std::to_string(index);
}

Result<OwnDescriptor> offer(const MeetingPoint& point) {
  const auto no_fork = holdings::no_fork();
  return offer_at(point.name(), point.name());
}

Result<OwnDescriptor> offer_at(const std::string& name, const std::string& shown) {
  auto socket = open_socket(shown);
  if (!socket) return std::move(socket).error();
  const Address address = address_of(name);
  ::fchmod(socket->get(), S_IRUSR | S_IWUSR);  // of the file that bind() makes
  if (::bind(socket->get(), address.get(), address.size) != 0)
    return Error::from_errno(errno, "bind of the Unix socket " + shown);
  // Its rights less the umask: a file that its own user can neither reach nor tell from one in use, perhaps.
  if (name.front() != '@') ::fchmodat(AT_FDCWD, name.c_str(), S_IRUSR | S_IWUSR, AT_SYMLINK_NOFOLLOW);
  if (::listen(socket->get(), kBacklog) != 0)
    return Error::from_errno(errno, "listen at the Unix socket " + shown);
  return OwnDescriptor(std::move(*socket));
}

Result<std::optional<Descriptor>> accept_one(int listener) {
  const int socket = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (socket >= 0) return std::optional<Descriptor>(Descriptor::of_stranger(socket));
  if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
    return Error{ErrorCode::ResourceExhausted, "accept of a local peer", errno, ErrorDomain::Errno};
  return std::optional<Descriptor>();
}

Result<std::optional<PeerSocket>> reach(const MeetingPoint& point, int beside) {
  const auto no_fork = holdings::no_fork();
  return reach_at(point.name(), point.name(), beside);
}

Result<std::optional<PeerSocket>> reach_at(const std::string& name, const std::string& shown, int beside) {
  auto socket = open_socket(shown);
  if (!socket) return std::move(socket).error();
  if (beside >= 0 && are_of_two_networks(beside, socket->get()))
    return Error{ErrorCode::WrongState, shown + " was asked for from another network than the device's"};
  const Address address = address_of(name);
  if (::connect(socket->get(), address.get(), address.size) != 0) {
    if (errno == ECONNREFUSED) return std::optional<PeerSocket>();
    if (errno == EAGAIN)
      return Error{ErrorCode::ResourceExhausted, "too many wait at " + shown, errno, ErrorDomain::Errno};
    return Error::from_errno(errno, "connect to the Unix socket " + shown);
  }
  auto peer = PeerSocket::adopt(std::move(*socket));
  if (!peer) return std::move(peer).error();
  return std::optional<PeerSocket>(std::move(*peer));
}

}  // namespace verbena::soft::local
