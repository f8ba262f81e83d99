// SPDX-License-Identifier: Apache-2.0
// Several devices of this process at one address, alone and among processes forked from it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/holdings.h"
#include "base/sanitizer.h"
#include "soft/driver/udp/rendezvous.h"
#include "soft/driver/udp/test_shared_address.h"

namespace verbena::soft::udp {
namespace {

using namespace testing;
using ::testing::HasSubstr;

class OwnDevices : public SharedAddressTest {};

// A device of this process, and its socket.
struct Own {
  explicit Own(const Gid& address) {
    auto opened = SharedAddress::open(address);
    EXPECT_TRUE(opened) << opened.error().to_string();
    shared = std::move(*opened);
    socket = std::move(*shared->receiving_socket());
  }
  unsigned slot() const { return shared->ids().value; }
  std::string read() const {
    std::byte bytes[512];
    return arrives(socket.get()) ? std::to_string(::recv(socket.get(), bytes, sizeof bytes, 0)) : "nothing";
  }
  std::string listen(std::uint32_t port) const {
    const auto announced = shared->announce(kTcp | port);
    return announced ? "ok" : announced.error().to_string();
  }
  Descriptor socket;  // closed after the address has forgotten it
  std::unique_ptr<SharedAddress> shared;
};

TEST_F(OwnDevices, devices_of_a_process_share_an_address_with_each_other_and_with_processes) {
  Member other(address_, Member::When::Later), late(address_, Member::When::Later);
  std::optional<Own> first(address_), second(address_);
  EXPECT_THAT(first->shared->explain(), HasSubstr("with 1 other device of this process, at"));
  other.come();
  ASSERT_TRUE(other.is_in()) << other.greeting;
  Own third(address_);
  const std::set<unsigned> slots{first->slot(), second->slot(), third.slot(), other.slot()};
  EXPECT_EQ(slots.size(), 4u);
  std::size_t size = 100;
  for (const Own* own : {&*first, &*second, &third}) {
    send(data_for(own->slot(), size));
    EXPECT_EQ(own->read(), std::to_string(size++));
  }
  send(data_for(other.slot(), size));
  EXPECT_EQ(other.ask("read"), std::to_string(size));
  EXPECT_THAT(third.shared->explain(),
              HasSubstr("with 1 other process of this user and 2 other devices of this process"));
  EXPECT_THAT(other.ask("explain"), HasSubstr("with 1 other process of this user, at"));

  EXPECT_EQ(second->listen(7471), "ok");
  EXPECT_THAT(third.listen(7471), HasSubstr("by another device of this process"));
  EXPECT_THAT(other.ask("listen 7471"), HasSubstr("by another process that shares the address: "));
  EXPECT_EQ(third.listen(7472), "ok");
  send(management(wire::CmAttribute::Req, 7471));
  EXPECT_EQ(second->read(), "280");
  send(management(wire::CmAttribute::Req, 7472));
  EXPECT_EQ(third.read(), "280");

  // Those that go leave nothing, and take nothing from those that stay.
  first.reset();
  second.reset();
  EXPECT_EQ(other.ask("listen 7471"), "ok");
  EXPECT_THAT(third.listen(7471), HasSubstr("by another process"));
  EXPECT_THAT(other.ask("listen 7472"), HasSubstr("by another process"));
  send(data_for(third.slot(), 99));
  EXPECT_EQ(third.read(), "99");
  late.come();
  ASSERT_TRUE(late.is_in()) << late.greeting;
  EXPECT_NE(late.slot(), third.slot());
  EXPECT_THAT(third.shared->explain(), HasSubstr("with 2 other processes of this user, at"));
}

TEST_F(OwnDevices, the_slot_of_a_device_that_went_is_free_and_those_of_its_process_are_not) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, 8192);
  if (limit.rlim_cur < 8192 || ::setrlimit(RLIMIT_NOFILE, &limit) != 0) GTEST_SKIP() << "needs 8192 descriptors";
  Member refused(address_, Member::When::Later), other(address_, Member::When::Later);
  std::vector<Own> own;
  for (unsigned i = 0; i < kSlots; ++i) own.emplace_back(address_);
  EXPECT_THAT(answer_of_opening(address_), HasSubstr("all 64 places are taken"));
  refused.come();
  EXPECT_THAT(refused.greeting, HasSubstr("all 64 places are taken"));
  const unsigned free = own[7].slot();
  own.erase(own.begin() + 7);
  other.come();
  ASSERT_TRUE(other.is_in()) << other.greeting;
  EXPECT_EQ(other.slot(), free);
  EXPECT_THAT(answer_of_opening(address_), HasSubstr("all 64 places are taken"));
}

// Either of the two may have let the guest in, and watches it alone; so each goes once.
TEST_F(OwnDevices, who_was_watched_by_a_device_that_went_is_watched_by_another) {
  for (const bool first_goes : {true, false}) {
    Member guest(address_, Member::When::Later);
    std::optional<Own> first(address_), second(address_);
    guest.come();
    ASSERT_EQ(guest.ask("listen 7471"), "ok");
    (first_goes ? first : second).reset();
    const Own& left = first_goes ? *second : *first;
    guest.kill(SIGKILL);
    bool refused = false;
    for (int tries = 0; tries < 2'000 && !refused; ++tries) {
      send(management(wire::CmAttribute::Req, 7471));
      ::usleep(2'000);
      std::byte byte;
      refused = ::recv(left.socket.get(), &byte, 1, MSG_DONTWAIT | MSG_TRUNC) > 0 ||
                !left.shared->inbox().take().empty();
    }
    EXPECT_TRUE(refused) << first_goes;
  }
}

TEST_F(OwnDevices, threads_open_and_close_devices_of_one_address_while_the_process_forks) {
#if defined(VERBENA_THREAD_SANITIZER) || defined(VERBENA_ADDRESS_SANITIZER)
  // One does not let a process with threads fork; of the other, a child waits for the allocator's locks for ever.
  constexpr Member::When kWhen = Member::When::Later;
#else
  constexpr Member::When kWhen = Member::When::AtOnce;
#endif
  std::vector<Member> early;
  if (kWhen == Member::When::Later)
    for (int i = 0; i < 10; ++i) early.emplace_back(address_, kWhen);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::string why;
  for (std::uint32_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 40; ++round) {
        auto shared = SharedAddress::open(address_);
        const auto announced = shared ? (*shared)->announce(kTcp | (7'000 + i)) : Result<void>(shared.error());
        if (announced) {
          const auto socket = (*shared)->receiving_socket();
          (*shared)->let_go();
        } else {
          const std::lock_guard guard(mutex);
          why += announced.error().to_string() + "\n";
        }
      }
    });
  for (int i = 0; i < 10; ++i) {
    std::optional<Member> forked;
    if (early.empty()) forked.emplace(address_, kWhen);
    Member& one = forked ? *forked : early[static_cast<std::size_t>(i)];
    if (!forked) one.come();
    EXPECT_TRUE(one.is_in()) << one.greeting;
    one.kill(SIGKILL);
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(why, "");
}

TEST_F(OwnDevices, a_free_loopback_address_is_one_this_process_does_not_have) {
  const auto one = SharedAddress::open_free_loopback(), two = SharedAddress::open_free_loopback();
  ASSERT_TRUE(one && two);
  EXPECT_NE((*one)->local().gid, (*two)->local().gid);
}

// Runs `body` in a child: what it says that changes what the whole process sees.
std::string said_by_a_child(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Descriptor in(ends[0]);
  Descriptor out(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string words = body();
    ::_exit(::write(out.get(), words.data(), words.size()) == static_cast<ssize_t>(words.size()) ? 0 : 1);
  }
  out = Descriptor();
  std::string words(4'096, '\0');
  const ssize_t n = ::read(in.get(), words.data(), words.size());
  words.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  ::waitpid(child, nullptr, 0);
  return words;
}

constexpr const char* kNoOtherRoot = "this user may not change the root";

TEST_F(OwnDevices, a_process_that_loses_sight_of_proc_still_knows_its_devices) {
  const auto said = said_by_a_child([this] {
    const auto first = SharedAddress::open(address_);
    if (!first) return first.error().to_string();
    if (::chroot("/sys") != 0) return std::string(kNoOtherRoot);
    const auto second = SharedAddress::open(address_);
    return second ? (*second)->explain() : second.error().to_string();
  });
  if (said == kNoOtherRoot) GTEST_SKIP() << said;
  EXPECT_THAT(said, HasSubstr("with 1 other device of this process, at"));
}

TEST_F(OwnDevices, without_proc_an_address_is_told_from_the_same_one_of_another_network) {
  const auto said = said_by_a_child([this] {
    const Descriptor before(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    if (::unshare(CLONE_NEWNET) != 0 || !TestNetwork::set_up("lo") || ::chroot("/sys") != 0)
      return std::string(kNoOtherRoot);
    const auto elsewhere = SharedAddress::open(address_);
    if (!elsewhere) return elsewhere.error().to_string();
    if (::setns(before.get(), CLONE_NEWNET) != 0) return std::string(kNoOtherRoot);
    const auto here = SharedAddress::open(address_);
    return here ? (*here)->explain() : here.error().to_string();
  });
  if (said == kNoOtherRoot) GTEST_SKIP() << said;
  EXPECT_THAT(said, HasSubstr("alone at this address"));
}

// What only a process would do that does not know what it has.
TEST_F(OwnDevices, a_process_that_asks_itself_is_refused) {
  const auto said = said_by_a_child([this] {
    const auto first = SharedAddress::open(address_);
    if (!first) return first.error().to_string();
    auto no_fork = holdings::no_fork();
    no_fork.unlock();
    const auto asked = rendezvous::ask(rendezvous::name_of(*find_local_address(address_), {}), {}, no_fork);
    if (no_fork.owns_lock()) no_fork.unlock();
    return asked ? std::string("let in") : asked.error().to_string();
  });
  EXPECT_THAT(said, HasSubstr("AddressInUse: this process has the address"));
}

}  // namespace
}  // namespace verbena::soft::udp
