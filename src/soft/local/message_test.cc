// SPDX-License-Identifier: Apache-2.0
#include "soft/local/message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "soft/local/ring.h"
#include "soft/local/short_send.h"

namespace verbena::local {
namespace {

struct alignas(8) MessageBytes {
  std::array<std::byte, 512> all{};
  std::span<std::byte> first(std::size_t n) { return std::span(all).first(n); }
};

class RandomMessages {
 public:
  explicit RandomMessages(unsigned seed) : random_(seed) {}

  Request request() {
    Request made;
    made.opcode = static_cast<SendOpcode>(below(7));
    made.number = word();
    made.acknowledges = below(2) == 0;
    if (made.acknowledges) made.acknowledged = static_cast<std::uint16_t>(below(0x10000));
    const bool carries = made.opcode < SendOpcode::RdmaRead;
    const bool immediate =
        made.opcode == SendOpcode::SendWithImmediate || made.opcode == SendOpcode::RdmaWriteWithImmediate;
    if (immediate) made.immediate = {std::byte{1}, std::byte{2}, std::byte{3}, static_cast<std::byte>(below(256))};
    made.solicited = carries && made.opcode != SendOpcode::RdmaWrite && below(2) == 0;
    if (made.opcode != SendOpcode::Send && made.opcode != SendOpcode::SendWithImmediate) {
      made.remote_address = std::uint64_t{word()} << 32 | word();
      made.rkey = RKey{word()};
    }
    if (made.opcode == SendOpcode::RdmaRead) made.length = below(kMaxMessageBytes) + 1;
    if (made.opcode >= SendOpcode::CompareAndSwap) {
      made.length = 8;
      made.swap_or_add = word();
      if (made.opcode == SendOpcode::CompareAndSwap) made.compare = word();
    }
    if (!carries) return made;
    made.placement = static_cast<Placement>(below(3));
    if (made.placement == Placement::InRecord) {
      made.payload_bytes = below(200);
      made.payload_offset = head_bytes(made);
      made.length = made.payload_bytes == 0 ? 0 : made.payload_bytes + below(2) * below(1000);
    } else {
      made.pieces = pieces();
      made.length = static_cast<std::uint32_t>(made.pieces.bytes()) + below(2) * below(1000);
    }
    return made;
  }

  Response response() {
    Response made;
    made.kind = static_cast<RecordKind>(16 + below(5));
    made.number = word();
    if (made.kind == RecordKind::NotReady) made.code = static_cast<std::uint8_t>(below(32));
    if (made.kind == RecordKind::Refuse) made.code = static_cast<std::uint8_t>(1 + below(3));
    if (made.kind == RecordKind::AtomicResult) made.value = word();
    if (made.kind != RecordKind::ReadData) return made;
    made.placement = static_cast<Placement>(below(3));
    if (made.placement == Placement::InRecord) {
      made.payload_bytes = 1 + below(200);
      made.payload_offset = head_bytes(made);
    } else {
      made.pieces = pieces();
    }
    return made;
  }

  std::uint32_t below(std::uint32_t limit) { return static_cast<std::uint32_t>(random_() % limit); }

 private:
  std::uint32_t word() { return static_cast<std::uint32_t>(random_()); }
  PieceSet pieces() {
    PieceSet made;
    made.count = static_cast<std::uint8_t>(1 + below(kMaxPieces));
    for (std::size_t i = 0; i < made.count; ++i)
      made.pieces[i] = {word(), 1 + below(kMaxPulledBytes / kMaxPieces), word()};
    return made;
  }

  std::mt19937 random_;
};

std::uint16_t kind(const Request& request) { return static_cast<std::uint16_t>(kind_of(request)); }
std::uint16_t kind(const Response& response) { return static_cast<std::uint16_t>(response.kind); }

TEST(Message, every_request_comes_back_as_it_was_sent) {
  RandomMessages random(1);
  for (int i = 0; i < 100'000; ++i) {
    const Request request = random.request();
    MessageBytes bytes;
    emit(request, bytes.all.data());
    EXPECT_EQ(class_of(kind(request)), RecordClass::Request);
    Request parsed;
    ASSERT_TRUE(parse(kind(request), bytes.first(head_bytes(request) + request.payload_bytes), parsed)) << i;
    ASSERT_EQ(parsed, request) << i;
  }
}

TEST(Message, every_response_comes_back_as_it_was_sent) {
  RandomMessages random(2);
  for (int i = 0; i < 100'000; ++i) {
    const Response response = random.response();
    MessageBytes bytes;
    emit(response, bytes.all.data());
    EXPECT_EQ(class_of(kind(response)), RecordClass::Response);
    Response parsed;
    ASSERT_TRUE(parse(kind(response), bytes.first(head_bytes(response) + response.payload_bytes), parsed)) << i;
    ASSERT_EQ(parsed, response) << i;
  }
}

TEST(Message, a_continuation_comes_back_and_is_never_empty) {
  MessageBytes bytes;
  emit(Continuation{7, 100, 8}, bytes.all.data());
  EXPECT_EQ(parse_continuation(bytes.first(108)), (Continuation{7, 100, 8}));
  EXPECT_FALSE(parse_continuation(bytes.first(8)));
  EXPECT_FALSE(parse_continuation(bytes.first(0)));
  bytes.all[4] = std::byte{1};
  EXPECT_FALSE(parse_continuation(bytes.first(108)));
}

TEST(Message, a_continuation_that_names_bytes_comes_back_and_names_no_more_than_one_turn_can_copy) {
  Continuation named{7, 0, 0, Placement::InMemory, {}};
  named.pieces = {{Piece{0, 5, 99}, Piece{0, kMaxPulledBytes - 5, 7}}, 2};
  MessageBytes bytes;
  emit(named, bytes.all.data());
  EXPECT_EQ(parse_continuation(bytes.first(8 + 32)), named);
  EXPECT_FALSE(parse_continuation(bytes.first(8 + 24)));
  bytes.all[5] = std::byte{3};
  EXPECT_FALSE(parse_continuation(bytes.first(8 + 32))) << "an unknown place";
  ++named.pieces.pieces[0].bytes;
  emit(named, bytes.all.data());
  EXPECT_FALSE(parse_continuation(bytes.first(8 + 32))) << "too much";
}

TEST(Message, a_record_cut_or_drawn_out_is_no_message) {
  RandomMessages random(3);
  for (int i = 0; i < 10'000; ++i) {
    const Request request = random.request();
    MessageBytes bytes;
    emit(request, bytes.all.data());
    const std::uint32_t head = head_bytes(request);
    Request parsed;
    for (std::uint32_t length = 0; length < head; ++length) {
      // Whole pieces name the beginning of the payload.
      const bool pieces = length > head_bytes(request.opcode) && (head - length) % kPieceBytes == 0;
      EXPECT_EQ(parse(kind(request), bytes.first(length), parsed), pieces && request.pieces.count != 0) << length;
    }
    if (request.placement != Placement::InRecord || request.opcode >= SendOpcode::RdmaRead)
      EXPECT_FALSE(parse(kind(request), bytes.first(head + 1), parsed));
    else
      EXPECT_FALSE(parse(kind(request), bytes.first(head + request.length + 1), parsed));
  }
}

Request made(SendOpcode opcode, std::uint32_t length, std::uint32_t payload_bytes) {
  Request request;
  request.opcode = opcode;
  request.length = length;
  request.payload_bytes = payload_bytes;
  return request;
}

// One field of an honest request made wrong.
bool taken(Request request, std::size_t at, std::uint8_t value) {
  request.payload_offset = head_bytes(request);
  MessageBytes bytes;
  emit(request, bytes.all.data());
  bytes.all.at(at) = static_cast<std::byte>(value);
  Request parsed;
  return parse(kind(request), bytes.first(head_bytes(request) + request.payload_bytes), parsed);
}

TEST(Message, F21_what_no_requester_writes_is_refused) {
  const Request send = made(SendOpcode::Send, 8, 8);
  EXPECT_TRUE(taken(send, 0, 5));
  EXPECT_TRUE(taken(send, 4, 1));   // solicited
  EXPECT_TRUE(taken(send, 4, 2));   // acknowledges
  EXPECT_FALSE(taken(send, 4, 4));  // another flag
  EXPECT_FALSE(taken(send, 5, 1));  // in a segment, and no piece
  EXPECT_FALSE(taken(send, 5, 3));  // nowhere
  EXPECT_FALSE(taken(send, 6, 1));  // acknowledged, but not said so
  EXPECT_FALSE(taken(send, 7, 1));
  EXPECT_FALSE(taken(send, 8, 7));      // shorter than what is here
  EXPECT_TRUE(taken(send, 8, 9));       // more follows
  EXPECT_FALSE(taken(send, 11, 0x81));  // over 2^31
  EXPECT_FALSE(taken(send, 12, 1));     // an immediate that SEND has not
  const Request write = made(SendOpcode::RdmaWrite, 8, 8);
  EXPECT_TRUE(taken(write, 16, 1));
  EXPECT_FALSE(taken(write, 4, 1));  // nobody to be solicited
  EXPECT_FALSE(taken(write, 28, 1));
  const Request read = made(SendOpcode::RdmaRead, 8, 0);
  EXPECT_TRUE(taken(read, 8, 0));
  EXPECT_FALSE(taken(read, 4, 1));
  EXPECT_FALSE(taken(read, 5, 1));
  const Request add = made(SendOpcode::FetchAndAdd, 8, 0);
  EXPECT_TRUE(taken(add, 40, 1));
  EXPECT_FALSE(taken(add, 8, 4));
  EXPECT_FALSE(taken(add, 32, 1));  // compares nothing
  EXPECT_TRUE(taken(made(SendOpcode::CompareAndSwap, 8, 0), 32, 1));
}

TEST(Message, F21_pieces_that_wrap_or_do_not_add_up_are_refused) {
  Request send = made(SendOpcode::Send, 16, 0);
  send.placement = Placement::InSegment;
  send.pieces = {{Piece{3, 8, 0}, Piece{4, 8, 64}}, 2};
  EXPECT_TRUE(taken(send, 0, 0));
  EXPECT_FALSE(taken(send, 8, 15));      // the length
  EXPECT_FALSE(taken(send, 16 + 4, 0));  // an empty piece
  EXPECT_TRUE(taken(send, 5, 2));        // keys, in own memory
  send.pieces.pieces[1].address = ~0ull - 8;
  EXPECT_TRUE(taken(send, 0, 0));
  send.pieces.pieces[1].address = ~0ull - 7;
  EXPECT_FALSE(taken(send, 0, 0));  // over the end of all addresses
  send.pieces = {{Piece{1, kMaxMessageBytes, 0}, Piece{1, kMaxMessageBytes, 0}}, 2};
  send.length = 0;
  EXPECT_FALSE(taken(send, 0, 0));  // a sum that wraps
}

TEST(Message, F21_what_no_responder_writes_is_refused) {
  const auto taken_as = [](RecordKind kind, std::uint8_t code, std::uint8_t placement, std::size_t length) {
    MessageBytes bytes;
    bytes.all[4] = static_cast<std::byte>(code);
    bytes.all[5] = static_cast<std::byte>(placement);
    Response parsed;
    return parse(static_cast<std::uint16_t>(kind), bytes.first(length), parsed);
  };
  EXPECT_TRUE(taken_as(RecordKind::Acknowledge, 0, 0, 8));
  EXPECT_FALSE(taken_as(RecordKind::Acknowledge, 1, 0, 8));
  EXPECT_FALSE(taken_as(RecordKind::Acknowledge, 0, 1, 8));
  EXPECT_FALSE(taken_as(RecordKind::Acknowledge, 0, 0, 7));
  EXPECT_FALSE(taken_as(RecordKind::Acknowledge, 0, 0, 9));
  EXPECT_TRUE(taken_as(RecordKind::NotReady, 31, 0, 8));
  EXPECT_FALSE(taken_as(RecordKind::NotReady, 32, 0, 8));
  EXPECT_TRUE(taken_as(RecordKind::Refuse, 3, 0, 8));
  EXPECT_FALSE(taken_as(RecordKind::Refuse, 0, 0, 8));
  EXPECT_FALSE(taken_as(RecordKind::Refuse, 4, 0, 8));
  EXPECT_TRUE(taken_as(RecordKind::ReadData, 0, 0, 9));
  EXPECT_TRUE(taken_as(RecordKind::ReadData, 0, 0, 8)) << "of nothing";
  EXPECT_FALSE(taken_as(RecordKind::ReadData, 0, 3, 9));
  EXPECT_TRUE(taken_as(RecordKind::AtomicResult, 0, 0, 16));
  EXPECT_FALSE(taken_as(RecordKind::AtomicResult, 0, 0, 8));
}

TEST(Message, kinds_outside_the_table_belong_to_nobody) {
  std::array<int, 4> count{};
  for (std::uint32_t k = 0; k < 65536; ++k) ++count[static_cast<std::size_t>(class_of(static_cast<std::uint16_t>(k)))];
  EXPECT_EQ(count, (std::array<int, 4>{65536 - 13, 7, 1, 5}));
  EXPECT_EQ(class_of(kPaddingKind), RecordClass::Unknown);
}

TEST(Message, a_small_SEND_fits_one_line) {
  const Request send = made(SendOpcode::Send, 8, 8);
  EXPECT_LE(kRecordHeaderBytes + head_bytes(send) + 8, kLineBytes);
}

TEST(LocalMessage, a_short_send_is_the_request_that_it_stands_for_and_nothing_else_is_one) {
  std::mt19937_64 random(1);
  int shorts = 0;
  for (int i = 0; i < 200'000; ++i) {
    MessageBytes record;
    const std::uint32_t bytes = ShortSend::kHeadBytes + static_cast<std::uint32_t>(random() % 100);
    ShortSend send{static_cast<std::uint32_t>(random()), bytes - ShortSend::kHeadBytes, random() % 2 == 0, 0};
    if (send.acknowledges) send.acknowledged = static_cast<std::uint16_t>(random());
    std::uint64_t first = send.first_word(), second = send.second_word();
    if (random() % 2 == 0) (random() % 2 == 0 ? first : second) ^= std::uint64_t{1} << random() % 64;
    std::memcpy(record.all.data(), &first, 8);
    std::memcpy(record.all.data() + 8, &second, 8);
    Request request;
    const auto kind = static_cast<std::uint16_t>(RecordKind::Send);
    const bool parsed = parse(kind, record.first(bytes), request);
    const auto read = ShortSend::of(first, second, bytes);
    const bool plain = parsed && request.placement == Placement::InRecord && !request.solicited &&
                       request.length == request.payload_bytes;
    ASSERT_EQ(read.has_value(), plain) << std::hex << first << " " << second;
    if (!read) continue;
    ++shorts;
    EXPECT_EQ(read->number, request.number);
    EXPECT_EQ(read->length, request.length);
    EXPECT_EQ(read->acknowledges, request.acknowledges);
    EXPECT_EQ(read->acknowledged, request.acknowledged);
    MessageBytes emitted;
    emit(static_cast<const RequestHead&>(request), emitted.all.data());
    EXPECT_EQ(std::memcmp(emitted.all.data(), record.all.data(), ShortSend::kHeadBytes), 0);
  }
  EXPECT_GT(shorts, 100'000);
}

}  // namespace
}  // namespace verbena::local
