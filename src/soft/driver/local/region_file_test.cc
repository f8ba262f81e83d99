// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/region_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>
#include <vector>

#include "base/fault_guard.h"
#include "soft/driver/local/test_process.h"
#include "soft/driver/local/test_region.h"

namespace verbena::soft::local {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kPage = 4096, kFileBytes = 5 * kPage;

Descriptor same(int file) { return Descriptor(::fcntl(file, F_DUPFD_CLOEXEC, 0)); }

RegionMapping mapped(const FileMemory& memory, bool writable = true) {
  auto mapping = RegionMapping::map(same(memory.file()), kFileBytes, writable);
  EXPECT_TRUE(mapping) << mapping.error().to_string();
  return std::move(*mapping);
}

Error map_refusal(Descriptor file, std::uint64_t length, bool writable = true) {
  auto mapping = RegionMapping::map(std::move(file), length, writable);
  EXPECT_FALSE(mapping);
  return mapping ? Error{ErrorCode::Internal, ""} : mapping.error();
}

bool is_mapped(const std::byte* page) {
  return ::msync(const_cast<std::byte*>(page), kPage, MS_ASYNC) == 0 || errno != ENOMEM;
}

bool can_store(std::byte* at) {
  fault_guard::install();
  return fault_guard::run([at] { *static_cast<volatile std::byte*>(at) = std::byte{9}; });
}

// ---- What a peer's region looks like here.

TEST(RegionFile, what_one_side_stores_the_other_sees) {
  const FileMemory own(kFileBytes);
  own.data()[kFileBytes - 1] = std::byte{7};
  const RegionMapping peer = mapped(own);
  EXPECT_NE(peer.base(), own.data());
  EXPECT_EQ(peer.base()[kFileBytes - 1], std::byte{7});
  peer.base()[0] = std::byte{8};
  EXPECT_EQ(own.data()[0], std::byte{8});
}

TEST(RegionFile, a_mapping_goes_with_its_owner_and_stays_when_that_moves) {
  const FileMemory own(kFileBytes);
  std::byte *first = nullptr, *second = nullptr;
  {
    RegionMapping mapping = mapped(own), other = mapped(own);
    first = mapping.base();
    second = other.base();
    RegionMapping moved = std::move(mapping);
    EXPECT_EQ(moved.base(), first);
    EXPECT_EQ(mapping.base(), nullptr);  // NOLINT(bugprone-use-after-move)
    moved = std::move(other);
    EXPECT_EQ(moved.base(), second);
    EXPECT_TRUE(is_mapped(second));
  }
  EXPECT_FALSE(is_mapped(first) || is_mapped(second));
}

TEST(RegionFile, a_forked_child_has_no_part_in_the_mapping) {
  const FileMemory own(kFileBytes);
  const RegionMapping peer = mapped(own);
  TestProcess child([&peer] { return can_read(peer.base()) ? 1 : 0; });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(can_read(peer.base()));
}

TEST(RegionFile, what_is_lent_for_reading_cannot_be_stored_to_nor_mapped_for_that) {
  const FileMemory own(kFileBytes);
  const Descriptor reader = read_only(own.file());
  ASSERT_TRUE(reader);
  EXPECT_EQ(::fcntl(reader.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  EXPECT_NE(::fcntl(reader.get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(map_refusal(same(reader.get()), kFileBytes).code(), ErrorCode::PermissionDenied);
  auto peer = RegionMapping::map(same(reader.get()), kFileBytes, false);
  ASSERT_TRUE(peer) << peer.error().to_string();
  own.data()[kPage] = std::byte{5};
  EXPECT_EQ(peer->base()[kPage], std::byte{5});
  EXPECT_FALSE(can_store(peer->base()));
  EXPECT_NE(::mprotect(peer->base(), kFileBytes, PROT_READ | PROT_WRITE), 0) << "nor made so later";
}

TEST(RegionFile, of_what_is_no_file_there_is_nothing_to_read) {
  EXPECT_FALSE(read_only(-1));
  EXPECT_FALSE(read_only(socket_pair()[0].get()));
}

TEST(RegionFile, a_file_must_hold_the_region_and_may_hold_more) {
  const auto file = [](std::size_t bytes) { return memory_file(bytes, kRegionSeals); };
  EXPECT_TRUE(RegionMapping::map(file(kFileBytes), kFileBytes, true));
  EXPECT_TRUE(RegionMapping::map(file(kFileBytes + kPage), kFileBytes, true));
  EXPECT_TRUE(RegionMapping::map(file(kFileBytes), 1, true));
  for (const std::uint64_t length : {std::uint64_t{kFileBytes + 1}, ~std::uint64_t{0}}) {
    const Error error = map_refusal(file(kFileBytes), length);
    EXPECT_EQ(error.code(), ErrorCode::ProtocolError);
    EXPECT_THAT(error.context(), HasSubstr("a region of " + std::to_string(length) + " bytes"));
    EXPECT_THAT(error.context(), HasSubstr("in a file of 20480 bytes"));
  }
  EXPECT_EQ(map_refusal(file(0), 0).code(), ErrorCode::ProtocolError);
}

TEST(RegionFile, what_could_vanish_is_not_mapped) {
  EXPECT_EQ(map_refusal(memory_file(kFileBytes, F_SEAL_GROW | F_SEAL_SEAL), kFileBytes).code(),
            ErrorCode::ProtocolError);
  EXPECT_EQ(map_refusal(memory_file(kFileBytes, 0), kFileBytes).code(), ErrorCode::ProtocolError);
  EXPECT_TRUE(RegionMapping::map(memory_file(kFileBytes, F_SEAL_SHRINK), kFileBytes, true));
  EXPECT_EQ(map_refusal(std::move(socket_pair()[0]), kFileBytes).code(), ErrorCode::ProtocolError);
  EXPECT_EQ(map_refusal(Descriptor(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), kPage).code(),
            ErrorCode::ProtocolError);
  EXPECT_EQ(map_refusal(Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)), kPage).code(), ErrorCode::ProtocolError);
  EXPECT_EQ(map_refusal(Descriptor(), kPage).code(), ErrorCode::ProtocolError);
}

TEST(RegionFile, what_its_owner_sealed_for_reading_is_an_error_of_the_system) {
  const int seals = F_SEAL_SHRINK | F_SEAL_WRITE;
  EXPECT_EQ(map_refusal(memory_file(kFileBytes, seals), kFileBytes).code(), ErrorCode::PermissionDenied);
  EXPECT_TRUE(RegionMapping::map(memory_file(kFileBytes, seals), kFileBytes, false));
}

// ---- Pages of one's own.

TEST(RegionFile, renewed_pages_keep_their_bytes_and_nobody_else_has_them) {
  const FileMemory own(kFileBytes);
  const RegionMapping peer = mapped(own);
  for (std::size_t at = 0; at < kFileBytes; ++at) own.data()[at] = static_cast<std::byte>(at * 7 + at / 256);
  const std::vector<std::byte> before(own.data(), own.data() + kFileBytes);
  ASSERT_TRUE(renew_pages(own.data(), own.file()));
  EXPECT_TRUE(std::equal(before.begin(), before.end(), own.data()));
  std::fill_n(peer.base(), kFileBytes, std::byte{0xee});
  EXPECT_TRUE(std::equal(before.begin(), before.end(), own.data())) << "every page was touched";
  std::fill_n(own.data(), kFileBytes, std::byte{0x55});
  EXPECT_EQ(peer.base()[0], std::byte{0xee});
  TestProcess child([&own] { return is_mapped(own.data()) ? 1 : 0; });
  EXPECT_EQ(child.wait(), 0) << "a forked child does not have them either";
}

TEST(RegionFile, no_store_is_lost_while_pages_are_renewed) {
  for (int round = 0; round < 20; ++round) {
    const FileMemory own(kFileBytes);
    std::atomic<bool> ends{false};
    std::uint64_t stored = 0;
    std::thread program([&] {
      while (!ends) {
        for (std::size_t page = 0; page < kFileBytes; page += kPage)
          std::atomic_ref(reinterpret_cast<std::uint64_t&>(own.data()[page])).store(stored + 1);
        ++stored;
        for (std::size_t page = 0; page < kFileBytes; page += kPage)
          EXPECT_EQ(std::atomic_ref(reinterpret_cast<std::uint64_t&>(own.data()[page])).load(), stored);
      }
    });
    std::this_thread::yield();
    EXPECT_TRUE(renew_pages(own.data(), own.file()));
    std::this_thread::yield();
    ends = true;
    program.join();
    EXPECT_EQ(reinterpret_cast<std::uint64_t&>(own.data()[kFileBytes - kPage]), stored);
  }
}

TEST(RegionFile, pages_that_cannot_be_renewed_stay_as_they_are) {
  const FileMemory own(kFileBytes);
  const RegionMapping peer = mapped(own);
  const auto is_shared = [&] {
    own.data()[1] = peer.base()[1] == std::byte{3} ? std::byte{4} : std::byte{3};
    return peer.base()[1] == own.data()[1];
  };
  EXPECT_FALSE(renew_pages(own.data(), -1));
  EXPECT_FALSE(renew_pages(own.data(), memory_file(kFileBytes, 0).get())) << "of no size that stays";
  EXPECT_TRUE(is_shared());
  // Without memory, which a child alone shall lack; it has the mapping for once.
  ASSERT_EQ(::madvise(own.data(), kFileBytes, MADV_DOFORK), 0);
  TestProcess child([&own] {
    const rlimit none{kPage, kPage};
    if (::setrlimit(RLIMIT_AS, &none) != 0) return 77;
    return renew_pages(own.data(), own.file()) ? 1 : 0;
  });
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(is_shared());
}

}  // namespace
}  // namespace verbena::soft::local
