// SPDX-License-Identifier: Apache-2.0
// Peers that shake hands as honest ones do, and then say, write and announce anything, seed by seed in virtual time.
// What comes of it are messages within their bounds and an end that is told by name; who shares the receiver with such
// a sender does not notice.
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "base/sanitizer.h"
#include "device/wire_bytes.h"
#include "messaging/control.h"
#include "messaging/offer.h"
#include "messaging/ring/geometry.h"
#include "messaging/shared_write.h"
#include "virtual_pair.h"

namespace verbena {
namespace {

using namespace test;
using messaging::Control;
using messaging::Offer;
using messaging::Role;

constexpr std::uint64_t kCapacity = 4096;
constexpr std::uint64_t kSeeds = kSanitized ? 4 : 24;
constexpr std::uint32_t kLongest = 128, kDepth = 8, kHonest = 20;

Options options_for(const Way& way) {
  return {.kind = way.kind,
          .max_message_bytes = kLongest,
          .depth = kDepth,
          .ring_bytes = kCapacity,
          .max_senders = 2,
          .connection = {.reliability = {.timeout = 8}, .keep_alive = Duration::milliseconds(3)}};
}

// What peers that break a promise may make of a connection. None of these says that an honest end did something wrong.
void expect_end_of_a_liar(const Error& error) {
  static const std::set<ErrorCode> kEnds{
      ErrorCode::ProtocolError,     ErrorCode::ConnectionLost,    ErrorCode::Disconnected, ErrorCode::LocalLengthError,
      ErrorCode::RemoteAccessError, ErrorCode::RemoteInvalidRequest};
  EXPECT_TRUE(kEnds.contains(error.code())) << error.to_string();
}

// Its connection, and what it may say with it.
class Liar {
 public:
  Liar(VirtualWorld::Host& host, const Way& way, Role role, std::uint64_t seed)
      : host_(host),
        way_(way),
        role_(role),
        random_(seed),
        tameness_(1 + random_.below(20)),
        memory_(must(host.device().allocate_memory(kMemory))),
        inbox_(must(host.device().allocate_memory(kReceives * kReceiveBytes))) {}

  // What an honest end of its role says of itself.
  Offer offer() const {
    Offer ours;
    ours.role = role_;
    ours.kind = way_.kind;
    ours.order_in_write = true;
    ours.max_message_bytes = kLongest;
    ours.depth = kDepth;
    const Protocol protocol = way_.kind.protocol;
    if (protocol == Protocol::BufferedWrite || protocol == Protocol::SharedWrite ||
        protocol == Protocol::BufferedRead) {
      ours.memory = memory_.remote();
      ours.extra = protocol == Protocol::SharedWrite ? messaging::SharedPlace{kCapacity, 0}.pack() : kCapacity;
    } else {
      ours.extra = kDepth;
    }
    return ours;
  }
  Connection prepare() {
    Connection connection = must(Connection::prepare(
        host_.engine(),
        {.queues = {.max_send_requests = 64, .max_receive_requests = kReceives, .max_inline_bytes = kInline},
         .reliability = {.timeout = 8}}));
    for (std::uint32_t i = 0; i < kReceives; ++i) post_receive(connection, i);
    return connection;
  }
  void begin(Connection connection, const Offer& theirs) {
    theirs_ = theirs;
    connection_.emplace(std::move(connection));
    connection_->on_completion([this](const Completion& completion) { handle(completion); });
  }
  bool has_begun() const { return connection_.has_value(); }

  Task<void> lie(int times) {
    for (; times != 0 && !connection_->closed(); --times) {
      lie_once();
      if (random_.chance(0.5)) co_await host_.engine().sleep(Duration::microseconds(number(200)));
    }
    if (random_.chance(0.3)) say(static_cast<std::uint32_t>(Control::Word::Finish) << 28 | small(), 0);
    co_await host_.engine().sleep(Duration::milliseconds(number(3)));
    if (random_.chance(0.5)) static_cast<void>(co_await connection_->async_close());
    connection_.reset();
    is_over = true;
  }
  void lie_once() {
    if (random_.below(tameness_) != 0) return be_plausible();
    switch (random_.below(has_memory() ? 7 : 3)) {
      case 0:
        return say(static_cast<std::uint32_t>(random_.chance(0.8) ? 1 + random_.below(3) : random_.below(16)) << 28 |
                       (anything() & Control::kNumberMask),
                   random_.chance(0.8) ? 0 : length());
      case 1:
        return send(random_.chance(0.6) ? descriptors() : length());
      case 2:
        return write_with_immediate();
      case 3:
      case 4:
        return write_word();
      case 5:
        return add();
      default:
        return scribble();
    }
  }

  bool is_over = false;

 private:
  static constexpr std::size_t kMemory = 4 * kCapacity, kReceiveBytes = 256;
  static constexpr std::uint32_t kReceives = 64, kInline = 192;
  struct Grant {
    std::uint64_t address = 0;
    std::uint32_t key = 0;
  };

  bool has_memory() const { return theirs_.memory.length != 0; }
  std::int64_t number(std::uint64_t below) { return static_cast<std::int64_t>(random_.below(below)); }
  std::uint32_t small() { return static_cast<std::uint32_t>(random_.below(12)); }
  std::uint32_t anything() {
    static constexpr std::uint32_t kEdges[] = {0,   1,   7,    8,    9,        63,       64, 127,
                                               128, 129, 4095, 4096, 1u << 28, 1u << 31, ~0u};
    if (random_.chance(0.3)) return small();
    return random_.chance(0.7) ? kEdges[random_.below(std::size(kEdges))] : random_.next_u32();
  }
  std::uint32_t length() {
    static constexpr std::uint32_t kLengths[] = {0, 1, 15, 16, 17, 32, 112, 127, 128, 129, 144, 192};
    return kLengths[random_.below(std::size(kLengths))];
  }
  // As many as go in one SEND of an honest end, or some more.
  std::uint32_t descriptors() {
    const bool one = way_.kind.protocol == Protocol::DirectRead && random_.chance(0.9);
    return 16 * (one ? 1 : 1 + static_cast<std::uint32_t>(random_.below(9)));
  }
  std::uint64_t word() {
    switch (random_.below(6)) {
      case 0:
        return ring::message_word(anything());
      case 1:
        return ring::skip_word();
      case 2:
        return random_.next_u64();
      case 3:
        return anything();
      default:
        return 64 * random_.below(2 * kCapacity / 64);
    }
  }
  std::uint64_t frames() const {
    return way_.kind.ring == messaging::RingMemory::DoubleMapped ? 2 * kCapacity : kCapacity;
  }
  // Where what matters stands in a memory that is offered: frames, and the lines behind them.
  std::uint64_t place() {
    const std::uint64_t lines = frames();
    switch (random_.below(5)) {
      case 0:
        return lines;
      case 1:
        return lines + 64;
      case 2:
        return lines + 128 + 8 * random_.below(24);
      case 3:
        return lines - 8;
      default:
        return 64 * random_.below(kCapacity / 64);
    }
  }

  PostResult post(SendOpcode opcode, const ScatterGather& piece, std::uint64_t address = 0, RKey key = {},
                  std::uint32_t immediate = 0, std::uint64_t addend = 0) {
    SendRequest request;
    request.opcode = opcode;
    const bool is_inline = piece.lkey == LKey{} && piece.length != 0;
    request.flags = is_inline ? SendFlags::Signaled | SendFlags::Inline : SendFlags::Signaled;
    request.local = {&piece, piece.length == 0 ? std::size_t{0} : std::size_t{1}};
    request.remote_address = address;
    request.rkey = key;
    store_be32(request.immediate.data(), immediate);
    request.swap_or_add = addend;
    return connection_->post_send({&request, 1});
  }
  ScatterGather piece_of_text(std::uint32_t bytes) const {
    return {reinterpret_cast<std::uintptr_t>(text_.data()), bytes, {}};
  }
  void descriptor(std::size_t at, std::uint64_t address, std::uint32_t key, std::uint32_t bytes) {
    wire_bytes::store_le64(&text_[at], address);
    wire_bytes::store_le32(&text_[at + 8], key);
    wire_bytes::store_le32(&text_[at + 12], bytes);
  }
  // Descriptors, as far as they go: of memory there is at either end, or nowhere.
  ScatterGather text(std::uint32_t bytes) {
    for (std::size_t at = 0; at < text_.size(); at += 16) {
      const std::uint64_t addresses[] = {memory_.remote().address + anything() % kMemory, theirs_.memory.address,
                                         random_.next_u64(), 0};
      const std::uint32_t keys[] = {memory_.rkey().value(), theirs_.memory.rkey.value(), random_.next_u32()};
      descriptor(at, addresses[random_.chance(0.7) ? 0 : random_.below(4)],
                 keys[random_.chance(0.7) ? 0 : random_.below(3)], random_.chance(0.5) ? kLongest : anything());
    }
    return piece_of_text(bytes);
  }
  void say(std::uint32_t immediate, std::uint32_t bytes) {
    static_cast<void>(post(SendOpcode::SendWithImmediate, text(bytes), 0, {}, immediate));
  }
  void send(std::uint32_t bytes) { static_cast<void>(post(SendOpcode::Send, text(bytes))); }
  // Of nobody's memory no byte is needed to say something.
  void write_with_immediate() {
    const std::uint32_t bytes = has_memory() || random_.chance(0.1) ? length() : 0;
    const std::uint64_t positions[] = {bytes, came_, place() / 64, anything()};
    static_cast<void>(post(SendOpcode::RdmaWriteWithImmediate, text(bytes), theirs_.memory.address + place(),
                           theirs_.memory.rkey, static_cast<std::uint32_t>(positions[random_.below(4)])));
  }
  void write_word() { write_word(word(), place()); }
  void write_word(std::uint64_t it, std::uint64_t offset) {
    const ScatterGather piece{reinterpret_cast<std::uintptr_t>(&it), 8, {}};
    static_cast<void>(post(SendOpcode::RdmaWrite, piece, theirs_.memory.address + offset, theirs_.memory.rkey));
  }
  void add() {
    static_cast<void>(post(SendOpcode::FetchAndAdd, memory_.local(kMemory - 8, 8), theirs_.memory.address + place(),
                           theirs_.memory.rkey, 0, 64 * random_.below(random_.chance(0.9) ? 16 : 1u << 31)));
  }
  // To the place that the last atomic brought, if that was of the tail; and takes the next. It fills its frame.
  void write_where_reserved() {
    std::uint64_t at = 0;
    std::memcpy(&at, memory_.data() + kMemory - 8, 8);
    if (came_++ != 0)
      static_cast<void>(post(SendOpcode::RdmaWriteWithImmediate, text(64 + 4 * small()),
                             theirs_.memory.address + at % kCapacity, theirs_.memory.rkey,
                             static_cast<std::uint32_t>(at / 64)));
    static_cast<void>(post(SendOpcode::FetchAndAdd, memory_.local(kMemory - 8, 8),
                           theirs_.memory.address + frames() + messaging::kSharedTail, theirs_.memory.rkey, 0, 128));
  }
  void scribble() {
    for (int i = 0; i < 3; ++i) {
      const std::uint64_t it = word();
      std::memcpy(memory_.data() + place(), &it, 8);
    }
  }
  // What goes for the next step of an honest end, so that lies come in the middle of things.
  void be_plausible() {
    const std::uint32_t bytes = small() * 10;
    if (role_ == Role::Receiver) return give_back();
    switch (way_.kind.protocol) {
      case Protocol::SendReceive:
      case Protocol::SharedReceive:
        return send(bytes);
      case Protocol::DirectRead:
        descriptor(0, memory_.remote().address, memory_.rkey().value(), random_.chance(0.9) ? bytes : anything());
        return static_cast<void>(post(SendOpcode::Send, piece_of_text(16)));
      case Protocol::DirectWrite:
        if (grants_.size() <= came_) return;
        static_cast<void>(post(SendOpcode::RdmaWriteWithImmediate, text(random_.chance(0.9) ? bytes : length()),
                               grants_[came_].address, RKey{grants_[came_].key}, came_));
        ++came_;
        return;
      case Protocol::BufferedWrite:
        if (way_.kind.commit != messaging::Commit::Immediate) return write_frame();
        static_cast<void>(post(SendOpcode::RdmaWriteWithImmediate, text(bytes), theirs_.memory.address + 128 * came_++,
                               theirs_.memory.rkey, bytes));
        return;
      case Protocol::SharedWrite:
        return write_where_reserved();
      case Protocol::BufferedRead: {
        const std::uint64_t first = ring::message_word(bytes), tail = (tail_ += 128);
        std::memcpy(memory_.data() + (tail - 128) % kCapacity, &first, 8);
        std::memcpy(memory_.data() + frames(), &tail, 8);
        return;
      }
    }
  }
  // A unit of the ring.
  void write_frame() {
    const std::uint64_t at = tail_ % kCapacity;
    const bool is_reversed = way_.kind.commit == messaging::Commit::Reversed;
    write_word(ring::message_word(small() * 4), is_reversed ? frames() - at - 8 : at);
    tail_ += 64;
    if (!is_reversed) write_word(tail_, frames());
  }
  void give_back() {
    if (way_.kind.protocol == Protocol::DirectWrite) {
      descriptor(0, memory_.remote().address + 128 * small(), memory_.rkey().value(), kLongest);
      return static_cast<void>(post(SendOpcode::Send, piece_of_text(16)));
    }
    const std::uint64_t head = way_.kind.protocol == Protocol::BufferedWrite ? 2 * came_ : came_;
    const std::uint64_t bytes = 64 * head;
    std::memcpy(memory_.data() + frames() + 64, &bytes, 8);
    if (way_.kind.protocol == Protocol::BufferedRead) return write_word(bytes, frames() + 64);
    if (way_.kind.protocol == Protocol::SharedWrite) return;
    say(static_cast<std::uint32_t>(Control::Word::GivenBack) << 28 | static_cast<std::uint32_t>(head), 0);
  }

  void post_receive(Connection& connection, std::uint64_t slot) {
    const ScatterGather piece = inbox_.local(slot * kReceiveBytes, kReceiveBytes);
    const ReceiveRequest request{kReceive | slot, {&piece, 1}};
    static_cast<void>(connection.post_receive({&request, 1}));
  }
  void handle(const Completion& completion) {
    if ((completion.id & kReceive) == 0 || completion.status != CompletionStatus::Success) return;
    const std::uint64_t slot = completion.id & ~kReceive;
    if (role_ == Role::Receiver) ++came_;
    const std::byte* const bytes = inbox_.data() + slot * kReceiveBytes;
    for (std::uint32_t at = 0; !completion.with_immediate && at + 16 <= completion.byte_count; at += 16)
      grants_.push_back({wire_bytes::load_le64(bytes + at), wire_bytes::load_le32(bytes + at + 8)});
    post_receive(*connection_, slot);
  }

  static constexpr std::uint64_t kReceive = std::uint64_t{1} << 40;
  VirtualWorld::Host& host_;
  const Way way_;
  const Role role_;
  SeededRandom random_;
  const std::uint64_t tameness_;  // so many steps of its are as those of an honest end, to one that is not
  MemoryRegion memory_, inbox_;
  std::array<std::byte, 192> text_{};
  Offer theirs_;
  std::vector<Grant> grants_;  // of its peer
  std::uint32_t came_ = 0;     // messages: of a sender those that it sent, of a receiver those that came
  std::uint64_t tail_ = 0;
  std::optional<Connection> connection_;
};

class Anything : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Messaging, Anything, ::testing::ValuesIn(ways_in_virtual_time()),
                         [](const auto& way) { return name_of(way.param); });

// ---- A sender that says anything, beside an honest one.

class LyingSenderWorld {
 public:
  LyingSenderWorld(const Way& way, std::uint64_t seed)
      : world_(seed, {}), home_(world_.add_host()), good_(world_.add_host()), bad_(world_.add_host()), random_(seed),
        liar_(bad_, way, Role::Sender, seed * 7919),
        receiver_(must(Receiver::create(home_.engine(), options_for(way)))),
        listener_(must(Listener::create(home_.engine()))) {
    receiver_.on_peer_end([this](messaging::PeerId peer, const Result<void>& end) {
      EXPECT_TRUE(ends_.emplace(peer, end).second) << "ended twice";
    });
    receiver_.on_message([this](Message message) { take(std::move(message)); });
    listener_.on_request([this] { must(receiver_.accept(*listener_.poll_request())); });
    const std::string address = listener_.address().to_string();
    honest_.emplace(must(Sender::connect(good_.engine(), address, options_for(way))));
    Connection connection = liar_.prepare();
    must(connection.connect_to(address, liar_.offer().to_bytes()));
    const Offer theirs = must(Offer::from_bytes(connection.private_data()));
    liar_.begin(std::move(connection), theirs);
    good_.engine().spawn(send());
    bad_.engine().spawn(liar_.lie(40));
  }
  // Everybody came to its end.
  bool run(Duration patience) {
    return world_.run_until([this] { return ends_.size() == 2 && honest_end_ && liar_.is_over; }, patience);
  }
  void expect_honest_one_to_have_noticed_nothing() const {
    ASSERT_TRUE(honest_end_);
    must(*honest_end_);
    EXPECT_EQ(got_, kHonest);
    ASSERT_TRUE(ends_.contains(0));
    must(ends_.at(0));
  }
  void expect_an_end_of_the_other() const {
    ASSERT_TRUE(ends_.contains(1));
    if (!ends_.at(1)) expect_end_of_a_liar(ends_.at(1).error());
  }
  std::uint32_t lies_taken() const { return lies_taken_; }
  bool is_named() const {
    return ends_.contains(1) && !ends_.at(1) && ends_.at(1).error().code() == ErrorCode::ProtocolError;
  }

 private:
  static std::size_t bytes_of(std::uint32_t n) { return n * 37 % (kLongest + 1); }

  Task<void> send() {
    for (std::uint32_t n = 0; n < kHonest; ++n) {
      const auto text = text_of_message(0, n, bytes_of(n));
      if (auto sent = co_await honest_->async_send(text, kPatience); !sent) {
        honest_end_ = sent.error();
        co_return;
      }
      if (random_.chance(0.5)) co_await good_.engine().sleep(Duration::microseconds(100));
    }
    honest_end_ = co_await honest_->async_close(kPatience);
  }
  // All of it is there to be read, whoever sent it.
  void take(Message message) {
    EXPECT_LE(message.bytes().size(), kLongest);
    for (const std::byte b : message.bytes()) sum_ = sum_ * 31 + std::to_integer<std::uint32_t>(b);
    if (message.peer() == 0) {
      EXPECT_TRUE(is_message(message, got_, bytes_of(got_)) || is_shared()) << got_;
      ++got_;
    } else {
      ++lies_taken_;
    }
    // In a ring nothing passes what is held: not for long.
    if (random_.chance(0.3))
      held_ = std::move(message);
    else if (++passed_ % 3 == 0)
      held_ = {};
  }
  bool is_shared() const { return !traits_of(receiver_.kind()).isolates_senders; }

  VirtualWorld world_;
  VirtualWorld::Host &home_, &good_, &bad_;
  SeededRandom random_;
  Liar liar_;
  Receiver receiver_;
  Listener listener_;
  std::optional<Sender> honest_;
  std::optional<Result<void>> honest_end_;
  std::map<messaging::PeerId, Result<void>> ends_;
  Message held_;
  std::uint32_t got_ = 0, lies_taken_ = 0, passed_ = 0, sum_ = 0;
};

TEST_P(Anything, of_a_sender_ends_that_one_by_name_and_another_goes_on) {
  const bool is_shared = !traits_of(GetParam().kind).isolates_senders;
  std::uint64_t lies_taken = 0, named = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LyingSenderWorld world(GetParam(), seed);
    const bool over = world.run(is_shared ? Duration::milliseconds(200) : kPatience);
    lies_taken += world.lies_taken();
    named += world.is_named();
    if (is_shared) continue;  // they trust one another
    EXPECT_TRUE(over);
    world.expect_honest_one_to_have_noticed_nothing();
    world.expect_an_end_of_the_other();
  }
  if (kSanitized) return;
  EXPECT_GT(lies_taken, kSeeds / 8) << "it gets as far as messages";
  EXPECT_GT(named, kSeeds / 8);
}

// ---- A receiver that says anything.

class LyingReceiverWorld {
 public:
  LyingReceiverWorld(const Way& way, std::uint64_t seed)
      : world_(seed, {}), bad_(world_.add_host()), good_(world_.add_host()), random_(seed),
        liar_(bad_, way, Role::Receiver, seed * 7919), own_(must(good_.device().allocate_memory(kLongest))),
        listener_(must(Listener::create(bad_.engine()))) {
    listener_.on_request([this] {
      auto request = listener_.poll_request();
      const Offer theirs = must(Offer::from_bytes(request->private_data()));
      liar_.begin(must(request->accept(liar_.prepare(), liar_.offer().to_bytes())), theirs);
      if (random_.chance(0.2)) liar_.lie_once();  // before its peer knows of it
      bad_.engine().spawn(liar_.lie(40));
    });
    good_.engine().spawn(send(options_for(way)));
  }
  bool run() {
    return world_.run_until([this] { return is_over_; }, kPatience);
  }
  const std::optional<Error>& end() const { return end_; }

 private:
  Task<void> send(Options options) {
    auto connected = co_await Sender::async_connect(good_.engine(), listener_.address().to_string(), options);
    if (connected) {
      Sender sender = std::move(*connected);
      for (int i = 0; i < 40 && !sender.closed(); ++i) co_await send_one(sender);
      const auto closed = co_await sender.async_close(Duration::milliseconds(2));
      if (!closed) end_ = closed.error();
      EXPECT_LE(sender.freed(), sender.counters().messages);
    } else {
      end_ = connected.error();
    }
    is_over_ = true;
  }
  Task<void> send_one(Sender& sender) {
    const std::size_t bytes = random_.below(kLongest + 1);
    const auto text = text_of_message(0, 0, bytes);
    if (random_.chance(0.3)) {
      if (auto reserved = sender.try_reserve(kLongest))
        static_cast<void>(sender.try_commit(*reserved, static_cast<std::uint32_t>(bytes)));
    } else if (random_.chance(0.3)) {
      static_cast<void>(sender.try_lend(LentMemory::of(own_, 0, kLongest)));
    } else {
      static_cast<void>(sender.try_send_batch({{text, text, text}}));
    }
    static_cast<void>(co_await sender.async_send(text, Duration::microseconds(200)));
    EXPECT_LE(sender.freed(), sender.counters().messages);
    EXPECT_LE(sender.credits(), kCapacity / 64);
    if (random_.chance(0.3)) co_await good_.engine().sleep(Duration::microseconds(100));
  }

  VirtualWorld world_;
  VirtualWorld::Host &bad_, &good_;
  SeededRandom random_;
  Liar liar_;
  MemoryRegion own_;
  Listener listener_;
  bool is_over_ = false;
  std::optional<Error> end_;
};

TEST_P(Anything, of_a_receiver_ends_its_sender_by_name) {
  std::uint64_t named = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    LyingReceiverWorld world(GetParam(), seed);
    EXPECT_TRUE(world.run());
    if (!world.end()) continue;
    named += world.end()->code() == ErrorCode::ProtocolError;
    if (world.end()->code() != ErrorCode::TimedOut) expect_end_of_a_liar(*world.end());
  }
  if (kSanitized) return;
  EXPECT_GT(named, kSeeds / 8);
}

}  // namespace
}  // namespace verbena
