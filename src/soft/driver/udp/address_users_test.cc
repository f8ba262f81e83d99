// SPDX-License-Identifier: Apache-2.0
// Processes of several users at one address: who names whom, who is let in, who is told what.
#include "soft/driver/udp/address_users.h"

#include <sys/un.h>

#include "base/this_user.h"
#include "soft/driver/test_other_user.h"
#include "soft/driver/udp/rendezvous.h"
#include "soft/driver/udp/test_shared_address.h"

namespace verbena::soft::udp {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr uid_t kAnna = 11'001, kBert = 11'002;
constexpr uid_t kStranger = kOtherUser;

TEST(AddressUsers, are_this_user_and_those_it_names_each_once) {
  const uid_t own = ::geteuid();
  EXPECT_EQ(AddressUsers().to_string(), "this user");
  EXPECT_EQ(AddressUsers::with({own})->to_string(), "this user");
  const auto users = AddressUsers::with({own + 7, own, own + 5, own + 7});
  ASSERT_TRUE(users);
  EXPECT_EQ(users->numbers(), (std::vector<std::uint32_t>{own, own + 5, own + 7}));
  EXPECT_EQ(*users, *AddressUsers::with({own + 5, own + 7}));
  EXPECT_TRUE(users->include(own) && users->include(own + 5) && users->include(own + 7));
  EXPECT_FALSE(users->include(own + 6));
  EXPECT_FALSE(AddressUsers().include(own + 5));
}

TEST(AddressUsers, are_not_whom_a_number_of_many_stands_for) {
  if (is_one_user(kOtherUser)) GTEST_SKIP() << "all users are known here";
  const auto refused = AddressUsers::with({kOtherUser});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::InvalidArgument);
  EXPECT_THAT(refused.error().context(), HasSubstr("every user that this container does not know"));
}

TEST(AddressUsers, are_64_at_most) {
  std::vector<std::uint32_t> named;
  for (std::uint32_t i = 1; i < AddressUsers::kMost; ++i) named.push_back(::geteuid() + i);
  EXPECT_TRUE(AddressUsers::with(named));
  named.push_back(::geteuid());
  EXPECT_TRUE(AddressUsers::with(named)) << "this user is one of them anyway";
  named.push_back(::geteuid() + AddressUsers::kMost);
  const auto refused = AddressUsers::with(named);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::InvalidArgument);
  EXPECT_THAT(refused.error().context(), HasSubstr("65 users"));
}

class SeveralUsers : public SharedAddressTest {
 protected:
  void SetUp() override {
    SharedAddressTest::SetUp();
    if (!IsSkipped() && !said_by_another_user([] { return std::string("is"); })) GTEST_SKIP() << kNoOtherUser;
  }
  Member member_of(uid_t user, const std::vector<std::uint32_t>& names) const {
    return Member(address_, Member::When::AtOnce, {user, names});
  }
  // Also while it makes the address a group, when some goes by its inbox.
  void expect_to_get(Member& member) const {
    for (int tries = 0; tries < 1'000; ++tries) {
      send(data_for(member.slot(), 100));
      ::usleep(1'000);
      if (member.ask("quiet") == "no" || member.ask("glance") != "0") return;
    }
    ADD_FAILURE() << "nothing comes";
  }
  void expect_to_read(Member& member) const {
    send(data_for(member.slot(), 100 + member.slot()));
    EXPECT_EQ(member.ask("read"), std::to_string(100 + member.slot()));
  }
  const std::vector<std::uint32_t> both_{kAnna, kBert};
};

TEST_F(SeveralUsers, who_name_each_other_share_an_address_whoever_is_first) {
  for (const auto& [one, other] : {std::pair{kAnna, kBert}, std::pair{kBert, kAnna}}) {
    Member first = member_of(one, {other});
    ASSERT_TRUE(first.is_in()) << first.greeting;
    EXPECT_THAT(first.ask("explain"), HasSubstr("other processes of users 11001, 11002 may come"));
    Member second = member_of(other, both_);  // one's own number may stand there
    ASSERT_TRUE(second.is_in()) << second.greeting;
    Member third = member_of(one, {other});
    ASSERT_TRUE(third.is_in()) << third.greeting;
    EXPECT_THAT(second.ask("explain"), HasSubstr("with 2 other processes of users 11001, 11002"));
    for (Member* member : {&first, &second, &third}) expect_to_read(*member);
  }
}

TEST_F(SeveralUsers, listen_on_a_service_one_at_a_time_and_the_next_when_he_dies) {
  Member anna = member_of(kAnna, both_), bert = member_of(kBert, both_);
  EXPECT_EQ(anna.ask("listen 7471"), "ok");
  const std::string refusal = bert.ask("listen 7471");
  EXPECT_THAT(refusal, HasSubstr("AddressInUse"));
  EXPECT_THAT(refusal, HasSubstr(std::to_string(anna.pid())));
  EXPECT_EQ(bert.ask("listen 7472"), "ok");
  send(management(wire::CmAttribute::Req, 7472));
  EXPECT_EQ(bert.ask("read"), "280");
  anna.kill(SIGKILL);
  bool is_refused_here = false;  // what asks for 7471: without a system call of ours the filter lets go of it
  for (int tries = 0; tries < 1'000 && !is_refused_here; ++tries) {
    send(management(wire::CmAttribute::Req, 7471));
    ::usleep(2'000);
    is_refused_here = bert.ask("glance") != "0";
  }
  EXPECT_TRUE(is_refused_here);
  EXPECT_EQ(bert.ask("listen 7471"), "ok");
  send(management(wire::CmAttribute::Req, 7471));
  EXPECT_EQ(bert.ask("read"), "280");
}

TEST_F(SeveralUsers, go_on_when_the_first_is_killed_and_let_in_others_of_either) {
  Member anna = member_of(kAnna, both_), bert = member_of(kBert, both_);
  ASSERT_TRUE(bert.is_in()) << bert.greeting;
  anna.kill(SIGKILL);  // who opened it all
  expect_to_read(bert);
  Member late = member_of(kBert, both_);
  ASSERT_TRUE(late.is_in()) << late.greeting;
  bert.leave();
  Member heir = member_of(kAnna, both_);
  ASSERT_TRUE(heir.is_in()) << heir.greeting;
  EXPECT_THAT(heir.ask("explain"), HasSubstr("with 1 other process"));
  for (Member* member : {&late, &heir}) {
    EXPECT_EQ(member->ask("listen 7471"), "ok");
    send(management(wire::CmAttribute::Req, 7471));
    EXPECT_EQ(member->ask("read"), "280");
    EXPECT_EQ(member->ask("stop 7471"), "ok");
    expect_to_read(*member);
  }
}

TEST_F(SeveralUsers, hand_each_other_what_reached_the_wrong_one) {
  Member anna = member_of(kAnna, both_), bert = member_of(kBert, both_);
  for (const auto& [from, to] : {std::pair{&anna, &bert}, std::pair{&bert, &anna}}) {
    EXPECT_EQ(from->ask("mislead " + std::to_string(to->slot())), "ok");
    EXPECT_EQ(to->ask("inbox"), "200");
  }
  send(management(wire::CmAttribute::Rej, 0));  // goes to everybody
  EXPECT_EQ(anna.ask("inbox"), "280");
  EXPECT_EQ(bert.ask("inbox"), "280");
}

TEST_F(SeveralUsers, are_refused_and_told_why_where_one_alone_names_the_other) {
  for (const auto& [one, other] : {std::pair{kAnna, kBert}, std::pair{kBert, kAnna}})
    for (const bool first_names : {false, true}) {
      const std::vector<std::uint32_t> nobody;
      Member first = member_of(one, first_names ? both_ : nobody);
      ASSERT_TRUE(first.is_in()) << first.greeting;
      const Member refused = member_of(other, first_names ? nobody : both_);
      EXPECT_THAT(refused.greeting, HasSubstr("AddressInUse"));
      EXPECT_THAT(refused.greeting, HasSubstr("use another address"));
      EXPECT_THAT(refused.greeting, HasSubstr("address_users, VERBENA_ADDRESS_USERS"));
      expect_to_get(first);
      EXPECT_THAT(first.ask("explain"), HasSubstr("alone"));
    }
}

// What each of them answers to who comes with another list: he shares with nobody whom he did not name.
TEST_F(SeveralUsers, are_refused_and_told_the_list_where_it_is_another) {
  const Member anna = member_of(kAnna, both_);
  for (const uid_t user : {kAnna, kBert}) {
    const Member with_more = member_of(user, {kAnna, kBert, kBert + 1});
    EXPECT_THAT(with_more.greeting, HasSubstr("AddressInUse"));
    EXPECT_THAT(with_more.greeting, HasSubstr("users 11001, 11002 share the address, this process names users 11001, "
                                              "11002, 11003"));
  }
  const Member with_less = member_of(kAnna, {});
  EXPECT_THAT(with_less.greeting, HasSubstr("users 11001, 11002 share the address, this process names user 11001"));
}

TEST_F(SeveralUsers, let_a_stranger_have_no_descriptor_and_no_mail) {
  Member anna = member_of(kAnna, both_), bert = member_of(kBert, both_);
  const std::string name = "verbena-11001-127.0.0.1";
  const auto given = said_by_another_user([&name] {
    const Descriptor guest(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    name.copy(at.sun_path + 1, name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(guest.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0) return std::string("not there");
    std::array<std::uint32_t, 64> words{};
    alignas(cmsghdr) std::array<std::byte, 4'096> control{};
    iovec piece{words.data(), sizeof words};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t bytes = ::recvmsg(guest.get(), &message, 0);
    return std::to_string(bytes) + " bytes, " + std::to_string(message.msg_controllen) + " of descriptors";
  });
  EXPECT_EQ(given, "16 bytes, 0 of descriptors");
  const Member stranger = member_of(kStranger, both_);
  EXPECT_THAT(stranger.greeting, HasSubstr("who holds the address does not name user 65534"));
  EXPECT_THAT(anna.ask("explain"), HasSubstr("with 1 other process"));
  auto box = Mailbox::open(7, address_, *AddressUsers::with(both_));
  ASSERT_TRUE(box);
  const auto sent = said_by_another_user([this] {
    const auto own = Mailbox::open(8, address_);
    return std::string(own && own->send(7, {address_, address_, 1}, data_for(0, 100), 100) ? "sent" : "not sent");
  });
  EXPECT_EQ(sent, "sent");
  std::optional<Stray> stray;
  EXPECT_TRUE(box->take(stray));
  EXPECT_FALSE(stray);
}

// A name is whoever's took it first. One whom this process did not name passes nothing on to it.
TEST_F(SeveralUsers, take_nothing_from_who_is_not_named) {
  const Member stranger = member_of(kStranger, both_);
  ASSERT_TRUE(stranger.is_in()) << stranger.greeting;  // at the name of Anna
  for (const auto& names : {std::vector<std::uint32_t>{}, both_}) {
    const Member anna = member_of(kAnna, names);
    EXPECT_THAT(anna.greeting, HasSubstr("of another user (uid 65534)"));
    EXPECT_THAT(anna.greeting, HasSubstr("use another address"));
  }
}

// The kernel lets it bind no further socket beside the one it has from before. It does not name its first user.
TEST_F(SeveralUsers, are_told_of_who_was_alone_and_has_become_another_user) {
  Member server(address_, Member::When::AtOnce, {{}, {kAnna}});
  EXPECT_EQ(server.ask("become 11001"), "ok");
  const Member anna = member_of(kAnna, {::geteuid()});
  EXPECT_THAT(anna.greeting, HasSubstr("AddressInUse"));
  EXPECT_THAT(anna.greeting, HasSubstr("has become another user since"));
  const Member first(address_, Member::When::AtOnce, {{}, {kAnna}});
  EXPECT_THAT(first.greeting, HasSubstr("does not name user " + std::to_string(::geteuid())));
}

TEST_F(SeveralUsers, all_come_and_go_at_once_and_everybody_gets_in) {
  expect_all_get_in(6, both_, [](std::uint32_t i) {
    const uid_t user = i % 2 == 0 ? kAnna : kBert;
    return ::setresuid(user, user, user) == 0;
  });
}

TEST_F(SeveralUsers, are_the_same_for_all_devices_of_a_process) {
  const auto users = AddressUsers::with({kAnna});
  {
    auto one = SharedAddress::open(address_, *users);
    ASSERT_TRUE(one);
    const auto other = SharedAddress::open(address_);
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().code(), ErrorCode::AddressInUse);
    EXPECT_THAT(other.error().context(), HasSubstr("another device of this process shares it with processes of users"));
    EXPECT_TRUE(SharedAddress::open(address_, *users));
  }
  EXPECT_TRUE(SharedAddress::open(address_)) << "nobody is there any more";
}

}  // namespace
}  // namespace verbena::soft::udp
