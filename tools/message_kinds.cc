// SPDX-License-Identifier: Apache-2.0
#include "tools/message_kinds.h"

#include <algorithm>
#include <bit>

#include "tools/nearest_word.h"

namespace verbena::tools {

using messaging::Acknowledge, messaging::Commit, messaging::Kind, messaging::Protocol, messaging::RingMemory;

bool has_ring(const Kind& kind) {
  return kind.protocol == Protocol::BufferedWrite || kind.protocol == Protocol::SharedWrite ||
         kind.protocol == Protocol::BufferedRead;
}

std::uint64_t ring_in_force(std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 4096;
  return std::max(kPage, std::bit_ceil(bytes));
}

std::uint64_t ring_for(std::uint64_t messages, std::uint32_t size) {
  constexpr std::uint64_t kHeader = 64;
  return std::bit_ceil(messages * (size + kHeader));
}

bool goes_inline(const Kind& kind) {
  return kind.protocol == Protocol::SendReceive || kind.protocol == Protocol::SharedReceive ||
         kind.protocol == Protocol::DirectWrite;
}

std::vector<Kind> plain_kinds() {
  std::vector<Kind> kinds;
  for (const Protocol protocol : messaging::all_protocols()) {
    if (protocol == Protocol::BufferedWrite) {
      for (const Commit commit : {Commit::Immediate, Commit::Offset, Commit::Reversed})
        for (const Acknowledge acknowledge : {Acknowledge::Send, Acknowledge::Read})
          kinds.push_back({.protocol = protocol, .commit = commit, .acknowledge = acknowledge});
      continue;
    }
    kinds.push_back({.protocol = protocol});
    if (protocol == Protocol::DirectRead) kinds.push_back({.protocol = protocol, .fenced = true});
  }
  return kinds;
}

std::vector<Kind> all_kinds() {
  std::vector<Kind> kinds;
  for (Kind kind : plain_kinds()) {
    kinds.push_back(kind);
    kind.ring = RingMemory::DoubleMapped;
    if (has_ring(kind)) kinds.push_back(kind);
  }
  return kinds;
}

std::vector<Kind> compared_kinds() {
  std::vector<Kind> kinds;
  for (const Protocol protocol : messaging::all_protocols()) {
    kinds.push_back({.protocol = protocol});
    if (protocol != Protocol::BufferedWrite) continue;
    kinds.push_back({.protocol = protocol, .commit = Commit::Reversed});
    for (const Commit commit : {Commit::Offset, Commit::Reversed})
      kinds.push_back({.protocol = protocol, .commit = commit, .acknowledge = Acknowledge::Read});
  }
  return kinds;
}

Result<Kind> kind_named(std::string_view name) {
  auto kind = messaging::parse_kind(name);
  if (kind) return kind;
  const std::string protocol(name.substr(0, name.find('/')));
  std::vector<std::string> protocols, all, choices;
  for (const Protocol one : messaging::all_protocols()) protocols.emplace_back(to_string(one));
  for (const Kind& one : all_kinds()) all.push_back(to_string(one));
  for (const char* word : {"immediate", "offset", "reversed", "send", "read", "plain", "double-mapped", "fenced"})
    if (messaging::parse_kind(protocol + "/" + word)) choices.emplace_back(word);
  const bool known = std::ranges::find(protocols, protocol) != protocols.end();
  std::string text = kind.error().context();
  if (known) {
    for (std::string_view rest = name; rest.find('/') != std::string_view::npos;) {
      rest.remove_prefix(rest.find('/') + 1);
      const std::string_view word = rest.substr(0, rest.find('/'));
      if (std::ranges::find(choices, word) == choices.end()) text += did_you_mean(word, choices);
    }
  } else {
    text += did_you_mean(name, all);
  }
  if (!known) text += "; protocols are " + list_words(protocols);
  else text += choices.empty() ? "; it has none" : "; its choices are " + list_words(choices);
  return Error(ErrorCode::InvalidArgument, text);
}

Result<std::vector<Kind>> kinds_named(const std::vector<std::string>& names) {
  if (names.empty()) return compared_kinds();
  std::vector<Kind> kinds;
  bool all = false;
  for (const std::string& name : names) {
    all = all || name == "all";
    if (name == "all") continue;
    const auto kind = kind_named(name);
    if (!kind) return kind.error();
    if (std::ranges::find(kinds, *kind) == kinds.end()) kinds.push_back(*kind);
  }
  return all ? all_kinds() : kinds;
}

}  // namespace verbena::tools
