// SPDX-License-Identifier: Apache-2.0
// A process that forks while it has devices open. The child has copies of all objects; whatever it does with them, its
// parent's are not harmed.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/sanitizer.h"
#include "test_pair.h"
#include "test_process.h"
#include "verbena/messaging/receiver.h"
#include "verbena/messaging/sender.h"

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

// Pages of this process alone, where its next ones come to lie.
struct OwnPages {
  static constexpr std::size_t kPages = 2000, kBytes = 4096;
  static constexpr std::byte kContent{0x5a};
  std::vector<std::byte*> pages;

  OwnPages() {
    for (std::size_t i = 0; i < kPages; ++i) {
      void* const page = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (page == MAP_FAILED) break;
      pages.push_back(static_cast<std::byte*>(page));
      std::fill_n(pages.back(), kBytes, kContent);
    }
  }
  // Also by a call, as what is not there cannot be looked at.
  bool untouched() const {
    return std::all_of(pages.begin(), pages.end(), [](std::byte* page) {
      return ::msync(page, kBytes, MS_ASYNC) == 0 &&
             std::all_of(page, page + kBytes, [](std::byte byte) { return byte == kContent; });
    });
  }
};

TEST_P(Fork, a_child_has_for_itself_what_comes_to_lie_where_its_parent_shares_memory) {
  auto parent = std::make_unique<Parent>(GetParam());
  ASSERT_TRUE(parent->write(20));
  const std::array<std::byte, 8> bytes{};
  const std::vector<std::function<void()>> uses{
      [&] { parent.reset(); },
      [&] { parent->write(1, Duration::milliseconds(10)); },
      [&] { static_cast<void>(parent->near.try_write_now(bytes, parent->theirs.remote())); },
  };
  for (const auto& use : uses) {
    Process child([&](const auto& say) {
      const OwnPages own;
      use();
      say(own.untouched() ? "untouched" : "changed");
      std::_Exit(0);
    });
    EXPECT_EQ(child.hear(), "untouched") << &use - uses.data();
    EXPECT_EQ(child.wait(), 0);
  }
  EXPECT_TRUE(parent->write(20));
}

TEST_P(Fork, a_child_that_ends_an_inherited_listener_leaves_the_port_to_its_parent) {
  struct Server {
    explicit Server(PathChoice path) : device(must(Device::open(OpenOptions{.device = "127.0.0.77", .path = path}))) {}
    Device device;
    ProgressEngine engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(engine, {.port = 7471}));
  };
  // Before there is anything that it could inherit. It opens and listens when it is told.
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  Process other([&](const auto& say) {
    char what = 0;
    static_cast<void>(::read(go[0], &what, 1));
    Device device = must(Device::open(OpenOptions{.device = "127.0.0.77", .path = GetParam()}));
    ProgressEngine engine = must(ProgressEngine::create(device));
    const auto listener = Listener::create(engine, {.port = 7471});
    say(listener ? "listens" : listener.error().to_string());
  });
  auto server = std::make_unique<Server>(GetParam());
  Process child([&](const auto&) { server.reset(); });
  EXPECT_EQ(child.wait(), 0);
  ASSERT_EQ(::write(go[1], "", 1), 1);
  EXPECT_THAT(other.hear(), ::testing::HasSubstr("AddressInUse"));
  for (const int fd : go) ::close(fd);
}

// Whatever its parent's threads are in the middle of.
TEST_P(Fork, a_child_waits_for_no_thread_of_its_parent) {
  Process caller([&](const auto& say) {
    Device device = must(Device::open(OpenOptions{.path = PathChoice::Roce}));
    ProgressEngine engine = must(ProgressEngine::create(device));
    say("ready");
    for (;;)
      static_cast<void>(Connection::connect(engine, "127.0.0.78:7471",
                                            {.connect_timeout = Duration::microseconds(300)}));
  });
  ASSERT_EQ(caller.hear(), "ready");
  Device device = must(Device::open(OpenOptions{.device = "127.0.0.78", .path = GetParam()}));
  ProgressEngine engine = must(ProgressEngine::create(device));
  std::optional<Listener> listener = must(Listener::create(engine, {.port = 7471}));
  for (int i = 0; i < 100; ++i) {
    Process child([&](const auto&) {
      ::alarm(5);
      listener.reset();
      static_cast<void>(device.poll_event());
      std::_Exit(0);
    });
    ASSERT_EQ(child.wait(), 0) << i;
    while (listener->poll_request()) continue;
    engine.run_until([] { return false; }, Duration::microseconds(100));
  }
}

TEST_P(Fork, a_child_that_uses_an_inherited_engine_ends_no_wait_of_its_parent_sooner_or_later) {
  Device one = must(Device::open(OpenOptions{.path = GetParam()}));
  Device two = must(Device::open(OpenOptions{.path = GetParam()}));
  ProgressEngine engine = must(ProgressEngine::create(one, {WaitMode::Event}));
  must(engine.add(two));
  Process child([&](const auto& say) {
    const std::clock_t before = std::clock();
    say("waits");
    engine.run_until([] { return false; }, Duration::seconds(1));
    say(std::clock() - before < CLOCKS_PER_SEC / 5 ? "slept" : "spun");
    engine.run_until([] { return false; }, Duration::seconds(100));
  });
  ASSERT_EQ(child.hear(), "waits");
  const Instant begun = engine.now();
  engine.run_until([] { return false; }, Duration::milliseconds(2500));
  EXPECT_LT(engine.now() - begun, Duration::seconds(60));
  EXPECT_EQ(child.hear(), "slept");
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

Task<Result<void>> freed(messaging::Sender& sender) { co_return co_await sender.async_freed(99); }
Task<Result<messaging::Message>> received(messaging::Receiver& receiver) {
  co_return co_await receiver.async_receive();
}

// The memory that messages lie in is not there.
TEST_P(Fork, a_child_uses_and_ends_inherited_messaging_in_vain) {
  for (const char* const name :
       {"send-receive", "shared-receive", "direct-write", "buffered-write", "buffered-write/read",
        "buffered-write/reversed", "buffered-write/double-mapped", "shared-write", "direct-read", "buffered-read",
        "buffered-read/double-mapped"}) {
    const messaging::Options options{
        .kind = must(messaging::parse_kind(name)), .max_message_bytes = 1000, .ring_bytes = 8192};
    Device device = must(Device::open({.path = GetParam()}));
    ProgressEngine engine = must(ProgressEngine::create(device));
    auto receiver = std::make_unique<messaging::Receiver>(must(messaging::Receiver::create(engine, options)));
    Listener listener = must(Listener::create(engine));
    listener.on_request([&] { must(receiver->accept(*listener.poll_request())); });
    auto sender = std::make_unique<messaging::Sender>(
        must(messaging::Sender::connect(engine, listener.address().to_string(), options)));
    const std::vector<std::byte> bytes(900);
    must(sender->send(bytes));
    messaging::Message held = must(receiver->receive());
    auto reserved = sender->try_reserve(100);
    Process child([&](const auto& say) {
      ::alarm(30);
      bool called = false;
      sender->on_room([&] { called = true; });
      for (int i = 0; i < 5; ++i) engine.run_once();
      const bool in_vain = !receiver->try_receive() && !receiver->receive() && !sender->try_send(bytes) &&
                           !sender->try_reserve(8) && !sender->send(bytes) && !sender->wait_freed(99) &&
                           !sender->close() && !receiver->connect(listener.address().to_string()) &&
                           !engine.run(freed(*sender)) && !engine.run(received(*receiver)) && called;
      held.give_back();
      reserved.reset();
      sender.reset();
      receiver.reset();
      say(in_vain ? "in vain" : "used");
    });
    EXPECT_EQ(child.hear(), "in vain") << name;
    EXPECT_EQ(child.wait(), 0) << name;
    reserved.reset();
    held.give_back();
    must(sender->send(bytes));
    EXPECT_EQ(must(receiver->receive()).bytes().size(), bytes.size()) << name;
    must(sender->close());
  }
}

// Through which it could map the memory, and would keep it from being given back.
TEST_P(Fork, a_child_has_no_file_of_its_parents_memory) {
  auto parent = std::make_unique<Parent>(GetParam());
  const auto files = [] {
    std::size_t count = 0;
    for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(open.path(), ignored) == "/memfd:verbena (deleted)") ++count;
    }
    return std::to_string(count);
  };
  ASSERT_EQ(files() != "0", GetParam() == PathChoice::Local);
  Process child([&](const auto& say) {
    say(files());
    parent.reset();
    say(files());
  });
  EXPECT_EQ(child.hear(), "0");
  EXPECT_EQ(child.hear(), "0");
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
