// SPDX-License-Identifier: Apache-2.0
#include "messaging/offer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "device/wire_bytes.h"
#include "messaging/control.h"

namespace verbena::messaging {
namespace {

Offer some_offer() {
  Offer offer;
  offer.role = Role::Receiver;
  offer.kind = {Protocol::BufferedWrite, Commit::Reversed, Acknowledge::Read, RingMemory::DoubleMapped, true};
  offer.order_in_write = true;
  offer.max_message_bytes = 65537;
  offer.depth = 12;
  offer.memory = {0x1122334455667788, 1 << 20, RKey{0xa1b2c3d4}};
  offer.extra = 0xfedcba9876543210;
  return offer;
}

TEST(Offer, what_is_said_is_understood) {
  const auto bytes = some_offer().to_bytes();
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(56);
  const auto heard = Offer::from_bytes(padded);
  ASSERT_TRUE(heard) << heard.error().to_string();
  EXPECT_EQ(*heard, some_offer());
}

TEST(Offer, whatever_is_damaged_is_refused) {
  const auto whole = some_offer().to_bytes();
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto bytes = whole;
      bytes[i] ^= std::byte{1} << bit;
      const auto heard = Offer::from_bytes(bytes);
      ASSERT_FALSE(heard) << i << " " << bit;
      EXPECT_EQ(heard.error().code(), ErrorCode::ProtocolError);
    }
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_FALSE(Offer::from_bytes(std::span(whole).first(size))) << size;
}

TEST(Offer, values_there_are_not_are_refused_however_well_they_are_sealed) {
  struct Lie {
    std::size_t at;
    int value;
    const char* words;
  };
  for (const Lie& lie :
       {Lie{0, 0, "neither sender"}, Lie{0, 3, "neither sender"}, Lie{1, 0, "protocol 0"},
        Lie{1, 8, "protocol 8"}, Lie{2, 3, "a choice"}, Lie{3, 2, "a choice"}, Lie{4, 2, "a choice"},
        Lie{5, 2, "a choice"}, Lie{6, 2, "a choice"}, Lie{7, 1, "a choice"}}) {
    auto bytes = some_offer().to_bytes();
    bytes[lie.at] = static_cast<std::byte>(lie.value);
    wire_bytes::seal(bytes, 'M');
    const auto heard = Offer::from_bytes(bytes);
    ASSERT_FALSE(heard) << lie.at;
    EXPECT_NE(heard.error().to_string().find(lie.words), std::string::npos) << heard.error().to_string();
  }
  for (const std::size_t at : {std::size_t{8}, std::size_t{12}}) {
    auto bytes = some_offer().to_bytes();
    std::memset(&bytes[at], 0, 4);
    wire_bytes::seal(bytes, 'M');
    EXPECT_FALSE(Offer::from_bytes(bytes));
  }
}

TEST(Offer, any_bytes_are_an_offer_that_says_itself_or_none) {
  SeededRandom random(11);
  int understood = 0;
  for (int i = 0; i < 20000; ++i) {
    auto bytes = some_offer().to_bytes();
    for (int changes = 0; changes < 3; ++changes)
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    wire_bytes::seal(bytes, 'M');
    const auto heard = Offer::from_bytes(bytes);
    if (!heard) continue;
    ++understood;
    EXPECT_EQ(heard->to_bytes(), bytes);
  }
  EXPECT_GT(understood, 1000);
}

TEST(Offer, two_ends_agree_on_the_smaller_sizes_and_the_receivers_kind) {
  Offer ours = some_offer();
  ours.kind.protocol = Protocol::BufferedWrite;
  Offer theirs = ours;
  theirs.role = Role::Sender;
  theirs.kind.commit = Commit::Immediate;
  theirs.max_message_bytes = 100;
  theirs.depth = 99;
  for (const auto& settled : {settle(ours, theirs), settle(theirs, ours)}) {
    ASSERT_TRUE(settled);
    EXPECT_EQ(settled->kind, ours.kind);
    EXPECT_EQ(settled->max_message_bytes, 100u);
    EXPECT_EQ(settled->depth, 12u);
  }
  theirs.kind.protocol = Protocol::DirectRead;
  EXPECT_EQ(settle(ours, theirs).error().context(), "one end speaks buffered-write, the other direct-read");
  theirs.role = Role::Receiver;
  EXPECT_EQ(settle(ours, theirs).error().context(), "both ends are receivers");
}

TEST(Offer, a_commit_that_needs_an_order_inside_a_write_needs_the_promise_of_the_end_that_is_written_to) {
  for (const Protocol protocol : all_protocols())
    for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed})
      for (const bool at_sender : {false, true})
        for (const bool at_receiver : {false, true}) {
          Offer sender, receiver;
          receiver.role = Role::Receiver;
          sender.kind = receiver.kind = {.protocol = protocol, .commit = commit};
          sender.order_in_write = at_sender;
          receiver.order_in_write = at_receiver;
          const bool needs = protocol == Protocol::BufferedWrite && commit == Commit::Reversed;
          for (const auto& settled : {settle(sender, receiver), settle(receiver, sender)}) {
            ASSERT_EQ(settled.has_value(), at_receiver || !needs) << to_string(receiver.kind);
            if (settled) {
              EXPECT_EQ(settled->order_in_write, at_receiver);
              continue;
            }
            EXPECT_EQ(settled.error().code(), ErrorCode::NotSupported);
            EXPECT_EQ(settled.error().context(),
                      "the receiver chose buffered-write/reversed, and its device does not promise the order inside a "
                      "WRITE that this needs");
          }
        }
}

TEST(Offer, a_ring_is_as_the_end_that_has_it_chose) {
  for (const auto& [protocol, sender_decides] :
       {std::pair{Protocol::BufferedRead, true}, std::pair{Protocol::BufferedWrite, false}})
    for (const bool doubled : {false, true}) {
      const auto ring = [](bool yes) { return yes ? RingMemory::DoubleMapped : RingMemory::Plain; };
      Offer sender, receiver;
      receiver.role = Role::Receiver;
      sender.kind = {.protocol = protocol, .ring = ring(doubled)};
      receiver.kind = {.protocol = protocol, .ring = ring(!doubled)};
      for (const auto& settled : {settle(sender, receiver), settle(receiver, sender)}) {
        ASSERT_TRUE(settled);
        EXPECT_EQ(settled->kind.ring, ring(doubled == sender_decides));
      }
    }
}

TEST(Control, a_counter_is_found_again_from_its_lower_bits) {
  for (const std::uint64_t at_least :
       {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{Control::kNumberMask} - 2,
        std::uint64_t{0x123456789abc}})
    for (const std::uint64_t more : {0u, 1u, 3u, 1000u, 1u << 20})
      EXPECT_EQ(counter_near(at_least, static_cast<std::uint32_t>(at_least + more) & Control::kNumberMask),
                at_least + more);
  const Control control{Control::Word::Finish, 0xabcdef1};
  const auto heard = Control::from_immediate(control.to_immediate());
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->word, Control::Word::Finish);
  EXPECT_EQ(heard->number, 0xabcdef1u);
  EXPECT_FALSE(Control::from_immediate({}));
  EXPECT_FALSE(Control::from_immediate({std::byte{0x50}}));
}

}  // namespace
}  // namespace verbena::messaging
