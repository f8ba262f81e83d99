// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/process_memory.h"

#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/assert.h"
#include "base/fault_guard.h"

namespace verbena::soft::local {

using verbena::local::kMaxFetches;
using verbena::local::Piece;
using verbena::local::Pulled;
using verbena::local::PullWords;

namespace {

constexpr std::size_t kMostTargets = core::kMaxSegments + 1;

template <std::size_t N>
struct Vector {
  void add(std::uint64_t address, std::size_t bytes) {
    VERBENA_ASSERT(count < N);
    parts[count++] = {reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)), bytes};
    total += bytes;
  }
  void add(const void* at, std::size_t bytes) { add(reinterpret_cast<std::uintptr_t>(at), bytes); }

  std::array<iovec, N> parts;
  std::size_t count = 0;
  std::size_t total = 0;
};

// Past the C library: a sanitizer would take what the kernel writes there for accesses of this program's own, which
// race with its threads as a NIC's do.
template <std::size_t N, std::size_t M>
ssize_t read_process(pid_t pid, const Vector<N>& to, const Vector<M>& from) {
  if (pid <= 0) {  // outside our PID namespace
    errno = ESRCH;
    return -1;
  }
  return ::syscall(SYS_process_vm_readv, static_cast<long>(pid), to.parts.data(), to.count, from.parts.data(),
                   from.count, 0ul);
}

}  // namespace

Cookie Cookie::make() {
  std::uint64_t value = 0;
  // Who gets none has one that is guessed more easily, by processes of its own user.
  if (::getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
    value = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  return Cookie(value);
}

ProcessMemory::ProcessMemory(const PeerSocket& socket, PullWords ours, PullWords theirs)
    : socket_(socket), ours_(ours), theirs_(theirs) {
  obstacle_ = try_it();
  if (obstacle_.empty() && !fault_guard::run([&ours] { ours.say_can_pull(); })) obstacle_ = "its shared memory is gone";
}

std::string ProcessMemory::try_it() {
  if (!fault_guard::run([this] { cookie_ = theirs_.offered(); })) return "its shared memory is gone";
  if (cookie_.address == 0) return "the peer lets nobody read its memory";
  if (socket_.peer().pid <= 0) return "the peer's process has no number in this PID namespace";
  // Its pages may come from where it lets who touches them wait: only who could stop us anyway may do that.
  if (!socket_.may_stop_us()) return "the peer's process is not known to be of this PID namespace";
  errno = 0;
  if (sees_cookie()) return {};
  if (errno == 0) return "process " + std::to_string(socket_.peer().pid) + " is another here";
  return std::string("process_vm_readv says ") + std::strerror(errno);
}

bool ProcessMemory::sees_cookie() const {
  std::uint64_t seen = 0;
  Vector<1> from, to;
  from.add(cookie_.address, sizeof seen);
  to.add(&seen, sizeof seen);
  return read_process(socket_.peer().pid, to, from) == sizeof seen && seen == cookie_.value;
}

// The cookie comes last with each copy: the number may be another process's by now, or the process run another program.
// One call is of one memory, and that is the peer's where the cookie is.
Pulled ProcessMemory::pull(std::span<const Piece> from, std::span<const core::Piece> to) {
  if (!is_offered()) return Pulled::PeerGone;
  std::uint64_t seen = 0;
  Vector<kMaxFetches + 1> source;
  Vector<kMostTargets + 1> target;
  for (const Piece& piece : from) source.add(piece.address, piece.bytes);
  for (const core::Piece& piece : to) target.add(piece.data, piece.size);
  VERBENA_ASSERT(source.total == target.total);
  source.add(cookie_.address, sizeof seen);
  target.add(&seen, sizeof seen);
  const ssize_t copied = read_process(socket_.peer().pid, target, source);
  if (copied == static_cast<ssize_t>(target.total))
    return seen == cookie_.value && !is_refused() ? Pulled::Whole : Pulled::PeerGone;
  return sees_cookie() && !is_refused() && !socket_.has_hung_up() ? Pulled::Fault : Pulled::PeerGone;
}

bool ProcessMemory::is_offered() const {
  bool refused = true;
  return fault_guard::run([this, &refused] { refused = theirs_.has_refused(); }) && !refused;
}

// What was copied, and now that it was.
bool ProcessMemory::is_refused() const {
  bool refused = true;
  return !fault_guard::run([this, &refused] { refused = theirs_.refuses(); }) || refused;
}

// Pages that the peer took away are nobody's loss but its own.
void ProcessMemory::refuse() {
  [[maybe_unused]] const bool whole = fault_guard::run([this] { ours_.refuse(); });
}

std::string ProcessMemory::explain() const {
  bool granted = false;
  const bool whole = fault_guard::run([this, &granted] { granted = theirs_.can_pull(); });
  const std::string from = obstacle_.empty() ? "large messages from it take one copy"
                                             : "messages from it take two copies, because " + obstacle_;
  return from + (whole && granted ? ", large ones to it one" : ", those to it two");
}

}  // namespace verbena::soft::local
