// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/peer_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/this_user.h"

namespace verbena::soft::local {

namespace {

using verbena::local::Hello;
using verbena::local::kHelloBytes;
using verbena::local::kLendBytes;
using verbena::local::kWantBytes;
using verbena::local::Lend;
using verbena::local::Want;

constexpr std::size_t kMaxDescriptors = 253;  // the kernel passes no more at once

template <class T>
bool get_option(int socket, int option, T& value) {
  socklen_t size = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, option, &value, &size) == 0 && size == sizeof value;
}

std::vector<Descriptor> descriptors_of(msghdr& message, bool from_stranger) {
  std::vector<Descriptor> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof descriptor, sizeof descriptor);
      found.push_back(from_stranger ? Descriptor::of_stranger(descriptor) : Descriptor(descriptor));
    }
  }
  return found;
}

std::string target_of(const std::string& link) {
  std::array<char, 64> target;
  const ssize_t length = ::readlink(link.c_str(), target.data(), target.size());
  return std::string(target.data(), static_cast<std::size_t>(std::max<ssize_t>(length, 0)));
}

// To write to anything else could end this process.
bool is_eventfd(int descriptor) {
  return target_of("/proc/self/fd/" + std::to_string(descriptor)) == "anon_inode:[eventfd]";
}

}  // namespace

Result<PeerSocket> PeerSocket::adopt(Descriptor socket) {
  int domain = 0, type = 0;
  if (!get_option(socket.get(), SO_DOMAIN, domain) || !get_option(socket.get(), SO_TYPE, type) || domain != AF_UNIX ||
      type != SOCK_SEQPACKET)
    return Error{ErrorCode::InvalidArgument,
                 "descriptor " + std::to_string(socket.get()) + " is no Unix socket of kind SOCK_SEQPACKET"};
  ucred who{};
  if (!get_option(socket.get(), SO_PEERCRED, who)) return Error::from_errno(errno, "SO_PEERCRED of a local peer");
  // Without a process at the other end the kernel says -1.
  if (who.uid == static_cast<uid_t>(-1))
    return Error{ErrorCode::InvalidArgument,
                 "descriptor " + std::to_string(socket.get()) + " is a Unix socket that is not connected"};
  const int fd = socket.release();
  socket = is_this_user(who.uid) ? Descriptor(fd) : Descriptor::of_stranger(fd);
  return PeerSocket(OwnDescriptor(std::move(socket)), {who.pid, who.uid, who.gid});
}

std::string PeerSocket::name() const {
  const std::string process = peer_.pid > 0 ? "process " + std::to_string(peer_.pid) : "a process of another container";
  return "local peer (" + process + ", user " + std::to_string(peer_.uid) + ")";
}

// Who is not named is shown out without a word.
Error PeerSocket::ended() const {
  const std::string why = is_this_user(peer_.uid) ? "" : ", or its local_users does not name this user";
  return {ErrorCode::ConnectionLost, "the " + name() + " has ended or hung up" + why};
}

Result<void> PeerSocket::send(std::span<std::byte> bytes, int descriptor, const char* what) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptor)> control{};
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  }
  if (::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
  const int number = errno;
  if (number == EPIPE || number == ECONNRESET) return ended();
  return Error::from_errno(number, std::string(what) + " to a " + name());
}

Result<PeerSocket::Message> PeerSocket::receive(std::span<std::byte> room) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  iovec part{room.data(), room.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t length = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) {
    if (errno == EAGAIN || errno == EINTR) return Message();
    if (errno == ECONNRESET) return ended();
    return Error::from_errno(errno, "message from a " + name());
  }
  Message got{room.first(static_cast<std::size_t>(length)), descriptors_of(message, !is_this_user(peer_.uid))};
  if (length == 0) return ended();
  // There was room for all that can come at once.
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return Error{ErrorCode::ResourceExhausted,
                 "no file descriptor left for the shared memory of a " + name() + ": raise ulimit -n"};
  return got;
}

Result<void> PeerSocket::send(const Hello& hello, int segment) {
  std::array<std::byte, kHelloBytes> bytes;
  verbena::local::emit(hello, bytes);
  return send(bytes, segment, "hello");
}

Result<void> PeerSocket::send(const Want& want) {
  std::array<std::byte, kWantBytes> bytes;
  verbena::local::emit(want, bytes);
  return send(bytes, -1, "a wish for a region");
}

Result<void> PeerSocket::send(const Lend& lend, int file) {
  std::array<std::byte, kLendBytes> bytes;
  verbena::local::emit(lend, bytes);
  return send(bytes, file, "a region");
}

Result<std::optional<Opening>> PeerSocket::try_receive() {
  std::array<std::byte, kHelloBytes + 1> room;  // one more, so that a longer message shows
  auto got = receive(room);
  if (!got) return std::move(got).error();
  if (got->bytes.empty()) return std::optional<Opening>();
  const bool wants = verbena::local::is_want(got->bytes);
  if (got->came.size() != (wants ? 0 : 1))
    return Error{ErrorCode::ProtocolError, "hello from a " + name() + " with " +
                                               std::to_string(got->came.size()) + " descriptors instead of " +
                                               (wants ? "none" : "one")};
  if (wants) {
    auto want = verbena::local::parse_want(got->bytes);
    if (!want) return Error{want.error().code(), name() + ": " + want.error().context()};
    return std::optional<Opening>(*want);
  }
  auto hello = verbena::local::parse_hello(got->bytes);
  if (!hello) return Error{hello.error().code(), name() + ": " + hello.error().context()};
  return std::optional<Opening>(Offer{*hello, std::move(got->came.front())});
}

Result<std::optional<Loan>> PeerSocket::try_receive_loan() {
  std::array<std::byte, kLendBytes + 1> room;
  auto got = receive(room);
  if (!got) return std::move(got).error();
  if (got->bytes.empty()) return std::optional<Loan>();
  auto lend = verbena::local::parse_lend(got->bytes);
  if (!lend) return Error{lend.error().code(), name() + ": " + lend.error().context()};
  if (got->came.size() > 1)
    return Error{ErrorCode::ProtocolError,
                 "a region of a " + name() + " in " + std::to_string(got->came.size()) + " files"};
  return std::optional<Loan>(Loan{*lend, got->came.empty() ? Descriptor() : std::move(got->came.front())});
}

Result<void> PeerSocket::send(verbena::local::Answer answer) {
  std::array<std::byte, verbena::local::kAnswerBytes> bytes;
  verbena::local::emit(answer, bytes);
  if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return {};
  return Error::from_errno(errno, "answer to a " + name());
}

Result<std::optional<verbena::local::Answer>> PeerSocket::try_receive_answer() {
  std::array<std::byte, verbena::local::kAnswerBytes + 1> bytes;  // one more, so that a longer message shows
  const ssize_t length = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (length < 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<verbena::local::Answer>();
    if (errno == ECONNRESET) return ended();
    return Error::from_errno(errno, "answer of a " + name());
  }
  if (length == 0) return ended();
  auto answer = verbena::local::parse_answer({bytes.data(), static_cast<std::size_t>(length)});
  if (!answer) return Error{answer.error().code(), name() + ": " + answer.error().context()};
  return std::optional<verbena::local::Answer>(*answer);
}

void PeerSocket::signal() {
  const char one = 1;
  [[maybe_unused]] const ssize_t sent = ::send(socket_.get(), &one, sizeof one, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void PeerSocket::ring() {
  const std::uint64_t one = 1;
  if (!bell_ || ::write(bell_.get(), &one, sizeof one) < 0) signal();
}

Result<void> PeerSocket::send_bell(int bell) {
  std::array<std::byte, 1> signal{};
  return send(signal, bell, "a bell");
}

bool PeerSocket::take_signal() {
  std::array<std::byte, 1> one;
  if (bell_ || !is_this_user(peer_.uid)) {
    [[maybe_unused]] const ssize_t came = ::recv(socket_.get(), one.data(), one.size(), MSG_DONTWAIT);
    return false;
  }
  auto got = receive(one);
  if (!got || got->came.size() != 1 || !is_eventfd(got->came.front().get()) || !may_stop_us()) return false;
  bell_ = std::move(got->came.front());
  return true;
}

bool PeerSocket::may_stop_us() const {
  if (!is_this_user(peer_.uid) || peer_.pid <= 0) return false;
  const auto ours = target_of("/proc/self/ns/pid");
  return !ours.empty() && ours == target_of("/proc/" + std::to_string(peer_.pid) + "/ns/pid");
}

bool PeerSocket::has_hung_up() const {
  pollfd look{socket_.get(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0 && (look.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

}  // namespace verbena::soft::local
