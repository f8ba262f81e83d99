// SPDX-License-Identifier: Apache-2.0
// A reliable connection to a peer: messages, its memory, atomics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/async/operation.h"
#include "verbena/async/progress_engine.h"
#include "verbena/async/receive_pool.h"
#include "verbena/async/task.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/verbs.h"
#include "verbena/connection/description.h"
#include "verbena/connection/endpoint.h"
#include "verbena/device/device.h"
#include "verbena/device/remote_memory.h"

namespace verbena {

class ConnectionState;

// Private data each message of connection management can carry, bytes. The receiver sees it padded with zeros to this.
inline constexpr std::size_t kMaxConnectPrivateData = 56;
inline constexpr std::size_t kMaxAcceptPrivateData = 196;
inline constexpr std::size_t kMaxRejectPrivateData = 148;

struct ConnectionOptions {
  // Work that can be in flight at once. One send less than DeviceInfo::max_requests: that is for keep-alives.
  QueuePairCapabilities queues{};
  ReliabilityOptions reliability{};               // a dead peer is noticed within a second by default
  Device* device = nullptr;                       // one of the engine's; nullptr: its first
  ProtectionDomain* protection_domain = nullptr;  // of that device; nullptr: the device's own
  // Bytes per packet at most: 256, 512, 1024, 2048, 4096; 0: what both devices can do. Who connects says it for both;
  // by descriptions either does.
  std::uint32_t path_mtu = 0;
  // Of the same device, outlives the connection: messages take their receives from there, and receive() is refused.
  ReceivePool* receive_pool = nullptr;
  Duration connect_timeout = Duration::seconds(5);
  // While nothing completes and nothing is on its way to the peer, an empty WRITE asks every so often whether it still
  // lives; without it, a side that only receives or lends memory would never learn that the peer died, unless it shared
  // memory with us. 0: never. A peer whose queue pair does not grant RemoteWrite answers with an error that ends the
  // connection: turn this off towards it. Of an engine's connections 128 ask at a time: thousands would overrun a
  // peer's socket. Those that get no answer leave the next their turn after 32 ms.
  Duration keep_alive = Duration::seconds(1);
  // What our packets carry. Routers read them: the one says which queue, the other keeps a connection on one way.
  std::uint8_t traffic_class = 0;  // IPv4 TOS, IPv6 traffic class (DSCP << 2); 0: the peer's, on the side that accepts
  std::uint32_t flow_label = 0;    // 20 bits, on IPv6; picks the UDP source port on both. 0: none, any port
};

enum class ConnectionPhase : std::uint8_t {
  Prepared,    // made, not connected: receives may be posted
  Connecting,  // the handshake is under way
  Established,
  Closed,  // ended as asked by either side
  Broken,  // ended otherwise: see Connection::status()
};
std::string_view to_string(ConnectionPhase phase);

// One end of a reliable connection.
//
//   auto connection = Connection::connect(engine, "127.0.0.1:7471");
//
// Operations run in the order they are started; READ and atomics may be overtaken by later SENDs and WRITEs unless
// those carry SendFlags::Fence. Memory is registered with the connection's device (Device::register_memory).
//
// Every operation exists twice: one builds the operation and starts it, the other starts one that exists. See Operation
// for memory, deadlines and errors. Errors of operations: QueueFull (as many are in flight as `queues` allows),
// WrongState (not established yet; receives may be started before), ResourceExhausted (no region is left, of which the
// first atomic takes one), InvalidArgument, LocalProtectionError, LocalLengthError, RemoteAccessError,
// RemoteInvalidRequest, RemoteOperationError (the peer failed, or its receive had a wrong key), BadResponse (the answer
// was no answer to it), RetryExceeded (the peer stopped answering), RnrRetryExceeded, Disconnected (the peer closed),
// ConnectionLost (an earlier error broke the connection: status() says which), Flushed, Cancelled, DeadlineExceeded.
//
// Lifetime: the engine and the device outlive it. Destroying it cancels what is in flight and tells the peer; close()
// first where the last messages matter. Threads: the engine's.
class Connection {
 public:
  // Connects to "host:port" or a verbena:// URL and waits until it is established. `private_data` goes to the listener.
  // Errors: InvalidArgument (address, options, private data too long), NotFound (no such host), Unreachable (no answer
  // within the timeout, or the device cannot reach that address), TimedOut (an answer of the device there, and none of
  // its program), ConnectionRefused (nobody listens there), Rejected (the application there said no), ConnectionLost
  // (the handshake broke off), NotSupported (path=local was asked for, and the ends share no memory), Cancelled (closed
  // or given up meanwhile), ResourceExhausted (here; or, with a reject reason, there).
  static Result<Connection> connect(ProgressEngine& engine, std::string_view address,
                                    const ConnectionOptions& options = {},
                                    std::span<const std::byte> private_data = {});
  // A connection to be: receives may be started before connect_to() or ConnectionRequest::accept(), so that none of the
  // peer's messages finds no receive.
  static Result<Connection> prepare(ProgressEngine& engine, const ConnectionOptions& options = {});
  // As connect(). When it fails after something was sent, the connection is spent, and private_data() holds what came
  // with a rejection; before, as with an address that is none, it is prepared still. Given up meanwhile (the task is
  // destroyed, an exception of a callback leaves through this), it ends as Cancelled.
  Result<void> connect_to(std::string_view address, std::span<const std::byte> private_data = {});
  // ---- Without connection management. Each side prepares a connection, hands describe() to the other by whatever way
  // there is, and gives what it got to connect_to(). Neither waits for the other: a connection is Established as soon
  // as it knows the peer, and what is sent before the peer knows us is repeated until it does, as long as `reliability`
  // says. A peer may take `connect_timeout` to come; keep-alives begin then.
  //
  // Nobody tells the peer of an end: close() ends this side once all that was sent is acknowledged, and the peer meets
  // RetryExceeded with its next operation or keep-alive. Say goodbye in a message of your own where that matters.
  //
  // How a peer reaches this connection. It is prepared, or was connected by a description. Errors: WrongState,
  // InvalidArgument (over ConnectionDescription::kMaxUserData bytes).
  Result<ConnectionDescription> describe(std::span<const std::byte> user_data = {});
  // private_data() is the peer's user data then. Errors: WrongState (used already), Unreachable, InvalidArgument (our
  // own description; values no queue pair has, or the device does not take).
  Result<void> connect_to(const ConnectionDescription& peer);
  // Prepared and connected; the peer still wants describe() of it.
  static Result<Connection> from_description(ProgressEngine& engine, const ConnectionDescription& peer,
                                             const ConnectionOptions& options = {});

  // Drives the engine until the handshake is over. It succeeded even when the peer has closed the connection since.
  // Errors: the reason it failed, TimedOut, WrongState (it is prepared, and nobody connects it).
  Result<void> wait_established(Duration timeout = Duration::seconds(5));

  // ---- The same to be awaited: co_await Connection::async_connect(engine, "127.0.0.1:7471"). Nothing is sent before;
  // a host's name is resolved on the spot, which may block. Arguments are copied. The connection is not used otherwise
  // to connect while one of these is awaited; moving it is fine.
  static Task<Result<Connection>> async_connect(ProgressEngine& engine, std::string_view address,
                                                const ConnectionOptions& options = {},
                                                std::span<const std::byte> private_data = {});
  Task<Result<void>> async_connect_to(std::string_view address, std::span<const std::byte> private_data = {});
  Task<Result<void>> async_established(Duration timeout = Duration::seconds(5));
  // As close(), below.
  Task<Result<void>> async_close(Duration timeout = Duration::seconds(2));

  Connection(Connection&& other) noexcept;
  // Assigning and destroying: what is in flight ends Flushed, and is told, before anything else happens. Callbacks run
  // meanwhile, and may use the connection as it was (what is assigned to it has moved by then), but not move it away:
  // what they moved it to is of no use. connect_to(), close() or another of these, called by them, is Cancelled at
  // once, and what they assign to it ends, too. A callback or a task may do so while one of these waits for the
  // handshake or the end: that ends as Cancelled.
  Connection& operator=(Connection&& other) noexcept;
  ~Connection();

  // ---- Messages. The receiver must have a receive in flight for each; its bytes end up there.
  Operation send(Segments local, SendFlags flags = SendFlags::None);
  Operation& send(Operation& operation, Segments local, SendFlags flags = SendFlags::None);
  Operation send_with_immediate(Segments local, std::uint32_t immediate, SendFlags flags = SendFlags::None);
  Operation& send_with_immediate(Operation& operation, Segments local, std::uint32_t immediate,
                                 SendFlags flags = SendFlags::None);
  // At most queues().max_inline_bytes of any memory, copied when started.
  Operation send_inline(std::span<const std::byte> bytes, SendFlags flags = SendFlags::None);
  Operation& send_inline(Operation& operation, std::span<const std::byte> bytes,
                         SendFlags flags = SendFlags::None);
  // Done when a message, or a WRITE with immediate, has arrived. A message longer than `local` breaks the connection
  // (LocalLengthError here, RemoteInvalidRequest there). InvalidArgument on a connection with a receive pool.
  Operation receive(Segments local);
  Operation& receive(Operation& operation, Segments local);

  // ---- The peer's memory. The peer's application takes no part, except that a WRITE with immediate finishes one of
  // its receives.
  Operation write(Segments local, const RemoteMemory& remote, SendFlags flags = SendFlags::None);
  Operation& write(Operation& operation, Segments local, const RemoteMemory& remote,
                   SendFlags flags = SendFlags::None);
  Operation write_with_immediate(Segments local, const RemoteMemory& remote, std::uint32_t immediate,
                                 SendFlags flags = SendFlags::None);
  Operation& write_with_immediate(Operation& operation, Segments local, const RemoteMemory& remote,
                                  std::uint32_t immediate, SendFlags flags = SendFlags::None);
  // Fills `local` from the beginning of `remote`, which is at least as long.
  Operation read(Segments local, const RemoteMemory& remote, SendFlags flags = SendFlags::None);
  Operation& read(Operation& operation, Segments local, const RemoteMemory& remote,
                  SendFlags flags = SendFlags::None);
  // On 8 bytes at remote.address, which is a multiple of 8. OperationOutcome::value is what was there before.
  Operation compare_and_swap(const RemoteMemory& remote, std::uint64_t expected, std::uint64_t desired);
  Operation& compare_and_swap(Operation& operation, const RemoteMemory& remote, std::uint64_t expected,
                              std::uint64_t desired);
  Operation fetch_and_add(const RemoteMemory& remote, std::uint64_t addend);
  Operation& fetch_and_add(Operation& operation, const RemoteMemory& remote, std::uint64_t addend);

  // ---- Verbs, for programs that count requests themselves. Completions go to the handler, from the engine; it may
  // destroy the connection. Operations and posts share the queues: posting is QueueFull when as many are in flight as
  // queues() allows. A request counts until the engine dispatched its completion; one that is not signaled, and
  // succeeds, does so in silence. A list is posted as one: in as few trains as it fits, by one doorbell.
  PostResult post_send(std::span<const SendRequest> requests);
  PostResult post_receive(std::span<const ReceiveRequest> requests);
  // Asks the peer for a sign of life soon, not when ConnectionOptions::keep_alive has passed, unless something
  // completes within 10 ms: for who waits for something that a live peer would have done. One that is dead is known to
  // be so sooner by up to that time. Nothing where keep_alive is 0.
  void check_alive();
  // See QueuePair::try_write_now(): a short WRITE or READ between processes of one host, without a request and its
  // completion. Each second: at the beginning of `remote`; false too when that is shorter.
  [[nodiscard]] bool try_write_now(const ShortWrite& write);
  [[nodiscard]] bool try_write_now(std::span<const std::byte> bytes, const RemoteMemory& remote);
  [[nodiscard]] bool try_read_now(const ShortRead& read);
  [[nodiscard]] bool try_read_now(std::span<std::byte> bytes, const RemoteMemory& remote);
  void on_completion(std::function<void(const Completion&)> handler);

  // ---- Ending.
  // Waits until everything sent is done, tells the peer, waits for its answer. Receives in flight end as Flushed.
  // Errors: whatever broke the connection before, Disconnected (the peer closed before everything was sent), TimedOut
  // (the peer did not answer; it is closed here all the same), Cancelled (a callback destroyed it meanwhile).
  // Given up before everything is sent (the task is destroyed, an exception of a callback leaves through this), the
  // connection lives on; later it is closed. Called twice, both wait for the end.
  Result<void> close(Duration timeout = Duration::seconds(2));
  ConnectionPhase phase() const;
  // Neither prepared, connecting nor established.
  bool closed() const { return phase() == ConnectionPhase::Closed || phase() == ConnectionPhase::Broken; }
  // Why it is Closed or Broken: Disconnected (the peer closed), Flushed (close() here), or the first error.
  Result<void> status() const;
  // Runs f() from the engine once, when the connection leaves Established without close() being called here, or was
  // accepted here and will not be established.
  void on_closed(std::function<void()> handler);

  // ---- What it is.
  // Address of the peer as text, and its service port.
  Endpoint peer() const;
  Gid local_address() const;
  Qpn local_qpn() const;
  Qpn remote_qpn() const;
  std::uint32_t path_mtu() const;
  // Sizes of the queues as they were made.
  const QueuePairCapabilities& queues() const;
  // What the peer sent with its request, its acceptance or its rejection, padded with zeros.
  std::span<const std::byte> private_data() const;
  // Device, path and parameters: lines for people.
  std::vector<std::string> explain() const;

 private:
  friend class ConnectionRequest;
  explicit Connection(std::shared_ptr<ConnectionState> state);
  void finish();
  static Operation::Request& request(Operation& operation, SendOpcode opcode, Segments local,
                                     const RemoteMemory& remote, SendFlags flags);
  static void request_atomic(Operation& operation, SendOpcode opcode, const RemoteMemory& remote, std::uint64_t compare,
                             std::uint64_t swap_or_add);
  Operation& start(Operation& operation);

  detail::Inner<std::shared_ptr<ConnectionState>, "Connection"> state_;  // also of those who wait for it
};

}  // namespace verbena
