// SPDX-License-Identifier: Apache-2.0
// Programs of two users on one host, each at an address of its own; whom an address is shared with.
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>

#include "base/sanitizer.h"
#include "soft/driver/test_other_user.h"
#include "test_pair.h"

namespace verbena {
namespace {

using test::explained;
using test::must;
using ::testing::HasSubstr;

constexpr std::size_t kWrittenBytes = 1'000'000;

// What another user's program says that connected, wrote, and read again what it wrote.
std::string write_and_read(const std::string& server, uid_t user_that_serves, std::size_t bytes) {
  Device device = must(Device::open({.path = PathChoice::Local, .local_users = {{user_that_serves}}}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  auto connection = Connection::connect(engine, server);
  if (!connection) return connection.error().to_string();
  MemoryRegion out = must(device.allocate_memory(bytes)), in = must(device.allocate_memory(bytes));
  test::fill(out, 7);
  const RemoteMemory there = must(RemoteMemory::from_bytes(connection->private_data()));
  if (const auto written = connection->write(out.local(), there).wait(); !written)
    return written.error().to_string();
  if (const auto read = connection->read(in.local(), there).wait(); !read) return read.error().to_string();
  return std::string(test::same(out, in) ? "well; " : "other bytes; ") + explained(*connection);
}

TEST(OtherUser, who_is_named_and_names_us_shares_memory_by_two_copies) {
  if constexpr (kSanitized) GTEST_SKIP() << "a process with threads is forked";
  auto opened = Device::open({.path = PathChoice::Local, .local_users = {{soft::kOtherUser}}});
  if (!opened && opened.error().code() == ErrorCode::InvalidArgument) GTEST_SKIP() << soft::kNoOtherUser;
  Device device = must(std::move(opened));
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kWrittenBytes));
  Listener listener = must(Listener::create(engine));
  std::optional<Connection> far;
  listener.on_request([&] {
    auto request = listener.poll_request();
    if (request) far.emplace(must(request->accept({}, memory.remote().to_bytes())));
  });
  std::string words;
  const auto said = soft::said_by_another_user(
      [&, where = listener.address().to_string(), own = ::geteuid()] {
        return write_and_read(where, own, kWrittenBytes);
      },
      [&] {
        engine.run_once();
        if (far && far->phase() == ConnectionPhase::Established) words = explained(*far);
      });
  if (!said) GTEST_SKIP() << soft::kNoOtherUser;
  EXPECT_THAT(*said, HasSubstr("well; "));
  EXPECT_THAT(*said, HasSubstr("shared memory with local peer (process " + std::to_string(::getpid())));
  EXPECT_THAT(*said, HasSubstr("two copies, since it is of another user"));
  EXPECT_THAT(words, HasSubstr("two copies, since it is of another user"));
}

// "ResourceExhausted, ResourceExhausted, open": with ever more threads, what comes of opening a device, and whether it
// left a file though it did not open.
std::string opened_with_ever_more_threads() {
  std::string folder = (std::filesystem::temp_directory_path() / "verbena-XXXXXX").string(), words;
  if (::mkdtemp(folder.data()) == nullptr) return "no folder";
  ::setenv("VERBENA_COUNTERS", folder.c_str(), 1);
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  for (limit.rlim_cur = 1; limit.rlim_cur < 1'000 && !words.ends_with("open"); ++limit.rlim_cur) {
    ::setrlimit(RLIMIT_NPROC, &limit);
    const auto device = Device::open();
    words += (words.empty() ? "" : ", ") + (device ? "open" : std::string(to_string(device.error().code())));
    if (!device && !std::filesystem::is_empty(folder)) words += " and a file";
  }
  std::filesystem::remove_all(folder);
  return words;
}

TEST(OtherUser, who_may_not_have_the_threads_of_a_device_is_told_so_and_left_no_counters) {
  if constexpr (kSanitized) GTEST_SKIP() << "a sanitizer has threads of its own";
  const auto said = soft::said_by_another_user(opened_with_ever_more_threads);
  if (!said) GTEST_SKIP() << soft::kNoOtherUser;
  EXPECT_THAT(*said, ::testing::MatchesRegex("(ResourceExhausted, )+open"));
}

TEST(AddressUsers, are_of_the_program_or_else_of_the_environment) {
  const auto explained = [](const OpenOptions& options = {}) {
    std::string text;
    for (const std::string& line : must(Device::open(options)).explain()) text += line + "\n";
    return text;
  };
  const std::uint32_t own = ::geteuid();
  const std::string next = std::to_string(own + 1), last = std::to_string(own + 2);
  ASSERT_EQ(::setenv("VERBENA_ADDRESS_USERS", (last + "," + next).c_str(), 1), 0);
  EXPECT_THAT(explained(), HasSubstr("processes of users " + std::to_string(own) + ", " + next + ", " + last + " may"));
  EXPECT_THAT(explained({.address_users = {{own + 1}}}),
              HasSubstr("processes of users " + std::to_string(own) + ", " + next + " may come"));
  EXPECT_THAT(explained({.address_users = {{}}}), HasSubstr("processes of this user may come"));
  for (const char* list : {"alice", "1,", "-1", "4294967296"}) {
    ASSERT_EQ(::setenv("VERBENA_ADDRESS_USERS", list, 1), 0);
    test::expect_error(Device::open(), ErrorCode::InvalidArgument, "VERBENA_ADDRESS_USERS is '", list,
                       "numbers of users");
  }
  ::unsetenv("VERBENA_ADDRESS_USERS");
  EXPECT_THAT(explained(), HasSubstr("processes of this user may come"));
}

}  // namespace
}  // namespace verbena
