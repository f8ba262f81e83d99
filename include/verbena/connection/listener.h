// SPDX-License-Identifier: Apache-2.0
// The passive side: waits for peers that want to connect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "verbena/base/inner.h"
#include "verbena/connection/connection.h"

namespace verbena {

class ListenerState;
struct PendingRequest;

struct ListenOptions {
  std::uint16_t port = 0;    // service port; 0: a free one, see Listener::port()
  // Requests that may wait unanswered, 256 of one address at most; peers beyond are told to try again later.
  int backlog = 128;
  Device* device = nullptr;  // one of the engine's; nullptr: its first
};

// A peer that wants to connect. Destroying it unanswered rejects it.
//
// Lifetime: the engine outlives it. Threads: the engine's.
class ConnectionRequest {
 public:
  ConnectionRequest(ConnectionRequest&& other) noexcept;
  ConnectionRequest& operator=(ConnectionRequest&& other) noexcept;
  ~ConnectionRequest();

  // Address of the peer, and its port.
  Endpoint peer() const;
  // As the peer sent it, padded with zeros to kMaxConnectPrivateData.
  std::span<const std::byte> private_data() const;

  // Answers yes. The connection may be used at once; it is Established when the peer has confirmed, and Broken when it
  // does not. wait_established() waits for that. The request is spent. Errors: InvalidArgument (private data longer
  // than kMaxAcceptPrivateData), ResourceExhausted (the request is not spent; left unanswered, its peer is told to try
  // again later), WrongState (spent), ConnectionLost (the peer gave up).
  Result<Connection> accept(const ConnectionOptions& options = {},
                            std::span<const std::byte> private_data = {});
  // The same with a prepared connection that has its receives.
  Result<Connection> accept(Connection prepared, std::span<const std::byte> private_data = {});
  // Answers no. `private_data` is at most kMaxRejectPrivateData bytes, and shown to the peer's user when it is text.
  Result<void> reject(std::span<const std::byte> private_data = {});
  // The same with words, of which too many are cut off.
  Result<void> reject_in_words(std::string_view why);
  // Answers that there is no room for it now: the peer has ResourceExhausted instead of Rejected, and may try again
  // later, as a Reconnector does.
  Result<void> reject_for_now(std::string_view why = {});

 private:
  friend class ListenerState;
  friend class Listener;
  explicit ConnectionRequest(std::unique_ptr<PendingRequest> pending);
  detail::Inner<std::unique_ptr<PendingRequest>, "ConnectionRequest"> pending_;
};

// Listens on a port of a device's address.
//
// Lifetime: the engine and the device outlive it; connections it accepted do not need it. Who waits there
// untaken is told that nobody listens (ConnectionRefused), as one would be who comes later. Threads: the engine's.
class Listener {
 public:
  // Errors: AddressInUse (the port is listened on), InvalidArgument, ResourceExhausted.
  static Result<Listener> create(ProgressEngine& engine, const ListenOptions& options = {});
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener();

  std::uint16_t port() const;
  // "127.0.0.1:7471", what peers connect to.
  Endpoint address() const;

  // The oldest waiting request, if any. Does not drive the engine.
  [[nodiscard]] std::optional<ConnectionRequest> poll_request();
  // Drives the engine until there is one. Errors: TimedOut, Cancelled (a callback or a task destroyed the listener
  // meanwhile, as it may).
  Result<ConnectionRequest> wait_request(Duration timeout = Duration::forever());
  // Takes the next request, accepts it and waits until the connection is established. Errors: those of wait_request()
  // and of ConnectionRequest::accept(); TimedOut or ConnectionLost, too, where the peer does not confirm, for which it
  // has 5 s when `timeout` is forever().
  Result<Connection> accept(const ConnectionOptions& options = {}, Duration timeout = Duration::forever());
  // The same to be awaited: co_await listener.async_accept().
  Task<Result<ConnectionRequest>> async_request(Duration timeout = Duration::forever());
  Task<Result<Connection>> async_accept(const ConnectionOptions& options = {},
                                        Duration timeout = Duration::forever());
  // Runs f() from the engine whenever a request has come: take it with poll_request().
  void on_request(std::function<void()> handler);

 private:
  explicit Listener(std::shared_ptr<ListenerState> state);
  detail::Inner<std::shared_ptr<ListenerState>, "Listener"> state_;  // also of those who wait for peers
};

}  // namespace verbena
