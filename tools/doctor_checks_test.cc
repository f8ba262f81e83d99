// SPDX-License-Identifier: Apache-2.0
#include "tools/doctor_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/test_folder.h"

namespace verbena::tools {
namespace {

using ::testing::HasSubstr;

// As /proc and /sys would say it.
struct DescribedMachine {
  void has_pages(int total, int free, const std::string& transparent) const {
    folder.write("meminfo", "MemTotal:       8000000 kB\nHugePages_Total:    " + std::to_string(total) +
                                "\nHugePages_Free:     " + std::to_string(free) + "\nHugepagesize:       2048 kB\n");
    folder.write("kernel/mm/transparent_hugepage/enabled", transparent + "\n");
  }
  Finding huge_pages() const { return examine_huge_pages(folder.str(), folder.str()); }

  const TestFolder folder{};
};

TEST(Doctor, finds_huge_pages_that_are_free) {
  const DescribedMachine machine;
  machine.has_pages(64, 60, "always madvise [never]");
  const Finding found = machine.huge_pages();
  EXPECT_EQ(found.health, Health::Good);
  EXPECT_THAT(found.found, HasSubstr("60 of 64"));
  EXPECT_EQ(found.what_to_do, "");
}

TEST(Doctor, is_content_with_transparent_huge_pages) {
  const DescribedMachine machine;
  for (const char* mode : {"[always] madvise never", "always [madvise] never"}) {
    machine.has_pages(0, 0, mode);
    EXPECT_EQ(machine.huge_pages().health, Health::Good) << mode;
    EXPECT_THAT(machine.huge_pages().found, HasSubstr("none is reserved"));
  }
}

TEST(Doctor, misses_huge_pages_that_are_all_in_use) {
  const DescribedMachine machine;
  machine.has_pages(64, 0, "always [madvise] never");
  const Finding found = machine.huge_pages();
  EXPECT_EQ(found.health, Health::Advice);
  EXPECT_THAT(found.found, HasSubstr("all 64 that are reserved are in use"));
  EXPECT_THAT(found.what_to_do, HasSubstr("sysctl -w vm.nr_hugepages"));
}

TEST(Doctor, misses_huge_pages_of_either_kind) {
  const DescribedMachine machine;
  machine.has_pages(0, 0, "always madvise [never]");
  const Finding found = machine.huge_pages();
  EXPECT_EQ(found.health, Health::Advice);
  EXPECT_THAT(found.found, HasSubstr("always madvise [never]"));
  EXPECT_THAT(found.what_to_do, HasSubstr("vm.nr_hugepages"));
  EXPECT_THAT(found.what_to_do, HasSubstr("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"));
}

TEST(Doctor, does_not_guess_at_huge_pages) {
  const DescribedMachine machine;
  EXPECT_EQ(machine.huge_pages().health, Health::Advice);
  machine.folder.write("meminfo", "MemTotal:       8000000 kB\nHugePages_Total:\n");
  EXPECT_EQ(machine.huge_pages().health, Health::Advice);
}

TEST(Doctor, minds_locked_memory_where_a_nic_locks_it) {
  const DescribedMachine machine;
  const std::string sys = machine.folder.str();
  EXPECT_EQ(examine_locked_memory(sys, std::nullopt).health, Health::Good);
  EXPECT_EQ(examine_locked_memory(sys, 8u << 20).health, Health::Good);
  EXPECT_THAT(examine_locked_memory(sys, 8u << 20).found, HasSubstr("8192 kB"));
  machine.folder.write("class/infiniband/rxe0/node_type", "1: CA\n");  // the kernel's, of software
  EXPECT_EQ(examine_locked_memory(sys, 8u << 20).health, Health::Good);

  machine.folder.write("class/infiniband/mlx5_0/device/vendor", "0x15b3\n");
  EXPECT_EQ(examine_locked_memory(sys, std::nullopt).health, Health::Good);
  const Finding limited = examine_locked_memory(sys, 64u << 10);
  EXPECT_EQ(limited.health, Health::Advice);
  EXPECT_THAT(limited.found, HasSubstr("64 kB"));
  EXPECT_THAT(limited.found, HasSubstr("(mlx5_0)"));
  EXPECT_THAT(limited.what_to_do, HasSubstr("memlock unlimited"));
}

}  // namespace
}  // namespace verbena::tools
