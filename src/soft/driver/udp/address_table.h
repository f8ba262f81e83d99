// SPDX-License-Identifier: Apache-2.0
// What the processes that share an address know of each other: which slots are taken, and who listens on which
// service. It lies in memory they all map. A slot is held by a file lock, which the kernel releases with its owner;
// what an owner left behind counts for nothing.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "soft/driver/descriptor.h"
#include "soft/driver/udp/steering.h"
#include "verbena/base/result.h"

namespace verbena::soft::udp {

inline constexpr unsigned kMostServices = 4096;  // of one address

// A device at the table. Any thread. File locks are a process's, and closing the file gives all of them up: the devices
// of a process at one address have one file, which none but they may open or close.
class AddressTable {
 public:
  // A new one.
  static Result<AddressTable> create();
  // One that another process made. Errors: InvalidArgument when it is none of ours.
  static Result<AddressTable> adopt(Descriptor memory);
  // For another device of this process, without a slot.
  AddressTable for_another() const { return AddressTable(file_); }
  AddressTable(AddressTable&& other) noexcept;
  AddressTable& operator=(AddressTable&&) = delete;
  ~AddressTable();

  int fd() const;

  // Takes a free slot until this is destroyed, `first` or one behind it; nullopt when all are taken. Once.
  Result<std::optional<unsigned>> claim_slot(unsigned first);
  // Tells others that this device answers in its slot now, as `incarnation`; not 0.
  void publish(std::uint64_t incarnation);
  // Whether a process, this one included, holds the slot.
  bool is_taken(unsigned slot) const;
  unsigned taken_slots() const;
  // Those of them that devices of this process hold, and how many processes hold the others.
  unsigned own_slots() const;
  unsigned other_processes() const;
  // The process that holds the slot; 0 when none does, it is this one, or its number means nothing here.
  pid_t holder_of(unsigned slot) const;
  // Of the process that answers in the slot; 0 when none does.
  std::uint64_t incarnation_of(unsigned slot) const;

  // Errors: AddressInUse names who listens, ResourceExhausted, Busy.
  Result<void> announce(std::uint32_t service);
  // The service is free for others; requests still come here until somebody else takes it.
  Result<void> withdraw(std::uint32_t service);
  // All of this device's, for good.
  Result<void> withdraw_all();
  // Whose slot gets requests for the service.
  std::optional<unsigned> slot_of(std::uint32_t service) const;
  // Runs f(routes) while nobody changes them. Those beyond `most` are left out.
  template <class F>
  Result<void> with_routes(std::size_t most, F&& f) {
    auto lock = lock_services();
    if (!lock) return std::move(lock).error();
    f(routes(most));
    return {};
  }

 private:
  struct Shared;
  struct Entry;
  struct File;
  // Held by one process, and in it by one thread, at a time.
  class Lock {
   public:
    Lock(int fd, std::unique_lock<std::mutex> thread) : fd_(fd), thread_(std::move(thread)) {}
    Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), thread_(std::move(other.thread_)) {}
    Lock& operator=(Lock&&) = delete;
    ~Lock();

   private:
    int fd_;
    std::unique_lock<std::mutex> thread_;
  };

  explicit AddressTable(std::shared_ptr<File> file) : file_(std::move(file)) {}
  static Result<AddressTable> map(Descriptor memory);
  Shared& shared() const;
  bool is_own(unsigned slot) const;
  Result<Lock> lock_services();
  std::vector<ServiceRoute> routes(std::size_t most) const;
  bool counts(const Entry& entry) const;
  Entry entry_at(unsigned index) const;
  void set_entry(unsigned index, const Entry& entry);

  std::shared_ptr<File> file_;
  std::optional<unsigned> slot_;
  std::uint64_t incarnation_ = 0;
};

}  // namespace verbena::soft::udp
