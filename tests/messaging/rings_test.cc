// SPDX-License-Identifier: Apache-2.0
// Rings in a receiver's memory: senders that die with a place reserved, and ends that write and say anything.
#include <array>
#include <cstring>
#include <deque>

#include "../api/test_process.h"
#include "messaging/buffered_write.h"
#include "messaging/control.h"
#include "messaging/offer.h"
#include "messaging/shared_write.h"
#include "standard_device.h"
#include "test_ends.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Offer;
using messaging::Role;

constexpr std::uint32_t kRingMessages = 20;

Offer sender_offer(const Options& options) {
  Offer offer;
  offer.role = Role::Sender;
  offer.kind = options.kind;
  offer.order_in_write = true;
  offer.max_message_bytes = options.max_message_bytes;
  offer.depth = options.depth;
  return offer;
}

std::vector<Way> ways_of_rings() {
  std::vector<Way> ways = every_way();
  std::erase_if(ways, [](const Way& way) {
    return way.kind.protocol != Protocol::BufferedWrite && way.kind.protocol != Protocol::SharedWrite;
  });
  return ways;
}

RemoteMemory part(const Offer& theirs, std::uint64_t offset, std::uint64_t bytes) {
  return must(theirs.memory.sub_range(offset, bytes));
}

// Does what a sender of a shared ring does before it writes its message.
void reserve(Connection& connection, Device& device, const Offer& theirs) {
  const auto place = messaging::SharedPlace::unpack(theirs.extra);
  const bool doubled = theirs.kind.ring == messaging::RingMemory::DoubleMapped;
  const std::uint64_t lines = doubled ? 2 * place.capacity : place.capacity;
  auto word = must(device.protection_domain().allocate_memory(64));
  word.bytes()[0] = std::byte{1};
  const std::uint64_t cell = lines + messaging::kSharedCells + std::uint64_t{place.seat} * ring::kCellBytes;
  must(connection.write(word.local(0, 8), part(theirs, cell, 8)).wait());
  must(connection.fetch_and_add(part(theirs, lines + messaging::kSharedTail, 8), 640).wait());
}

class DeathInARing : public ::testing::TestWithParam<Way> {
 protected:
  static Options options() {
    return {.max_message_bytes = 600, .depth = 4, .ring_bytes = 16384, .max_senders = 64};
  }
  // Each sender sends, and everything arrives in its order.
  static void expect_all_through(Ends& ends, std::vector<Sender>& senders) {
    std::vector<std::uint32_t> sent(senders.size()), got(64);
    std::size_t total = 0;
    const auto size_of = [](std::uint32_t n) { return std::size_t{n} * 97 % 601; };
    std::string ended;
    ends.receiver->on_peer_end([&](messaging::PeerId peer, const Result<void>& how) {
      ended += "\nended: " + std::to_string(peer) + (how ? " well" : ": " + how.error().to_string());
    });
    const auto step = [&] {
      for (std::size_t i = 0; i < senders.size(); ++i)
        while (sent[i] < kRingMessages &&
               senders[i].try_send(text_of_message(static_cast<std::uint32_t>(i), sent[i], size_of(sent[i]))))
          ++sent[i];
      while (auto message = ends.receiver->try_receive()) {
        std::uint32_t& n = got.at(message->peer());
        EXPECT_TRUE(is_message(*message, n, size_of(n), message->peer())) << message->peer() << " " << n;
        ++n;
        ++total;
      }
      return total == senders.size() * kRingMessages;
    };
    EXPECT_TRUE(ends.engine.run_until(step, kPatience)) << total << " came" << [&] {
      std::string missing;
      for (std::size_t i = 0; i < senders.size(); ++i)
        if (got[i] != kRingMessages)
          missing += "\nof " + std::to_string(i) + ": " + std::to_string(got[i]) + " came, " +
                     std::to_string(sent[i]) + " sent, credits " + std::to_string(senders[i].credits()) +
                     (senders[i].closed() ? ", " + senders[i].status().error().to_string() : "");
      return missing + ended;
    }();
  }
};

INSTANTIATE_TEST_SUITE_P(Messaging, DeathInARing, ::testing::ValuesIn([] {
                           std::vector<Way> ways;
                           for (const PathChoice path : {PathChoice::Roce, PathChoice::Local})
                             for (const char* name : {"shared-write", "shared-write/double-mapped"})
                               ways.push_back({must(messaging::parse_kind(name)), path});
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(DeathInARing, one_of_64_senders_that_goes_with_a_place_reserved_holds_up_nobody) {
  Ends ends(GetParam(), options());
  std::vector<Sender> senders;
  for (int i = 0; i < 63; ++i) senders.push_back(ends.connect());
  {
    Connection victim = must(Connection::prepare(ends.engine));
    must(victim.connect_to(ends.listener->address().to_string(), sender_offer(ends.options).to_bytes()));
    reserve(victim, ends.client, must(Offer::from_bytes(victim.private_data())));
  }
  expect_all_through(ends, senders);
}

// A sender's process that reserves a place, says so, and waits for what comes.
auto that_reserves(const Way& way, const Options& options) {
  return [way, options](const auto& say) {
    Device device = must(Device::open(OpenOptions{.path = way.path}));
    ProgressEngine engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(engine));
    say(listener.address().to_string());
    ConnectionRequest request = must(listener.wait_request(kPatience));
    const Offer theirs = must(Offer::from_bytes(request.private_data()));
    Options mine = options;
    mine.kind = way.kind;
    const auto offer = sender_offer(mine).to_bytes();
    Connection connection = must(request.accept(must(Connection::prepare(engine)), offer));
    must(connection.wait_established(kPatience));
    reserve(connection, device, theirs);
    say("reserved");
    ::pause();
  };
}
// Who is held up asks; nobody else does.
Options patient(Options options) {
  options.connection.keep_alive = Duration::seconds(3600);
  return options;
}

TEST_P(DeathInARing, one_of_64_senders_whose_process_is_killed_with_a_place_reserved_holds_up_nobody) {
  Process child(that_reserves(GetParam(), options()));
  const std::string address = child.hear();
  Ends ends(GetParam(), patient(options()), ReliabilityOptions{}.timeout);
  std::vector<Sender> senders;
  for (int i = 0; i < 63; ++i) senders.push_back(ends.connect());
  must(ends.receiver->connect(address));
  ASSERT_EQ(child.hear(), "reserved");
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(), -SIGKILL);
  expect_all_through(ends, senders);
}

TEST_P(DeathInARing, one_that_is_killed_after_it_was_asked_and_the_others_have_no_credits_left_holds_up_nobody) {
  Process child(that_reserves(GetParam(), options()));
  const std::string address = child.hear();
  Ends ends(GetParam(), patient(options()), ReliabilityOptions{}.timeout);
  Sender sender = ends.connect();
  must(ends.receiver->connect(address));
  ASSERT_EQ(child.hear(), "reserved");
  std::uint32_t sent = 0;
  const auto nothing_more_goes = [&] {
    while (sender.try_send(text_of_message(0, sent, 300))) ++sent;
    EXPECT_FALSE(ends.receiver->try_receive());
    return false;
  };
  ends.engine.run_until(nothing_more_goes, Duration::milliseconds(200));
  ASSERT_NE(sent, 0u);
  child.signal(SIGKILL);
  EXPECT_EQ(child.wait(), -SIGKILL);
  for (std::uint32_t n = 0; n < sent; ++n)
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 300)) << n;
}

TEST_P(DeathInARing, a_receiver_that_could_not_learn_of_a_death_is_refused) {
  Options deaf = options();
  deaf.kind = GetParam().kind;
  deaf.connection.keep_alive = Duration{0};
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  expect_error(Receiver::create(engine, deaf), ErrorCode::InvalidArgument, "keep_alive is 0");
}

// ---- Senders that write anything.

constexpr std::uint64_t kRing = 16384;

// What is written, and how it ends. `word` is as long as the ring, and zeros.
struct Lie {
  const char* kind;  // and all that differ in the acknowledgement or, where it names none, in the ring
  const char* what;
  void (*tell)(Connection&, MemoryRegion& word, const Offer& theirs);
  std::optional<messaging::RingMemory> ring{};

  bool is_for(const Kind& other) const {
    const Kind ours = must(messaging::parse_kind(kind));
    return ours.protocol == other.protocol && ours.commit == other.commit && (!ring || *ring == other.ring);
  }
};

// Of what is offered: where the frames end, and the lines begin.
std::uint64_t lines_of(const Offer& theirs) {
  return theirs.kind.ring == messaging::RingMemory::DoubleMapped ? 2 * kRing : kRing;
}
std::uint64_t cell_of(const Offer& theirs) {
  const auto seat = messaging::SharedPlace::unpack(theirs.extra).seat;
  return lines_of(theirs) + messaging::kSharedCells + std::uint64_t{seat} * ring::kCellBytes;
}

void write_word(Connection& connection, MemoryRegion& word, const RemoteMemory& to, std::uint64_t value) {
  std::memcpy(word.data(), &value, 8);
  static_cast<void>(connection.write(word.local(0, 8), to).wait(kPatience));
}
void write_tail(Connection& connection, MemoryRegion& word, const Offer& theirs, std::uint64_t value) {
  write_word(connection, word, part(theirs, lines_of(theirs) + messaging::kTailLine, 8), value);
}
void write_immediate(Connection& connection, MemoryRegion& word, const RemoteMemory& to, std::uint32_t value,
                     std::uint32_t bytes) {
  static_cast<void>(connection.write_with_immediate(word.local(0, bytes), to, value).wait(kPatience));
}
void finish_a_receive(Connection& connection, MemoryRegion&, const Offer&) {
  const SendRequest empty{};
  EXPECT_TRUE(connection.post_send({&empty, 1}));
}
void write_all_over(Connection& connection, MemoryRegion& words, const Offer& theirs) {
  const std::uint64_t empty = ring::message_word(0);
  for (std::size_t end = kRing; end != 0; end -= ring::kUnitBytes) std::memcpy(words.data() + end - 8, &empty, 8);
  const RemoteMemory to = part(theirs, lines_of(theirs) - kRing, kRing);
  static_cast<void>(connection.write(words.local(0, kRing), to).wait(kPatience));
}
void drop(Connection& connection, MemoryRegion& word, const Offer& theirs, std::uint64_t bytes) {
  const std::uint64_t dropped = cell_of(theirs) + ring::cell_offset(ring::CellWord::Dropped);
  write_word(connection, word, part(theirs, dropped, 8), bytes);
  write_immediate(connection, word, part(theirs, 0, 8), ring::kDropped, 0);
}

constexpr const char* kTail = "tail goes back, over what was not released";
constexpr const char* kMark = "a word that begins no message";
constexpr const char* kLength = "a length that the ring does not hold";
constexpr const char* kSkip = "skips where nothing is to be skipped";
constexpr const char* kOverrun = "wrote over what was not released";
constexpr const char* kPlace = "a place that it did not reserve";
constexpr const char* kReceive = "a receive that is not for messages";

const Lie kLies[] = {
    {"buffered-write/offset", kTail,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) { write_tail(c, word, theirs, 1u << 30); }},
    {"buffered-write/offset", kTail,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) { write_tail(c, word, theirs, kRing + 64); }},
    {"buffered-write/offset", kTail,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) { write_tail(c, word, theirs, 63); }},
    {"buffered-write/offset", kMark,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) { write_tail(c, word, theirs, 64); }},
    {"buffered-write/offset", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_word(c, word, part(theirs, 0, 8), ring::message_word(0xffffffff));
       write_tail(c, word, theirs, kRing);
     }},
    {"buffered-write/offset", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_word(c, word, part(theirs, 0, 8), ring::message_word(64));
       write_tail(c, word, theirs, 64);
     }},
    {"buffered-write/offset", kSkip,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_word(c, word, part(theirs, 0, 8), ring::skip_word());
       write_tail(c, word, theirs, kRing);
     }},
    {"buffered-write/offset", kReceive, finish_a_receive},
    {"buffered-write/reversed", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_word(c, word, part(theirs, lines_of(theirs) - 8, 8), ring::message_word(0xffffffff));
     }},
    {"buffered-write/reversed", kMark,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_word(c, word, part(theirs, lines_of(theirs) - 8, 8), 64);
     }},
    {"buffered-write/reversed", kSkip,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_word(c, word, part(theirs, lines_of(theirs) - 8, 8), ring::skip_word());
     }},
    {"buffered-write/reversed", kLength, write_all_over, messaging::RingMemory::Plain},
    {"buffered-write/reversed", kOverrun, write_all_over, messaging::RingMemory::DoubleMapped},
    {"buffered-write/reversed", kReceive, finish_a_receive},
    {"buffered-write/immediate", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_immediate(c, word, part(theirs, 0, 8), 9, 8);
     }},
    {"buffered-write/immediate", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_immediate(c, word, part(theirs, 0, kRing), kRing, kRing);
     }},
    {"buffered-write/immediate", kOverrun,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       for (int i = 0; i < 5; ++i) write_immediate(c, word, part(theirs, 0, 8), 8, 8);  // a depth of 4
     }},
    {"buffered-write/immediate", kReceive, finish_a_receive},
    {"shared-write", kOverrun,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_immediate(c, word, part(theirs, 0, 8), 0x7fffffff, 8);
     }},
    {"shared-write", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_immediate(c, word, part(theirs, 0, 8), ring::kDropped, 8);
     }},
    {"shared-write", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) { drop(c, word, theirs, 65); }},
    {"shared-write", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) { drop(c, word, theirs, kRing + 64); }},
    {"shared-write", kLength,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       write_immediate(c, word, part(theirs, 0, kRing), 0, kRing);
     }},
    {"shared-write", kPlace,
     [](Connection& c, MemoryRegion& word, const Offer& theirs) {
       must(c.fetch_and_add(part(theirs, lines_of(theirs) + messaging::kSharedTail, 8), 64).wait(kPatience));
       for (int i = 0; i < 2; ++i) write_immediate(c, word, part(theirs, 0, 8), 0, 8);
     }},
    {"shared-write", kReceive, finish_a_receive},
};

class LiesInARing : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, LiesInARing, ::testing::ValuesIn(ways_of_rings()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(LiesInARing, each_ends_its_teller_by_name_and_nobody_else) {
  int told = 0;
  for (const Lie& lie : kLies) {
    if (!lie.is_for(GetParam().kind)) continue;
    SCOPED_TRACE("lie " + std::to_string(&lie - kLies) + ": " + lie.what);
    ++told;
    Ends ends(GetParam(), {.max_message_bytes = 600, .depth = 4, .ring_bytes = kRing, .max_senders = 2});
    std::string how_it_ended;
    ends.receiver->on_peer_end([&](messaging::PeerId peer, const Result<void>& how) {
      if (peer == 1) how_it_ended = how ? "well" : how.error().to_string();
    });
    Sender honest = ends.connect();
    Connection liar = must(Connection::prepare(ends.engine));
    must(liar.connect_to(ends.listener->address().to_string(), sender_offer(ends.options).to_bytes()));
    auto word = must(ends.client.protection_domain().allocate_memory(kRing));
    lie.tell(liar, word, must(Offer::from_bytes(liar.private_data())));
    std::vector<Message> held;
    const auto is_told = [&] {
      while (auto message = ends.receiver->try_receive()) held.push_back(std::move(*message));
      return !how_it_ended.empty();
    };
    EXPECT_TRUE(ends.engine.run_until(is_told, kPatience));
    EXPECT_THAT(how_it_ended, ::testing::AllOf(::testing::HasSubstr("ProtocolError"), ::testing::HasSubstr(lie.what)));
    held.clear();
    must(honest.send(text_of_message(0, 1, 500)));
    EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), 1, 500));
  }
  EXPECT_GE(told, 4);
}

// ---- Receivers that tell a head there cannot be.

// A receiver of our own making, with memory laid out as a ring of kCapacity. It takes what comes, and gives nothing
// back; how it lies is for the test.
class LyingReceiver {
 public:
  static constexpr std::uint64_t kCapacity = 4096;
  static constexpr std::size_t kGuard = 4096;  // behind the ring, its lines and one cell

  explicit LyingReceiver(Ends& ends)
      : kind_(ends.options.kind),
        frames_(kind_.ring == messaging::RingMemory::DoubleMapped ? 2 * kCapacity : kCapacity),
        memory_(must(ends.server.protection_domain().allocate_memory(bytes() + kGuard, Access::All))),
        listener_(must(Listener::create(ends.engine, {.device = &ends.server}))) {
    Offer offer = sender_offer(ends.options);
    offer.role = Role::Receiver;
    offer.memory = must(memory_.remote().sub_range(0, bytes()));
    offer.extra = kind_.protocol == Protocol::SharedWrite ? messaging::SharedPlace{kCapacity, 0}.pack() : kCapacity;
    listener_.on_request([this, &ends, answer = offer.to_bytes()] {
      Connection prepared = must(Connection::prepare(ends.engine, {.device = &ends.server}));
      for (int i = 0; i < 64; ++i) prepared.receive(receives_.emplace_back(), {});
      connection_ = must(listener_.poll_request()->accept(std::move(prepared), answer));
    });
  }
  Sender connect(Ends& ends) {
    Sender sender = must(Sender::connect(ends.engine, listener_.address().to_string(), ends.options));
    must(connection_->wait_established(kPatience));
    return sender;
  }
  // It has no room left then: messages stand all over the ring.
  void fill(Ends& ends, Sender& sender) {
    for (Quiet quiet(ends); !quiet.is_long(); ends.engine.run_once())
      while (sender.try_send(text_of_message(0, 0, kMessage))) quiet.end();
    EXPECT_FALSE(sender.closed());
    written_.assign(memory_.bytes().begin(), memory_.bytes().begin() + static_cast<std::ptrdiff_t>(frames_));
  }
  // The word a sender reads, or what a control says of it.
  void tell_head(std::uint64_t head) {
    if (kind_.protocol == Protocol::SharedWrite) return store(frames_ + messaging::kSharedHead, head);
    if (kind_.acknowledge == messaging::Acknowledge::Read) return store(frames_ + messaging::kHeadLine, head);
    const messaging::Control control{messaging::Control::Word::GivenBack,
                                     static_cast<std::uint32_t>(head / ring::kUnitBytes)};
    SendRequest request;
    request.opcode = SendOpcode::SendWithImmediate;
    request.immediate = control.to_immediate();
    EXPECT_TRUE(connection_->post_send({&request, 1}));
  }
  void move_tail(std::uint64_t tail) { store(frames_ + messaging::kSharedTail, tail); }
  // Nothing was written since fill(), nor ever beside what was offered.
  void expect_nothing_written() const {
    EXPECT_TRUE(std::equal(written_.begin(), written_.end(), memory_.bytes().begin()));
    for (const std::byte b : memory_.bytes().subspan(static_cast<std::size_t>(bytes()))) EXPECT_EQ(b, std::byte{0});
  }
  static constexpr std::size_t kMessage = 600;

 private:
  std::uint64_t bytes() const { return frames_ + messaging::kSharedCells + ring::kCellBytes; }
  void store(std::uint64_t at, std::uint64_t word) { ring::store_word(memory_.data() + at, word); }

  Kind kind_;
  std::uint64_t frames_;
  MemoryRegion memory_;
  std::deque<Operation> receives_;
  std::optional<Connection> connection_;
  Listener listener_;
  std::vector<std::byte> written_;
};

class LyingHeads : public ::testing::TestWithParam<Way> {
 protected:
  // Beside an honest pair: it ends by name what was told the lie, and no more is written.
  static void expect_left(Ends& ends, Sender& sender, const LyingReceiver& liar) {
    EXPECT_TRUE(ends.engine.run_until(
        [&] { return !sender.try_send(text_of_message(0, 0, LyingReceiver::kMessage)) && sender.closed(); },
        kPatience));
    expect_error(sender.status(), ErrorCode::ProtocolError, "the peer's head goes back");
    expect_error(sender.send(text_of_message(0, 0, 8), kPatience), ErrorCode::ProtocolError);
    liar.expect_nothing_written();
  }
  static void expect_to_work(Ends& ends, Sender& honest) {
    for (std::uint32_t n = 0; n < kRingMessages; ++n) {
      must(honest.send(text_of_message(0, n, 500), kPatience));
      EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 500));
    }
    must(honest.close(kPatience));
  }
  static Options options() {
    return {.max_message_bytes = 600, .depth = 16, .ring_bytes = 16384, .max_senders = 2};
  }
};
INSTANTIATE_TEST_SUITE_P(Messaging, LyingHeads, ::testing::ValuesIn(ways_of_rings()),
                         [](const auto& way) { return name_of(way.param); });

TEST_P(LyingHeads, of_a_receiver_are_left_by_name_and_nothing_is_overwritten) {
  const bool shared = GetParam().kind.protocol == Protocol::SharedWrite;
  const bool in_units = !shared && GetParam().kind.acknowledge == messaging::Acknowledge::Send;
  // Far beyond the tail, and before the beginning; between frames, where it is told in bytes.
  for (const std::uint64_t head :
       {std::uint64_t{1} << 20, std::uint64_t{LyingReceiver::kCapacity + 64}, std::uint64_t{63}, ~std::uint64_t{63}}) {
    if (in_units && head % ring::kUnitBytes != 0) continue;
    SCOPED_TRACE(head);
    Ends ends(GetParam(), options());
    Sender honest = ends.connect();
    LyingReceiver liar(ends);
    Sender sender = liar.connect(ends);
    liar.fill(ends, sender);
    liar.tell_head(head);
    expect_left(ends, sender, liar);
    expect_to_work(ends, honest);
  }
}

TEST_P(LyingHeads, that_go_back_behind_what_was_freed_are_left_by_name) {
  Ends ends(GetParam(), options());
  Sender honest = ends.connect();
  LyingReceiver liar(ends);
  Sender sender = liar.connect(ends);
  liar.fill(ends, sender);
  liar.tell_head(1280);
  must(sender.send(text_of_message(0, 0, LyingReceiver::kMessage), kPatience));
  liar.fill(ends, sender);
  liar.tell_head(0);
  expect_left(ends, sender, liar);
  expect_to_work(ends, honest);
}

class LyingSharedHeads : public LyingHeads {};
INSTANTIATE_TEST_SUITE_P(Messaging, LyingSharedHeads, ::testing::ValuesIn([] {
                           std::vector<Way> ways;
                           for (const Way& way : every_way())
                             if (way.kind.protocol == Protocol::SharedWrite) ways.push_back(way);
                           return ways;
                         }()),
                         [](const auto& way) { return name_of(way.param); });

// Its place is known then: no head passes it.
TEST_P(LyingSharedHeads, that_pass_a_reservation_that_waits_are_left_by_name) {
  Ends ends(GetParam(), options());
  Sender honest = ends.connect();
  LyingReceiver liar(ends);
  Sender sender = liar.connect(ends);
  liar.move_tail(LyingReceiver::kCapacity);
  EXPECT_TRUE(sender.try_send(text_of_message(0, 0, 600)));
  liar.fill(ends, sender);
  liar.tell_head(LyingReceiver::kCapacity + 64);
  expect_left(ends, sender, liar);
  expect_to_work(ends, honest);
}

// ---- A tail that no sender makes. It is where all of them reserve, so all of them end, by name; and others begin.

class SpoiltTail : public ::testing::TestWithParam<PathChoice> {
 protected:
  static constexpr std::uint8_t kTimeout = kSanitized ? 16 : 14;  // who holds a place may do so for longer
  SpoiltTail()
      : ends(Way{must(messaging::parse_kind("shared-write")), GetParam()},
             {.max_message_bytes = 600,
              .depth = 4,
              .ring_bytes = kRing,
              .max_senders = 3,
              .connection = {.keep_alive = Duration::milliseconds(30)}},
             kTimeout) {
    ends.receiver->on_peer_end([&](messaging::PeerId, const Result<void>& how) {
      if (!how) reasons.push_back(how.error().to_string());
    });
  }
  Connection connect_liar() {
    Connection liar = must(Connection::prepare(ends.engine));
    must(liar.connect_to(ends.listener->address().to_string(), sender_offer(ends.options).to_bytes()));
    theirs = must(Offer::from_bytes(liar.private_data()));
    return liar;
  }
  void add_to_tail(Connection& liar, std::uint64_t bytes) {
    const auto place = messaging::SharedPlace::unpack(theirs.extra);
    must(liar.fetch_and_add(part(theirs, place.capacity + messaging::kSharedTail, 8), bytes).wait());
  }
  void spoil(Connection& liar) { add_to_tail(liar, std::uint64_t{1} << 40); }
  void expect_to_get_through(Sender& sender) {
    for (std::uint32_t n = 0; n < kRingMessages; ++n) {
      must(sender.send(text_of_message(0, n, 500), kPatience));
      EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), n, 500)) << n;
    }
  }
  void expect_new_ones_to_work() {
    EXPECT_TRUE(ends.engine.run_until(
        [&] { return !ends.receiver->try_receive() && ends.receiver->peers() == 0; }, kPatience));
    Sender fresh = ends.connect();
    expect_to_get_through(fresh);
    must(fresh.close());
  }

  Ends ends;
  Offer theirs;
  std::vector<std::string> reasons;
};

INSTANTIATE_TEST_SUITE_P(Messaging, SpoiltTail, ::testing::Values(PathChoice::Roce, PathChoice::Local), name_of_path);

TEST_P(SpoiltTail, of_one_that_lives_is_told_to_who_reserves_behind_it) {
  Sender honest = ends.connect();
  Connection liar = connect_liar();
  spoil(liar);
  must(honest.send(text_of_message(0, 1, 500)));
  EXPECT_TRUE(ends.engine.run_until([&] { return honest.closed(); }, kPatience));
  EXPECT_THAT(honest.status().error().to_string(),
              ::testing::AllOf(::testing::HasSubstr("ProtocolError"), ::testing::HasSubstr("tail")));
  { const Connection gone = std::move(liar); }
  { const Sender gone = std::move(honest); }
  expect_new_ones_to_work();
}

TEST_P(SpoiltTail, of_one_that_dies_ends_all_who_share_it_by_name) {
  Sender honest = ends.connect();
  {
    Connection liar = connect_liar();
    reserve(liar, ends.client, theirs);
    spoil(liar);
  }
  EXPECT_TRUE(ends.engine.run_until(
      [&] { return !ends.receiver->try_receive() && honest.closed() && reasons.size() == 2; }, kPatience));
  EXPECT_THAT(reasons, ::testing::Contains(::testing::HasSubstr("the peer's tail goes back")));
  expect_new_ones_to_work();
}

TEST_P(SpoiltTail, is_noticed_by_nobody_in_another_ring_of_the_same_device) {
  Receiver other = must(Receiver::create(ends.engine, [&] {
    Options there = ends.options;
    there.connection.device = &ends.server;
    return there;
  }()));
  Listener listener = must(Listener::create(ends.engine, {.device = &ends.server}));
  listener.on_request([&] { must(other.accept(std::move(*listener.poll_request()))); });
  Sender neighbour = must(Sender::connect(ends.engine, listener.address().to_string(), ends.options));
  Sender honest = ends.connect();
  Connection liar = connect_liar();
  spoil(liar);
  must(honest.send(text_of_message(0, 1, 500)));
  for (std::uint32_t n = 0; n < kRingMessages || !honest.closed(); ++n) {
    must(neighbour.send(text_of_message(0, n, 500), kPatience));
    EXPECT_TRUE(is_message(must(other.receive(kPatience)), n, 500)) << n;
  }
  must(neighbour.close());
}

// By less than the ring, so that others get a place behind it, and by more, so that they wait for room: each time anew.
TEST_P(SpoiltTail, that_leaves_a_place_to_nobody_holds_up_nobody) {
  Sender honest = ends.connect();
  for (const std::uint64_t bytes : {std::uint64_t{1024}, kRing, 3 * kRing + 64, 3 * kRing + 64}) {
    Connection liar = connect_liar();
    add_to_tail(liar, bytes);
    expect_to_get_through(honest);
    { const Connection gone = std::move(liar); }
    EXPECT_TRUE(ends.engine.run_until(
        [&] { return !ends.receiver->try_receive() && ends.receiver->peers() == 1; }, kPatience));
    // Until nobody looks for who holds up others any more.
    EXPECT_FALSE(ends.engine.run_until([&] { return ends.receiver->try_receive().has_value(); },
                                       messaging::kLongWait * 3));
  }
  must(honest.close());
  EXPECT_EQ(reasons.size(), 4u);  // the liar's, each time
}

TEST_P(SpoiltTail, of_one_that_keeps_its_place_and_lives_ends_that_one_alone) {
  for (const std::uint64_t more : {std::uint64_t{0}, kRing}) {
    Sender honest = ends.connect();
    std::optional<Sender> idle;  // where one was that had begun, and this one has not
    if (more != 0) idle = ends.connect();
    Connection liar = connect_liar();
    reserve(liar, ends.client, theirs);
    if (more != 0) add_to_tail(liar, more);
    expect_to_get_through(honest);
    ASSERT_EQ(reasons.size(), 1u);
    EXPECT_THAT(std::exchange(reasons, {})[0],
                ::testing::AllOf(::testing::HasSubstr("ProtocolError"), ::testing::HasSubstr("held up the others")));
    must(honest.close());
    if (idle) must(idle->close());
    EXPECT_TRUE(ends.engine.run_until(
        [&] { return !ends.receiver->try_receive() && ends.receiver->peers() == 0; }, kPatience));
  }
}

// Behind a gap, where nothing is handed out any more.
TEST_P(SpoiltTail, ends_those_whose_messages_arrived_too) {
  Sender honest = ends.connect();
  {
    Connection liar = connect_liar();
    reserve(liar, ends.client, theirs);
    must(honest.send(text_of_message(0, 0, 500)));
    for (Quiet quiet(ends); !quiet.is_long();) ends.engine.run_once();
    spoil(liar);
  }
  const auto over = ends.receiver->receive(kPatience);
  ASSERT_FALSE(over);
  EXPECT_NE(over.error().code(), ErrorCode::DeadlineExceeded);
  EXPECT_EQ(reasons.size(), 2u);
  { const Sender gone = std::move(honest); }
  expect_new_ones_to_work();
}

// It says that it has begun, and moves no tail.
class WithoutAPlace : public SpoiltTail {
 protected:
  void expect_to_be_ended(std::uint64_t offset) {
    Sender honest = ends.connect();
    Connection liar = connect_liar();
    MemoryRegion word = must(ends.client.protection_domain().allocate_memory(64));
    write_word(liar, word, part(theirs, cell_of(theirs), 8), 1);
    write_immediate(liar, word, part(theirs, offset, 8), static_cast<std::uint32_t>(offset / ring::kUnitBytes), 8);
    expect_to_get_through(honest);
    EXPECT_TRUE(ends.engine.run_until([&] { return !reasons.empty(); }, kPatience));
    EXPECT_THAT(reasons, ::testing::ElementsAre(::testing::HasSubstr(kPlace)));
    must(honest.close());
  }
};
INSTANTIATE_TEST_SUITE_P(Messaging, WithoutAPlace, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         name_of_path);

TEST_P(WithoutAPlace, who_writes_in_front_is_ended_alone) { expect_to_be_ended(0); }
TEST_P(WithoutAPlace, who_writes_ahead_is_ended_alone) { expect_to_be_ended(8 * ring::kUnitBytes); }

// Nor does who waits for room meanwhile hold up anybody, when it gets some.
TEST_P(SpoiltTail, is_none_where_a_program_keeps_messages_for_long) {
  Ends own(Way{must(messaging::parse_kind("shared-write")), GetParam()},
           {.max_message_bytes = 600,
            .depth = 64,
            .ring_bytes = kRing,
            .max_senders = 2,
            .connection = {.keep_alive = Duration::milliseconds(20)}},
           kTimeout);
  Sender one = own.connect(), other = own.connect();
  std::vector<Message> kept;
  std::array<std::uint32_t, 2> sent{}, got{};
  const auto turn = [&](bool keep) {
    for (const std::uint32_t i : {0u, 1u})
      while (sent[i] < 200 && (i == 0 ? one : other).try_send(text_of_message(i, sent[i], 500))) ++sent[i];
    while (auto message = own.receiver->try_receive()) {
      const auto who = static_cast<std::uint32_t>(message->peer());
      EXPECT_TRUE(is_message(*message, got[who]++, 500, who)) << who;
      if (keep) kept.push_back(std::move(*message));
    }
    return got[0] == 200 && got[1] == 200;
  };
  EXPECT_FALSE(own.engine.run_until([&] { return turn(true); }, Duration::milliseconds(1800)));
  EXPECT_FALSE(one.closed() || other.closed());
  EXPECT_LT(kept.size(), 400u);
  kept.clear();
  EXPECT_TRUE(own.engine.run_until([&] { return turn(false) || one.closed() || other.closed(); }, kPatience));
  EXPECT_FALSE(one.closed() || other.closed());
}

std::uint64_t direct_requests(const Device& device) {
  for (const NamedCounter& counter : device.counters())
    if (counter.name == "direct_requests") return counter.value;
  return 0;
}

TEST(BufferedWriteRing, within_a_host_a_short_message_needs_no_request_once_the_ring_is_reached) {
  for (const auto commit : {messaging::Commit::Offset, messaging::Commit::Reversed}) {
    Ends ends({{Protocol::BufferedWrite, commit}, PathChoice::Local},
              {.max_message_bytes = 6000, .depth = 64, .ring_bytes = 1 << 16, .max_senders = 1});
    Sender sender = ends.connect();
    std::uint32_t sent = 0, got = 0;
    const auto pass = [&](std::size_t bytes) {
      must(sender.send(text_of_message(0, sent++, bytes), kPatience));
      EXPECT_TRUE(is_message(must(ends.receiver->receive(kPatience)), got++, bytes)) << got;
    };
    for (int tries = 0; tries < 1000 && direct_requests(ends.client) == 0; ++tries) {
      pass(8);
      ends.engine.run_until([] { return false; }, Duration::milliseconds(1));
    }
    const std::uint64_t before = direct_requests(ends.client), posts = sender.counters().posts;
    for (std::uint32_t i = 0; i < 3000; ++i) pass(i % 200);  // the ring's end comes several times
    EXPECT_GT(direct_requests(ends.client), before + 2900);
    EXPECT_LT(sender.counters().posts, posts + 1500) << "those that met a device at work, and what followed them";
    ASSERT_TRUE(ends.engine.run_until([&] { return sender.credits() >= 6; }, kPatience));
    // A reservation that is short, and a batch that one WRITE brings there, do not either.
    for (int tries = 0, without = 0; without < 2; ++tries) {
      ASSERT_LT(tries, 1000);
      const std::uint64_t posted = sender.counters().posts, direct = direct_requests(ends.client);
      const std::vector<std::byte> one = text_of_message(0, sent, 8);
      const std::array<std::span<const std::byte>, 3> three{one, one, one};
      auto reservation = sender.try_reserve(8);
      ASSERT_TRUE(reservation);
      std::copy(one.begin(), one.end(), reservation->bytes().begin());
      ASSERT_TRUE(without == 0 ? sender.try_commit(*reservation, 8) : sender.try_send_batch(three));
      for (int i = 0; i < (without == 0 ? 1 : 3); ++i, ++sent) {
        const Message message = must(ends.receiver->receive(kPatience));
        EXPECT_TRUE(std::equal(one.begin(), one.end(), message.bytes().begin(), message.bytes().end()));
      }
      must(sender.wait_freed(sent, kPatience));
      if (sender.counters().posts == posted && direct_requests(ends.client) > direct) ++without;
    }
    // One that is too long for that is posted, and what stands before and behind it in the batch.
    std::vector<std::vector<std::byte>> texts;
    for (const std::size_t bytes : {8u, 6000u, 8u, 5000u})
      texts.push_back(text_of_message(0, sent + static_cast<std::uint32_t>(texts.size()), bytes));
    const std::vector<std::span<const std::byte>> batch(texts.begin(), texts.end());
    EXPECT_EQ(sender.try_send_batch(batch).taken, batch.size());
    for (const auto& text : texts) {
      const Message message = must(ends.receiver->receive(kPatience));
      EXPECT_TRUE(std::equal(text.begin(), text.end(), message.bytes().begin(), message.bytes().end()));
    }
    must(sender.wait_freed(sent + batch.size(), kPatience));
  }
}

// Controls count the units of one.
TEST(RingAtADevice, is_refused_by_name_where_it_is_too_large_or_none) {
  Device device = must(Device::open(OpenOptions{}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  for (const char* const name : {"buffered-write", "shared-write"})
    for (const std::uint64_t bytes : {std::uint64_t{0}, (std::uint64_t{8} << 30) + 1, std::uint64_t{64} << 30})
      expect_error(Receiver::create(engine, {.kind = must(messaging::parse_kind(name)), .ring_bytes = bytes}),
                   ErrorCode::InvalidArgument, "which is not 1 to 8 GiB");
}

// What was put into the ring's image and is not written there would be missing from then on.
TEST(RingAtADevice, that_refuses_a_request_ends_its_sender_by_name) {
  for (const char* const name : {"buffered-write/immediate", "buffered-write/offset", "buffered-write/reversed",
                                 "shared-write"})
    for (const int way : {0, 1, 2}) {
      SCOPED_TRACE(name + std::to_string(way));
      bool refuses = false;
      Ends ends(must(open_standard(PathChoice::Roce, {.promises = true, .keeps = true, .refuses = &refuses})),
                must(Device::open({.path = PathChoice::Roce})), {must(messaging::parse_kind(name))},
                {.max_message_bytes = 6000, .depth = 8, .ring_bytes = 1 << 16, .max_senders = 1});
      Sender sender = ends.connect();
      std::vector<std::byte> text(5000);
      const std::array<std::span<const std::byte>, 2> two{text, text};
      auto reservation = sender.try_reserve(5000);
      ASSERT_TRUE(reservation);
      refuses = true;
      static_cast<void>(way == 0   ? sender.try_send(text)
                        : way == 1 ? sender.try_send_batch(two)
                                   : sender.try_commit(*reservation, 5000));
      EXPECT_TRUE(sender.closed());
      expect_error(sender.status(), ErrorCode::InvalidArgument, "the device refuses a request");
      EXPECT_FALSE(ends.receiver->receive(kPatience));
    }
}

}  // namespace
}  // namespace verbena
