// SPDX-License-Identifier: Apache-2.0
// The Unix socket between two processes that share memory: it carries the hello with its descriptor, the answer, then
// signals, and perhaps a bell; and while it stands the peer lives. The kernel closes it however the peer ends.
#pragma once

#include <sys/types.h>

#include <optional>
#include <variant>
#include <vector>

#include "soft/driver/own_descriptor.h"
#include "soft/local/hello.h"

namespace verbena::soft::local {

// Who was at the other end when the connection was made, as the kernel says. A pid of 0: outside our PID namespace.
struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

// What came with a hello.
struct Offer {
  verbena::local::Hello hello;
  Descriptor segment;
};
using Opening = std::variant<Offer, verbena::local::Want>;

// What came with a region.
struct Loan {
  verbena::local::Lend lend;
  Descriptor file;  // may be empty
};

// One end. One thread at a time; nothing here waits.
class PeerSocket {
 public:
  // Takes a connected SOCK_SEQPACKET Unix socket. InvalidArgument when it is something else.
  static Result<PeerSocket> adopt(Descriptor socket);

  const PeerCredentials& peer() const { return peer_; }
  // "local peer (process 17, user 1000)"; where there is no number, "a process of another container".
  std::string name() const;
  // Readable when there is something to receive and when the peer is gone.
  int descriptor() const { return socket_.get(); }

  Result<void> send(const verbena::local::Hello& hello, int segment);
  Result<void> send(const verbena::local::Want& want);
  // What the other end begins with.
  // Nothing: nothing has come yet. Errors: ConnectionLost (the peer is gone), ProtocolError and NotSupported
  // (what came is nothing we can take), ResourceExhausted (no descriptor left for what came). With an error
  // every descriptor that came is closed.
  Result<std::optional<Opening>> try_receive();

  Result<void> send(verbena::local::Answer answer);
  // As above, for whoever sent the hello.
  Result<std::optional<verbena::local::Answer>> try_receive_answer();

  // `file`: -1, or what holds the region.
  Result<void> send(const verbena::local::Lend& lend, int file);
  // As above, for whoever sent the wish.
  Result<std::optional<Loan>> try_receive_loan();

  // Wakes a peer that sleeps on the socket. One that has signals unread needs no more; one that is gone none.
  void signal();
  // The same, by the bell that the peer gave, if it did: for one that sleeps, and not only looks elsewhere.
  void ring();
  // `bell`: an eventfd, on which this end sleeps, too.
  Result<void> send_bell(int bell);
  // Takes signals, a few at most: more of them make the next poll return at once, nothing else. True when a bell came,
  // which nobody but who may_stop_us() can give: its flags are the giver's, who could let our write wait.
  bool take_signal();
  // A process of this user in our PID namespace.
  bool may_stop_us() const;
  int bell() const { return bell_.get(); }
  void drop_bell() { bell_ = Descriptor(); }
  // The peer closed its end, or its process ended: there is nobody who writes into shared memory any more.
  bool has_hung_up() const;

 private:
  PeerSocket(OwnDescriptor socket, const PeerCredentials& peer) : socket_(std::move(socket)), peer_(peer) {}
  Error ended() const;
  Result<void> send(std::span<std::byte> bytes, int descriptor, const char* what);
  // A message and what came with it. Empty: nothing has come yet.
  struct Message {
    std::span<const std::byte> bytes;
    std::vector<Descriptor> came;
  };
  Result<Message> receive(std::span<std::byte> room);

  OwnDescriptor socket_;
  PeerCredentials peer_;
  Descriptor bell_;  // the peer's
};

}  // namespace verbena::soft::local
