// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/rendezvous.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "base/holdings.h"
#include "soft/driver/network.h"
#include "soft/driver/udp/socket_address.h"

namespace verbena::soft::udp::rendezvous {
namespace {

constexpr std::uint32_t kMagic = 0x5645'5242;
constexpr std::uint32_t kVersion = 2;  // of the greeting, the table, the filter and the mail between members
constexpr std::size_t kMostDescriptors = 253;  // SCM_MAX_FD
constexpr std::chrono::seconds kPatience{10};  // with members on a machine that is busy elsewhere
constexpr int kBacklog = 128;

struct Greeting {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t descriptors = 0;
  std::uint32_t refusal = 0;  // an errno; kNotNamed
};
constexpr std::uint32_t kNotNamed = 0xffff'ffff;

// Where descriptors are passed on, the numbers of the users who share the address stand behind it. With one more than
// can be named no list is cut off to another one.
struct Letter {
  Greeting greeting{0, 0, 0, 0};
  std::array<std::uint32_t, AddressUsers::kMost + 1> users{};
};

constexpr const char* kAdvice =
    ": use another address, or let all who share it name the same users (address_users, VERBENA_ADDRESS_USERS)";

struct Name {
  sockaddr_un address{};
  socklen_t size;
  explicit Name(const std::string& text)
      : size(static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) {
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), std::min(text.size(), sizeof address.sun_path - 1));
  }
  const sockaddr* any() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Descriptor make_socket(int flags = 0) {
  return Descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
}

ucred credentials_of(int fd) {
  ucred peer{0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t size = sizeof peer;
  ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

// Those of every SCM_RIGHTS item: whatever arrived is owned at once.
std::vector<Descriptor> take_descriptors(msghdr& message) {
  std::vector<Descriptor> all;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof fd, sizeof fd);
      all.emplace_back(fd);
    }
  }
  return all;
}

struct Control {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kMostDescriptors)> bytes{};
};

// Why this process does not take what comes with the greeting.
std::optional<Error> objection_to(const Letter& letter, std::size_t size, int fd, const std::string& name,
                                  const AddressUsers& users) {
  const Greeting& greeting = letter.greeting;
  if (size < sizeof greeting || greeting.magic != kMagic)
    return Error(ErrorCode::AddressInUse, "what answers at @" + name + " is none of ours");
  if (greeting.version != kVersion)
    return Error(ErrorCode::NotSupported, "the processes that hold the address share it by version " +
                                              std::to_string(greeting.version) + ", this one by version " +
                                              std::to_string(kVersion) +
                                              ": use one release of Verbena, or another address");
  if (greeting.refusal == kNotNamed)
    return Error(ErrorCode::AddressInUse,
                 "who holds the address does not name user " + std::to_string(::geteuid()) + kAdvice);
  const std::string alone = "process " + std::to_string(process_at(fd)) + ", alone at the address, ";
  if (greeting.refusal == EADDRINUSE)
    return Error(ErrorCode::AddressInUse, alone + "has become another user since, and can bind no more sockets there: "
                                                  "use another address, or let it open its device as that user");
  if (greeting.refusal == EDEADLK)
    return Error(ErrorCode::AddressInUse, "this process has the address, and cannot see that without /proc: mount it "
                                          "where the process lives, or use another address");
  if (greeting.refusal != 0)
    return Error(ErrorCode::ResourceExhausted,
                 alone + "cannot open the " + std::to_string(greeting.descriptors) +
                     " descriptors that sharing takes (" + std::strerror(static_cast<int>(greeting.refusal)) +
                     "): raise its RLIMIT_NOFILE, or use another address",
                 static_cast<int>(greeting.refusal), ErrorDomain::Errno);
  const std::vector<std::uint32_t> theirs(letter.users.begin(),
                                          letter.users.begin() + (size - sizeof greeting) / sizeof letter.users[0]);
  if (theirs != users.numbers())
    return Error(ErrorCode::AddressInUse, describe_users(theirs) + (theirs.size() == 1 ? " shares" : " share") +
                                              " the address, this process names " +
                                              describe_users(users.numbers()) + kAdvice);
  return std::nullopt;
}

Result<std::optional<std::vector<Descriptor>>> read_greeting(int fd, const std::string& name,
                                                             const AddressUsers& users) {
  Letter letter;
  const Greeting& greeting = letter.greeting;
  iovec piece{&letter, sizeof letter};
  Control control;
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  const ssize_t size = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (size <= 0) return std::optional<std::vector<Descriptor>>{};
  std::vector<Descriptor> all = take_descriptors(message);
  if (auto objection = objection_to(letter, static_cast<std::size_t>(size), fd, name, users)) return *objection;
  if ((message.msg_flags & MSG_CTRUNC) != 0 || all.size() != greeting.descriptors)
    return Error(ErrorCode::ResourceExhausted,
                 "sharing the address takes " + std::to_string(greeting.descriptors) +
                     " descriptors, this process got " + std::to_string(all.size()) + ": raise RLIMIT_NOFILE");
  return std::optional(std::move(all));
}

void send_refusal(int guest, unsigned descriptors, std::uint32_t why) {
  Greeting greeting;
  greeting.descriptors = descriptors;
  greeting.refusal = why;
  ::send(guest, &greeting, sizeof greeting, MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Within our patience.
bool is_answered(int fd) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd answer{fd, POLLIN, 0};
    const int found = ::poll(&answer, 1, static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
    if (found >= 0 || errno != EINTR) return found != 0;
  }
}

}  // namespace

std::string name_of(const LocalAddress& address, const AddressUsers& users) {
  std::string name = "verbena-" + std::to_string(users.numbers().front()) + "-" + address.gid.to_string();
  if (is_link_local(address.gid)) name += "%" + std::to_string(address.interface_index);
  return name;
}

Result<std::string> place_name(const std::string& name) {
  const Descriptor socket = make_socket();
  if (!socket) return Error::from_errno(errno, "make a Unix socket to share the address");
  if (const auto network = network_of(socket.get())) return std::to_string(*network) + " " + name;
  struct stat network {};
  if (::stat("/proc/thread-self/ns/net", &network) != 0) return name;
  return std::to_string(network.st_ino) + " " + name;
}

void take_no_descriptors(int socket) {
  constexpr int kPassRights = 83;  // SO_PASSRIGHTS of asm-generic/socket.h, since Linux 6.16
  constexpr int kOff = 0;
  ::setsockopt(socket, SOL_SOCKET, kPassRights, &kOff, sizeof kOff);
}

// Non-blocking: all members are woken for a guest, one meets him.
Result<std::optional<Descriptor>> found(const std::string& name) {
  Descriptor socket = make_socket(SOCK_NONBLOCK);
  const Name at(name);
  if (!socket) return Error::from_errno(errno, "make a Unix socket to share the address");
  if (::bind(socket.get(), at.any(), at.size) != 0) {
    if (errno == EADDRINUSE) return std::optional<Descriptor>{};
    return Error::from_errno(errno, "bind @" + name);
  }
  take_no_descriptors(socket.get());
  if (::listen(socket.get(), kBacklog) != 0) return Error::from_errno(errno, "listen at @" + name);
  return std::optional(std::move(socket));
}

bool exists(const std::string& name) {
  const auto no_fork = holdings::no_fork();  // a child would have the name
  const Descriptor socket = make_socket();
  const Name at(name);
  return socket && ::bind(socket.get(), at.any(), at.size) != 0 && errno == EADDRINUSE;
}

Result<std::optional<std::vector<Descriptor>>> ask(const std::string& name, const AddressUsers& users,
                                                   std::unique_lock<std::mutex>& no_fork) {
  const Descriptor socket = make_socket();
  const Name at(name);
  if (!socket) return Error::from_errno(errno, "make a Unix socket to share the address");
  const timeval patience{kPatience.count(), 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(socket.get(), at.any(), at.size) != 0) {
    if (errno == ECONNREFUSED || errno == EINTR) return std::optional<std::vector<Descriptor>>{};
    if (errno == EAGAIN)
      return Error(ErrorCode::AddressInUse, "too many processes wait at @" + name + " and nobody answers there");
    return Error::from_errno(errno, "connect to @" + name);
  }
  const ucred peer = credentials_of(socket.get());
  if (!users.include(peer.uid))
    return Error(ErrorCode::AddressInUse, "@" + name + " was taken by process " + std::to_string(peer.pid) +
                                              " of another user (uid " + std::to_string(peer.uid) + ")" + kAdvice);
  if (!is_answered(socket.get()))
    return Error(ErrorCode::AddressInUse,
                 "process " + std::to_string(peer.pid) + " opened @" + name +
                     ", and none that shares the address answers there: are they all stopped, or out of descriptors?");
  no_fork.lock();
  return read_greeting(socket.get(), name, users);
}

Result<std::optional<Descriptor>> meet(int meeting_place, const AddressUsers& users) {
  Descriptor guest(::accept4(meeting_place, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (guest && users.include(credentials_of(guest.get()).uid)) return std::optional(std::move(guest));
  if (!guest && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
    return Error::from_errno(errno, "let a process share the address");
  if (guest) send_refusal(guest.get(), 0, kNotNamed);
  return std::optional<Descriptor>{};
}

pid_t process_at(int guest) { return credentials_of(guest).pid; }

void let_in(int guest, const AddressUsers& users, std::span<const int> descriptors) {
  Greeting greeting;
  greeting.descriptors = static_cast<std::uint32_t>(descriptors.size());
  std::vector<std::uint32_t> numbers = users.numbers();
  std::array<iovec, 2> pieces{iovec{&greeting, sizeof greeting},
                              iovec{numbers.data(), numbers.size() * sizeof numbers[0]}};
  Control control;
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = pieces.size();
  message.msg_control = control.bytes.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const item = CMSG_FIRSTHDR(&message);
  item->cmsg_level = SOL_SOCKET;
  item->cmsg_type = SCM_RIGHTS;
  item->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(item), descriptors.data(), descriptors.size_bytes());
  ::sendmsg(guest, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void refuse(int guest, unsigned descriptors, int error) {
  send_refusal(guest, descriptors, static_cast<std::uint32_t>(error));
}

bool is_meeting_place(int fd, const std::string& name) {
  const Name expected(name);
  sockaddr_un address{};
  socklen_t size = sizeof address;
  int listens = 0;
  socklen_t listens_size = sizeof listens;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0 && size == expected.size &&
         std::memcmp(&address, &expected.address, size) == 0 &&
         ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size) == 0 && listens == 1;
}

}  // namespace verbena::soft::udp::rendezvous
