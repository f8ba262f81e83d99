// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/opcode.h"

namespace verbena::wire {
namespace {

// What a row says of an opcode beside its headers.
enum Mark : unsigned { kStart = 1, kEnd = 2, kRequest = 4, kConsumes = 8, kCompletes = 16 };
constexpr unsigned kOnly = kStart | kEnd;
constexpr unsigned kReceives = kConsumes | kCompletes;

struct Row {
  std::uint8_t low;  // opcode without the transport's three bits
  std::string_view name;
  Operation operation;
  unsigned marks;
  unsigned headers;
  PayloadRule payload;
};

constexpr Row kConnectedRows[] = {
    {0x00, "SEND First", Operation::Send, kRequest | kStart | kConsumes, kNoHeader, PayloadRule::Full},
    {0x01, "SEND Middle", Operation::Send, kRequest, kNoHeader, PayloadRule::Full},
    {0x02, "SEND Last", Operation::Send, kRequest | kEnd | kCompletes, kNoHeader, PayloadRule::NonEmpty},
    {0x03, "SEND Last with Immediate", Operation::Send, kRequest | kEnd | kCompletes, kImmDt,
     PayloadRule::NonEmpty},
    {0x04, "SEND Only", Operation::Send, kRequest | kOnly | kReceives, kNoHeader, PayloadRule::Any},
    {0x05, "SEND Only with Immediate", Operation::Send, kRequest | kOnly | kReceives, kImmDt,
     PayloadRule::Any},
    {0x06, "WRITE First", Operation::Write, kRequest | kStart, kReth, PayloadRule::Full},
    {0x07, "WRITE Middle", Operation::Write, kRequest, kNoHeader, PayloadRule::Full},
    {0x08, "WRITE Last", Operation::Write, kRequest | kEnd, kNoHeader, PayloadRule::NonEmpty},
    {0x09, "WRITE Last with Immediate", Operation::Write, kRequest | kEnd | kReceives, kImmDt,
     PayloadRule::NonEmpty},
    {0x0a, "WRITE Only", Operation::Write, kRequest | kOnly, kReth, PayloadRule::Any},
    {0x0b, "WRITE Only with Immediate", Operation::Write, kRequest | kOnly | kReceives, kReth | kImmDt,
     PayloadRule::Any},
    {0x0c, "READ Request", Operation::ReadRequest, kRequest | kOnly, kReth, PayloadRule::None},
    {0x0d, "READ Response First", Operation::ReadResponse, kStart, kAeth, PayloadRule::Full},
    {0x0e, "READ Response Middle", Operation::ReadResponse, 0, kNoHeader, PayloadRule::Full},
    {0x0f, "READ Response Last", Operation::ReadResponse, kEnd, kAeth, PayloadRule::NonEmpty},
    {0x10, "READ Response Only", Operation::ReadResponse, kOnly, kAeth, PayloadRule::Any},
    {0x11, "Acknowledge", Operation::Acknowledge, kOnly, kAeth, PayloadRule::None},
    {0x12, "Atomic Acknowledge", Operation::AtomicAcknowledge, kOnly, kAeth | kAtomicAckEth,
     PayloadRule::None},
    {0x13, "Compare Swap", Operation::CompareSwap, kRequest | kOnly, kAtomicEth, PayloadRule::None},
    {0x14, "Fetch Add", Operation::FetchAdd, kRequest | kOnly, kAtomicEth, PayloadRule::None},
    {0x16, "SEND Last with Invalidate", Operation::Send, kRequest | kEnd | kCompletes, kIeth,
     PayloadRule::NonEmpty},
    {0x17, "SEND Only with Invalidate", Operation::Send, kRequest | kOnly | kReceives, kIeth,
     PayloadRule::Any},
    {0x1c, "FLUSH", Operation::Flush, kRequest | kOnly, kFeth | kReth, PayloadRule::None},
    {0x1d, "ATOMIC WRITE", Operation::AtomicWrite, kRequest | kOnly, kReth, PayloadRule::Eight},
};
constexpr std::uint8_t kLastUcLow = 0x0b;   // UC knows SEND and WRITE
constexpr std::uint8_t kLastRdLow = 0x14;   // RD is named and never known
constexpr std::uint8_t kLastXrcLow = 0x17;  // FLUSH and ATOMIC WRITE are RC alone

constexpr std::size_t extended_bytes(unsigned headers) {
  constexpr struct {
    ExtendedHeader header;
    std::size_t bytes;
  } kSizes[] = {{kRdeth, 4},      {kDeth, 8}, {kXrceth, 4},       {kFeth, 4},  {kReth, 16},
                {kAtomicEth, 28}, {kAeth, 4}, {kAtomicAckEth, 8}, {kImmDt, 4}, {kIeth, 4}};
  std::size_t sum = 0;
  for (const auto& size : kSizes)
    if ((headers & size.header) != 0) sum += size.bytes;
  return sum;
}

// The names with their transport in front: "RC SEND First".
struct Name {
  std::array<char, 40> text{};
  std::size_t size = 0;

  constexpr void append(std::string_view part) {
    for (const char c : part) text[size++] = c;
  }
};

constexpr std::array<Name, 256> make_names() {
  std::array<Name, 256> names{};
  const auto put = [&names](unsigned opcode, std::string_view transport, std::string_view name) {
    names[opcode].append(transport);
    names[opcode].append(name);
  };
  for (const Row& row : kConnectedRows) {
    put(0x00u | row.low, "RC ", row.name);
    if (row.low <= kLastUcLow) put(0x20u | row.low, "UC ", row.name);
    if (row.low <= kLastRdLow) put(0x40u | row.low, "RD ", row.name);
    if (row.low <= kLastXrcLow) put(0xa0u | row.low, "XRC ", row.name);
  }
  put(0x64, "UD ", "SEND Only");
  put(0x65, "UD ", "SEND Only with Immediate");
  put(0x81, "", "CNP");
  return names;
}

constexpr std::array<Name, 256> kNames = make_names();

constexpr OpcodeInfo make_entry(unsigned opcode, Transport transport, const Row& row, unsigned headers) {
  OpcodeInfo info;
  info.name = std::string_view{kNames[opcode].text.data(), kNames[opcode].size};
  info.transport = transport;
  info.operation = row.operation;
  info.known = true;
  info.first = (row.marks & kStart) != 0;
  info.last = (row.marks & kEnd) != 0;
  info.request = (row.marks & kRequest) != 0;
  info.consumes_receive = (row.marks & kConsumes) != 0;
  info.completes_receive = (row.marks & kCompletes) != 0;
  info.headers = static_cast<std::uint16_t>(headers);
  info.header_bytes = static_cast<std::uint8_t>(kBthBytes + extended_bytes(headers));
  info.payload = row.payload;
  return info;
}

constexpr std::array<OpcodeInfo, 256> make_table() {
  std::array<OpcodeInfo, 256> table{};
  for (const Row& row : kConnectedRows) {
    table[0x00u | row.low] = make_entry(0x00u | row.low, Transport::Rc, row, row.headers);
    if (row.low <= kLastUcLow)
      table[0x20u | row.low] = make_entry(0x20u | row.low, Transport::Uc, row, row.headers);
    if (row.low <= kLastRdLow) {
      table[0x40u | row.low].name =
          std::string_view{kNames[0x40u | row.low].text.data(), kNames[0x40u | row.low].size};
      table[0x40u | row.low].transport = Transport::Rd;
    }
    // The shared receive queue's number goes with requests only.
    const unsigned xrceth = (row.marks & kRequest) != 0 ? kXrceth : kNoHeader;
    if (row.low <= kLastXrcLow) {
      table[0xa0u | row.low] = make_entry(0xa0u | row.low, Transport::Xrc, row, row.headers | xrceth);
    }
  }
  const Row ud{0, "", Operation::Send, kRequest | kOnly | kReceives, kNoHeader, PayloadRule::Any};
  table[0x64] = make_entry(0x64, Transport::Ud, ud, kDeth);
  table[0x65] = make_entry(0x65, Transport::Ud, ud, kDeth | kImmDt);
  const Row cnp{0, "", Operation::Cnp, kOnly, kNoHeader, PayloadRule::None};
  table[0x81] = make_entry(0x81, Transport::Cnp, cnp, kNoHeader);
  table[0x81].header_bytes = kBthBytes + kCnpReservedBytes;
  return table;
}

constexpr std::array<OpcodeInfo, 256> kBuilt = make_table();

constexpr bool all_headers_fit() {
  for (const OpcodeInfo& info : kBuilt) {
    if (info.header_bytes > kMaxHeaderBytes) return false;
    if (info.known && info.header_bytes < kBthBytes) return false;
  }
  return true;
}
static_assert(all_headers_fit());

}  // namespace

constinit const std::array<OpcodeInfo, 256> kOpcodeTable = kBuilt;

}  // namespace verbena::wire
