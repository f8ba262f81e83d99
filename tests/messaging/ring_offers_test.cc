// SPDX-License-Identifier: Apache-2.0
// Receivers that offer a ring there cannot be: their sender leaves them by name before it writes anything, and others
// go on.
#include "messaging/buffered_write.h"
#include "messaging/offer.h"
#include "messaging/shared_write.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Offer;
using messaging::Role;

constexpr std::uint64_t kOfferedBytes = 4096;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 63;

struct UnsoundOffer {
  const char* why;
  void (*spoil)(Offer&);  // one that is sound
  ErrorCode code = ErrorCode::ProtocolError;
};

// Words that the sender's error has, and what is offered.
const UnsoundOffer kOfOneSender[] = {
    {"a ring of 0 bytes", [](Offer& offer) { offer.extra = 0; }},
    {"a ring of 5000 bytes", [](Offer& offer) { offer.extra = 5000; }},
    {"a ring of 4097 bytes", [](Offer& offer) { offer.extra = kOfferedBytes + 1; }},
    {"a ring of 512 bytes", [](Offer& offer) { offer.extra = 512; }},
    {"a ring of 137438953472 bytes",
     [](Offer& offer) {
       offer.extra = std::uint64_t{1} << 37;
       offer.memory.length = kMostBytes;
     }},
    {"a ring of 9223372036854775808 bytes",
     [](Offer& offer) {
       offer.extra = kMostBytes;
       offer.memory.length = ~std::uint64_t{0};
     }},
    {"a ring of 134217728 bytes, and this end needs as many: its ring_bytes are 16384",
     [](Offer& offer) {
       offer.extra = std::uint64_t{128} << 20;
       offer.memory.length = std::uint64_t{1} << 30;
     },
     ErrorCode::InvalidArgument},
    {"a ring of 4096 bytes in memory of", [](Offer& offer) { --offer.memory.length; }},
    {"a ring of 8192 bytes in memory of", [](Offer& offer) { offer.extra = 2 * kOfferedBytes; }},
    {"a ring of 4096 bytes in memory of 0", [](Offer& offer) { offer.memory.length = 0; }},
    {"a ring that does not hold its longest message", [](Offer& offer) { offer.extra = 1024; }},
};
// Where the ring's tail is moved by atomics.
const UnsoundOffer kOfAtomics[] = {
    {"a ring at an address that no atomic takes", [](Offer& offer) { offer.memory.address += 1; }},
    {"a ring at an address that no atomic takes", [](Offer& offer) { offer.memory.address += 4; }},
};
// The ring's size is the low byte there, as the exponent of a power of two, and the seat the rest.
const UnsoundOffer kOfMany[] = {
    {"a shared ring of 1 bytes", [](Offer& offer) { offer.extra = 0; }},
    {"a shared ring of 512 bytes", [](Offer& offer) { offer.extra = 9; }},
    {"a shared ring of 68719476736 bytes", [](Offer& offer) { offer.extra = 36; }},
    {"a shared ring of 137438953472 bytes",
     [](Offer& offer) {
       offer.extra = 37;
       offer.memory.length = kMostBytes;
     }},
    {"a shared ring of 9223372036854775808 bytes",
     [](Offer& offer) {
       offer.extra = 63;
       offer.memory.length = ~std::uint64_t{0};
     }},
    {"a shared ring of 4096 bytes in memory of", [](Offer& offer) { --offer.memory.length; }},
    {"a shared ring of 4096 bytes in memory of", [](Offer& offer) { offer.extra |= 1 << 8; }},
    {"a shared ring of 4096 bytes in memory of", [](Offer& offer) { offer.extra |= std::uint64_t{0xffffffff} << 8; }},
    {"a shared ring of 4096 bytes in memory of 0", [](Offer& offer) { offer.memory.length = 0; }},
    {"a shared ring that does not hold its longest message", [](Offer& offer) { offer.extra = 10; }},
    {"a shared ring at an address that no atomic takes", [](Offer& offer) { offer.memory.address += 1; }},
    {"a shared ring at an address that no atomic takes", [](Offer& offer) { offer.memory.address += 4; }},
};

class UnsoundRings : public ::testing::TestWithParam<Way> {
 protected:
  static constexpr std::uint32_t kLongest = 900;
  UnsoundRings()
      : ends(GetParam(), {.max_message_bytes = kLongest, .depth = 8, .ring_bytes = 16384, .max_senders = 2}),
        honest(ends.connect()),
        memory(must(ends.server.protection_domain().allocate_memory(4 * kOfferedBytes))) {}
  // What a receiver of that kind would offer of `memory`, and not a byte more.
  Offer sound_offer(bool order_in_write) const {
    const bool is_shared = GetParam().kind.protocol == Protocol::SharedWrite;
    const bool doubled = GetParam().kind.ring == messaging::RingMemory::DoubleMapped;
    const std::uint64_t lines = is_shared ? messaging::kSharedCells + ring::kCellBytes : messaging::kRingLines;
    Offer offer;
    offer.role = Role::Receiver;
    offer.kind = GetParam().kind;
    offer.order_in_write = order_in_write;
    offer.max_message_bytes = kLongest;
    offer.depth = 8;
    offer.memory = must(memory.remote(0, (doubled ? 2 * kOfferedBytes : kOfferedBytes) + lines));
    offer.extra = is_shared ? messaging::SharedPlace{kOfferedBytes, 0}.pack() : kOfferedBytes;
    return offer;
  }
  // How a sender ends that connects to who offers that, and how one that is connected by it.
  std::vector<Result<void>> ends_of_senders(const Offer& offer) {
    std::vector<Result<void>> how;
    Listener theirs = must(Listener::create(ends.engine, {.device = &ends.server}));
    std::optional<Connection> answering;
    theirs.on_request([&] {
      answering = must(theirs.poll_request()->accept({.device = &ends.server}, offer.to_bytes()));
    });
    const auto note = [&](const Result<Sender>& sender) {
      how.push_back(sender ? sender->status() : Result<void>(sender.error()));
    };
    note(Sender::connect(ends.engine, theirs.address().to_string(), ends.options));
    Listener ours = must(Listener::create(ends.engine, {.device = &ends.client}));
    ours.on_request([&] { note(Sender::accept(ends.engine, *ours.poll_request(), ends.options)); });
    Connection calling = must(Connection::prepare(ends.engine, {.device = &ends.server}));
    static_cast<void>(calling.connect_to(ours.address().to_string(), offer.to_bytes()));
    EXPECT_TRUE(ends.engine.run_until([&] { return how.size() == 2; }, kPatience));
    return how;
  }
  void expect_left(std::span<const UnsoundOffer> table, bool order_in_write) {
    for (const UnsoundOffer& unsound : table) {
      SCOPED_TRACE(unsound.why);
      Offer offer = sound_offer(order_in_write);
      unsound.spoil(offer);
      const std::string words = "the receiver offers " + std::string(unsound.why);
      for (const auto& how : ends_of_senders(offer)) expect_error(how, unsound.code, words.c_str());
      expect_honest_to_go_on();
    }
    EXPECT_THAT(memory.bytes(), ::testing::Each(std::byte{0}));
  }
  void expect_honest_to_go_on() {
    must(honest.send(text_of_message(0, sent, 500), kPatience));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), sent++, 500));
  }

  Ends ends;
  Sender honest;
  MemoryRegion memory;
  std::uint32_t sent = 0;
};
INSTANTIATE_TEST_SUITE_P(Messaging, UnsoundRings, ::testing::ValuesIn([] {
                           std::vector<Way> ways;
                           for (const Way& way : every_way())
                             if (way.kind.protocol == Protocol::BufferedWrite ||
                                 way.kind.protocol == Protocol::SharedWrite)
                               ways.push_back(way);
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(UnsoundRings, that_are_offered_are_left_by_name_and_others_go_on) {
  if (GetParam().kind.protocol == Protocol::SharedWrite)
    expect_left(kOfMany, true);
  else
    expect_left(kOfOneSender, true);
  // That none of them is left for another reason.
  for (const auto& how : ends_of_senders(sound_offer(true))) must(how);
  expect_honest_to_go_on();
}

TEST_P(UnsoundRings, of_a_device_that_promises_no_order_are_left_by_name_as_well) {
  const Kind& kind = GetParam().kind;
  if (messaging::traits_of(kind).order_in_write) {
    for (const auto& how : ends_of_senders(sound_offer(false))) expect_error(how, ErrorCode::NotSupported);
    return expect_honest_to_go_on();
  }
  const bool is_shared = kind.protocol == Protocol::SharedWrite;
  if (is_shared)
    expect_left(kOfMany, false);
  else
    expect_left(kOfOneSender, false);
  if (messaging::has_atomic_tail(kind, false)) expect_left(kOfAtomics, false);
  for (const auto& how : ends_of_senders(sound_offer(false))) must(how);
  expect_honest_to_go_on();
}

}  // namespace
}  // namespace verbena
