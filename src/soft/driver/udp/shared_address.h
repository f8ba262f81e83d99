// SPDX-License-Identifier: Apache-2.0
// Port 4791 of one address, shared by any devices of any processes of one user, or of users who name each other
// (address_users.h). Who is alone has one socket there, as if nobody could come. The first guest makes it a group
// (socket_group.h): then all hold the same sockets, one for each slot and a lobby, a device reads its own slot's, and
// the kernel picks the socket by a filter (steering.h). A thread of ours, asleep but for that, lets others in, reads
// the lobby and the mailbox, and takes the services of who was killed out of the filter: whoever stays answers then
// that nobody listens there.
//
// A process meets others once: its next device at an address gets everything from one that is there (Site).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/id_slot.h"
#include "base/quiet_thread.h"
#include "soft/driver/counter.h"
#include "soft/driver/udp/address_table.h"
#include "soft/driver/udp/address_users.h"
#include "soft/driver/udp/companions.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/udp/interfaces.h"
#include "soft/driver/udp/mailbox.h"
#include "soft/driver/udp/peer_socket.h"
#include "soft/driver/udp/receiver.h"

namespace verbena::soft::udp {

// Any thread, unless a method says otherwise.
class SharedAddress {
 public:
  // Alone there, or with others of these users. Errors: AddressNotAvailable names the addresses that are ours;
  // AddressInUse who holds the port: another user, one who names others, the kernel; ResourceExhausted when all slots
  // are taken, or this process or the one that is alone there may not have the descriptors.
  static Result<std::unique_ptr<SharedAddress>> open(const Gid& address, const AddressUsers& users = {});
  // The first of 127.0.0.1, .2, .3 … that nobody uses.
  static Result<std::unique_ptr<SharedAddress>> open_free_loopback(const AddressUsers& users = {},
                                                                   unsigned candidates = 1'000);
  ~SharedAddress();
  SharedAddress(const SharedAddress&) = delete;
  SharedAddress& operator=(const SharedAddress&) = delete;

  const LocalAddress& local() const { return local_; }
  // Queue pair numbers and communication ids of this device must be of this slot.
  IdSlot ids() const { return {kSlotBits, slot_}; }
  // The slot's, for one Receiver.
  Result<Descriptor> receiving_socket() const;

  // Beside it, while nobody shares the address and where it is of use: for the Receiver, too. See PeerSocket.
  int peer_fd() const { return peer_.fd(); }
  PeerSocket& peer_socket() { return peer_; }
  bool is_shared() const { return company() != nullptr; }

  // Before these sockets are closed, by the thread that destroys this next: it is over, and until all is closed no
  // child is forked, which would keep it.
  void let_go();

  // Whether all of a train that came to our socket is ours. A network card may join datagrams of one flow.
  bool is_ours(const ReceivedTrain& train) const;
  // Hands what is not ours to whom it belongs, what is to the inbox.
  [[gnu::cold]] void sort(const ReceivedTrain& train);
  Inbox& inbox() { return inbox_; }

  // Errors: AddressInUse names who listens, ResourceExhausted, Busy.
  Result<void> announce(std::uint32_t service);
  Result<void> withdraw(std::uint32_t service);

  std::string explain() const;
  std::vector<NamedCounter> counters() const;

 private:
  struct Holding;
  class Site;
  // What only those who share need.
  struct Company {
    Mailbox mailbox;
    std::vector<Descriptor> others;  // of all places but our slot
    Receiver lobby;
    std::vector<int> passed_on;  // what the next to come gets
  };
  SharedAddress(LocalAddress local, std::unique_ptr<Holding> holding, Descriptor meeting_place, AddressTable table,
                Descriptor socket, unsigned slot, std::uint64_t incarnation);
  static Result<std::unique_ptr<SharedAddress>> open(const LocalAddress& local, const AddressUsers& users, bool alone);
  static Result<std::unique_ptr<SharedAddress>> meet(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                     bool alone);
  static Result<std::unique_ptr<SharedAddress>> create(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                       Descriptor meeting_place, Descriptor socket);
  // `descriptors`: as they are passed on, that of the table taken out. `no_fork`: locked; with success no more.
  static Result<std::unique_ptr<SharedAddress>> join(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                     AddressTable table, std::vector<Descriptor> descriptors,
                                                     std::unique_lock<std::mutex>& no_fork);
  // Joins another device of this process.
  Result<std::unique_ptr<SharedAddress>> invite_another(std::unique_ptr<Holding> holding);
  const AddressUsers& users() const;
  Result<void> start();
  void call();  // the thread looks around, or ends
  Company* company() const { return company_.load(std::memory_order_acquire); }
  void keep_company(Mailbox mailbox, std::vector<Descriptor> others);
  Result<void> share();  // from here on guests are let in
  Result<void> become_shared();  // under sharing_
  Result<void> steer();
  void attend();  // the thread
  void meet_guest();
  void watch_companions();
  void bury(int descriptor);
  void look_around();
  void read_lobby();
  void read_mail();
  void route(const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes);
  void hand_to(unsigned slot, const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes);
  void keep(const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes);

  const LocalAddress local_;
  const std::unique_ptr<Holding> holding_;  // outlives what follows
  const Descriptor meeting_place_;
  AddressTable table_;
  const Descriptor socket_;  // our slot's
  const unsigned slot_;
  const std::uint64_t incarnation_;
  Inbox inbox_;
  PeerSocket peer_;
  std::unique_ptr<Company> owned_company_;
  std::atomic<Company*> company_{nullptr};  // set once
  std::mutex sharing_;
  bool is_steered_ = false;  // under sharing_
  std::atomic<std::uint64_t> handed_over_{0}, lost_{0}, taken_over_{0};  // strays
  Descriptor called_;
  std::atomic<bool> is_over_{false};
  Descriptor events_;  // what the thread waits for
  const int in_the_way_;  // an errno, where one of these descriptors could not be made
  Companions companions_;
  QuietThread attendant_;
};

}  // namespace verbena::soft::udp
