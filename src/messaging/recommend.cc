// SPDX-License-Identifier: Apache-2.0
// Which protocol fits what a program wants. Rules in order: the first that applies decides.
#include <string>

#include "verbena/messaging/protocol.h"

namespace verbena::messaging {

namespace {

Error contradiction(const std::string& what) {
  return Error(ErrorCode::InvalidArgument, "recommend a message protocol: " + what);
}

Result<void> check(const Requirements& w) {
  if (w.senders == 0) return contradiction("a receiver of no senders");
  if (w.idle_receiver && w.idle_sender)
    return contradiction(
        "somebody must issue the transfer: idle_receiver and idle_sender exclude each other");
  if (w.idle_receiver && w.receiver_sleeps)
    return contradiction(
        "what wakes a receiver is a completion it must take: idle_receiver and receiver_sleeps "
        "exclude each other");
  if (w.idle_sender && w.receiver_sleeps)
    return contradiction(
        "a sender that issues nothing wakes nobody: idle_sender and receiver_sleeps exclude each other");
  if (w.idle_sender && w.large_without_copy)
    return contradiction(
        "a sender that only fills its ring copies into it: idle_sender and large_without_copy exclude "
        "each other");
  return {};
}

}  // namespace

Result<Recommendation> recommend(const Requirements& w) {
  if (auto ok = check(w); !ok) return ok.error();
  const bool many = w.senders > 8;
  if (w.idle_sender)
    return Recommendation{
        {.protocol = Protocol::BufferedRead},
        "buffered-read: messages wait in the sender's memory, and the receiver fetches them by itself"};
  if (w.large_without_copy)
    return w.idle_receiver
               ? Recommendation{{.protocol = Protocol::DirectWrite},
                                "direct-write: the sender writes to where the receiver wants it, and nobody "
                                "copies"}
               : Recommendation{{.protocol = Protocol::DirectRead},
                                "direct-read: the receiver reads each message to where it wants it, whatever "
                                "its length"};
  if (w.idle_receiver) {
    const Kind reversed{
        .protocol = Protocol::BufferedWrite, .commit = Commit::Reversed, .acknowledge = Acknowledge::Read};
    if (w.order_in_write)
      return Recommendation{
          reversed,
          "buffered-write, reversed, read: one WRITE per message, and the receiver only looks "
          "at its memory"};
    Kind offset = reversed;
    offset.commit = Commit::Offset;
    return Recommendation{
        offset,
        "buffered-write, offset, read: the receiver only looks at its memory, and no order inside "
        "a WRITE is needed"};
  }
  if (many && w.hold_messages)
    return Recommendation{{.protocol = Protocol::SharedReceive},
                          "shared-receive: one pool of buffers for all senders, given back in any order"};
  if (many && (w.little_memory || w.receiver_sleeps))
    return w.many_small ? Recommendation{{.protocol = Protocol::SharedWrite},
                                         "shared-write: one ring for all senders, in which a short message "
                                         "takes little"}
                        : Recommendation{{.protocol = Protocol::SharedReceive},
                                         "shared-receive: memory for the messages of the busy senders only"};
  if (w.hold_messages || w.lowest_latency)
    return Recommendation{
        {.protocol = Protocol::SendReceive},
        w.hold_messages ? "send-receive: a message that is held keeps its own buffer and no other"
                        : "send-receive: one packet per message, nothing before it and nothing behind it"};
  if (w.many_small || w.little_memory)
    return Recommendation{{.protocol = Protocol::BufferedWrite},
                          "buffered-write: a short message takes the ring no more than its length"};
  return Recommendation{{.protocol = Protocol::SendReceive},
                        "send-receive: nothing asked for needs more than what every device does best"};
}

}  // namespace verbena::messaging
