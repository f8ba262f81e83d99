// SPDX-License-Identifier: Apache-2.0
// Port 4791 of one address, shared by any processes of one user. All of them hold the same sockets, one for each slot
// and a lobby; a process reads its own slot's. The kernel picks the socket by a filter (steering.h). A thread of ours,
// asleep but for that, lets others in and reads the lobby and the mailbox.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/id_slot.h"
#include "soft/driver/counter.h"
#include "soft/driver/udp/address_table.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/mailbox.h"
#include "soft/driver/udp/receiver.h"

namespace verbena::soft::udp {

// Any thread, unless a method says otherwise.
class SharedAddress {
 public:
  // Alone there, or with other processes of this user. Errors: AddressNotAvailable names the addresses that are ours;
  // AddressInUse who holds the port: another user, the kernel, a device of this process; ResourceExhausted when all
  // slots are taken.
  static Result<std::unique_ptr<SharedAddress>> open(const Gid& address);
  // The first of 127.0.0.1, .2, .3 … that nobody uses.
  static Result<std::unique_ptr<SharedAddress>> open_free_loopback(unsigned candidates = 1'000);
  ~SharedAddress();
  SharedAddress(const SharedAddress&) = delete;
  SharedAddress& operator=(const SharedAddress&) = delete;

  const LocalAddress& local() const { return local_; }
  // Queue pair numbers and communication ids of this process must be of this slot.
  IdSlot ids() const { return {kSlotBits, slot_}; }
  // The slot's, for one Receiver.
  Result<Descriptor> receiving_socket() const;

  // Before that socket is closed: from now on a forked child may keep what we hold alive.
  void let_go();

  // Whether all of a train that came to our socket is ours. A network card may join datagrams of one flow.
  bool is_ours(const ReceivedTrain& train) const;
  // Hands what is not ours to whom it belongs, what is to the inbox.
  void sort(const ReceivedTrain& train);
  Inbox& inbox() { return inbox_; }

  // Errors: AddressInUse names the process that listens, ResourceExhausted, Busy.
  Result<void> announce(std::uint32_t service);
  Result<void> withdraw(std::uint32_t service);

  std::string explain() const;
  std::vector<NamedCounter> counters() const;

 private:
  struct Holding;
  SharedAddress(LocalAddress local, std::unique_ptr<Holding> holding, Descriptor meeting_place, AddressTable table,
                std::vector<Descriptor> sockets, unsigned slot, std::uint64_t incarnation, Mailbox mailbox);
  static Result<std::unique_ptr<SharedAddress>> open(const LocalAddress& local, bool alone);
  static Result<std::unique_ptr<SharedAddress>> create(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                       Descriptor meeting_place);
  static Result<std::unique_ptr<SharedAddress>> join(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                     std::vector<Descriptor> descriptors);
  static Result<std::unique_ptr<SharedAddress>> settle(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                       Descriptor meeting_place, AddressTable table,
                                                       std::vector<Descriptor> sockets);
  void start();
  Result<void> steer();
  void attend();  // the thread
  void read_lobby();
  void read_mail();
  void route(const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes);
  void hand_to(unsigned slot, const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes);
  void keep(const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes);

  const LocalAddress local_;
  const std::unique_ptr<Holding> holding_;  // outlives what follows
  const Descriptor meeting_place_;
  AddressTable table_;
  const std::vector<Descriptor> sockets_;  // a slot's each, then the lobby
  const unsigned slot_;
  const std::uint64_t incarnation_;
  Mailbox mailbox_;
  Inbox inbox_;
  std::unique_ptr<Receiver> lobby_;
  std::vector<int> passed_on_;  // what the next to come gets
  std::atomic<std::uint64_t> handed_over_{0}, lost_{0}, taken_over_{0};  // strays
  Descriptor stop_;
  std::thread attendant_;
};

}  // namespace verbena::soft::udp
