// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/pcapng.h"

#include <cstring>

#include "base/assert.h"

namespace verbena::wire {
namespace {

constexpr std::uint32_t kSectionHeader = 0x0a0d0d0a;
constexpr std::uint32_t kInterfaceDescription = 1;
constexpr std::uint32_t kEnhancedPacket = 6;
constexpr std::uint32_t kByteOrderMagic = 0x1a2b3c4d;

enum Option : std::uint16_t {
  kEndOfOptions = 0,
  kComment = 1,
  kInterfaceName = 2,
  kPacketFlags = 2,
  kUserApplication = 4,
  kTimeResolution = 9,
};

// One block, in the host's byte order, which the section header tells the reader.
class Block {
 public:
  Block(std::uint32_t type, std::vector<std::byte>& out) : out_(out), start_(out.size()) {
    put(type);
    put(std::uint32_t{0});  // total length, known at the end
  }

  template <class Integer>
  void put(Integer value) {
    const auto bytes = std::as_bytes(std::span{&value, 1});
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void put_padded(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
    out_.resize((out_.size() - start_ + 3) / 4 * 4 + start_);
  }
  void option(Option code, std::span<const std::byte> value) {
    put(static_cast<std::uint16_t>(code));
    put(static_cast<std::uint16_t>(value.size()));
    put_padded(value);
  }
  void option(Option code, std::string_view text) {
    option(code, std::as_bytes(std::span{text.substr(0, 0xffff)}));
  }
  void end_of_options() { put(std::uint32_t{kEndOfOptions}); }
  void close() {
    const auto total = static_cast<std::uint32_t>(out_.size() - start_ + sizeof(std::uint32_t));
    put(total);
    std::memcpy(out_.data() + start_ + sizeof(std::uint32_t), &total, sizeof total);
  }

 private:
  std::vector<std::byte>& out_;
  std::size_t start_;
};

}  // namespace

void PcapngWriter::begin(std::vector<std::byte>& out) const {
  Block section{kSectionHeader, out};
  section.put(kByteOrderMagic);
  section.put(std::uint16_t{1});  // version 1.0
  section.put(std::uint16_t{0});
  section.put(~std::uint64_t{0});  // length of the section: not told
  section.option(kUserApplication, "Verbena");
  section.end_of_options();
  section.close();

  Block interface { kInterfaceDescription, out };
  interface.put(static_cast<std::uint16_t>(link_));
  interface.put(std::uint16_t{0});
  interface.put(std::uint32_t{0});  // packets are never cut
  interface.option(kInterfaceName, interface_name_);
  const std::byte nanoseconds{9};
  interface.option(kTimeResolution, std::span{&nanoseconds, 1});
  interface.end_of_options();
  interface.close();
}

void PcapngWriter::packet(std::uint64_t unix_ns, std::span<const std::byte> bytes, Direction direction,
                          std::vector<std::byte>& out, std::string_view comment) const {
  VERBENA_ASSERT(bytes.size() <= 0xffffff);
  const auto size = static_cast<std::uint32_t>(bytes.size());
  Block block{kEnhancedPacket, out};
  block.put(std::uint32_t{0});  // the first and only interface
  block.put(static_cast<std::uint32_t>(unix_ns >> 32));
  block.put(static_cast<std::uint32_t>(unix_ns));
  block.put(size);  // captured
  block.put(size);  // on the wire
  block.put_padded(bytes);
  if (direction != Direction::Unknown) {
    const std::uint32_t flags = static_cast<std::uint32_t>(direction);
    block.option(kPacketFlags, std::as_bytes(std::span{&flags, 1}));
  }
  if (!comment.empty()) block.option(kComment, comment);
  if (direction != Direction::Unknown || !comment.empty()) block.end_of_options();
  block.close();
}

}  // namespace verbena::wire
