// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/peer_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/port_owner.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/driver/udp/socket_group.h"
#include "soft/driver/udp/socket_options.h"

namespace verbena::soft::udp {
namespace {

constexpr std::uint16_t kNowhere = 9;  // of our own address: discard, from where nothing is sent

}  // namespace

bool PeerSocket::connect_to(int fd, const Gid& peer, std::uint16_t port) const {
  const SocketAddress at(peer, port, local_.interface_index);
  return ::connect(fd, &at.any, at.size) == 0;
}

// Before it is connected the kernel would prefer it to `general`. Two may have the port because both say so for a
// moment, in which a third may say so, too: of whatever user, and for good.
Result<void> PeerSocket::open(int general, const LocalAddress& local) {
  const std::lock_guard guard(mutex_);
  if (count_bound(local.gid, wire::kRocePort) != 1) return {};
  auto socket = make_udp_socket(local.gid);
  if (!socket) return {};
  receive_nothing(socket->get());
  local_ = local;
  is_open_ = bind_beside(general, socket->get(), local, wire::kRocePort) &&
             connect_to(socket->get(), local.gid, kNowhere);
  if (is_open_) socket_ = std::move(*socket);
  else *socket = Descriptor();
  if (count_bound(local.gid, wire::kRocePort) <= (is_open_ ? 2u : 1u)) return {};
  return bind_error(local.gid, wire::kRocePort, EADDRINUSE);
}

bool PeerSocket::lead_to(const wire::Path& path) {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  if (!guard || !is_open_) return false;
  if (std::exchange(is_deaf_, false)) set_option(socket_.get(), SOL_SOCKET, SO_DETACH_FILTER, 0);
  return connect_to(socket_.get(), path.source, path.source_port);
}

bool PeerSocket::lead_nowhere() {
  const std::unique_lock guard(mutex_, std::try_to_lock);
  return guard && (!is_open_ || connect_to(socket_.get(), local_.gid, kNowhere));
}

// In this order nothing is lost: whoever reads by fd() finds nothing any more when the last comes here.
Result<void> PeerSocket::close(const std::function<void(const ReceivedTrain&)>& late) {
  const std::lock_guard guard(mutex_);
  if (!is_open_) return {};
  auto other = make_udp_socket(local_.gid);
  Descriptor old(::fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
  if (!other || !old) return Error::from_errno(EMFILE, "leave the port to those who share it");
  is_open_ = false;
  ::dup3(other->get(), socket_.get(), O_CLOEXEC);
  connect_to(old.get(), local_.gid, kNowhere);
  Receiver rest(std::move(old), local_.gid, wire::kRocePort, 1);
  rest.hand_on_all(late);
  wait_for_decided_datagrams();
  rest.hand_on_all(late);
  return {};
}

}  // namespace verbena::soft::udp
