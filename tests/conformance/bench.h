// SPDX-License-Identifier: Apache-2.0
// The bench on which the device is held to the numbered rules: one device, and for each of its queue pairs a
// peer that is moved by hand. The peer's packets go in, what leaves the device is parsed, checked and kept
// until asked for.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "soft/nic.h"
#include "soft/wire/packet.h"

namespace verbena::conformance {

using Bytes = std::vector<std::byte>;
using wire::NakCode;
using wire::Opcode;
using wire::Packet;

inline constexpr std::uint32_t kMtu = 256;  // of a line that is given no other

// What requests name of a peer that is moved by hand: nobody looks there.
inline constexpr std::uint64_t kRemote = 0x40000;
inline constexpr RKey kRkey{0x5eed};

// 4.096 us * 2^code
inline Duration period(unsigned code) { return Duration::nanoseconds(std::int64_t{4096} << code); }

// n bytes that depend on their place and on `seed`.
Bytes pattern(std::size_t n, unsigned seed = 1);
// A piece of a pattern.
std::span<const std::byte> cut(const Bytes& bytes, std::size_t from, std::size_t size);

// Registered memory between guard bytes, which the bench looks at in the end.
class Memory {
 public:
  // `file`: peers may reach it by themselves, as if it stood there.
  Memory(soft::Nic& nic, core::PdId pd, std::size_t size, Access access, std::optional<std::uint64_t> iova,
         int file = -1);

  std::size_t size() const { return size_; }
  std::byte* data() const { return base_; }
  std::span<const std::byte> bytes() const { return {base_, size_}; }
  std::span<const std::byte> bytes(std::size_t from, std::size_t n) const { return bytes().subspan(from, n); }
  void fill(std::byte value);
  void put(std::size_t at, std::span<const std::byte> from);
  std::uint64_t word(std::size_t at) const;  // host order
  void put_word(std::size_t at, std::uint64_t value);
  bool holds(std::size_t at, std::span<const std::byte> expected) const;
  bool all(std::byte value) const;
  bool guards_hold() const;

  std::uint64_t va(std::uint64_t offset = 0) const { return region_.iova + offset; }
  RKey rkey() const { return region_.rkey; }
  LKey lkey() const { return region_.lkey; }
  ScatterGather sge(std::uint64_t offset, std::uint32_t length) const { return {va(offset), length, lkey()}; }

 private:
  static constexpr std::size_t kGuard = 64;
  std::vector<std::uint64_t> storage_;
  std::size_t size_;
  std::byte* base_;
  core::MemoryRegion region_;
};

// One datagram that left the device.
struct Sent {
  Bytes bytes;
  Packet packet;  // payload points into `bytes`
  wire::Path path;

  Opcode opcode() const { return packet.bth.opcode; }
  Psn psn() const { return packet.bth.psn; }
};

// How the requests of two devices reach each other.
enum class Way { Packets, Rings, PulledRings, GrantedRings };

// How a device, a queue pair and its peer are made.
struct Given {
  Way way = Way::Packets;  // of a Pair
  Gid device = Gid::from_ipv4(192, 0, 2, 1);
  Gid peer = Gid::from_ipv4(192, 0, 2, 2);
  roce::Config transport;
  std::uint64_t seed = 1;

  QueuePairState state = QueuePairState::Rts;
  std::uint32_t path_mtu = kMtu;
  Psn ours{0x000100};    // first PSN of the device's requests
  Psn theirs{0x300200};  // first PSN of the peer's
  Qpn peer_qpn{0x000abc};
  Access access = Access::All;
  std::uint8_t max_rd_atomic = 4;
  std::uint8_t max_dest_rd_atomic = 4;
  std::uint8_t min_rnr_timer = 12;
  std::uint8_t timeout = 14;
  std::uint8_t retry_count = 7;
  std::uint8_t rnr_retry = 7;
  QueuePairCapabilities capabilities{64, 64, 4, 4, 64};
  bool signal_all = false;
  std::uint32_t cq_entries = 256;
  std::optional<core::SrqId> srq;  // where the queue pair's receives come from
};

// The device, its clock, memory and what left it.
class Device {
 public:
  explicit Device(const Given& given);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Memory& memory(std::size_t size, Access access = Access::All, std::optional<std::uint64_t> iova = {});
  Memory& memory_of(core::PdId domain, std::size_t size, Access access = Access::All);

  // A datagram from the wire. What must answer at once, does.
  void deliver(const wire::Path& path, std::span<const std::byte> datagram,
               std::optional<std::uint16_t> identification = 0);
  // Lets time pass, stopping at each deadline of the device.
  void advance(Duration time);
  // Moves to the device's next deadline. False when there is none.
  bool advance_to_deadline();
  // Collects what leaves now.
  void pump(soft::Nic::Acks acks);
  // Datagrams kept for the queue pair with that number at the peer.
  std::deque<Sent>& kept(Qpn peer) { return out_[peer.value()]; }
  std::optional<core::Event> event();
  std::uint64_t dropped(wire::DropReason reason) const;
  std::uint64_t all_dropped() const;

  SeededRandom random;
  soft::Nic nic;
  core::PdId pd;
  Instant now{1'000'000'000};

 private:
  void keep(const roce::Train& train, std::uint32_t index);

  std::vector<std::unique_ptr<Memory>> memories_;
  std::map<std::uint32_t, std::deque<Sent>> out_;
  roce::Train train_;
  wire::IcrcVerifier icrc_;
};

// One queue pair of the device and its peer.
class Line {
 public:
  Line(Device& device, const Given& given);
  // Shares the completion queues of another line.
  Line(Device& device, const Given& given, core::CqId send_cq, core::CqId receive_cq);

  Device& device() { return device_; }
  const Given& given() const { return given_; }
  Qpn qpn() const { return made_.qpn; }
  core::QueuePair& queues() { return *made_.queues; }
  core::CompletionQueue& send_cq() { return *device_.nic.cq(send_cq_); }
  core::CompletionQueue& receive_cq() { return *device_.nic.cq(receive_cq_); }
  core::CqId send_cq_id() const { return send_cq_; }
  core::CqId receive_cq_id() const { return receive_cq_; }
  QueuePairState state() { return made_.queues->state(); }
  Psn our(std::uint32_t n) const { return given_.ours + n; }
  Psn their(std::uint32_t n) const { return given_.theirs + n; }
  wire::Path path_in() const;

  // ---- The application.
  Result<void> modify(const QueuePairAttributes& values, AttributeMask mask);
  void move_to(QueuePairState state);  // step by step, with the attributes given
  PostResult try_post(const SendRequest& request);
  void post(const SendRequest& request);
  // SEND, WRITE or READ of local bytes.
  void post(std::uint64_t id, SendOpcode opcode, std::vector<ScatterGather> local, std::uint64_t remote = 0,
            RKey rkey = {}, SendFlags flags = SendFlags::Signaled);
  void post_receive(std::uint64_t id, std::vector<ScatterGather> local = {});

  // ---- The peer's packets. Pad and addresses are filled in; everything may be changed before delivery.
  Packet request(Opcode opcode, Psn psn, std::span<const std::byte> payload = {},
                 bool ack_request = true) const;
  Packet write(Opcode opcode, Psn psn, const wire::Reth& reth, std::span<const std::byte> payload,
               bool ack_request = true) const;
  Packet read(Psn psn, const wire::Reth& reth) const;
  Packet compare_swap(Psn psn, std::uint64_t va, RKey rkey, std::uint64_t compare, std::uint64_t swap) const;
  Packet fetch_add(Psn psn, std::uint64_t va, RKey rkey, std::uint64_t add) const;
  Packet ack(Psn psn, std::uint32_t msn = 0) const;
  Packet nak(NakCode code, Psn psn) const;
  Packet rnr_nak(std::uint8_t timer_code, Psn psn) const;
  Packet read_response(Opcode opcode, Psn psn, std::span<const std::byte> payload) const;
  Packet atomic_response(Psn psn, std::uint64_t original) const;

  Bytes emit(const Packet& packet) const;
  void deliver(const Packet& packet) { device_.deliver(path_in(), emit(packet)); }
  // Bytes of a packet that were changed get their ICRC anew.
  static void seal(const wire::Path& path, Bytes& datagram);

  // ---- What left for this peer. `line` names the place of a failure.
  Sent take(int line = __builtin_LINE());
  Sent expect(Opcode opcode, Psn psn, int line = __builtin_LINE());
  void expect_ack(Psn psn, std::uint32_t msn, int line = __builtin_LINE());
  void expect_nak(NakCode code, Psn psn, int line = __builtin_LINE());
  void expect_rnr_nak(std::uint8_t timer_code, Psn psn, int line = __builtin_LINE());
  Sent expect_read_response(Opcode opcode, Psn psn, std::span<const std::byte> payload,
                            int line = __builtin_LINE());
  Sent expect_atomic_response(Psn psn, std::uint64_t original, int line = __builtin_LINE());
  // Neither now nor when what is owed is sent.
  void expect_silence(int line = __builtin_LINE());
  // Nothing that must leave at once.
  void expect_nothing_yet(int line = __builtin_LINE());
  std::vector<Sent> take_all();

  // ---- Completions and events.
  Completion expect_send(std::uint64_t id, CompletionStatus status = CompletionStatus::Success,
                         int line = __builtin_LINE());
  Completion expect_receive(std::uint64_t id, CompletionStatus status = CompletionStatus::Success,
                            int line = __builtin_LINE());
  void expect_no_completion(int line = __builtin_LINE());
  void expect_event(AsyncEventType type, int line = __builtin_LINE());
  void expect_no_event(int line = __builtin_LINE());

 private:
  QueuePairAttributes attributes(QueuePairState to) const;
  Packet response(Opcode opcode, Psn psn) const;
  Completion pop(core::CompletionQueue& cq, const char* which, std::uint64_t id, CompletionStatus status,
                 int line);
  void make(core::CqId send_cq, core::CqId receive_cq);

  Device& device_;
  Given given_;
  core::CqId send_cq_, receive_cq_;
  soft::Nic::CreatedQp made_;
};

// A device with one queue pair: what most tests need.
class Rig : public Device, public Line {
 public:
  explicit Rig(const Given& given = {}) : Device(given), Line(static_cast<Device&>(*this), given) {}
  using Line::deliver;
  void deliver_raw(std::span<const std::byte> datagram) { Device::deliver(path_in(), datagram); }
};

AttributeMask required_mask(QueuePairState to);

}  // namespace verbena::conformance
