// SPDX-License-Identifier: Apache-2.0
// The way of a packet from the driver to its queue pair: parse, find, admit, check the ICRC, hand over.
#include <algorithm>

#include "soft/core/dma.h"
#include "soft/nic_qp.h"

namespace verbena::soft {

using wire::DropReason;

namespace {

constexpr std::uint32_t kGsiQkey = 0x80010000;
constexpr std::size_t kMadBytes = 256;

// the low 15 bits agree and are not zero, and one of the two is a full member.
bool pkeys_match(std::uint16_t a, std::uint16_t b) {
  return (a & 0x7fff) == (b & 0x7fff) && (a & 0x7fff) != 0 && ((a | b) & 0x8000) != 0;
}

bool takes_requests(QueuePairState state) {
  return state == QueuePairState::Rtr || state == QueuePairState::Rts || state == QueuePairState::Sqd;
}
bool takes_responses(QueuePairState state) {
  return state == QueuePairState::Rts || state == QueuePairState::Sqd;
}

}  // namespace

DropReason Nic::admit(const Qp& qp, const wire::Path& path, const wire::Packet& packet) const {
  const wire::OpcodeInfo& info = packet.info();
  if (info.transport != wire::Transport::Rc) return DropReason::WrongTransport;
  const QueuePairState state = qp.state();
  if (info.request ? !takes_requests(state) : !takes_responses(state))
    return DropReason::WrongState;
  if (path.source != qp.attributes().address.destination || path.destination != config_.address)
    return DropReason::WrongAddress;
  if (!pkeys_match(packet.bth.pkey, config_.pkey)) return DropReason::BadPkey;
  if (info.has(wire::kAeth) && wire::aeth_kind(packet.aeth) == wire::AethKind::Reserved)
    return DropReason::BadSyndrome;
  return DropReason::None;
}

DropReason Nic::admit_management(const wire::Packet& packet) const {
  if (packet.bth.opcode != wire::Opcode::UdSendOnly) return DropReason::WrongTransport;
  if (!pkeys_match(packet.bth.pkey, config_.pkey) || packet.deth.qkey != kGsiQkey) return DropReason::BadPkey;
  if (packet.payload.size() != kMadBytes || packet.bth.pad_count != 0) return DropReason::BadLength;
  return DropReason::None;
}

// One datagram, and its place in its train.
struct Nic::Arrival {
  const wire::Path& path;
  std::optional<std::uint16_t> identification;
  wire::IcrcVerifier& icrc;  // set to that path with the first datagram that gets so far
  std::span<const std::byte> datagram;
  std::uint16_t index = 0;
  std::uint16_t first_identification = 0;  // likely that of the train's first; they count up
  bool checked = false;                    // it is so
};

// What a system numbers it counts for each of its sockets. The expectation is kept for few ports: others' numbers are
// found by solving.
Nic::Expected& Nic::expected_of(const wire::Path& path) {
  const std::size_t mixed = path.source_port ^ path.source.bytes[15] * std::size_t{37};
  Expected& expected = expected_[mixed % expected_.size()];
  if (expected.source != path.source || expected.port != path.source_port)
    expected.source = path.source, expected.port = path.source_port, expected.identification = 0;
  return expected;
}

bool Nic::passes_icrc(Arrival& arrival) {
  const auto likely = static_cast<std::uint16_t>(arrival.first_identification + arrival.index);
  std::uint16_t found = 0;
  const wire::IcrcVerdict verdict =
      arrival.icrc.check(arrival.identification, arrival.datagram, &found, likely);
  if (verdict == wire::IcrcVerdict::Bad) return false;
  if (verdict == wire::IcrcVerdict::Solved) ++counters_.icrc_solved;
  arrival.first_identification = static_cast<std::uint16_t>(found - arrival.index);
  arrival.checked = true;
  return true;
}

// Most datagrams that come together are of one queue pair: it is looked up and entered in the lists once.
void Nic::handle_datagrams(Instant now, const wire::Path& path, std::optional<std::uint16_t> identification,
                           std::span<const std::byte> bytes, std::size_t segment_bytes) {
  wire::Packet packet;
  Qp* last = nullptr;
  Expected& expected = expected_of(path);
  Arrival arrival{path, identification, expected.icrc, {}};
  arrival.first_identification = expected.identification;
  do {
    arrival.datagram = bytes.first(std::min(segment_bytes, bytes.size()));
    bytes = bytes.subspan(arrival.datagram.size());
    Qp* const qp = handle_one(now, arrival, last, packet);
    ++arrival.index;
    if (qp == nullptr) continue;
    if (last != nullptr && last != qp) schedule(now, *last);
    last = qp;
    settle_broken_queues(now);
    if (!bytes.empty()) bytes = bytes.subspan(handle_run(now, arrival, *qp, packet, bytes) * segment_bytes);
  } while (!bytes.empty());
  // With 0 begins what is not numbered: mostly, so does the next.
  const std::uint16_t first = arrival.first_identification;
  if (arrival.checked) expected.identification = first == 0 ? first : static_cast<std::uint16_t>(first + 1);
  if (last != nullptr) schedule(now, *last);
}

// What follows `packet` in its train and repeats it but for number and payload. Returns how many; the next is one to be
// judged by itself.
std::uint32_t Nic::handle_run(Instant now, Arrival& arrival, Qp& qp, wire::Packet& packet,
                              std::span<const std::byte> bytes) {
  const std::size_t size = arrival.datagram.size();
  if (bytes.size() < size || !wire::repeats(arrival.datagram, bytes.first(size))) return 0;
  const bool sends = takes_requests(qp.state()) && qp.transport.opens_sends(packet);
  const std::uint32_t count = sends ? handle_sends(now, arrival, qp, packet, bytes)
                                    : handle_middles(now, arrival, qp, packet, bytes);
  counters_.rcvd_pkts += count;
  counters_.rcvd_bytes += count * size;
  return count;
}

// Of a message, what judges them is looked at once; each is checked and stored.
std::uint32_t Nic::handle_middles(Instant now, Arrival& arrival, Qp& qp, const wire::Packet& packet,
                                  std::span<const std::byte> bytes) {
  const std::size_t size = arrival.datagram.size(), payload = packet.payload.size();
  const roce::Run run = qp.transport.open_run(packet, static_cast<std::uint32_t>(bytes.size() / size));
  if (run.to == nullptr) return 0;
  std::uint32_t count = 0;
  for (; count < run.count; ++count, ++arrival.index) {
    const std::span<const std::byte> next = bytes.subspan(count * size, size);
    if (!wire::repeats_bth(arrival.datagram.data(), next.data())) break;
    arrival.datagram = next;
    if (!passes_icrc(arrival) ||
        !core::dma_write(run.to + count * payload, next.subspan(wire::kBthBytes, payload), false))
      break;
  }
  if (count != 0) qp.transport.close_run(now, packet, count);
  return count;
}

// SENDs of one packet. A completion queue that overran has its word before the next.
std::uint32_t Nic::handle_sends(Instant now, Arrival& arrival, Qp& qp, wire::Packet& packet,
                                std::span<const std::byte> bytes) {
  const std::size_t size = arrival.datagram.size(), payload = packet.payload.size();
  std::uint32_t count = 0;
  for (; bytes.size() >= size && !events_.any_broken(); bytes = bytes.subspan(size), ++count, ++arrival.index) {
    const std::span<const std::byte> next = bytes.first(size);
    if (!wire::repeats_bth(arrival.datagram.data(), next.data())) break;
    arrival.datagram = next;
    if (!passes_icrc(arrival)) break;
    ++packet.bth.psn;
    packet.payload = next.subspan(wire::kBthBytes, payload);
    if (!qp.transport.take_send(packet)) break;
  }
  qp.transport.close_sends(now, count);
  settle_broken_queues(now);
  return count;
}

// The queue pair that took it, if one did. `likely` saves the look-up when it is the one.
Nic::Qp* Nic::handle_one(Instant now, Arrival& arrival, Qp* likely, wire::Packet& packet) {
  const wire::Path& path = arrival.path;
  const std::span<const std::byte> datagram = arrival.datagram;
  const auto refuse = [this](DropReason reason) {
    drop(reason);
    return nullptr;
  };
  if (const DropReason reason = wire::parse(datagram, packet); reason != DropReason::None) [[unlikely]]
    return refuse(reason);
  const Qpn destination = packet.bth.destination;
  const bool management = destination == kGsiQpn;
  Qp* const qp = management                                           ? nullptr
                 : likely != nullptr && likely->qpn() == destination ? likely
                                                                      : find(destination);
  if (!management && qp == nullptr) [[unlikely]]
    return refuse(DropReason::BadQpn);  // no answer to an unknown number
  const DropReason reason = management ? admit_management(packet) : admit(*qp, path, packet);
  if (reason != DropReason::None) [[unlikely]] return refuse(reason);

  arrival.icrc.set_path(path);
  if (!passes_icrc(arrival)) [[unlikely]] return refuse(DropReason::BadIcrc);
  if (!management && qp->path != verbena::local::Path::Roce) [[unlikely]] {
    if (qp->path == verbena::local::Path::Local) return refuse(DropReason::WrongPath);
    paths_->handle_packet(now, qp->qpn());
    if (qp->state() == QueuePairState::Error) return refuse(DropReason::WrongState);  // packets were not allowed
  }
  ++counters_.rcvd_pkts;
  counters_.rcvd_bytes += datagram.size();

  if (!management) [[likely]] {
    qp->transport.handle_packet(now, packet);
    return qp;
  }
  ++counters_.rcvd_cm_pkts;
  cm_->handle_mad(now, path, packet.payload);
  return nullptr;
}

}  // namespace verbena::soft
