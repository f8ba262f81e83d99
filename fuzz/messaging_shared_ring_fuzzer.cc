// SPDX-License-Identifier: Apache-2.0
// The senders of a shared ring write anything, at any time, and so does the receiver towards a sender: every
// load, every immediate, length, position and head may be what the input says. No view leaves the ring, none
// overlaps another that is held, and nothing works without end.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/assert.h"
#include "messaging/ring/shared_reader.h"
#include "messaging/ring/shared_writer.h"

namespace verbena::ring {
namespace {

constexpr std::uint64_t kCapacity = 2048;
constexpr std::uint32_t kSenders = 4;

struct Input {
  std::span<const std::uint8_t> bytes;
  std::uint64_t near = 0;  // a position an honest peer might say
  std::uint64_t loads = 0;

  std::uint8_t next() {
    if (bytes.empty()) return 0;
    const std::uint8_t byte = bytes.front();
    bytes = bytes.subspan(1);
    return byte;
  }
  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int i = 0; i < 8; ++i) value = value << 8 | next();
    return value;
  }
  std::uint64_t position() {
    const std::uint8_t how = next();
    return how < 0xf0 ? near + how % 64 * std::uint64_t{kUnitBytes} : number();
  }
};

struct HostileMemory {
  Input* input;
  std::uint64_t load_tail() const {
    ++input->loads;
    return input->position();
  }
  std::uint64_t load_cell(std::uint32_t sender, CellWord word) const {
    VERBENA_ASSERT(sender < kSenders);
    ++input->loads;
    const std::uint8_t how = input->next();
    if (how >= 0xf0) return input->number();
    if (word == CellWord::Begun) return how % 8;
    if (word == CellWord::Dropped) return how % 40 * std::uint64_t{kUnitBytes};
    return std::uint64_t{how % 8u} << 32 | (input->near / kUnitBytes + how % 32);
  }
};

class Receiving {
 public:
  Receiving(bool doubled, Input& input)
      : geometry_{.capacity = kCapacity, .doubled = doubled},
        input_(input),
        reader_(geometry_, kSenders, HostileMemory{&input}) {
    for (std::uint32_t i = 0; i < kSenders; ++i) reader_.add(i);
  }
  void step(std::uint8_t what) {
    input_.near = reader_.position();
    const std::uint32_t sender = what / 8 % kSenders;
    const std::uint64_t before = input_.loads;
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        arrive(sender);
        break;
      case 3:
      case 4:
        read();
        break;
      case 5:
        let_go(what / 8);
        break;
      case 6:
        look(sender);
        break;
      default:
        end(sender);
    }
    VERBENA_ASSERT(input_.loads - before <= 2 * kSenders * (kCapacity / kUnitBytes + 1));
    VERBENA_ASSERT(reader_.position() - reader_.head() <= kCapacity);
  }

 private:
  void arrive(std::uint32_t sender) {
    const std::uint64_t at = input_.position();
    const std::uint32_t dropped = input_.next() % 4 == 0 ? kDropped : 0;
    const auto bytes =
        static_cast<std::uint32_t>(input_.next() < 0xf0 ? input_.next() * 5u : input_.number());
    const Fault fault =
        reader_.handle_arrival(sender, static_cast<std::uint32_t>(at / kUnitBytes) | dropped, bytes);
    if (fault != Fault::None && bytes % 2 == 0) end(sender);
  }
  // When nothing has come for a while.
  void look(std::uint32_t sender) {
    if (reader_.waits() || reader_.somebody_waits()) reader_.search();
    if (!gone_[sender] && reader_.may_hold_up(sender) && input_.next() % 2 == 0) end(sender);
  }
  void end(std::uint32_t sender) {
    if (!gone_[sender]) {
      reader_.handle_gone(sender);
      gone_[sender] = true;
    } else {
      reader_.add(sender);
      gone_[sender] = false;
    }
  }
  void read() {
    const auto got = reader_.poll();
    if (!got) return;
    const View& view = got->view;
    const std::uint64_t memory = geometry_.frames().memory_bytes();
    VERBENA_ASSERT(view.offset <= memory && view.bytes <= memory - view.offset && got->sender < kSenders);
    for (const View& other : views_) {
      const std::uint64_t apart = (view.offset - other.offset) & (kCapacity - 1);
      const std::uint64_t back = (other.offset - view.offset) & (kCapacity - 1);
      VERBENA_ASSERT(apart >= other.bytes && back >= view.bytes);
    }
    views_.push_back(view);
  }
  void let_go(std::size_t which) {
    if (views_.empty()) return;
    which %= views_.size();
    reader_.release(views_[which]);
    views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  const SharedGeometry geometry_;
  Input& input_;
  BasicSharedReader<HostileMemory> reader_;
  std::array<bool, kSenders> gone_{};
  std::vector<View> views_;
};

class Sending {
 public:
  Sending(bool doubled, Input& input)
      : geometry_{.capacity = kCapacity, .doubled = doubled}, input_(input), writer_(geometry_, kSenders) {}
  void step(std::uint8_t what) {
    using Step = SharedWriter::Step;
    input_.near = writer_.position();
    if (writer_.step() == Step::Idle) {
      bytes_ = what * 7u % (geometry_.max_payload_bytes() + 1);
      writer_.begin(bytes_);
    } else if (writer_.step() == Step::Asked) {
      if (writer_.handle_position(input_.position()) != Fault::None) writer_ = SharedWriter(geometry_, kSenders);
    } else if (writer_.step() == Step::Ready || writer_.step() == Step::Broken) {
      if (writer_.step() == Step::Ready && what % 8 == 0) writer_.drop();
      if (writer_.step() == Step::Ready) {
        const std::uint64_t memory = geometry_.frames().memory_bytes();
        VERBENA_ASSERT(writer_.offset() <= memory && bytes_ <= memory - writer_.offset());
      }
      writer_.finish();
    }
    input_.near = writer_.head();
    if (writer_.step() == Step::Wait && writer_.handle_head(input_.position()) != Fault::None)
      writer_ = SharedWriter(geometry_, kSenders);
  }

 private:
  const SharedGeometry geometry_;
  Input& input_;
  SharedWriter writer_;
  std::uint32_t bytes_ = 0;
};

template <class Side>
void run(bool doubled, std::span<const std::uint8_t> bytes) {
  Input input{bytes};
  Side side(doubled, input);
  while (!input.bytes.empty()) side.step(input.next());
}

}  // namespace
}  // namespace verbena::ring

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::span<const std::uint8_t> input(data + 1, size - 1);
  if ((data[0] & 2) != 0)
    verbena::ring::run<verbena::ring::Sending>((data[0] & 1) != 0, input);
  else
    verbena::ring::run<verbena::ring::Receiving>((data[0] & 1) != 0, input);
  return 0;
}
