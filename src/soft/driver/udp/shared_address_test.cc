// SPDX-License-Identifier: Apache-2.0
// Processes that share an address: forked from this one, told by a pipe what to do, and killed.
#include "soft/driver/udp/shared_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "base/holdings.h"
#include "soft/driver/test_forbidden_call.h"
#include "soft/driver/test_other_user.h"
#include "soft/driver/udp/rendezvous.h"
#include "soft/driver/udp/test_shared_address.h"

namespace verbena::soft::udp {
namespace {

using namespace testing;
using ::testing::HasSubstr;

TEST_F(SharedAddressTest, each_process_gets_what_begins_with_its_slot) {
  std::vector<Member> members;
  for (int i = 0; i < 4; ++i) members.push_back(member());
  std::size_t size = 100;
  for (Member& m : members) {
    ASSERT_TRUE(m.is_in()) << m.greeting;
    send(data_for(m.slot(), size));
    EXPECT_EQ(m.ask("read"), std::to_string(size++));
  }
  for (Member& m : members) EXPECT_EQ(m.ask("quiet"), "yes");
  EXPECT_THAT(members[0].ask("explain"), HasSubstr("with 3 other processes"));
}

TEST_F(SharedAddressTest, who_is_alone_has_a_socket_like_any_other_and_few_descriptors) {
  const auto shares_port = [](const Descriptor& socket) {
    int on = -1;
    socklen_t size = sizeof on;
    EXPECT_EQ(::getsockopt(socket.get(), SOL_SOCKET, SO_REUSEPORT, &on, &size), 0);
    return on;
  };
  const auto descriptors = [] {
    namespace fs = std::filesystem;
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  Member guest(address_, Member::When::Later);
  const auto before = descriptors();
  auto shared = SharedAddress::open(address_);
  ASSERT_TRUE(shared) << shared.error().to_string();
  EXPECT_EQ(descriptors() - before, 7) << "meeting place, table, socket, a peer's socket, inbox, and two of its thread";
  const Descriptor socket = std::move(*(*shared)->receiving_socket());
  EXPECT_EQ(shares_port(socket), 0);
  EXPECT_EQ((*shared)->ids().value, 0u);
  guest.come();
  ASSERT_TRUE(guest.is_in()) << guest.greeting;
  EXPECT_EQ(shares_port(socket), 1);
  // Its thread lets go of the guest after the guest is in.
  for (int tries = 0; tries < 5'000 && descriptors() - before != 7 + 1 + 64 + 1 + 1; ++tries) ::usleep(1'000);
  EXPECT_EQ(descriptors() - before, 7 + 1 + 64 + 1 + 1) << "and the guest itself";
  (*shared)->let_go();
}

TEST_F(SharedAddressTest, who_may_not_open_the_descriptors_refuses_the_guest_and_goes_on) {
  Member alone = member();
  EXPECT_EQ(alone.ask("descriptors 40"), "ok");
  const Member refused = member();
  EXPECT_THAT(refused.greeting, HasSubstr("ResourceExhausted"));
  EXPECT_THAT(refused.greeting, HasSubstr("process " + std::to_string(alone.pid()) + ", alone at the address"));
  EXPECT_THAT(refused.greeting, HasSubstr("raise its RLIMIT_NOFILE"));
  send(data_for(63, 77));
  EXPECT_EQ(alone.ask("read"), "77") << "it is still alone";
  EXPECT_EQ(alone.ask("descriptors 3"), "ok");  // not even one to meet a guest with
  const Member unanswered = member();
  EXPECT_THAT(unanswered.greeting, HasSubstr("AddressInUse"));
  EXPECT_THAT(unanswered.greeting, HasSubstr("out of descriptors"));
  EXPECT_EQ(alone.ask("descriptors 200"), "ok");
  Member guest = member();
  ASSERT_TRUE(guest.is_in()) << guest.greeting;
  for (Member* m : {&alone, &guest}) {
    send(data_for(m->slot(), 88));
    EXPECT_EQ(m->ask("read"), "88");
  }
}

TEST_F(SharedAddressTest, a_process_without_descriptors_is_told_so) {
  const Gid address = address_;  // sanitizers want descriptors to look at the fixture
  bool opened = false;
  for (rlim_t more = 0; more < 16 && !opened; ++more) {
    const pid_t child = ::fork();
    if (child == 0) {
      rlimit limit{};
      ::getrlimit(RLIMIT_NOFILE, &limit);
      limit.rlim_cur = static_cast<rlim_t>(Descriptor(::dup(0)).get()) + more;
      ::setrlimit(RLIMIT_NOFILE, &limit);
      const auto shared = SharedAddress::open(address);
      ::_exit(shared ? 0 : shared.error().code() == ErrorCode::ResourceExhausted ? 1 : 2);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << more;
    ASSERT_NE(WEXITSTATUS(status), 2) << more;
    opened = WEXITSTATUS(status) == 0;
  }
  EXPECT_TRUE(opened);
}

TEST_F(SharedAddressTest, a_process_that_may_not_make_what_sharing_takes_is_told_so) {
  const Gid address = address_;
  const std::pair<long, const char*> forbidden[] = {
      {SYS_memfd_create, "make the table of an address, a sealed memfd"},
      {SYS_eventfd2, "make its eventfd and epoll set"},
      {SYS_epoll_create1, "make its eventfd and epoll set"}};
  for (const auto& [call, word] : forbidden) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!forbid(static_cast<std::uint32_t>(call), EPERM)) ::_exit(77);
      const auto shared = SharedAddress::open(address);
      ::_exit(!shared && shared.error().code() == ErrorCode::PermissionDenied &&
                      shared.error().context().find(word) != std::string::npos
                  ? 0
                  : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status)) << word;
    if (WEXITSTATUS(status) == 77) GTEST_SKIP() << kNothingForbidden;
    EXPECT_EQ(WEXITSTATUS(status), 0) << word;
  }
}

TEST_F(SharedAddressTest, any_may_go_in_any_order_and_the_others_stay) {
  std::vector<Member> members;
  for (int i = 0; i < 5; ++i) members.push_back(member());
  members[0].kill(SIGKILL);  // the first, which opened it all
  members[2].leave();
  Member late = member();
  ASSERT_TRUE(late.is_in()) << late.greeting;
  members[1].kill(SIGKILL);
  members[3].kill(SIGABRT);
  Member last = member();
  ASSERT_TRUE(last.is_in()) << last.greeting;
  for (Member* m : {&members[4], &late, &last}) {
    send(data_for(m->slot(), 77));
    EXPECT_EQ(m->ask("read"), "77");
  }
}

TEST_F(SharedAddressTest, a_slot_of_the_dead_is_taken_again_without_what_it_did_not_read) {
  Member keeper = member();
  std::vector<Member> others;
  for (unsigned i = 1; i < kSlots; ++i) {
    others.push_back(member());
    ASSERT_TRUE(others.back().is_in()) << others.back().greeting;
  }
  const Member refused = member();
  EXPECT_THAT(refused.greeting, HasSubstr("ResourceExhausted"));
  EXPECT_THAT(refused.greeting, HasSubstr("all 64 places"));
  const unsigned slot = others[9].slot();
  send(data_for(slot, 99));
  others[9].kill(SIGKILL);
  Member heir = member();
  ASSERT_TRUE(heir.is_in()) << heir.greeting;
  EXPECT_EQ(heir.slot(), slot);
  EXPECT_EQ(heir.ask("quiet"), "yes");
}

TEST_F(SharedAddressTest, requests_find_who_listens_and_nobody_else_may) {
  Member a = member(), b = member();
  EXPECT_EQ(a.ask("listen 7471"), "ok");
  const std::string refusal = b.ask("listen 7471");
  EXPECT_THAT(refusal, HasSubstr("AddressInUse"));
  EXPECT_THAT(refusal, HasSubstr(std::to_string(a.pid())));
  EXPECT_EQ(b.ask("listen 7472"), "ok");
  send(management(wire::CmAttribute::Req, 7472));
  EXPECT_EQ(b.ask("read"), "280");
  send(management(wire::CmAttribute::Req, 7471));
  EXPECT_EQ(a.ask("read"), "280");
}

TEST_F(SharedAddressTest, a_service_is_free_when_its_listener_stops_or_dies) {
  Member a = member(), b = member(), c = member();
  EXPECT_EQ(a.ask("listen 7471"), "ok");
  EXPECT_EQ(a.ask("stop 7471"), "ok");
  send(management(wire::CmAttribute::Req, 7471));  // of a connection it has begun, perhaps
  EXPECT_EQ(a.ask("read"), "280");
  EXPECT_EQ(b.ask("listen 7471"), "ok");
  b.kill(SIGKILL);
  EXPECT_EQ(c.ask("listen 7471"), "ok");
  send(management(wire::CmAttribute::Req, 7471));
  EXPECT_EQ(c.ask("read"), "280");
}

TEST_F(SharedAddressTest, a_request_nobody_listens_for_reaches_one_and_a_refusal_without_id_reaches_all) {
  Member a = member(), b = member();
  send(management(wire::CmAttribute::Rej, 0));
  EXPECT_EQ(a.ask("inbox"), "280");
  EXPECT_EQ(b.ask("inbox"), "280");
  a.kill(SIGKILL);
  send(management(wire::CmAttribute::Req, 9));
  EXPECT_EQ(b.ask("inbox"), "280");
}

// Requests for port 7471 come to a member who does not listen there, but not to who did and is dead.
bool refuses_soon(Member& member, const std::function<void()>& request) {
  for (int tries = 0; tries < 1'000; ++tries) {
    request();
    ::usleep(2'000);
    if (member.ask("glance") != "0") return true;
  }
  return false;
}

TEST_F(SharedAddressTest, a_port_whose_listener_was_killed_is_refused_by_who_stays) {
  constexpr std::size_t kMembers = 4;
  for (std::size_t listener = 0; listener < kMembers; ++listener)
    for (std::size_t survivor = 0; survivor < kMembers; ++survivor) {
      if (survivor == listener) continue;
      std::vector<Member> members;
      for (std::size_t i = 0; i < kMembers; ++i) members.push_back(member());
      ASSERT_EQ(members[listener].ask("listen 7471"), "ok");
      // Those between them go first: who was watched by them is watched by who is left.
      for (std::size_t i = 0; i < kMembers; ++i)
        if (i != listener && i != survivor) members[i].kill(SIGKILL);
      members[survivor].ask("explain");
      members[listener].kill(SIGKILL);
      EXPECT_TRUE(refuses_soon(members[survivor], [this] { send(management(wire::CmAttribute::Req, 7471)); }))
          << listener << " listened, " << survivor << " is left";
    }
}

TEST_F(SharedAddressTest, datagrams_that_a_network_card_joined_are_parted_again) {
  Member other = member();
  {
    auto shared = SharedAddress::open(address_);
    ASSERT_TRUE(shared) << shared.error().to_string();
    const unsigned mine = (*shared)->ids().value;
    ReceivedTrain train;
    std::vector<std::byte> bytes;
    for (const unsigned slot : {mine, mine, other.slot(), other.slot(), other.slot(), mine}) {
      const auto datagram = data_for(slot, 100);
      bytes.insert(bytes.end(), datagram.begin(), datagram.end());
    }
    train.path = {address_, address_, 50'000};
    train.bytes = std::span(bytes).first(200);
    train.segment_bytes = 100;
    EXPECT_TRUE((*shared)->is_ours(train));
    train.bytes = bytes;
    EXPECT_FALSE((*shared)->is_ours(train));
    (*shared)->sort(train);
    std::vector<std::size_t> sizes;
    for (const Stray& stray : (*shared)->inbox().take()) sizes.push_back(stray.bytes.size());
    EXPECT_THAT(sizes, ::testing::ElementsAre(200u, 100u));
    EXPECT_EQ(other.ask("inbox"), "300");
  }
}

TEST_F(SharedAddressTest, without_an_address_each_takes_a_free_one_that_others_may_join_by_name) {
  Member first = Member(Gid{}), second = Member(Gid{});
  EXPECT_EQ(first.ask("address"), "127.0.0.1");
  EXPECT_EQ(second.ask("address"), "127.0.0.2");
  const Member third = Member(Gid::from_ipv4(127, 0, 0, 2));
  EXPECT_TRUE(third.is_in()) << third.greeting;
  first.leave();
  EXPECT_EQ(Member(Gid{}).ask("address"), "127.0.0.1");
}

TEST_F(SharedAddressTest, a_forked_child_keeps_nothing_alive) {
  pid_t child = 0;
  int end[2];
  ASSERT_EQ(::pipe(end), 0);
  {
    Member other(address_, Member::When::Later);
    auto shared = SharedAddress::open(address_);
    ASSERT_TRUE(shared);
    child = ::fork();
    if (child == 0) {
      char byte;
      ::close(end[1]);
      [[maybe_unused]] const ssize_t n = ::read(end[0], &byte, 1);
      ::_exit(0);
    }
    other.come();
    EXPECT_TRUE(other.is_in()) << other.greeting;
  }
  TearDown();  // while the child lives
  {
    auto again = SharedAddress::open(address_);
    ASSERT_TRUE(again) << again.error().to_string();
    EXPECT_THAT((*again)->explain(), HasSubstr("alone"));
  }
  ::close(end[1]);
  ::waitpid(child, nullptr, 0);
}

TEST_F(SharedAddressTest, stopped_processes_stop_nobody_who_can_ask_another) {
  Member stopped = member(), awake = member();
  stopped.kill(SIGSTOP);
  Member late = member();
  EXPECT_TRUE(late.is_in()) << late.greeting;
  EXPECT_EQ(late.ask("listen 7471"), "ok");
  awake.leave();
  late.leave();
  const Member refused = member();  // all who are left are stopped
  EXPECT_THAT(refused.greeting, HasSubstr("AddressInUse"));
  EXPECT_THAT(refused.greeting, HasSubstr("stopped"));
  stopped.kill(SIGCONT);
  EXPECT_TRUE(member().is_in());
}

TEST_F(SharedAddressTest, a_port_of_somebody_who_does_not_share_is_not_taken) {
  const Descriptor foreign = std::move(*make_udp_socket(address_));
  const int on = 1;
  ASSERT_EQ(::setsockopt(foreign.get(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof on), 0);
  ASSERT_EQ(bind_to(foreign.get(), *find_local_address(address_), wire::kRocePort), 0);
  auto refused = SharedAddress::open(address_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::AddressInUse);
  EXPECT_THAT(refused.error().context(), HasSubstr("process " + std::to_string(::getpid())));
  auto free = SharedAddress::open_free_loopback();
  ASSERT_TRUE(free) << free.error().to_string();
  EXPECT_EQ((*free)->local().gid, Gid::from_ipv4(127, 0, 0, 2));
}

TEST_F(SharedAddressTest, what_is_no_member_is_told_from_one) {
  const std::string name = rendezvous::name_of(*find_local_address(address_), {});
  const Descriptor squatter(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  name.copy(at.sun_path + 1, name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  ASSERT_EQ(::bind(squatter.get(), reinterpret_cast<const sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(squatter.get(), 8), 0);
  const auto tell = [&](const std::string& words) {
    const pid_t child = ::fork();
    if (child == 0) {
      const Descriptor guest(::accept(squatter.get(), nullptr, nullptr));
      [[maybe_unused]] const ssize_t n = ::send(guest.get(), words.data(), words.size(), 0);
      ::_exit(0);
    }
    const auto refused = SharedAddress::open(address_);
    ::waitpid(child, nullptr, 0);
    return refused ? std::string("let in") : refused.error().to_string();
  };
  EXPECT_THAT(tell("good day"), HasSubstr("none of ours"));
  const std::uint32_t newer[4] = {0x5645'5242, 99, 0, 0};
  EXPECT_THAT(tell({reinterpret_cast<const char*>(newer), sizeof newer}), HasSubstr("version 99"));
  const std::uint32_t of_others[5] = {0x5645'5242, 2, 0, 0, ::geteuid() + 1};
  EXPECT_THAT(tell({reinterpret_cast<const char*>(of_others), sizeof of_others}), HasSubstr("this process names user"));
  const std::uint32_t empty[5] = {0x5645'5242, 2, 0, 0, ::geteuid()};
  EXPECT_THAT(tell({reinterpret_cast<const char*>(empty), sizeof empty}), HasSubstr("not what it should be"));
}

TEST_F(SharedAddressTest, all_come_and_go_at_once_and_everybody_gets_in) {
  expect_all_get_in(8);
}

TEST_F(SharedAddressTest, members_whom_a_guest_woke_in_vain_can_leave) {
  std::vector<Member> members;
  for (int i = 0; i < 12; ++i) members.push_back(member());
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(member().is_in());
  for (Member& m : members) m.leave();
}

TEST_F(SharedAddressTest, killed_at_any_moment_a_process_leaves_nothing_in_the_way) {
  Member keeper = member();
  for (int i = 0; i < 60; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) {
        auto shared = SharedAddress::open(address_);
        for (std::uint32_t port = 7'000; shared && port < 7'010; ++port) {
          const bool one = (*shared)->announce(kTcp | port).has_value();
          const bool other = (*shared)->withdraw(kTcp | (port - 1)).has_value();
          if (!one || !other) ::_exit(1);
        }
      }
    }
    ::usleep(static_cast<useconds_t>(137 * i % 4'000));
    EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0) << "it failed by itself";
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  Member late = member();
  ASSERT_TRUE(late.is_in()) << late.greeting;
  for (int port = 7'000; port < 7'010; ++port) EXPECT_EQ(late.ask("listen " + std::to_string(port)), "ok");
  EXPECT_THAT(keeper.ask("explain"), HasSubstr("with 1 other process of this user"));
}

TEST_F(SharedAddressTest, a_guest_gets_in_also_when_who_was_alone_is_killed_as_he_comes) {
  for (int i = 0; i < 60; ++i) {
    Member alone = member();
    ASSERT_TRUE(alone.is_in()) << alone.greeting;
    const pid_t guest = ::fork();
    if (guest == 0) ::_exit(SharedAddress::open(address_) ? 0 : 1);
    ::usleep(static_cast<useconds_t>(i < 40 ? 100 * i : 2'000 * (i - 40)));
    alone.kill(SIGKILL);
    int status = -1;
    ::waitpid(guest, &status, 0);
    EXPECT_EQ(status, 0) << i;
  }
}

TEST_F(SharedAddressTest, foreign_and_wildcard_addresses_are_refused) {
  const auto opened = SharedAddress::open(Gid::from_ipv4(192, 0, 2, 77));
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), ErrorCode::AddressNotAvailable);
  EXPECT_THAT(opened.error().context(), HasSubstr("127.0.0.1 (lo)"));
  EXPECT_EQ(SharedAddress::open(Gid::from_ipv4(0, 0, 0, 0)).error().code(), ErrorCode::AddressNotAvailable);
}

TEST_F(SharedAddressTest, says_who_is_in_the_way_when_all_loopback_addresses_are_taken) {
  const Member one = Member(Gid{}), two = Member(Gid{});
  const auto third = SharedAddress::open_free_loopback({}, 2);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), ErrorCode::AddressInUse);
  EXPECT_THAT(third.error().context(), HasSubstr("process " + std::to_string(one.pid())));
}

// Whoever can read the table of Unix sockets can write to a mailbox.
TEST_F(SharedAddressTest, a_letter_that_is_not_taken_is_counted_as_lost) {
  const Member other = member();
  const auto shared = SharedAddress::open(address_);
  ASSERT_TRUE(shared) << shared.error().to_string();
  const Descriptor from(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  std::ifstream names("/proc/thread-self/net/unix");
  for (std::string line; std::getline(names, line);) {
    const std::size_t at = line.find("@verbena-mail-");
    if (at == std::string::npos) continue;
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    const std::size_t letters = line.copy(to.sun_path + 1, sizeof to.sun_path - 1, at + 1);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + letters);
    EXPECT_EQ(::sendto(from.get(), "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), size), 1);
  }
  const auto lost = [&] {
    std::map<std::string, std::uint64_t> counters;
    for (const NamedCounter& one : (*shared)->counters()) counters[one.name] = one.value;
    return counters["shared_lost"];
  };
  for (int tries = 0; tries < 5'000 && lost() == 0; ++tries) ::usleep(1'000);
  EXPECT_EQ(lost(), 1u);
}

// ---- Another user

TEST_F(SharedAddressTest, another_user_is_told_whose_the_address_is) {
  std::vector<Member> members;
  for (int i = 0; i < 2; ++i) {  // alone, and shared
    members.push_back(member());
    const auto said = said_by_another_user([this] { return answer_of_opening(address_); });
    if (!said) GTEST_SKIP() << kNoOtherUser;
    EXPECT_THAT(*said, HasSubstr("AddressInUse"));
    EXPECT_THAT(*said, HasSubstr("held by a process of user"));
    EXPECT_THAT(*said, HasSubstr("processes of one user can share an address"));
    EXPECT_THAT(*said, HasSubstr("use another address"));
  }
  EXPECT_EQ(*said_by_another_user([] { return answer_of_opening(Gid::from_ipv4(127, 0, 0, 2)); }), "in");
  send(data_for(members[0].slot(), 88));
  EXPECT_EQ(members[0].ask("read"), "88");
}

TEST_F(SharedAddressTest, another_user_gets_nothing_at_the_meeting_place_and_in_no_mailbox) {
  Member alone = member();
  const std::string name = rendezvous::name_of(*find_local_address(address_), {});
  const auto asked = said_by_another_user([&name] {
    auto no_fork = holdings::no_fork();
    no_fork.unlock();
    const auto got = rendezvous::ask(name, {}, no_fork);
    return got ? std::string("asked") : got.error().to_string();
  });
  if (!asked) GTEST_SKIP() << kNoOtherUser;
  EXPECT_THAT(*asked, HasSubstr("of another user (uid " + std::to_string(::geteuid()) + ")"));
  const auto given = said_by_another_user([&name] {
    const Descriptor guest(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path + 1, name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(guest.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0) return std::string("not there");
    char bytes[64];
    return std::to_string(::recv(guest.get(), bytes, sizeof bytes, 0));
  });
  EXPECT_EQ(*given, "16") << "he is told that he is not named";
  EXPECT_THAT(alone.ask("explain"), HasSubstr("alone"));
  auto box = Mailbox::open(7, address_);
  ASSERT_TRUE(box);
  const auto sent = said_by_another_user([this] {
    const auto own = Mailbox::open(8, address_);
    return std::string(own && own->send(7, {address_, address_, 1}, data_for(0, 100), 100) ? "sent" : "not sent");
  });
  EXPECT_EQ(*sent, "sent");
  std::optional<Stray> stray;
  EXPECT_TRUE(box->take(stray));
  EXPECT_FALSE(stray);
  EXPECT_TRUE(member().is_in());
}

TEST_F(SharedAddressTest, a_name_that_another_user_took_is_told_from_a_member) {
  int taken[2], done[2];
  ASSERT_TRUE(::pipe(taken) == 0 && ::pipe(done) == 0);
  const std::string name = rendezvous::name_of(*find_local_address(address_), {});
  std::string refusal;
  const auto said = said_by_another_user(
      [&] {
        const auto place = rendezvous::found(name);
        char byte = place && *place ? 'y' : 'n';
        [[maybe_unused]] const ssize_t wrote = ::write(taken[1], &byte, 1);
        [[maybe_unused]] const ssize_t got = ::read(done[0], &byte, 1);
        return std::string(1, byte);
      },
      [&] {
        pollfd waiting{taken[0], POLLIN, 0};
        if (!refusal.empty() || ::poll(&waiting, 1, 0) != 1) return;
        char byte = 0;
        EXPECT_EQ(::read(taken[0], &byte, 1), 1);
        EXPECT_EQ(byte, 'y');
        refusal = answer_of_opening(address_);
        EXPECT_EQ(::write(done[1], "z", 1), 1);
      });
  for (const int fd : {taken[0], taken[1], done[0], done[1]}) ::close(fd);
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_THAT(refusal, HasSubstr("AddressInUse"));
  EXPECT_THAT(refusal, HasSubstr("of another user (uid " + std::to_string(kOtherUser) + ")"));
}

}  // namespace
}  // namespace verbena::soft::udp
