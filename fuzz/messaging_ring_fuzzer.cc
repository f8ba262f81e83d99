// SPDX-License-Identifier: Apache-2.0
// The peer of a ring that is filled by WRITEs, or fetched by READs, writes anything, at any time: every load,
// immediate, tail and head may be what the input says. Neither side ever leaves its memory, hands out what it handed
// out before, READs over what is handed out or being READ, works without end, or comes back from a fault. Byte 0 picks
// the form.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"
#include "messaging/ring/fetch_plan.h"
#include "messaging/ring/reader.h"
#include "messaging/ring/writer.h"

namespace verbena::ring {
namespace {

constexpr std::uint64_t kCapacity = 1024;

struct Peer {
  std::span<const std::uint8_t> input;
  std::uint64_t near = 0;  // what an honest peer might say
  std::uint64_t loads = 0;

  std::uint8_t next() {
    if (input.empty()) return 0;
    const std::uint8_t byte = input.front();
    input = input.subspan(1);
    return byte;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | next();
    return value;
  }
  // Mostly what might be right: plain noise would be refused at the first look.
  std::uint64_t word() {
    ++loads;
    const std::uint8_t how = next();
    if (how < 0x20) return 0;
    if (how < 0xa0) return message_word(how < 0x80 ? how : next() * 8u);
    if (how < 0xc0) return skip_word();
    return number();
  }
  std::uint64_t position() {
    ++loads;
    const std::uint8_t how = next();
    if (how < 0xe0) return near + (how % 32) * std::uint64_t{kUnitBytes};
    return number();
  }
};

struct HostileMemory {
  Peer* peer;
  std::uint64_t bytes;
  std::uint64_t load(std::uint64_t offset) const {
    VERBENA_ASSERT(offset % 8 == 0 && offset <= bytes - 8);
    return peer->word();
  }
  std::uint64_t load_tail() const { return peer->position(); }
};

class Run {
 public:
  Run(const Geometry& geometry, std::span<const std::uint8_t> input)
      : geometry_(geometry),
        peer_{input},
        image_(geometry.memory_bytes()),
        writer_(geometry, image_),
        reader_(geometry, HostileMemory{&peer_, geometry.memory_bytes()}) {}

  void all() {
    while (!peer_.input.empty()) {
      const std::uint8_t what = peer_.next();
      const std::uint64_t before = peer_.loads;
      const Fault reader_was = reader_.fault(), writer_was = writer_.fault();
      step(what);
      VERBENA_ASSERT(peer_.loads - before <= 4);
      VERBENA_ASSERT(reader_was == Fault::None || reader_.fault() == reader_was);
      VERBENA_ASSERT(writer_was == Fault::None || writer_.fault() == writer_was);
    }
  }

 private:
  void step(std::uint8_t what) {
    switch (what % 4) {
      case 0:
        read(what);
        break;
      case 1:
        if (!views_.empty()) {
          const std::size_t which = what / 4 % views_.size();
          reader_.release(views_[which]);
          views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(which));
          if (reader_.acknowledgement_due()) peer_.near = reader_.acknowledge();
        }
        break;
      case 2:
        write(std::uint32_t{what} * 4 % (geometry_.max_payload_bytes() + 1));
        break;
      default:
        peer_.near = writer_.head();
        static_cast<void>(writer_.handle_head(peer_.position()));
        VERBENA_ASSERT(writer_.position() - writer_.head() <= kCapacity);
        peer_.near = reader_.position();
    }
  }
  void read(std::uint8_t what) {
    const auto view = geometry_.commit != Commit::Immediate ? reader_.poll()
                      : what < 0xf0                         ? reader_.handle_immediate(what)
                                    : reader_.handle_immediate(static_cast<std::uint32_t>(peer_.number()));
    if (!view) return;
    inside(view->offset, view->bytes);
    for (const View& other : views_) {
      const std::uint64_t apart = (view->offset - other.offset) & (kCapacity - 1);
      const std::uint64_t back = (other.offset - view->offset) & (kCapacity - 1);
      VERBENA_ASSERT(apart >= other.bytes && back >= view->bytes);
    }
    views_.push_back(*view);
    peer_.near = reader_.position();
  }
  void write(std::uint32_t bytes) {
    const auto place = writer_.try_reserve(bytes);
    if (!place) return;
    VERBENA_ASSERT(writer_.payload(*place).size() == bytes);
    const WriteList& list = writer_.commit(*place);
    for (const RemoteWrite& one : list.view()) {
      inside(one.offset, one.zero_bytes + std::uint64_t{one.bytes});
      if (one.source == RemoteWrite::Source::Image) inside(one.image_offset, one.bytes);
    }
    static_cast<void>(writer_.publish());
  }
  void inside(std::uint64_t offset, std::uint64_t bytes) const {
    VERBENA_ASSERT(offset <= geometry_.memory_bytes() && bytes <= geometry_.memory_bytes() - offset);
  }

  const Geometry geometry_;
  Peer peer_;
  std::vector<std::byte> image_;
  Writer writer_;
  BasicReader<HostileMemory> reader_;
  std::vector<View> views_;
};

// What is READ is the peer's: its tails, and the image of its ring. How far that is whole is the plan's.
struct FetchedMemory {
  HostileMemory image;
  const FetchPlan* plan;
  std::uint64_t load(std::uint64_t offset) const { return image.load(offset); }
  std::uint64_t load_tail() const { return plan->whole(); }
};

class Fetching {
 public:
  Fetching(const Geometry& geometry, std::span<const std::uint8_t> input)
      : geometry_(geometry),
        peer_{input},
        plan_(geometry, 16 * kUnitBytes),
        reader_(geometry, FetchedMemory{{&peer_, geometry.memory_bytes()}, &plan_}) {}

  void all() {
    while (!peer_.input.empty()) {
      const std::uint64_t before = peer_.loads;
      const Fault plan_was = fault_, reader_was = reader_.fault();
      step(peer_.next());
      VERBENA_ASSERT(peer_.loads - before <= 4);
      VERBENA_ASSERT(plan_was == Fault::None || fault_ == plan_was);
      VERBENA_ASSERT(reader_was == Fault::None || reader_.fault() == reader_was);
      VERBENA_ASSERT(reader_.position() <= plan_.whole());
    }
  }

 private:
  void step(std::uint8_t what) {
    switch (what % 5) {
      case 0:
        peer_.near = plan_.whole();
        fault_ = plan_.handle_tail(peer_.position());
        break;
      case 1:
        if (const auto span = plan_.next()) ask(*span);
        break;
      case 2:
        if (spans_.empty()) return;
        plan_.handle_fetched();
        spans_.erase(spans_.begin());
        break;
      case 3:
        if (const auto view = reader_.poll()) take(*view);
        break;
      default:
        if (!views_.empty()) let_go(what / 5 % views_.size());
    }
  }
  void ask(const Span& span) {
    VERBENA_ASSERT(span.bytes != 0 && span.offset + span.bytes <= geometry_.memory_bytes());
    for (const Span& other : spans_) VERBENA_ASSERT(apart(span.offset, span.bytes, other.offset, other.bytes));
    for (const View& view : views_) VERBENA_ASSERT(apart(span.offset, span.bytes, view.offset, view.bytes));
    spans_.push_back(span);
  }
  void take(const View& view) {
    VERBENA_ASSERT(view.offset + view.bytes <= geometry_.memory_bytes());
    for (const Span& span : spans_) VERBENA_ASSERT(apart(span.offset, span.bytes, view.offset, view.bytes));
    for (const View& other : views_) VERBENA_ASSERT(apart(view.offset, view.bytes, other.offset, other.bytes));
    views_.push_back(view);
  }
  void let_go(std::size_t which) {
    reader_.release(views_[which]);
    views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(which));
    if (reader_.acknowledgement_due()) plan_.handle_told(reader_.acknowledge());
  }
  static bool apart(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
    return ((a - b) & (kCapacity - 1)) >= b_bytes && ((b - a) & (kCapacity - 1)) >= a_bytes;
  }

  const Geometry geometry_;
  Peer peer_;
  FetchPlan plan_;
  BasicReader<FetchedMemory> reader_;
  Fault fault_ = Fault::None;
  std::vector<Span> spans_;
  std::vector<View> views_;
};

}  // namespace
}  // namespace verbena::ring

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace verbena::ring;
  if (size == 0) return 0;
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  if ((data[0] & 16) != 0) {
    Fetching({.capacity = kCapacity, .commit = Commit::Offset, .doubled = (data[0] & 4) != 0}, input).all();
    return 0;
  }
  const Geometry geometry{.capacity = kCapacity,
                          .commit = static_cast<Commit>(data[0] % 3),
                          .doubled = (data[0] & 4) != 0,
                          .max_messages = (data[0] & 8) != 0 ? 4u : 0u};
  Run(geometry, input).all();
  return 0;
}
