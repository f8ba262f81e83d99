// SPDX-License-Identifier: Apache-2.0
// A process that forks while it has devices open. The child has copies of all objects; whatever it does with them, its
// parent's are not harmed.
#include <fcntl.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>

#include "base/sanitizer.h"
#include "test_pair.h"
#include "test_process.h"

namespace verbena {
namespace {

using test::must;
using test::Process;

// A connection between two devices of this process, and memory for it.
struct Parent {
  explicit Parent(PathChoice path) : pair({}, OpenOptions{.path = path}) {}
  bool write(int times, Duration timeout = Duration::forever()) {
    bool well = true;
    for (; times != 0; --times) well = near.write(own.local(), theirs.remote()).wait(timeout).has_value() && well;
    return well;
  }

  test::Pair pair;
  MemoryRegion own = must(pair.client.allocate_memory(64));
  MemoryRegion theirs = must(pair.server.allocate_memory(64));
  Connection near = pair.connect();
};

class Fork : public ::testing::TestWithParam<PathChoice> {
 protected:
  // A sanitizer's allocator may be locked by another thread at that moment.
  void SetUp() override {
    if constexpr (kSanitized) GTEST_SKIP() << "a process with threads is forked";
  }
};

INSTANTIATE_TEST_SUITE_P(Paths, Fork, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         [](const auto& path) { return path.param == PathChoice::Local ? "local" : "roce"; });

TEST_P(Fork, a_child_that_ends_what_it_inherited_ends_nothing_of_its_parent) {
  auto parent = std::make_unique<Parent>(GetParam());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(parent->write(20)) << i;
    Process child([&](const auto&) { parent.reset(); });
    EXPECT_EQ(child.wait(), 0) << i;
  }
  EXPECT_TRUE(parent->write(20));
}

TEST_P(Fork, a_child_that_uses_what_it_inherited_does_so_in_vain) {
  auto parent = std::make_unique<Parent>(GetParam());
  ASSERT_TRUE(parent->write(20));
  Process child([&](const auto& say) {
    say(parent->write(1, Duration::milliseconds(100)) ? "written" : "in vain");
    parent.reset();
  });
  EXPECT_EQ(child.hear(), "in vain");
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(parent->write(20));
}

TEST_P(Fork, a_child_that_waits_in_vain_sleeps) {
  Device device = must(Device::open(OpenOptions{.path = GetParam()}));
  ProgressEngine engine = must(ProgressEngine::create(device, {WaitMode::Event}));
  Process child([&](const auto& say) {
    const std::clock_t before = std::clock();
    engine.run_until([] { return false; }, Duration::milliseconds(400));
    say(std::clock() - before < CLOCKS_PER_SEC / 5 ? "slept" : "spun");
    std::_Exit(0);
  });
  EXPECT_EQ(child.hear(), "slept");
  EXPECT_EQ(child.wait(), 0);
}

TEST_P(Fork, a_child_opens_devices_of_its_own_beside_what_it_inherited) {
  auto parent = std::make_unique<Parent>(GetParam());
  ASSERT_TRUE(parent->write(20));
  Process child([&](const auto& say) {
    {
      Parent own(GetParam());
      say(own.write(20) ? "written" : "in vain");
    }
    parent.reset();
  });
  EXPECT_EQ(child.hear(), "written");
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(parent->write(20));
}

// What the environment asks for has files, and a thread of its own.
TEST_P(Fork, the_files_of_counters_are_the_parents) {
  char folder[] = "/tmp/verbena-fork-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  ASSERT_EQ(::setenv("VERBENA_COUNTERS", folder, 1), 0);
  {
    auto parent = std::make_unique<Parent>(GetParam());
    ::unsetenv("VERBENA_COUNTERS");
    ASSERT_TRUE(parent->write(20));
    Process child([&](const auto&) { parent.reset(); });
    EXPECT_EQ(child.wait(), 0);
    EXPECT_TRUE(parent->write(20));
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      std::array<char, 4096> text{};
      const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
      EXPECT_GT(::read(fd, text.data(), text.size() - 1), 0);
      ::close(fd);
      EXPECT_THAT(text.data(), ::testing::HasSubstr("open yes"));
    }
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace verbena
