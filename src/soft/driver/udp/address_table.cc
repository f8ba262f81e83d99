// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/address_table.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include "base/file_size.h"

namespace verbena::soft::udp {
namespace {

constexpr std::uint64_t kMagic = 0x5645'5242'4144'4452;  // "VERBADDR"
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr off_t kServicesByte = kSlots;  // behind the slots' own
constexpr int kLockTries = 400;
constexpr std::chrono::milliseconds kLockPause{5};

static_assert(kSlots <= 64);
constexpr std::uint64_t bit_of(unsigned slot) { return std::uint64_t{1} << slot; }

bool lock_byte(int fd, off_t byte) {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  return ::fcntl(fd, F_SETLK, &range) == 0;
}

void unlock_byte(int fd, off_t byte) {
  struct flock range {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  ::fcntl(fd, F_SETLK, &range);
}

}  // namespace

// Each word has one writer at a time: an incarnation the owner of its slot, an entry who holds the services' lock. Any
// of them may have died at any moment.
struct AddressTable::Shared {
  std::atomic<std::uint64_t> magic;
  std::atomic<std::uint64_t> incarnations[kSlots];
  std::atomic<std::uint64_t> entries[kMostServices];
};

// One word of the table: service (32 bits), slot (6), closed (1), the low bits of its owner's incarnation (25).
struct AddressTable::Entry {
  static constexpr unsigned kIncarnationBits = 25;
  static constexpr std::uint64_t kIncarnationMask = (1u << kIncarnationBits) - 1;

  std::uint32_t service = 0;
  unsigned slot = 0;
  bool closed = false;
  std::uint64_t incarnation = 0;

  static Entry from_word(std::uint64_t word) {
    return {static_cast<std::uint32_t>(word >> 32), static_cast<unsigned>(word >> 26 & (kSlots - 1)),
            (word >> kIncarnationBits & 1) != 0, word & kIncarnationMask};
  }
  std::uint64_t word() const {
    return std::uint64_t{service} << 32 | std::uint64_t{slot} << 26 | std::uint64_t{closed} << kIncarnationBits |
           (incarnation & kIncarnationMask);
  }
};

// What the devices of this process have together. A lock says nothing within a process: the mutex stands for that of
// the services, and the bits for those of the slots.
struct AddressTable::File {
  Descriptor memory;
  Shared* shared = nullptr;
  std::mutex mutex;
  std::atomic<std::uint64_t> own{0};  // slots; changed under the mutex

  File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (shared != nullptr) ::munmap(shared, sizeof(Shared));
  }
};

AddressTable::Lock::~Lock() {
  if (fd_ >= 0) unlock_byte(fd_, kServicesByte);
}

AddressTable::AddressTable(AddressTable&& other) noexcept
    : file_(std::move(other.file_)), slot_(std::exchange(other.slot_, {})), incarnation_(other.incarnation_) {}

AddressTable::~AddressTable() {
  if (!slot_) return;
  const std::lock_guard guard(file_->mutex);
  file_->own &= ~bit_of(*slot_);
  unlock_byte(fd(), static_cast<off_t>(*slot_));
}

int AddressTable::fd() const { return file_->memory.get(); }
AddressTable::Shared& AddressTable::shared() const { return *file_->shared; }
bool AddressTable::is_own(unsigned slot) const { return (file_->own.load() & bit_of(slot)) != 0; }

Result<AddressTable> AddressTable::map(Descriptor memory) {
  void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (at == MAP_FAILED) return Error::from_errno(errno, "map the table of an address");
  auto file = std::make_shared<File>();
  file->memory = std::move(memory);
  file->shared = static_cast<Shared*>(at);
  return AddressTable(std::move(file));
}

Result<AddressTable> AddressTable::create() {
  Descriptor memory(::memfd_create("verbena-address", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory || !set_file_size(memory.get(), sizeof(Shared)) || ::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0)
    return Error::from_errno(errno, "make the table of an address, a sealed memfd");
  auto table = map(std::move(memory));
  if (table) table->shared().magic.store(kMagic);
  return table;
}

Result<AddressTable> AddressTable::adopt(Descriptor memory) {
  struct stat status {};
  const bool whole = ::fstat(memory.get(), &status) == 0 && status.st_size == sizeof(Shared) &&
                     (::fcntl(memory.get(), F_GET_SEALS) & kSeals) == kSeals;
  if (!whole) return Error(ErrorCode::InvalidArgument, "the table of the address has not the size it must have");
  auto table = map(std::move(memory));
  if (table && table->shared().magic.load() != kMagic)
    return Error(ErrorCode::InvalidArgument, "the table of the address is none of this version");
  return table;
}

Result<AddressTable::Lock> AddressTable::lock_services() {
  std::unique_lock thread(file_->mutex);
  for (int tries = 0; tries < kLockTries; ++tries) {
    if (lock_byte(fd(), kServicesByte)) return Lock(fd(), std::move(thread));
    if (errno != EAGAIN && errno != EACCES)
      return Error::from_errno(errno, "lock the table of services of the address");
    std::this_thread::sleep_for(kLockPause);
  }
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_start = kServicesByte;
  range.l_len = 1;
  ::fcntl(fd(), F_GETLK, &range);
  return Error(ErrorCode::Busy, "the table of services of the address is locked by process " +
                                    std::to_string(range.l_pid) + ", which does not go on: is it stopped?");
}

// Under the lock, so that nobody takes what the slot's last owner left for the new one's.
Result<std::optional<unsigned>> AddressTable::claim_slot(unsigned first) {
  auto lock = lock_services();
  if (!lock) return std::move(lock).error();
  for (unsigned i = 0; i < kSlots; ++i) {
    const unsigned slot = (first + i) % kSlots;
    if (is_own(slot) || !lock_byte(fd(), slot)) continue;
    file_->own |= bit_of(slot);
    slot_ = slot;
    shared().incarnations[slot].store(0);
    return slot_;
  }
  return std::optional<unsigned>{};
}

void AddressTable::publish(std::uint64_t incarnation) {
  incarnation_ = incarnation;
  shared().incarnations[*slot_].store(incarnation);
}

pid_t AddressTable::holder_of(unsigned slot) const {
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(slot);
  range.l_len = 1;
  if (::fcntl(fd(), F_GETLK, &range) != 0 || range.l_type == F_UNLCK) return 0;
  return range.l_pid;
}

bool AddressTable::is_taken(unsigned slot) const {
  if (is_own(slot)) return true;
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(slot);
  range.l_len = 1;
  return ::fcntl(fd(), F_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

unsigned AddressTable::own_slots() const { return static_cast<unsigned>(std::popcount(file_->own.load())); }

// Those whose number means nothing here count one for each slot.
unsigned AddressTable::other_processes() const {
  std::set<pid_t> known;
  unsigned unknown = 0;
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    if (is_own(slot) || !is_taken(slot)) continue;
    if (const pid_t holder = holder_of(slot); holder > 0)
      known.insert(holder);
    else
      ++unknown;
  }
  return static_cast<unsigned>(known.size()) + unknown;
}

unsigned AddressTable::taken_slots() const {
  unsigned taken = 0;
  for (unsigned slot = 0; slot < kSlots; ++slot) taken += is_taken(slot) ? 1u : 0u;
  return taken;
}

std::uint64_t AddressTable::incarnation_of(unsigned slot) const {
  return is_taken(slot) ? shared().incarnations[slot].load() : 0;
}

AddressTable::Entry AddressTable::entry_at(unsigned index) const {
  return Entry::from_word(shared().entries[index].load());
}

void AddressTable::set_entry(unsigned index, const Entry& entry) { shared().entries[index].store(entry.word()); }

// An entry counts while the process that made it lives.
bool AddressTable::counts(const Entry& entry) const {
  if (entry.service == 0) return false;
  const std::uint64_t incarnation = shared().incarnations[entry.slot].load();
  return incarnation != 0 && (incarnation & Entry::kIncarnationMask) == entry.incarnation && is_taken(entry.slot);
}

Result<void> AddressTable::announce(std::uint32_t service) {
  auto lock = lock_services();
  if (!lock) return std::move(lock).error();
  std::optional<unsigned> free, closed;
  for (unsigned i = 0; i < kMostServices; ++i) {
    const Entry entry = entry_at(i);
    const bool wanted = entry.service == service;
    if (!wanted && (entry.service != 0 ? free && closed : free.has_value())) continue;
    const bool alive = counts(entry);
    if (wanted && alive && !entry.closed && entry.slot != slot_) {
      const std::string port = "port " + std::to_string(service & 0xffff);
      if (is_own(entry.slot))
        return Error(ErrorCode::AddressInUse, port + " is listened on by another device of this process");
      return Error(ErrorCode::AddressInUse, port + " is listened on by another process that shares the address: " +
                                                std::to_string(holder_of(entry.slot)));
    }
    if (wanted) {
      set_entry(i, {});
      free = i;
    } else if (!alive && !free) {
      free = i;
    } else if (alive && entry.closed && !closed) {
      closed = i;
    }
  }
  if (!free) free = closed;
  if (!free)
    return Error(ErrorCode::ResourceExhausted, "the processes that share the address listen on " +
                                                   std::to_string(kMostServices) + " ports, which is the most");
  set_entry(*free, {service, *slot_, false, incarnation_});
  return {};
}

Result<void> AddressTable::withdraw(std::uint32_t service) {
  auto lock = lock_services();
  if (!lock) return std::move(lock).error();
  for (unsigned i = 0; i < kMostServices; ++i) {
    Entry entry = entry_at(i);
    if (entry.service != service || entry.slot != slot_ || !counts(entry)) continue;
    entry.closed = true;
    set_entry(i, entry);
  }
  return {};
}

Result<void> AddressTable::withdraw_all() {
  auto lock = lock_services();
  if (!lock) return std::move(lock).error();
  for (unsigned i = 0; i < kMostServices; ++i)
    if (const Entry entry = entry_at(i); entry.service != 0 && entry.slot == slot_) set_entry(i, {});
  return {};
}

std::optional<unsigned> AddressTable::slot_of(std::uint32_t service) const {
  for (unsigned i = 0; i < kMostServices; ++i)
    if (const Entry entry = entry_at(i); entry.service == service && counts(entry)) return entry.slot;
  return std::nullopt;
}

std::vector<ServiceRoute> AddressTable::routes(std::size_t most) const {
  std::vector<ServiceRoute> all;
  for (unsigned i = 0; i < kMostServices && all.size() < most; ++i)
    if (const Entry entry = entry_at(i); counts(entry)) all.push_back({entry.service, entry.slot});
  return all;
}

}  // namespace verbena::soft::udp
