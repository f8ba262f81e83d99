// SPDX-License-Identifier: Apache-2.0
// The client of `verbena bench message`: tests of message protocols, one after the other, with a server.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench_control.h"
#include "tools/message_child.h"
#include "tools/message_devices.h"
#include "tools/message_sending.h"

namespace verbena::tools {

struct MessageSessionOptions {
  DeviceFlags device{};       // of this end; `path` is the tests' to choose
  MessageEndOptions end{};
  StopQuestion stopped = [] { return false; };
  // Flags as this end was given them, by name, all texts: a server that was given the same name with another text is
  // not for it. None: no server minds.
  nlohmann::json flags = nlohmann::json::object();
};

// All are connected, by that path.
using MessageBegin = std::function<void(const PathTaken& path)>;
// Messages so far, of all senders.
using MessageProgress = std::function<void(std::uint64_t messages)>;

// Lifetime: destroying it lets the server go. Threads: one at a time; it starts others, none of which outlives run().
class MessageSession {
 public:
  // Errors: those of opening a device; of TcpLink::connect(); InvalidArgument (the ends differ), ProtocolError (the
  // other side is none of this kind), Rejected (it told of an error of its own), ConnectionLost, TimedOut, Cancelled.
  static Result<std::unique_ptr<MessageSession>> connect(const Endpoint& server, const MessageSessionOptions& options);
  // With a server of its own, a child process on this machine. Errors: those of MessageChild::start() besides.
  static Result<std::unique_ptr<MessageSession>> start_here(const MessageSessionOptions& options);
  MessageSession(const MessageSession&) = delete;
  MessageSession& operator=(const MessageSession&) = delete;
  ~MessageSession();

  // Errors: InvalidArgument (check_message_test()), Rejected (the other end cannot; its reason), those of
  // messaging::Sender; then further tests may run. ConnectionLost (the other end has gone), ProtocolError, Cancelled:
  // the session is over, and every further run() says so again.
  Result<MessageRow> run(const MessageTest& test, const MessageBegin& begin = {}, const MessageProgress& progress = {});
  bool over() const { return over_.has_value(); }

  // Lets the server go, and its user know why; without a reason, that all is well.
  void end(const std::optional<Error>& reason = {});

  MessageDevices& devices() { return devices_; }
  const std::string& remote() const { return remote_; }  // address, printable
  bool sleeps_there() const { return sleeps_there_; }    // the other end, which was given -e

 private:
  using Ends = std::vector<std::unique_ptr<SendingEnd>>;

  MessageSession(MessageDevices devices, const MessageSessionOptions& options)
      : options_(options), devices_(std::move(devices)) {}
  Result<void> meet(const Endpoint& server);
  Result<nlohmann::json> hear();
  Result<std::vector<MessageAddresses>> propose(const MessageTest& test);
  Result<void> measure(MessageCrew& crew, const Ends& ends, const MessageBegin& begin, const MessageProgress& progress);
  // Of a thread whose connection ended: what the other end has to say of it.
  Error reason_of(const Error& error);
  Result<nlohmann::json> finish(bool well);

  const MessageSessionOptions options_;
  std::optional<MessageChild> child_;
  MessageDevices devices_;
  std::optional<BenchControl> control_;
  std::string remote_;
  bool sleeps_there_ = false;
  bool failed_there_ = false;  // the server has ended the test at hand
  bool ended_ = false;
  std::optional<Error> over_;
};

// The first flag that both name, with other texts: "-s is 8 here and 16 there".
std::optional<std::string> message_difference(const nlohmann::json& here, const nlohmann::json& there);
// What each end says first, and what it must be. Errors: ProtocolError, InvalidArgument (the ends differ).
nlohmann::json message_hello(const nlohmann::json& flags, const Gid& address, bool events = false);
Result<std::string> remote_of_hello(const nlohmann::json& hello, const nlohmann::json& flags);
// So may end a connection whose other end fails, and says why elsewhere.
bool may_come_from_peer(ErrorCode code);
// For the other end to say why it ended a connection.
inline constexpr Duration kTimeToExplain = Duration::seconds(1);
// Of a receiver that sleeps until a message comes. Errors: InvalidArgument (none wakes it).
Result<void> check_events(const MessageTest& test, const MessageEndOptions& options);
// Of who sends messages of that protocol, by that device. Errors: InvalidArgument (it takes less in a request).
Result<void> check_inline(const MessageTest& test, const DeviceInfo& device);

}  // namespace verbena::tools
