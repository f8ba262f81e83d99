// SPDX-License-Identifier: Apache-2.0
// The message protocols there are, what each gives, and which one to take.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verbena/base/device_info.h"
#include "verbena/base/result.h"

namespace verbena::messaging {

enum class Protocol : std::uint8_t {  // numbers as negotiated
  SendReceive = 1,                    // SR: into receives the receiver posted, one queue of them per sender
  SharedReceive = 2,                  // SR over one queue of receives for all senders
  DirectWrite = 3,                    // DW: into buffers the receiver granted
  BufferedWrite = 4,                  // BW: into a ring at the receiver
  // SW: into one ring for all senders, reserved by fetch-and-add; they trust one another (doc/adr/0019)
  SharedWrite = 5,
  DirectRead = 6,                     // DR: announced, and read by the receiver to where it wants it
  BufferedRead = 7,                   // BR: a ring at the sender, of which the receiver reads whole spans
};

// BufferedWrite: how the receiver learns of a message.
enum class Commit : std::uint8_t {
  Immediate = 0,  // by a completion: the WRITE carries an immediate
  Offset = 1,     // a second WRITE moves the ring's tail; an atomic, where the receiver's device promises no order
  // The ring grows downward, and the message's last word says that it is whole. Needs order_in_write of the receiver's
  // device; where that is not promised another is taken (Options::exact_kind).
  Reversed = 2,
};

// BufferedWrite: how the sender learns what is free again.
enum class Acknowledge : std::uint8_t {
  Send = 0,  // the receiver says so in a message of its own
  Read = 1,  // the sender reads it: the receiver issues nothing
};

enum class RingMemory : std::uint8_t {
  Plain = 0,         // what does not fit before the end leaves a gap there
  DoubleMapped = 1,  // mapped twice, back to back: there is no end; whole pages
};

// A protocol with its choices. Those that a protocol does not have are ignored.
struct Kind {
  Protocol protocol = Protocol::SendReceive;
  Commit commit = Commit::Immediate;            // BufferedWrite
  Acknowledge acknowledge = Acknowledge::Send;  // BufferedWrite
  RingMemory ring = RingMemory::Plain;          // BufferedWrite, SharedWrite, BufferedRead
  bool fenced = false;  // DirectRead: the acknowledgement waits for the READ by a fence

  bool operator==(const Kind&) const = default;
};

enum class PassiveSide : std::uint8_t { None, Sender, Receiver };

// What a kind gives and takes.
struct Traits {
  bool zero_copy = false;  // the receiver's application decides where the bytes go, and nobody copies them
  bool variable_size = false;               // a short message takes the memory of a short one
  PassiveSide passive = PassiveSide::None;  // whose processor issues nothing per message
  bool interrupts = false;      // a receiver may sleep until a message comes; otherwise it polls memory
  bool non_blocking = false;    // a message the receiver holds back does not hold back those behind it
  bool shares_memory = false;   // many senders, one memory
  // Whatever a sender writes, lies included, ends its own connection at the most; the others' of a SharedReceive may
  // wait until the receiver runs. Those of one SharedWrite write where the others' messages stand, and move the tail
  // that all of them reserve by (doc/adr/0019).
  bool isolates_senders = true;
  // Needs DeviceInfo::order_in_write of the device whose memory is written, which is the receiver's (memory-model.md).
  // All others need no more than every device promises.
  bool order_in_write = false;
  int round_trips = 0;          // before a first message is whole at the receiver, besides its own way
};
Traits traits_of(const Kind& kind);

// "send-receive", "shared-receive", "direct-write", "buffered-write", "shared-write", "direct-read",
// "buffered-read".
std::string_view to_string(Protocol protocol);
// The same with its choices: "buffered-write/reversed/read/double-mapped", "direct-read/fenced".
std::string to_string(const Kind& kind);
// Takes what to_string() gives, and less: choices that are not named are the defaults; and those by their names,
// "immediate", "send" and "plain". Errors: InvalidArgument.
Result<Kind> parse_kind(std::string_view text);
std::span<const Protocol> all_protocols();

// What a program wants; what is left at its default does not matter to it.
struct Requirements {
  bool lowest_latency = false;
  bool large_without_copy = false;  // messages of many kilobytes that shall not be copied
  bool many_small = false;          // throughput of small messages over latency
  std::uint32_t senders = 1;        // that one receiver serves
  bool little_memory = false;       // at the receiver, whatever the number of senders
  bool idle_receiver = false;       // the receiver's processor does nothing per message but read it
  bool idle_sender = false;         // the sender only puts messages into its memory
  bool receiver_sleeps = false;     // until a message comes, instead of polling
  bool hold_messages = false;       // the receiver keeps some for long while others go on
  bool distrust = false;            // a sender that writes anything it likes shall end no other: isolates_senders
  bool order_in_write = true;       // the receiver's device promises it: DeviceInfo::order_in_write
};

struct Recommendation {
  Kind kind{};
  std::string reason{};  // one sentence for people
};
// What is recommended gives all of idle_receiver, idle_sender, receiver_sleeps, large_without_copy, hold_messages,
// distrust and, from nine senders on, little_memory, and needs no order_in_write that is not promised; the rest are
// preferences.
// Errors: InvalidArgument, for wishes that exclude each other; the text names them.
Result<Recommendation> recommend(const Requirements& wanted);
// For a receiver on that device: what needs an order inside a WRITE is recommended only where `receiver` promises it,
// and the reason names it where that decided.
Result<Recommendation> recommend(const Requirements& wanted, const DeviceInfo& receiver);

}  // namespace verbena::messaging
