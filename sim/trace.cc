// SPDX-License-Identifier: Apache-2.0
#include "sim/trace.h"

#include "soft/wire/packet.h"
#include "soft/wire/text.h"

namespace verbena::sim {

std::string_view to_string(Fate fate) {
  switch (fate) {
    case Fate::Delivered:
      return "delivered";
    case Fate::Lost:
      return "lost";
    case Fate::QueueFull:
      return "queue full";
    case Fate::Duplicated:
      return "duplicated";
    case Fate::Replayed:
      return "replayed";
    case Fate::Corrupted:
      return "corrupted";
    case Fate::Forged:
      return "forged";
  }
  return "?";
}

std::string describe(const PacketRecord& record, Instant start) {
  const auto ns = static_cast<std::uint64_t>((record.sent - start).ns);
  wire::Line line;
  line.decimal(ns / 1'000'000'000).add(".");
  std::uint64_t digit = 100'000'000;
  for (; digit != 0; digit /= 10) line.decimal(ns / digit % 10);
  line.add(" s  #")
      .decimal(record.ordinal)
      .add("  ")
      .decimal(record.from)
      .add(" > ")
      .decimal(record.to)
      .add("  ");
  line.add(to_string(record.fate)).add("  ");
  if (!record.arrives.is_never())
    line.add("+").decimal(static_cast<std::uint64_t>((record.arrives - record.sent).ns)).add(" ns  ");
  wire::Packet packet;
  const wire::DropReason reason = wire::parse(record.datagram, packet);
  if (reason == wire::DropReason::None)
    line.add(wire::to_string(packet));
  else
    line.add("unreadable: ").add(wire::to_string(reason)).add(", ").decimal(record.datagram.size()).add(" B");
  return line.take();
}

}  // namespace verbena::sim
