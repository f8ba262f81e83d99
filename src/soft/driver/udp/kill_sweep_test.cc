// SPDX-License-Identifier: Apache-2.0
// A process that dies at any instruction of what it does with the table of an address, and at any system call
// of coming, listening, handing over and going: those who stay go on, the next takes its place, nothing of it
// counts.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>

#include "base/sanitizer.h"
#include "soft/driver/test_stepped_process.h"
#include "soft/driver/udp/test_member.h"
#include "soft/driver/udp/test_network.h"

namespace verbena::soft::udp {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr unsigned kKeeperSlot = 3, kVictimSlot = 9;
constexpr std::uint64_t kKeeper = 0x1111'1111, kVictim = 0x2222'2222, kHeir = 0x3333'3333;
constexpr std::uint32_t kKept = kTcp | 7'470, kPort = kTcp | 7'471;

void say_points(std::uint64_t points, const char* of) {
  std::printf("[          ] %llu kill points in %s\n", static_cast<unsigned long long>(points), of);
}

int use_table(int fd) {
  auto table = AddressTable::adopt(Descriptor(::dup(fd)));
  if (!table || table->claim_slot(kVictimSlot).value() != kVictimSlot) return 1;
  table->publish(kVictim);
  if (!table->announce(kPort) || !table->withdraw(kPort)) return 2;
  return table->withdraw_all() ? 0 : 3;
}

using Image = std::vector<std::byte>;

// What the kernel leaves of a table when all who held locks in it are dead.
Result<AddressTable> table_with(const Image& image) {
  auto made = AddressTable::create();
  EXPECT_TRUE(made &&
              ::pwrite(made->fd(), image.data(), image.size(), 0) == static_cast<ssize_t>(image.size()));
  return made;
}

// Who stays, in the slot and incarnation it had, goes on.
void expect_keeper_goes_on(const Image& image) {
  auto table = table_with(image);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->claim_slot(kKeeperSlot).value(), kKeeperSlot);
  table->publish(kKeeper);
  EXPECT_EQ(table->slot_of(kKept), kKeeperSlot);
  EXPECT_FALSE(table->slot_of(kPort)) << "a dead process listens";
  EXPECT_TRUE(table->announce(kPort));
  EXPECT_EQ(table->slot_of(kPort), kKeeperSlot);
}

// Who comes to the slot of the dead inherits nothing, and may take what was its.
void expect_heir_begins_afresh(const Image& image) {
  auto table = table_with(image);
  ASSERT_TRUE(table);
  ASSERT_EQ(table->claim_slot(kVictimSlot).value(), kVictimSlot);
  EXPECT_EQ(table->incarnation_of(kVictimSlot), 0u);
  EXPECT_FALSE(table->slot_of(kPort));
  table->publish(kHeir);
  EXPECT_FALSE(table->slot_of(kPort)) << "an heir listens who never said so";
  EXPECT_TRUE(table->announce(kPort));
  EXPECT_EQ(table->slot_of(kPort), kVictimSlot);
}

class AddressKillSweep : public ::testing::Test {
 protected:
  static void TearDownTestSuite() {
    if (points_ != 0) say_points(points_, "the shared address");
  }
  void SetUp() override {
#ifdef VERBENA_THREAD_SANITIZER
    GTEST_SKIP() << "the thread sanitizer makes too many instructions of each";
#endif
    if (!TestNetwork::enter().is_private()) GTEST_SKIP() << "needs a network of its own";
  }
  // The port and all names are gone.
  static void expect_nothing_left(std::uint64_t point) {
    for (const auto& [file, sign] : {std::pair{"/proc/thread-self/net/unix", "@verbena"},
                                     std::pair{"/proc/thread-self/net/udp", ":12B7"}}) {
      std::ifstream list(file);
      std::stringstream text;
      text << list.rdbuf();
      EXPECT_THAT(text.str(), Not(HasSubstr(sign))) << point;
    }
  }

  static inline std::uint64_t points_ = 0;
  const Gid address_ = Gid::from_ipv4(127, 0, 0, 1);
};

TEST_F(AddressKillSweep,
       F16_at_any_instruction_of_the_table_the_dead_hold_nothing_and_lose_nothing_of_others) {
  auto keeper = AddressTable::create();
  ASSERT_TRUE(keeper);
  ASSERT_EQ(keeper->claim_slot(kKeeperSlot).value(), kKeeperSlot);
  keeper->publish(kKeeper);
  ASSERT_TRUE(keeper->announce(kKept));
  struct stat status {};
  ASSERT_EQ(::fstat(keeper->fd(), &status), 0);
  const auto size = static_cast<std::size_t>(status.st_size);
  const auto* const table =
      static_cast<const std::byte*>(::mmap(nullptr, size, PROT_READ, MAP_SHARED, keeper->fd(), 0));
  ASSERT_NE(table, MAP_FAILED);
  Image seen(size);
  SteppedProcess child([&keeper] { return use_table(keeper->fd()); });
  if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
  std::uint64_t points = 0, changes = 0;
  for (; child.step(); ++points) {
    // Where nothing changed its death leaves what its death before would have.
    if (std::memcmp(table, seen.data(), size) == 0) continue;
    seen.assign(table, table + size);
    ++changes;
    expect_keeper_goes_on(seen);
    expect_heir_begins_afresh(seen);
    ASSERT_FALSE(HasFailure()) << "at instruction " << points;
  }
  EXPECT_EQ(child.exit_status(), 0);
  EXPECT_GT(points, 10'000u);
  EXPECT_GE(changes, 5u);
  ::munmap(const_cast<std::byte*>(table), size);
  points_ += points;
}

// Its locks go with it, whatever it was doing: the real thing.
TEST_F(AddressKillSweep, F16_a_table_whose_user_was_killed_can_be_used_at_once) {
  auto keeper = AddressTable::create();
  ASSERT_TRUE(keeper && keeper->claim_slot(kKeeperSlot));
  keeper->publish(kKeeper);
  ASSERT_TRUE(keeper->announce(kKept));
  for (std::uint64_t kill_at = 0, more = 1; more != 0; kill_at += 1, ++points_) {
    SteppedProcess child([&keeper] { return use_table(keeper->fd()); });
    if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
    more = 1;
    for (std::uint64_t call = 0; call < kill_at && more != 0; ++call) more = child.step_call() ? 1 : 0;
    if (more != 0) child.kill_and_wait();
    ASSERT_FALSE(keeper->is_taken(kVictimSlot)) << kill_at;
    ASSERT_EQ(keeper->taken_slots(), 1u) << kill_at;
    ASSERT_FALSE(keeper->slot_of(kPort)) << kill_at;
    ASSERT_TRUE(keeper->announce(kPort)) << kill_at;
    ASSERT_TRUE(keeper->withdraw_all()) << kill_at;
    ASSERT_TRUE(keeper->announce(kKept)) << kill_at;
  }
}

// Comes, listens, hands over what is another's, stops listening, goes.
int visit(const Gid& address, unsigned other_slot) {
  auto shared = SharedAddress::open(address);
  if (!shared) return 1;
  const auto socket = (*shared)->receiving_socket();
  if (!socket || !(*shared)->announce(kPort) || !(*shared)->announce(kPort + 1)) return 2;
  std::vector<std::byte> datagram(100);
  datagram[5] = static_cast<std::byte>(other_slot << 2);
  ReceivedTrain train;
  train.path = {address, address, 50'000};
  train.bytes = datagram;
  train.segment_bytes = datagram.size();
  (*shared)->sort(train);
  return (*shared)->withdraw(kPort) ? 0 : 3;
}

TEST_F(AddressKillSweep, F16_at_any_call_of_a_visit_the_members_go_on_and_the_next_gets_in) {
  Member keeper(address_);
  const unsigned slot = keeper.slot();
  constexpr std::uint64_t kStride = 3;
  std::uint64_t kill_at = 0;
  for (bool more = true; more; kill_at += kStride, ++points_) {
    SteppedProcess child([this, slot] { return visit(address_, slot); });
    if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
    for (std::uint64_t call = 0; call < kill_at && more; ++call) more = child.step_call();
    if (more) child.kill_and_wait();
    EXPECT_TRUE(more || child.exit_status() == 0) << child.exit_status();
    EXPECT_THAT(keeper.ask("explain"), HasSubstr("alone")) << kill_at;
    Member heir(address_);
    ASSERT_TRUE(heir.is_in()) << kill_at << heir.greeting;
    ASSERT_EQ(heir.ask("listen 7471"), "ok") << kill_at;
    heir.leave();
  }
  say_points(kill_at / kStride, "a visit to a shared address, by system calls");
  keeper.leave();
  expect_nothing_left(kill_at);
}

// Who was alone, killed while it makes its address a group for the first guest: at any call of the thread
// that does so.
class GrowingProcess {
 public:
  explicit GrowingProcess(const Gid& address)
      : process_([address] {
          auto shared = SharedAddress::open(address);
          ::pause();
          return shared ? 0 : 1;
        }) {
    if (!process_.traced()) return;
    ::ptrace(PTRACE_SETOPTIONS, process_.pid(), nullptr, PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL);
    int status = 0;
    ::ptrace(PTRACE_CONT, process_.pid(), nullptr, nullptr);
    if (::waitpid(process_.pid(), &status, 0) != process_.pid() ||
        status >> 8 != (SIGTRAP | PTRACE_EVENT_CLONE << 8))
      return;
    unsigned long thread = 0;
    ::ptrace(PTRACE_GETEVENTMSG, process_.pid(), nullptr, &thread);
    thread_ = static_cast<pid_t>(thread);
    ::waitpid(thread_, nullptr, __WALL);
    ::ptrace(PTRACE_CONT, process_.pid(), nullptr, nullptr);
  }

  bool traced() const { return process_.traced(); }
  bool grows() const { return thread_ != 0; }
  // To the beginning or end of the next call of the thread. False: it makes none any more, for `guest` is in.
  bool step(pid_t guest) {
    if (::ptrace(PTRACE_SYSCALL, thread_, nullptr, nullptr) != 0) return false;
    for (;;) {
      int status = 0;
      siginfo_t gone{};
      if (::waitpid(thread_, &status, __WALL | WNOHANG) == thread_) return WIFSTOPPED(status);
      const bool guest_is_in =
          ::waitid(P_PID, static_cast<id_t>(guest), &gone, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          gone.si_pid == guest;
      if (guest_is_in) return false;
      ::usleep(50);
    }
  }
  void kill_and_wait() {
    ::kill(process_.pid(), SIGKILL);
    ::waitpid(thread_, nullptr, __WALL);
    process_.kill_and_wait();
  }

 private:
  SteppedProcess process_;
  pid_t thread_ = 0;
};

TEST_F(AddressKillSweep, F16_at_any_call_of_growing_into_a_group_the_guest_gets_in) {
  constexpr std::uint64_t kStride = 5;
  std::uint64_t kill_at = 0;
  for (bool more = true; more; kill_at += kStride, ++points_) {
    GrowingProcess alone(address_);
    if (!alone.traced()) GTEST_SKIP() << "this system lets nobody trace";
    ASSERT_TRUE(alone.grows());
    local::TestProcess guest([this] {
      auto shared = SharedAddress::open(address_);
      return shared && (*shared)->announce(kPort) ? 0 : 1;
    });
    for (std::uint64_t call = 0; call < kill_at && more; ++call) more = alone.step(guest.pid());
    alone.kill_and_wait();
    ASSERT_EQ(guest.wait(), 0) << kill_at;
    expect_nothing_left(kill_at);
    ASSERT_FALSE(HasFailure()) << kill_at;
  }
  say_points(kill_at / kStride, "growing into a group, by system calls");
}

}  // namespace
}  // namespace verbena::soft::udp
