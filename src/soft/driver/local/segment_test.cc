// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>

#include "soft/driver/local/test_process.h"
#include "soft/driver/local/test_region.h"

namespace verbena::soft::local {
namespace {

constexpr std::uint64_t kSegmentBytes = 64 * 1024;

Error accept_refusal(Descriptor descriptor, std::uint64_t bytes) {
  auto segment = Segment::accept(std::move(descriptor), bytes);
  EXPECT_FALSE(segment);
  return segment ? Error{ErrorCode::Internal, ""} : segment.error();
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

TEST(Segment, both_mappings_show_the_same_bytes_and_start_as_zero) {
  auto mine = Segment::create(kSegmentBytes);
  ASSERT_TRUE(mine);
  auto theirs = Segment::accept(Descriptor(::dup(mine->descriptor())), kSegmentBytes);
  ASSERT_TRUE(theirs);
  EXPECT_EQ(mine->memory()[kSegmentBytes - 1], std::byte{0});
  mine->memory()[kSegmentBytes - 1] = std::byte{7};
  EXPECT_EQ(theirs->memory()[kSegmentBytes - 1], std::byte{7});
  mine->close_descriptor();
  EXPECT_EQ(mine->memory()[kSegmentBytes - 1], std::byte{7});
}

TEST(Segment, nobody_can_cut_it_short) {
  auto segment = Segment::create(kSegmentBytes);
  ASSERT_TRUE(segment);
  EXPECT_NE(::ftruncate(segment->descriptor(), 0), 0);
  EXPECT_NE(::ftruncate(segment->descriptor(), 2 * kSegmentBytes), 0);
  EXPECT_NE(::fcntl(segment->descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Segment, what_could_vanish_or_has_another_size_is_not_mapped) {
  EXPECT_TRUE(Segment::accept(memory_file(kSegmentBytes, kAllSeals), kSegmentBytes));
  const Error unsealed = accept_refusal(memory_file(kSegmentBytes, F_SEAL_GROW | F_SEAL_SEAL), kSegmentBytes);
  EXPECT_EQ(unsealed.code(), ErrorCode::ProtocolError);
  EXPECT_NE(unsealed.context().find("not sealed"), std::string::npos) << unsealed.to_string();
  EXPECT_EQ(accept_refusal(memory_file(kSegmentBytes, F_SEAL_SHRINK | F_SEAL_SEAL), kSegmentBytes).code(),
            ErrorCode::ProtocolError);
  EXPECT_EQ(accept_refusal(memory_file(kSegmentBytes, F_SEAL_SHRINK | F_SEAL_GROW), kSegmentBytes).code(),
            ErrorCode::ProtocolError);
  const Error shorter = accept_refusal(memory_file(kSegmentBytes / 2, kAllSeals), kSegmentBytes);
  EXPECT_EQ(shorter.code(), ErrorCode::ProtocolError);
  EXPECT_NE(shorter.context().find("it has 32768 bytes"), std::string::npos) << shorter.to_string();
  EXPECT_EQ(accept_refusal(memory_file(0, kAllSeals), 0).code(), ErrorCode::ProtocolError);
  EXPECT_FALSE(Segment::accept(memory_file(kSegmentBytes, kAllSeals | F_SEAL_WRITE), kSegmentBytes));
}

TEST(Segment, what_is_no_memory_file_is_not_mapped) {
  EXPECT_EQ(accept_refusal(std::move(socket_pair()[0]), kSegmentBytes).code(), ErrorCode::ProtocolError);
  EXPECT_EQ(accept_refusal(Descriptor(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)), kSegmentBytes).code(),
            ErrorCode::ProtocolError);
  EXPECT_EQ(accept_refusal(Descriptor(::open("/dev/zero", O_RDWR | O_CLOEXEC)), kSegmentBytes).code(),
            ErrorCode::ProtocolError);
}

TEST(Segment, the_limit_of_descriptors_is_a_clear_error) {
  TestProcess process([] {
    rlimit none{3, 3};
    ::setrlimit(RLIMIT_NOFILE, &none);
    auto segment = Segment::create(kSegmentBytes);
    return !segment && segment.error().code() == ErrorCode::ResourceExhausted ? 0 : 1;
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Segment, more_than_there_is_is_a_clear_error) {
  TestProcess process([] {
    rlimit little{1 << 20, 1 << 20};
    ::setrlimit(RLIMIT_FSIZE, &little);
    auto segment = Segment::create(2 << 20);
    return !segment && segment.error().context().find("2097152") != std::string::npos ? 0 : 1;
  });
  EXPECT_EQ(process.wait(), 0);
}

TEST(Segment, F14_a_forked_child_has_no_part_in_it) {
  auto segment = Segment::create(kSegmentBytes);
  ASSERT_TRUE(segment);
  std::byte* const memory = segment->memory().data();
  TestProcess process([memory] { return can_read(memory) ? 1 : 0; });
  EXPECT_EQ(process.wait(), 0);
  EXPECT_TRUE(can_read(memory));
}

}  // namespace
}  // namespace verbena::soft::local
