// SPDX-License-Identifier: Apache-2.0
// The table as a process finds it that others crashed on, or filled with anything.
#include "soft/driver/udp/address_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/random.h"

namespace verbena::soft::udp {
namespace {

constexpr std::uint32_t kService = 0x0106'1d2f;

std::size_t size_of(const AddressTable& table) {
  struct stat status {};
  EXPECT_EQ(::fstat(table.fd(), &status), 0);
  return static_cast<std::size_t>(status.st_size);
}

TEST(AddressTable, any_bytes_of_others_do_no_harm) {
  SeededRandom random(11);
  for (int round = 0; round < 200; ++round) {
    auto table = AddressTable::create();
    ASSERT_TRUE(table);
    const auto slot = table->claim_slot(static_cast<unsigned>(random.below(kSlots)));
    ASSERT_TRUE(slot && *slot);
    table->publish(random.next_u64() | 1);
    const bool sparse = round % 2 == 0;
    for (std::size_t at = 8; at < size_of(*table); at += 8) {
      if (sparse && random.below(16) != 0) continue;
      const std::uint64_t word = sparse ? random.next_u64() & 0xffff'ffff'fc00'0000 : random.next_u64();
      ASSERT_EQ(::pwrite(table->fd(), &word, sizeof word, static_cast<off_t>(at)), 8);
    }
    table->publish(random.next_u64() | 1);
    EXPECT_EQ(table->taken_slots(), 1u);
    EXPECT_TRUE(table->announce(kService));
    EXPECT_EQ(table->slot_of(kService), *slot);
    EXPECT_TRUE(table->with_routes(512, [&](const std::vector<ServiceRoute>& routes) {
      EXPECT_LE(routes.size(), 512u);
      for (const ServiceRoute& route : routes) EXPECT_EQ(route.slot, **slot) << "nobody else lives";
    }));
    EXPECT_TRUE(table->withdraw_all());
    EXPECT_FALSE(table->slot_of(kService));
  }
}

TEST(AddressTable, who_dies_with_the_lock_holds_nobody_up) {
  auto table = AddressTable::create();
  ASSERT_TRUE(table);
  ASSERT_TRUE(table->claim_slot(9));
  table->publish(1);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_start = kSlots;
    range.l_len = 1;
    const char byte = ::fcntl(table->fd(), F_SETLK, &range) == 0 ? 'y' : 'n';
    [[maybe_unused]] const ssize_t n = ::write(ready[1], &byte, 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  const auto refused = table->announce(kService);
  EXPECT_EQ(refused.error().code(), ErrorCode::Busy);
  EXPECT_NE(refused.error().context().find("process " + std::to_string(child)), std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(table->announce(kService));
}

TEST(AddressTable, all_services_that_fit_can_be_announced_and_one_more_is_refused) {
  auto table = AddressTable::create();
  ASSERT_TRUE(table);
  const auto slot = table->claim_slot(9);
  ASSERT_TRUE(slot && *slot);
  table->publish(7);
  for (std::uint32_t i = 1; i <= kMostServices; ++i) ASSERT_TRUE(table->announce(i)) << i;
  EXPECT_EQ(table->announce(kMostServices + 1).error().code(), ErrorCode::ResourceExhausted);
  ASSERT_TRUE(table->withdraw(9));
  EXPECT_EQ(table->slot_of(9), *slot) << "until somebody needs the place";
  EXPECT_TRUE(table->announce(kMostServices + 1));
  EXPECT_FALSE(table->slot_of(9));
}

TEST(AddressTable, what_is_no_table_is_refused) {
  Descriptor small(::memfd_create("small", MFD_CLOEXEC));
  EXPECT_EQ(AddressTable::adopt(std::move(small)).error().code(), ErrorCode::InvalidArgument);
  auto table = AddressTable::create();
  ASSERT_TRUE(table);
  const std::uint64_t wrong = 1;
  ASSERT_EQ(::pwrite(table->fd(), &wrong, sizeof wrong, 0), 8);
  EXPECT_EQ(AddressTable::adopt(Descriptor(::dup(table->fd()))).error().code(), ErrorCode::InvalidArgument);
  Descriptor unsealed(::memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(::ftruncate(unsealed.get(), static_cast<off_t>(size_of(*table))), 0);
  EXPECT_EQ(AddressTable::adopt(std::move(unsealed)).error().code(), ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace verbena::soft::udp
