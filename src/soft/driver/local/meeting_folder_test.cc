// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/meeting_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <list>
#include <memory>

#include "soft/driver/local/test_folder.h"
#include "soft/driver/test_other_user.h"
#include "soft/driver/test_stepped_process.h"

namespace verbena::soft::local {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const MeetingPoint kHere{Gid::from_ipv4(192, 0, 2, 1), 3};
const MeetingPoint kThere{Gid::from_ipv4(192, 0, 2, 2), 0};
constexpr const char* kHereName = "verbena-00000000000000000000ffffc0000201-3";

class MeetingFolderTest : public ::testing::Test {
 protected:
  std::unique_ptr<MeetingFolder> opened() const {
    auto folder = MeetingFolder::open(folder_.path());
    EXPECT_TRUE(folder) << folder.error().to_string();
    return std::make_unique<MeetingFolder>(std::move(*folder));
  }
  // Stands there as long as it lives.
  std::unique_ptr<MeetingFolder> standing(const MeetingPoint& point = kHere) const {
    auto folder = opened();
    const auto offered = folder->offer(point);
    EXPECT_TRUE(offered) << offered.error().to_string();
    return folder;
  }
  bool is_reached(const MeetingPoint& point = kHere) const {
    const auto reached = opened()->reach(point);
    EXPECT_TRUE(reached) << reached.error().to_string();
    return reached && *reached;
  }
  // Stands there and dies.
  void leave_a_dead_one(const MeetingPoint& point = kHere) const {
    TestProcess process([&] {
      const auto folder = standing(point);
      ::raise(SIGKILL);
      return 0;
    });
    process.wait();
  }

  TestFolder folder_;
};

TEST_F(MeetingFolderTest, who_stands_there_is_reached_and_leaves_nothing) {
  {
    const auto folder = standing();
    EXPECT_THAT(folder_.names(), ElementsAre(kHereName));
    const auto reached = opened()->reach(kHere);
    ASSERT_TRUE(reached && *reached);
    EXPECT_EQ((**reached).peer().pid, ::getpid());
    const auto accepted = accept_one(folder->listener());
    EXPECT_TRUE(accepted && *accepted);
    EXPECT_FALSE(is_reached(kThere));
    EXPECT_FALSE(is_reached({kHere.gid, 4}));
  }
  EXPECT_THAT(folder_.names(), IsEmpty());
  EXPECT_FALSE(is_reached());
}

TEST_F(MeetingFolderTest, this_user_alone_may_connect) {
  const auto folder = standing();
  EXPECT_EQ(fs::status(folder_.path() + "/" + kHereName).permissions() & fs::perms::all,
            fs::perms::owner_read | fs::perms::owner_write);
}

// Root may connect to any.
TEST_F(MeetingFolderTest, a_umask_that_takes_all_leaves_the_place_to_this_user) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  const mode_t before = ::umask(0377);
  const auto said = said_by_another_user([&] {
    const auto folder = standing();
    const bool reached = is_reached();
    leave_a_dead_one(kThere);
    return std::string(reached ? "reached" : "alone") + (opened()->offer(kThere) ? ", and heir of the dead" : "");
  });
  const auto folder = standing();
  ::umask(before);
  EXPECT_EQ(fs::status(folder_.path() + "/" + kHereName).permissions() & fs::perms::all,
            fs::perms::owner_read | fs::perms::owner_write);
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_EQ(*said, "reached, and heir of the dead");
}

TEST_F(MeetingFolderTest, another_user_meets_nobody_and_is_told_why) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 01777), 0);
  const auto folder = standing();
  const auto said = said_by_another_user([&] {
    const auto reached = opened()->reach(kHere);
    if (reached) return std::string("reached");
    return opened()->offer(kHere) ? "took the place" : reached.error().to_string();
  });
  if (!said) GTEST_SKIP() << kNoOtherUser;
  EXPECT_THAT(*said, HasSubstr(std::string("PermissionDenied: ") + kHereName + " in " + folder_.path() +
                               " is of another"));
  EXPECT_TRUE(is_reached());
}

TEST_F(MeetingFolderTest, a_path_longer_than_the_address_of_a_socket_serves) {
  std::string path = folder_.path();
  while (path.size() < 2 * sizeof(sockaddr_un)) path += "/a_folder_with_a_long_name";
  ASSERT_TRUE(fs::create_directories(path));
  auto folder = MeetingFolder::open(path);
  ASSERT_TRUE(folder) << folder.error().to_string();
  ASSERT_TRUE(folder->offer(kHere));
  EXPECT_TRUE(fs::is_socket(path + "/" + kHereName));
  const auto reached = MeetingFolder::open(path)->reach(kHere);
  EXPECT_TRUE(reached && *reached);
}

TEST_F(MeetingFolderTest, the_place_of_one_that_was_killed_is_free) {
  leave_a_dead_one();
  EXPECT_THAT(folder_.names(), ElementsAre(kHereName));
  EXPECT_FALSE(is_reached());
  const auto heir = standing();
  EXPECT_TRUE(is_reached());
}

TEST_F(MeetingFolderTest, who_comes_or_goes_takes_away_what_the_dead_left) {
  auto stays = standing(kThere);
  leave_a_dead_one();
  { const auto comes = standing({kHere.gid, 9}); }
  EXPECT_EQ(folder_.names().size(), 1u);
  leave_a_dead_one();
  { const auto looks = opened(); }
  EXPECT_EQ(folder_.names().size(), 2u) << "who does not stand there takes nothing away";
  EXPECT_TRUE(is_reached(kThere));
  stays.reset();
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST_F(MeetingFolderTest, who_has_left_proc_behind_takes_away_nobody_but_itself) {
  const auto stays = standing(kThere);
  const TestFolder empty;
  constexpr int kCannot = 77;
  TestProcess process([&] {
    auto goes = standing();
    const char* const root = empty.path().c_str();
    if (::chroot(root) != 0 && (::unshare(CLONE_NEWUSER) != 0 || ::chroot(root) != 0)) return kCannot;
    const auto reached = goes->reach(kThere);
    goes.reset();
    return reached && !*reached ? 0 : 1;
  });
  const int status = process.wait();
  if (status == kCannot) GTEST_SKIP() << "this system lets nobody change the root";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(folder_.names().size(), 1u);
  EXPECT_TRUE(is_reached(kThere));
}

TEST_F(MeetingFolderTest, sockets_of_other_names_are_left_alone_however_long_those_are) {
  const std::string digits(32, '0');
  const std::vector<std::string> names{"verbena-" + digits + "-" + std::string(200, 'A'),
                                       "verbena-" + digits + "-" + std::string(200, '1'),
                                       "verbena-" + digits + "-1x", "verbena-" + digits + "-", "verbena-" + digits};
  for (const std::string& name : names)
    ASSERT_EQ(::mknod((folder_.path() + "/" + name).c_str(), S_IFSOCK | 0600, 0), 0) << name;
  { const auto folder = standing(); }
  EXPECT_EQ(folder_.names().size(), names.size());
}

TEST_F(MeetingFolderTest, one_that_lives_is_not_replaced) {
  const auto first = standing();
  const auto second = opened()->offer(kHere);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::AddressInUse);
  EXPECT_THAT(second.error().to_string(), HasSubstr(kHereName));
  const auto reached = opened()->reach(kHere);
  ASSERT_TRUE(reached && *reached);
  EXPECT_TRUE(*accept_one(first->listener())) << "the look of the second one";
  EXPECT_TRUE(*accept_one(first->listener()));
}

// A peer that has no time to accept is alive all the same.
TEST_F(MeetingFolderTest, one_whose_guests_wait_is_not_replaced) {
  const std::string place = folder_.path() + "/" + kHereName;
  const Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::strncpy(at.sun_path, place.c_str(), sizeof at.sun_path - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  const auto one = opened()->reach(kHere);
  ASSERT_TRUE(one && *one);
  const auto two = opened()->reach(kHere);
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().code(), ErrorCode::ResourceExhausted);
  EXPECT_FALSE(opened()->offer(kHere));
  EXPECT_THAT(folder_.names(), ElementsAre(kHereName));
}

TEST_F(MeetingFolderTest, what_else_stands_there_is_left_alone) {
  const std::string somebodys = folder_.path() + "/verbena-socket";
  {
    const Descriptor dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, somebodys.c_str(), sizeof at.sun_path - 1);
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }
  const std::string in_the_way = folder_.path() + "/" + kHereName;
  std::ofstream(in_the_way) << "a file";
  EXPECT_FALSE(is_reached());
  const auto offered = opened()->offer(kHere);
  ASSERT_FALSE(offered);
  EXPECT_THAT(offered.error().to_string(), HasSubstr("stands there already"));
  { const auto other = standing(kThere); }
  EXPECT_TRUE(fs::exists(somebodys));
  EXPECT_EQ(fs::file_size(in_the_way), 6u);
}

TEST_F(MeetingFolderTest, a_place_that_became_anothers_is_not_taken_away) {
  auto first = standing();
  fs::remove(folder_.path() + "/" + kHereName);  // as who tidies up
  const auto second = standing();
  first.reset();
  EXPECT_TRUE(is_reached());
}

TEST_F(MeetingFolderTest, a_child_that_ends_takes_nothing_away) {
  auto folder = standing();
  TestProcess child([&folder] {
    folder.reset();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(is_reached());
}

TEST_F(MeetingFolderTest, addresses_of_loopback_stand_in_no_folder) {
  for (const Gid& gid : {Gid::from_ipv4(127, 0, 0, 1), Gid::from_ipv4(127, 255, 1, 9), *Gid::parse("::1")}) {
    EXPECT_FALSE(MeetingFolder::takes(gid)) << gid.to_string();
    const auto offered = opened()->offer({gid, 0});
    ASSERT_FALSE(offered);
    EXPECT_EQ(offered.error().code(), ErrorCode::NotSupported);
  }
  const auto folder = standing();
  fs::rename(folder_.path() + "/" + kHereName,
             folder_.path() + "/verbena-00000000000000000000ffff7f000001-0");
  EXPECT_FALSE(is_reached({Gid::from_ipv4(127, 0, 0, 1), 0})) << "whoever put it there";
  for (const char* text : {"128.0.0.1", "::2", "fe80::1", "2001:db8::7f00:1"})
    EXPECT_TRUE(MeetingFolder::takes(*Gid::parse(text))) << text;
}

TEST_F(MeetingFolderTest, a_lock_that_is_held_for_ever_is_waited_for_a_while) {
  const Descriptor somebody(::open(folder_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(somebody.get(), LOCK_EX), 0);
  const auto offered = opened()->offer(kHere);
  ASSERT_FALSE(offered);
  EXPECT_EQ(offered.error().code(), ErrorCode::Busy);
  EXPECT_THAT(folder_.names(), IsEmpty());
}

TEST_F(MeetingFolderTest, a_folder_that_vanishes_holds_nobody) {
  const auto folder = standing();
  const auto looks = opened();
  fs::remove_all(folder_.path());
  const auto reached = looks->reach(kHere);
  ASSERT_TRUE(reached) << reached.error().to_string();
  EXPECT_FALSE(*reached);
  EXPECT_FALSE(looks->offer(kThere));
  // What has its name later is another.
  ASSERT_TRUE(fs::create_directory(folder_.path()));
  EXPECT_FALSE(*looks->reach(kHere));
}

// ---- What is no folder to meet in.

TEST_F(MeetingFolderTest, a_folder_that_is_missing_or_none_is_refused_with_what_to_do) {
  const auto missing = MeetingFolder::open(folder_.path() + "/missing");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), ErrorCode::InvalidArgument);
  EXPECT_THAT(missing.error().to_string(),
              HasSubstr("VERBENA_LOCAL_DIR) " + folder_.path() + "/missing is not there: make"));
  std::ofstream(folder_.path() + "/file") << "x";
  const auto file = MeetingFolder::open(folder_.path() + "/file");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), ErrorCode::InvalidArgument);
  EXPECT_THAT(file.error().to_string(), HasSubstr("is no folder"));
}

TEST_F(MeetingFolderTest, a_folder_that_is_not_for_this_user_is_refused_with_what_to_do) {
  struct Case {
    mode_t mode;
    const char* says;
  };
  for (const Case& one : {Case{0700, "must be allowed to read and write"}, Case{0755, "not to be written to"},
                          Case{0777, "chmod +t"}, Case{01777, "fine"}}) {
    ASSERT_EQ(::chmod(folder_.path().c_str(), one.mode), 0);
    const auto said = said_by_another_user([&] {
      const auto folder = MeetingFolder::open(folder_.path());
      if (folder) return std::string("fine");
      return folder.error().code() == ErrorCode::PermissionDenied ? folder.error().to_string()
                                                                  : "another code";
    });
    if (!said) GTEST_SKIP() << kNoOtherUser;
    EXPECT_THAT(*said, HasSubstr(one.says)) << one.mode;
  }
}

TEST_F(MeetingFolderTest, who_owns_a_folder_may_let_anybody_write_to_it) {
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
  EXPECT_TRUE(MeetingFolder::open(folder_.path()));
}

// ---- Many at once, and any of them may die at any time.

TEST_F(MeetingFolderTest, of_many_that_come_at_once_one_takes_the_place_of_the_dead) {
  constexpr int kProcesses = 8;
  for (int round = 0; round < 20; ++round) {
    leave_a_dead_one();
    int start[2], done[2];
    ASSERT_EQ(::pipe(start), 0);
    ASSERT_EQ(::pipe(done), 0);
    std::list<TestProcess> processes;
    for (int i = 0; i < kProcesses; ++i)
      processes.emplace_back([&] {
        auto folder = opened();
        char byte = 0;
        ::close(start[1]);
        static_cast<void>(::read(start[0], &byte, 1));  // all at once
        byte = folder->offer(kHere) ? 'y' : 'n';
        static_cast<void>(::write(done[1], &byte, 1));
        for (;;) ::pause();
        return 0;
      });
    ::close(start[0]), ::close(start[1]);
    int taken = 0;
    for (int i = 0; i < kProcesses; ++i) {
      char byte = 0;
      ASSERT_EQ(::read(done[0], &byte, 1), 1);
      taken += byte == 'y' ? 1 : 0;
    }
    EXPECT_EQ(taken, 1) << round;
    EXPECT_TRUE(is_reached()) << round;
    ::close(done[0]), ::close(done[1]);
  }
}

TEST_F(MeetingFolderTest, F16_whoever_dies_at_any_call_of_coming_and_going_leaves_the_place_free) {
  int points = 0, dead_ones = 0;
  for (bool ended = false; !ended; ++points) {
    {
      SteppedProcess child([this] {
        standing().reset();
        return 0;
      });
      if (!child.traced()) GTEST_SKIP() << "this system lets nobody trace";
      for (int call = 0; call < points && !ended; ++call) ended = !child.step_call();
      if (!ended) child.kill_and_wait();
    }
    dead_ones += folder_.names().empty() ? 0 : 1;
    {
      const auto heir = standing();
      ASSERT_THAT(folder_.names(), ElementsAre(kHereName)) << "killed at call " << points;
      ASSERT_TRUE(is_reached());
    }
    ASSERT_THAT(folder_.names(), IsEmpty()) << "killed at call " << points;
  }
  std::printf("[          ] %d kill points of coming and going, %d left something\n", points, dead_ones);
  EXPECT_GT(dead_ones, 2);
}

}  // namespace
}  // namespace verbena::soft::local
