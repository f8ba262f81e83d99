// SPDX-License-Identifier: Apache-2.0
// A thread of the server of `verbena bench message`: it receives, and answers.
#pragma once

#include <vector>

#include "tools/message_sending.h"
#include "verbena/connection/listener.h"

namespace verbena::tools {

class ReceivingEnd : private MessageEnd {
 public:
  ReceivingEnd(MessageCrew& crew, const MessageTest& test, const MessageEndOptions& options, Device& device)
      : MessageEnd(crew, test, options), device_(device) {}

  // In the thread: until it may proceed, which is to say that the client is through.
  Result<void> run();

  // When the thread is ready.
  const MessageAddresses& addresses() const { return addresses_; }
  // When the thread has left well.
  std::uint64_t memory_bytes() const { return memory_bytes_; }

 private:
  Result<void> work();
  Result<void> listen();
  Result<void> meet();
  Result<void> answer_each();
  Result<void> take_all();
  Result<void> wait_end();
  bool accept();

  Device& device_;
  std::optional<Listener> for_senders_, for_receiver_;
  std::optional<messaging::Receiver> receiver_;
  std::optional<MessageSource> answers_;
  MessageAddresses addresses_;
  std::uint64_t memory_bytes_ = 0;
};

}  // namespace verbena::tools
