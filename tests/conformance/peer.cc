// SPDX-License-Identifier: Apache-2.0
// The hand-driven peer of a queue pair: what it sends, and what the tests expect to reach it.
#include <algorithm>

#include "bench.h"
#include "soft/wire/icrc.h"

namespace verbena::conformance {

namespace {

using Acks = soft::Nic::Acks;

std::string at_line(int line) { return "asked for at line " + std::to_string(line); }

}  // namespace

wire::Path Line::path_in() const {
  wire::Path path;
  path.source = given_.peer;
  path.destination = given_.device;
  path.source_port = 0xd123;
  return path;
}

// ---- Packets of the peer

Packet Line::request(Opcode opcode, Psn psn, std::span<const std::byte> payload, bool ack_request) const {
  Packet packet;
  packet.bth.opcode = opcode;
  packet.bth.psn = psn;
  packet.bth.destination = qpn();
  packet.bth.ack_request = ack_request;
  packet.bth.pad_count = wire::pad_count_for(payload.size());
  packet.payload = payload;
  packet.immediate = {std::byte{0xde}, std::byte{0xad}, std::byte{0xbe}, std::byte{0xef}};
  return packet;
}

Packet Line::write(Opcode opcode, Psn psn, const wire::Reth& reth, std::span<const std::byte> payload,
                   bool ack_request) const {
  Packet packet = request(opcode, psn, payload, ack_request);
  packet.reth = reth;
  return packet;
}

Packet Line::read(Psn psn, const wire::Reth& reth) const {
  Packet packet = request(Opcode::RcReadRequest, psn);
  packet.reth = reth;
  return packet;
}

Packet Line::compare_swap(Psn psn, std::uint64_t va, RKey rkey, std::uint64_t compare,
                          std::uint64_t swap) const {
  Packet packet = request(Opcode::RcCompareSwap, psn);
  packet.atomic = {va, rkey, swap, compare};
  return packet;
}

Packet Line::fetch_add(Psn psn, std::uint64_t va, RKey rkey, std::uint64_t add) const {
  Packet packet = request(Opcode::RcFetchAdd, psn);
  packet.atomic = {va, rkey, add, 0};
  return packet;
}

Packet Line::response(Opcode opcode, Psn psn) const { return request(opcode, psn, {}, false); }

Packet Line::ack(Psn psn, std::uint32_t msn) const {
  Packet packet = response(Opcode::RcAcknowledge, psn);
  packet.aeth = {wire::kSyndromeAck, msn};
  return packet;
}

Packet Line::nak(NakCode code, Psn psn) const {
  Packet packet = response(Opcode::RcAcknowledge, psn);
  packet.aeth = {wire::nak_syndrome(code), 0};
  return packet;
}

Packet Line::rnr_nak(std::uint8_t timer_code, Psn psn) const {
  Packet packet = response(Opcode::RcAcknowledge, psn);
  packet.aeth = {wire::rnr_syndrome(timer_code), 0};
  return packet;
}

Packet Line::read_response(Opcode opcode, Psn psn, std::span<const std::byte> payload) const {
  return request(opcode, psn, payload, false);
}

Packet Line::atomic_response(Psn psn, std::uint64_t original) const {
  Packet packet = response(Opcode::RcAtomicAcknowledge, psn);
  packet.atomic_original = original;
  return packet;
}

Bytes Line::emit(const Packet& packet) const {
  Bytes bytes(wire::datagram_bytes(packet));
  wire::emit(packet, path_in(), 0, bytes);
  return bytes;
}

void Line::seal(const wire::Path& path, Bytes& datagram) {
  const std::size_t covered = datagram.size() - wire::kIcrcBytes;
  wire::store_icrc(datagram.data() + covered, wire::icrc_of(path, 0, std::span(datagram).first(covered)));
}

// ---- What reaches the peer

Sent Line::take(int line) {
  std::deque<Sent>& kept = device_.kept(given_.peer_qpn);
  if (kept.empty()) device_.pump(Acks::Flush);
  if (kept.empty()) {
    ADD_FAILURE() << "nothing left the device, " << at_line(line);
    return {};
  }
  Sent sent = std::move(kept.front());
  kept.pop_front();
  EXPECT_EQ(sent.path.destination, given_.peer) << at_line(line);
  return sent;
}

Sent Line::expect(Opcode opcode, Psn psn, int line) {
  Sent sent = take(line);
  if (sent.bytes.empty()) return sent;
  EXPECT_EQ(wire::opcode_info(sent.opcode()).name, wire::opcode_info(opcode).name) << at_line(line);
  EXPECT_EQ(sent.psn().value(), psn.value()) << at_line(line) << ": " << wire::to_string(sent.packet);
  return sent;
}

void Line::expect_ack(Psn psn, std::uint32_t msn, int line) {
  const Sent sent = expect(Opcode::RcAcknowledge, psn, line);
  EXPECT_EQ(sent.packet.aeth.syndrome, wire::kSyndromeAck) << at_line(line);
  EXPECT_EQ(sent.packet.aeth.msn, msn) << at_line(line);
}

void Line::expect_nak(NakCode code, Psn psn, int line) {
  const Sent sent = expect(Opcode::RcAcknowledge, psn, line);
  EXPECT_EQ(sent.packet.aeth.syndrome, wire::nak_syndrome(code)) << at_line(line);
}

void Line::expect_rnr_nak(std::uint8_t timer_code, Psn psn, int line) {
  const Sent sent = expect(Opcode::RcAcknowledge, psn, line);
  EXPECT_EQ(sent.packet.aeth.syndrome, wire::rnr_syndrome(timer_code)) << at_line(line);
}

Sent Line::expect_read_response(Opcode opcode, Psn psn, std::span<const std::byte> payload, int line) {
  Sent sent = expect(opcode, psn, line);
  EXPECT_TRUE(
      std::equal(payload.begin(), payload.end(), sent.packet.payload.begin(), sent.packet.payload.end()))
      << "payload of " << sent.packet.payload.size() << " bytes, " << at_line(line);
  if (sent.packet.info().has(wire::kAeth)) {
    EXPECT_EQ(sent.packet.aeth.syndrome, wire::kSyndromeAck) << at_line(line);
  }
  return sent;
}

Sent Line::expect_atomic_response(Psn psn, std::uint64_t original, int line) {
  Sent sent = expect(Opcode::RcAtomicAcknowledge, psn, line);
  EXPECT_EQ(sent.packet.atomic_original, original) << at_line(line);
  EXPECT_EQ(sent.packet.aeth.syndrome, wire::kSyndromeAck) << at_line(line);
  return sent;
}

void Line::expect_silence(int line) {
  device_.pump(Acks::Flush);
  for (const Sent& sent : device_.kept(given_.peer_qpn))
    ADD_FAILURE() << "left the device: " << wire::to_string(sent.packet) << ", silence " << at_line(line);
  device_.kept(given_.peer_qpn).clear();
}

void Line::expect_nothing_yet(int line) {
  device_.pump(Acks::Owed);
  for (const Sent& sent : device_.kept(given_.peer_qpn))
    ADD_FAILURE() << "left at once: " << wire::to_string(sent.packet) << ", silence " << at_line(line);
}

std::vector<Sent> Line::take_all() {
  device_.pump(Acks::Flush);
  std::deque<Sent>& kept = device_.kept(given_.peer_qpn);
  std::vector<Sent> list(std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  kept.clear();
  return list;
}

// ---- What reaches the application

Completion Line::pop(core::CompletionQueue& cq, const char* which, std::uint64_t id, CompletionStatus status,
                     int line) {
  Completion completion;
  if (cq.poll({&completion, 1}) == 0) {
    ADD_FAILURE() << "no completion in the " << which << " queue, " << at_line(line);
    return completion;
  }
  EXPECT_EQ(completion.id, id) << which << ", " << at_line(line);
  EXPECT_EQ(to_string(completion.status), to_string(status)) << which << " " << id << ", " << at_line(line);
  EXPECT_EQ(completion.qpn, qpn()) << which << ", " << at_line(line);
  return completion;
}

Completion Line::expect_send(std::uint64_t id, CompletionStatus status, int line) {
  return pop(send_cq(), "send", id, status, line);
}

Completion Line::expect_receive(std::uint64_t id, CompletionStatus status, int line) {
  return pop(receive_cq(), "receive", id, status, line);
}

void Line::expect_no_completion(int line) {
  Completion completion;
  for (core::CompletionQueue* cq : {&send_cq(), &receive_cq()})
    while (cq->poll({&completion, 1}) != 0)
      ADD_FAILURE() << "completion of " << completion.id << " as " << to_string(completion.status)
                    << ", none " << at_line(line);
}

void Line::expect_event(AsyncEventType type, int line) {
  const auto event = device_.event();
  if (!event) {
    ADD_FAILURE() << "no event, " << at_line(line);
    return;
  }
  EXPECT_EQ(event->kind, core::Event::Kind::Async) << at_line(line);
  EXPECT_EQ(to_string(event->type), to_string(type)) << at_line(line);
  if (type != AsyncEventType::CqError) {
    EXPECT_EQ(event->qpn, qpn()) << at_line(line);
  }
}

void Line::expect_no_event(int line) {
  while (const auto event = device_.event())
    ADD_FAILURE() << "event "
                  << (event->kind == core::Event::Kind::Completion ? "completion" : to_string(event->type))
                  << ", none " << at_line(line);
}

}  // namespace verbena::conformance
