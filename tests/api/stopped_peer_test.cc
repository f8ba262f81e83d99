// SPDX-License-Identifier: Apache-2.0
// A peer that is stopped, by packets and through memory: for less than its peer waits, and for longer.
#include <algorithm>
#include <cstring>

#include "base/sanitizer.h"
#include "test_process.h"

namespace verbena {
namespace {

using test::expect_error;
using test::must;
using test::opened;
using test::Process;
using test::Reception;
using ::testing::HasSubstr;

constexpr std::size_t kFilledBytes = kSanitized ? 1 << 17 : 1 << 20;

// Three periods of half a second, as a loaded machine may hold a process up for long.
ConnectionOptions hasty() {
  ConnectionOptions options;
  options.reliability.timeout = 17;
  options.reliability.retry_count = 2;
  return options;
}
ConnectionOptions forbearing() {
  ConnectionOptions options;
  options.reliability.timeout = 22;
  return options;
}

// Fills the memory it is lent with one byte after another, without end; says so when it has once.
void fill_for_ever(const std::string& address, PathChoice path, const ConnectionOptions& options,
                   const std::function<void(const std::string&)>& say) {
  Device device = opened(path, {});
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kFilledBytes));
  Connection connection = must(Connection::connect(engine, address, options));
  const RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
  for (unsigned i = 1;; i = i % 100 + 1) {
    std::memset(memory.data(), static_cast<int>(i), kFilledBytes);
    if (auto done = connection.write(memory.local(), remote).wait(); !done)
      return say(done.error().to_string());
    if (i == 1) say("filled");
  }
}

// Lends memory to one peer.
struct Lender {
  Lender(PathChoice path, Reception& reception) : device(opened(path, {})) {
    reception.say(listener.address().to_string());
    connection.emplace(must(must(listener.wait_request()).accept(options, memory.remote().to_bytes())));
    must(connection->wait_established(Duration::seconds(60)));
  }
  std::byte* data() { return static_cast<std::byte*>(memory.data()); }

  Device device;
  ConnectionOptions options = hasty();
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kFilledBytes));
  Listener listener = must(Listener::create(engine));
  std::optional<Connection> connection;
};

class StoppedPeer : public ::testing::TestWithParam<PathChoice> {};
INSTANTIATE_TEST_SUITE_P(, StoppedPeer, ::testing::Values(PathChoice::Roce, PathChoice::Local),
                         [](const auto& path) {
                           return path.param == PathChoice::Roce ? "packets" : "memory";
                         });

TEST_P(StoppedPeer, f09_given_up_it_learns_of_it_and_writes_no_byte_any_more) {
  Reception reception;
  Process writer([&](const auto& say) { fill_for_ever(reception.hear(), GetParam(), hasty(), say); });
  Lender lender(GetParam(), reception);
  ASSERT_EQ(writer.hear(), "filled");
  writer.stop();  // in the middle of anything
  expect_error(lender.connection->send(lender.memory.local()).wait(), ErrorCode::RetryExceeded,
               "the peer stopped answering");
  std::fill_n(lender.data(), kFilledBytes, std::byte{0xaa});
  writer.signal(SIGCONT);
  std::string end;
  do end = writer.hear();
  while (end == "filled");
  EXPECT_THAT(end, ::testing::AnyOf(HasSubstr("RetryExceeded"), HasSubstr("the peer closed it")));
  EXPECT_EQ(writer.wait(), 0);
  EXPECT_EQ(std::count(lender.data(), lender.data() + kFilledBytes, std::byte{0xaa}), static_cast<long>(kFilledBytes));
}

TEST_P(StoppedPeer, f09_for_less_than_it_is_waited_for_it_goes_on_as_if_nothing_had_been) {
  Reception reception;
  Process writer([&](const auto& say) { fill_for_ever(reception.hear(), GetParam(), forbearing(), say); });
  Lender lender(GetParam(), reception);
  ASSERT_EQ(writer.hear(), "filled");
  for (int i = 0; i < 3; ++i) {
    writer.stop();
    ::usleep(50'000);
    writer.signal(SIGCONT);
    ASSERT_EQ(writer.hear(), "filled") << "once round again";
  }
  EXPECT_FALSE(lender.connection->closed());
}

}  // namespace
}  // namespace verbena
