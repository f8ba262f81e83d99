// SPDX-License-Identifier: Apache-2.0
// The server of `verbena bench message`: runs the tests that one client asks for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tools/bench_control.h"
#include "tools/message_devices.h"
#include "tools/message_receiving.h"

namespace verbena::tools {

struct MessageServerOptions {
  MessageEndOptions end{};
  StopQuestion stopped = [] { return false; };
  nlohmann::json flags;  // see MessageSessionOptions
  // Of each test, when it is over, well or not.
  std::function<void(const MessageTest&, const Result<void>&)> on_served;
};

class MessageServer {
 public:
  MessageServer(TcpLink link, MessageDevices& devices, const MessageServerOptions& options);

  // Until the client has no further test. Errors: the first of a test that failed here; ConnectionLost (the client has
  // gone), Rejected (it told of an error of its own), ProtocolError, InvalidArgument (the ends differ), Cancelled. The
  // client has been told.
  Result<void> serve();

 private:
  using Ends = std::vector<std::unique_ptr<ReceivingEnd>>;

  Result<void> greet();
  Result<void> serve_all();
  Result<void> run(const MessageTest& test);
  Result<nlohmann::json> attend(MessageCrew& crew, const Ends& ends);
  Result<nlohmann::json> wait_told(const MessageCrew* crew);
  Result<void> glance();
  Result<void> fail(const MessageTest& test, const Error& error);

  BenchControl control_;
  MessageDevices& devices_;
  const MessageServerOptions& options_;
  std::optional<Error> first_;      // of a test that failed here
  std::optional<Error> link_error_;  // the client is lost, or will be
};

}  // namespace verbena::tools
