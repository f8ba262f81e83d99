// SPDX-License-Identifier: Apache-2.0
// The protocols as data: names and traits.
#include "verbena/messaging/protocol.h"

#include <array>

#include "verbena/messaging/options.h"

namespace verbena::messaging {

namespace {

struct Row {
  Protocol protocol;
  std::string_view name;
  Traits traits;
};

constexpr PassiveSide kNobody = PassiveSide::None;
constexpr PassiveSide kSender = PassiveSide::Sender;

//                                                        zero  var.   passive  intr. non-bl. shares isolates order
//                                                        trips
constexpr std::array<Row, 7> kRows{{
    {Protocol::SendReceive, "send-receive", {false, false, kNobody, true, true, false, true, false, 0}},
    {Protocol::SharedReceive, "shared-receive", {false, false, kNobody, true, true, true, true, false, 0}},
    {Protocol::DirectWrite, "direct-write", {true, false, kNobody, true, true, false, true, false, 1}},
    {Protocol::BufferedWrite, "buffered-write", {false, true, kNobody, false, false, false, true, false, 0}},
    {Protocol::SharedWrite, "shared-write", {false, true, kNobody, true, false, true, false, false, 1}},
    {Protocol::DirectRead, "direct-read", {true, true, kNobody, true, true, true, true, false, 1}},
    {Protocol::BufferedRead, "buffered-read", {false, true, kSender, false, false, false, true, false, 1}},
}};

const Row& row_of(Protocol protocol) {
  for (const Row& row : kRows)
    if (row.protocol == protocol) return row;
  return kRows.front();
}

// What a choice is about; a name may choose once.
enum class Matter : std::uint8_t { Commit, Acknowledge, Ring, Fence };

// A word of a kind's name, and the choice it is.
struct Choice {
  std::string_view word;
  Matter about;
  Protocol of;  // a protocol that has it; rings: see has_ring()
  void (*apply)(Kind&);
  bool (*is)(const Kind&);  // and a name tells it: a default is not told
};

constexpr std::array<Choice, 8> kChoices{{
    {"immediate", Matter::Commit, Protocol::BufferedWrite, [](Kind& k) { k.commit = Commit::Immediate; },
     [](const Kind&) { return false; }},
    {"send", Matter::Acknowledge, Protocol::BufferedWrite, [](Kind& k) { k.acknowledge = Acknowledge::Send; },
     [](const Kind&) { return false; }},
    {"plain", Matter::Ring, Protocol::BufferedWrite, [](Kind& k) { k.ring = RingMemory::Plain; },
     [](const Kind&) { return false; }},
    {"offset", Matter::Commit, Protocol::BufferedWrite, [](Kind& k) { k.commit = Commit::Offset; },
     [](const Kind& k) { return k.commit == Commit::Offset; }},
    {"reversed", Matter::Commit, Protocol::BufferedWrite, [](Kind& k) { k.commit = Commit::Reversed; },
     [](const Kind& k) { return k.commit == Commit::Reversed; }},
    {"read", Matter::Acknowledge, Protocol::BufferedWrite, [](Kind& k) { k.acknowledge = Acknowledge::Read; },
     [](const Kind& k) { return k.acknowledge == Acknowledge::Read; }},
    {"double-mapped", Matter::Ring, Protocol::BufferedWrite, [](Kind& k) { k.ring = RingMemory::DoubleMapped; },
     [](const Kind& k) { return k.ring == RingMemory::DoubleMapped; }},
    {"fenced", Matter::Fence, Protocol::DirectRead, [](Kind& k) { k.fenced = true; },
     [](const Kind& k) { return k.fenced; }},
}};

bool has_ring(Protocol protocol) {
  return protocol == Protocol::BufferedWrite || protocol == Protocol::SharedWrite ||
         protocol == Protocol::BufferedRead;
}

bool has_choice(Protocol protocol, const Choice& choice) {
  return choice.of == protocol || (choice.about == Matter::Ring && has_ring(protocol));
}

const Choice* choice_named(Protocol protocol, std::string_view word) {
  for (const Choice& choice : kChoices)
    if (choice.word == word && has_choice(protocol, choice)) return &choice;
  return nullptr;
}

Error wrong(std::string_view text, const std::string& why) {
  return Error(ErrorCode::InvalidArgument, "message protocol \"" + std::string(text) + "\": " + why);
}

}  // namespace

Traits traits_of(const Kind& kind) {
  Traits traits = row_of(kind.protocol).traits;
  if (kind.protocol != Protocol::BufferedWrite) return traits;
  traits.interrupts = kind.commit == Commit::Immediate;
  traits.order_in_write = kind.commit == Commit::Reversed;
  if (kind.acknowledge == Acknowledge::Read && kind.commit != Commit::Immediate)
    traits.passive = PassiveSide::Receiver;
  return traits;
}

std::string_view to_string(Protocol protocol) { return row_of(protocol).name; }

std::string to_string(const Kind& kind) {
  std::string text(to_string(kind.protocol));
  for (const Choice& choice : kChoices)
    if (has_choice(kind.protocol, choice) && choice.is(kind)) text += "/" + std::string(choice.word);
  return text;
}

Result<Kind> parse_kind(std::string_view text) {
  Kind kind;
  std::string_view rest = text;
  if (text.ends_with('/')) return wrong(text, "it ends with a slash");
  const auto next_word = [&] {
    const std::size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return word;
  };
  const std::string_view name = next_word();
  bool known = false;
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    kind.protocol = row.protocol;
    known = true;
  }
  if (!known) return wrong(text, "there is none called \"" + std::string(name) + "\"");
  std::array<const Choice*, 4> chosen{};  // by Matter
  while (!rest.empty()) {
    const std::string_view word = next_word();
    const Choice* choice = choice_named(kind.protocol, word);
    if (choice == nullptr)
      return wrong(text, std::string(name) + " has no choice \"" + std::string(word) + "\"");
    const Choice*& before = chosen[static_cast<std::size_t>(choice->about)];
    if (before == choice) return wrong(text, "\"" + std::string(word) + "\" stands there twice");
    if (before != nullptr)
      return wrong(text, "\"" + std::string(before->word) + "\" and \"" + std::string(word) + "\" exclude each other");
    before = choice;
    choice->apply(kind);
  }
  return kind;
}

std::span<const Protocol> all_protocols() {
  static constexpr auto kAll = [] {
    std::array<Protocol, kRows.size()> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = kRows[i].protocol;
    return all;
  }();
  return kAll;
}

std::string_view to_string(SendStatus status) {
  switch (status) {
    case SendStatus::Ok:
      return "ok";
    case SendStatus::NoCredit:
      return "no credit";
    case SendStatus::NoBuffer:
      return "no buffer";
    case SendStatus::RateLimited:
      return "rate limited";
    case SendStatus::TooLong:
      return "too long";
    case SendStatus::NotReserved:
      return "not reserved";
    case SendStatus::Closed:
      return "closed";
  }
  return "?";
}

}  // namespace verbena::messaging
