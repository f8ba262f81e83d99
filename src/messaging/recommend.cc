// SPDX-License-Identifier: Apache-2.0
// Which protocol fits what a program wants: the first in line that was meant for it, and gives all of it.
#include <array>
#include <string>
#include <vector>

#include "verbena/messaging/protocol.h"

namespace verbena::messaging {

namespace {

constexpr std::uint32_t kManySenders = 9;

bool are_many(const Requirements& w) { return w.senders >= kManySenders; }
// What is one for all senders serves them best, unless every message shall be seen at once.
bool may_share(const Requirements& w) {
  return are_many(w) && (w.little_memory || w.receiver_sleeps || !w.lowest_latency);
}

constexpr Kind kReversed{.protocol = Protocol::BufferedWrite, .commit = Commit::Reversed};
constexpr Kind kOffset{.protocol = Protocol::BufferedWrite, .commit = Commit::Offset};
constexpr Kind kReversedRead{
    .protocol = Protocol::BufferedWrite, .commit = Commit::Reversed, .acknowledge = Acknowledge::Read};
constexpr Kind kOffsetRead{
    .protocol = Protocol::BufferedWrite, .commit = Commit::Offset, .acknowledge = Acknowledge::Read};

// What a kind either gives or does not; the rest are preferences.
struct Wish {
  std::string_view name;
  bool (*is_asked)(const Requirements&);
  bool (*is_given)(const Traits&);
};

constexpr std::array<Wish, 8> kWishes{{
    {"idle_receiver", [](const Requirements& w) { return w.idle_receiver; },
     [](const Traits& t) { return t.passive == PassiveSide::Receiver; }},
    {"idle_sender", [](const Requirements& w) { return w.idle_sender; },
     [](const Traits& t) { return t.passive == PassiveSide::Sender; }},
    {"large_without_copy", [](const Requirements& w) { return w.large_without_copy; },
     [](const Traits& t) { return t.zero_copy; }},
    {"receiver_sleeps", [](const Requirements& w) { return w.receiver_sleeps; },
     [](const Traits& t) { return t.interrupts; }},
    {"hold_messages", [](const Requirements& w) { return w.hold_messages; },
     [](const Traits& t) { return t.non_blocking; }},
    {"little_memory for many senders", [](const Requirements& w) { return w.little_memory && are_many(w); },
     [](const Traits& t) { return t.shares_memory; }},
    {"distrust", [](const Requirements& w) { return w.distrust; },
     [](const Traits& t) { return t.isolates_senders; }},
    {"no order_in_write", [](const Requirements& w) { return !w.order_in_write; },
     [](const Traits& t) { return !t.order_in_write; }},
}};

struct Candidate {
  Kind kind;
  bool (*is_meant)(const Requirements&);
  std::string_view reason;
};

constexpr std::array<Candidate, 13> kInLine{{
    {{.protocol = Protocol::BufferedRead}, [](const Requirements& w) { return w.idle_sender; },
     "buffered-read: messages wait in the sender's memory, and the receiver fetches them by itself"},
    {{.protocol = Protocol::DirectWrite},
     [](const Requirements& w) { return w.large_without_copy && w.lowest_latency; },
     "direct-write: the receiver has said before where it wants the next ones, so that a message goes at once, and "
     "nobody copies"},
    {{.protocol = Protocol::DirectRead}, [](const Requirements& w) { return w.large_without_copy; },
     "direct-read: the receiver reads each message to where it wants it, whatever its length"},
    {kReversedRead, [](const Requirements& w) { return w.idle_receiver; },
     "buffered-write, reversed, read: one WRITE per message, and the receiver only looks at its memory"},
    {kOffsetRead, [](const Requirements& w) { return w.idle_receiver; },
     "buffered-write, offset, read: the receiver only looks at its memory, and no order inside a WRITE is needed"},
    {{.protocol = Protocol::SharedWrite},
     [](const Requirements& w) { return may_share(w) && w.many_small; },
     "shared-write: one ring for all senders, in which a short message takes little"},
    {{.protocol = Protocol::SharedReceive},
     [](const Requirements& w) { return may_share(w) || (are_many(w) && w.hold_messages); },
     "shared-receive: one pool of buffers for all senders, memory for those that are busy, given back in any order"},
    {kReversed, [](const Requirements& w) { return w.lowest_latency; },
     "buffered-write, reversed: one WRITE per message, into memory that the receiver looks at"},
    {{.protocol = Protocol::SendReceive}, [](const Requirements& w) { return w.hold_messages || w.lowest_latency; },
     "send-receive: one packet per message, nothing before it and nothing behind it, and one that is held keeps its "
     "own buffer and no other"},
    {kReversed, [](const Requirements& w) { return w.many_small; },
     "buffered-write, reversed: a short message is one WRITE, takes the ring no more than its length, and the receiver "
     "looks at its memory"},
    {kOffset, [](const Requirements& w) { return w.many_small; },
     "buffered-write, offset: a short message takes the ring no more than its length, a batch one word more, and no "
     "order inside a WRITE is needed"},
    {{.protocol = Protocol::BufferedWrite}, [](const Requirements& w) { return w.many_small || w.little_memory; },
     "buffered-write: a short message takes the ring no more than its length"},
    {{.protocol = Protocol::SendReceive}, [](const Requirements&) { return true; },
     "send-receive: nothing asked for needs more than what every device does best"},
}};

using Asked = std::vector<const Wish*>;

bool gives(const Kind& kind, const Asked& asked) {
  const Traits traits = traits_of(kind);
  for (const Wish* wish : asked)
    if (!wish->is_given(traits)) return false;
  return true;
}

bool anything_gives(const Asked& asked) {
  for (const Candidate& candidate : kInLine)
    if (gives(candidate.kind, asked)) return true;
  return false;
}

// The two that no protocol gives together; or all, where it takes more than two.
Error contradiction(const Asked& asked) {
  std::string text;
  for (const Wish* wish : asked) text += (text.empty() ? "" : ", ") + std::string(wish->name);
  for (std::size_t j = 0; j < asked.size(); ++j)
    for (std::size_t i = 0; i < j; ++i)
      if (!anything_gives({asked[i], asked[j]}))
        text = std::string(asked[i]->name) + " and " + std::string(asked[j]->name);
  return Error(ErrorCode::InvalidArgument,
               "recommend a message protocol: " + text + " exclude each other: no protocol gives them together");
}

}  // namespace

Result<Recommendation> recommend(const Requirements& w) {
  if (w.senders == 0)
    return Error(ErrorCode::InvalidArgument, "recommend a message protocol: a receiver of no senders");
  Asked asked;
  for (const Wish& wish : kWishes)
    if (wish.is_asked(w)) asked.push_back(&wish);
  for (const Candidate& candidate : kInLine)
    if (candidate.is_meant(w) && gives(candidate.kind, asked))
      return Recommendation{candidate.kind, std::string(candidate.reason)};
  return contradiction(asked);
}

Result<Recommendation> recommend(const Requirements& wanted, const DeviceInfo& receiver) {
  if (receiver.order_in_write || !wanted.order_in_write) return recommend(wanted);
  Requirements without = wanted;
  without.order_in_write = false;
  auto best = recommend(without);
  if (!best) return best;
  const auto otherwise = recommend(wanted);
  if (otherwise && otherwise->kind != best->kind)
    best->reason += "; device " + receiver.name + " does not promise the order inside a WRITE that " +
                    to_string(otherwise->kind) + " needs";
  return best;
}

}  // namespace verbena::messaging
