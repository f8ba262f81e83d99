// SPDX-License-Identifier: Apache-2.0
// Two processes of one host: shared memory instead of packets, seen by explain() alone; and who gets packets after all.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "test_process.h"

namespace verbena {
namespace {

using test::expect_error;
using test::explained;
using test::kLentBytes;
using test::must;
using test::opened;
using test::Process;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kShared = ": shared memory with local peer";

// So long that no end in these tests is one of patience.
ConnectionOptions for_ever() {
  ConnectionOptions options;
  options.reliability.timeout = 24;
  return options;
}

// Gives one peer after another memory, and answers what it sends until it goes; each time says what went before.
void serve_echoes(PathChoice path, const std::function<void(const std::string&)>& say, int peers = 1) {
  Device device = opened(path);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  MemoryRegion text = must(device.allocate_memory(64));
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  for (int i = 0; i < peers; ++i) {
    ConnectionRequest request = must(listener.wait_request());
    const auto key = memory.remote().to_bytes();
    Connection connection = must(request.accept(for_ever(), key));
    must(connection.wait_established());
    while (connection.receive(text.local()).wait() && connection.send(text.local()).wait()) continue;
    say(connection.status().error().to_string());
  }
}

struct EchoClient {
  EchoClient(const std::string& address, PathChoice path, const ConnectionOptions& options = for_ever())
      : device(opened(path)), connection(must(Connection::connect(engine, address, options))) {}
  std::string echo(std::string_view words) {
    std::memcpy(text.data(), words.data(), words.size());
    Operation answer = connection.receive(heard.local());
    must(connection.send(text.local()).wait());
    must(answer.wait());
    return test::text_of(heard.bytes());
  }

  Device device;
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  MemoryRegion other = must(device.allocate_memory(kLentBytes));
  MemoryRegion text = must(device.allocate_memory(64));
  MemoryRegion heard = must(device.allocate_memory(64));
  Connection connection;
  RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
};

TEST(LocalPath, every_operation_crosses_shared_memory) {
  Process server([](const auto& say) { serve_echoes(PathChoice::Auto, say); });
  {
    EchoClient client(server.hear(), PathChoice::Auto);
    EXPECT_THAT(explained(client.device), HasSubstr(kShared));
    EXPECT_THAT(client.connection.explain(), Contains(StartsWith("path: shared memory with ")));
    EXPECT_EQ(client.echo("there and back"), "there and back");
    test::fill(client.memory, 7);
    must(client.connection.write(client.memory.local(), client.remote).wait());
    must(client.connection.read(client.other.local(), client.remote).wait());
    EXPECT_TRUE(test::same(client.memory, client.other));
    std::uint64_t first = 0;
    std::memcpy(&first, client.memory.data(), sizeof first);
    RemoteMemory word = client.remote;
    word.length = 8;
    EXPECT_EQ(must(client.connection.fetch_and_add(word, 5).wait()).value, first);
    EXPECT_EQ(must(client.connection.compare_and_swap(word, first + 5, 1).wait()).value, first + 5);
    EXPECT_EQ(must(client.connection.fetch_and_add(word, 0).wait()).value, 1u);
    must(client.connection.close());
  }
  EXPECT_THAT(server.hear(), HasSubstr("the peer closed it"));
  EXPECT_EQ(server.wait(), 0);
}

TEST(LocalPath, packets_go_when_either_end_wants_them) {
  for (const auto& [there, here] : {std::pair{PathChoice::Roce, PathChoice::Auto},
                                    std::pair{PathChoice::Auto, PathChoice::Roce}}) {
    const PathChoice path = there;
    Process server([path](const auto& say) { serve_echoes(path, say); });
    EchoClient client(server.hear(), here);
    EXPECT_THAT(explained(client.device), ::testing::Not(HasSubstr(kShared)));
    EXPECT_THAT(explained(client.device), here == PathChoice::Auto
                                              ? HasSubstr("RoCE, because nobody offers shared memory")
                                              : HasSubstr("path=roce was asked for"));
    EXPECT_THAT(client.connection.explain(), Contains(StartsWith("path: RoCE, because ")));
    EXPECT_EQ(client.echo("by packets"), "by packets");
  }
}

TEST(LocalPath, a_peer_that_is_killed_is_noticed_at_once) {
  Process server([](const auto& say) { serve_echoes(PathChoice::Auto, say); });
  EchoClient client(server.hear(), PathChoice::Local);
  EXPECT_EQ(client.echo("alive"), "alive");
  Operation write;
  int rounds = 0;
  write.on_done([&](Operation& self) {
    if (++rounds == 3) server.signal(SIGKILL);
    if (self.result()) self.submit();
  });
  client.connection.write(write, client.memory.local(), client.remote);
  // The periods of its reliability take minutes.
  EXPECT_TRUE(client.engine.run_until([&] { return write.done(); }, Duration::seconds(60)));
  expect_error(write.result(), ErrorCode::RetryExceeded, "WRITE of 1048576 bytes to 127.0.0.",
               "the peer stopped answering (its process ended");
  EXPECT_EQ(server.wait(), -SIGKILL);
}

TEST(LocalPath, a_peer_that_is_killed_is_noticed_by_who_only_receives_and_keeps_nobody_alive) {
  Process server([](const auto& say) { serve_echoes(PathChoice::Auto, say); });
  ConnectionOptions silent = for_ever();
  silent.keep_alive = Duration{};
  EchoClient client(server.hear(), PathChoice::Local, silent);
  EXPECT_EQ(client.echo("alive"), "alive");
  Operation receive;
  client.connection.receive(receive, client.text.local());
  client.engine.run_until([] { return false; }, Duration::milliseconds(20));
  server.signal(SIGKILL);
  EXPECT_TRUE(client.engine.run_until([&] { return receive.done(); }, Duration::seconds(60)));
  expect_error(receive.result(), ErrorCode::ConnectionLost, "the peer stopped answering (its process ended");
  EXPECT_EQ(server.wait(), -SIGKILL);
}

// The device's thread, which slept, hears of it while the program has just polled, and leaves it to that.
TEST(LocalPath, a_peer_that_is_killed_is_noticed_by_who_goes_to_sleep_then) {
  ConnectionOptions silent = for_ever();
  silent.keep_alive = Duration{};
  for (int round = 0; round < 24; ++round) {
    Process server([](const auto& say) { serve_echoes(PathChoice::Auto, say); });
    EchoClient client(server.hear(), PathChoice::Local, silent);
    EXPECT_EQ(client.echo("alive"), "alive");
    Device& device = client.device;
    const auto pass = [&](Duration time) {
      for (const Instant end = device.now() + time; device.now() < end;) continue;
    };
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    server.signal(SIGKILL);
    pass(Duration::microseconds(100 * round));
    device.progress();
    pass(Duration::microseconds(180));
    const Instant end = device.now() + Duration::seconds(20);
    bool noticed = false;
    while (!noticed && device.now() < end) {
      device.wait_event(end);
      while (const auto event = device.poll_event())
        noticed = noticed || event->async == AsyncEventType::PeerEnded;
    }
    ASSERT_TRUE(noticed) << round;
    EXPECT_EQ(server.wait(), -SIGKILL);
  }
}

// A pipe that a child of a child waits for, so that it goes with the test.
struct Leash {
  Leash() { EXPECT_EQ(::pipe(ends), 0); }
  ~Leash() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  void wait_for_end() {
    char byte;
    ::close(ends[1]);
    while (::read(ends[0], &byte, 1) > 0) continue;
  }
  int ends[2];
};

TEST(LocalPath, a_peer_that_is_killed_is_noticed_while_a_child_of_it_lives_on) {
  Leash leash;
  Process server([&leash](const auto& say) {
    Device device = opened(PathChoice::Local);
    ProgressEngine engine = must(ProgressEngine::create(device));
    Listener listener = must(Listener::create(engine));
    say(listener.address().to_string());
    MemoryRegion memory = must(device.allocate_memory(8));
    ConnectionRequest request = must(listener.wait_request());
    const auto key = memory.remote().to_bytes();
    Connection connection = must(request.accept(for_ever(), key));
    must(connection.wait_established());
    if (::fork() == 0) {
      leash.wait_for_end();
      ::_exit(0);
    }
    ::close(leash.ends[1]);
    say("forked");
    ::pause();
  });
  EchoClient client(server.hear(), PathChoice::Local);
  EXPECT_EQ(server.hear(), "forked");
  server.signal(SIGKILL);
  server.wait();
  Operation message = client.connection.send(client.text.local());
  EXPECT_TRUE(client.engine.run_until([&] { return message.done(); }, Duration::seconds(60)));
  expect_error(message.result(), ErrorCode::RetryExceeded, "its process ended");
}

TEST(LocalPath, a_peer_that_is_killed_is_followed_by_another) {
  std::optional<EchoClient> client;
  Process server([](const auto& say) { serve_echoes(PathChoice::Auto, say, 2); });
  const std::string address = server.hear();
  {
    Process first([address](const auto& say) {
      EchoClient one(address, PathChoice::Local);
      say(one.echo("first"));
      ::pause();
    });
    EXPECT_EQ(first.hear(), "first");
    first.signal(SIGKILL);
    first.wait();
  }
  client.emplace(address, PathChoice::Local);
  EXPECT_FALSE(server.hear().empty());
  EXPECT_EQ(client->echo("second"), "second");
}

// ---- Large messages.

constexpr std::uint32_t kLarge = 64 << 20;
constexpr const char* kOneCopy = "large messages from it take one copy, large ones to it one";
constexpr const char* kRefused = "process_vm_readv says";

// Sends back what it gets, and serves its memory.
void echo_large(bool pull, const std::function<void(const std::string&)>& say) {
  Device device = opened(PathChoice::Local, pull);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLarge)), echo = must(device.allocate_memory(kLarge));
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  ConnectionRequest request = must(listener.wait_request());
  const auto key = memory.remote().to_bytes();
  Connection connection = must(request.accept(for_ever(), key));
  must(connection.wait_established());
  for (;;) {
    const auto received = connection.receive(echo.local()).wait();
    if (!received || !connection.send(echo.local(0, received->bytes)).wait()) return;
  }
}

TEST(LocalPath, large_messages_arrive_whole_by_one_copy_and_by_two) {
  for (const auto& [there, here] : {std::pair{true, true}, std::pair{true, false}, std::pair{false, true}}) {
    const bool pull = there;
    Process server([pull](const auto& say) { echo_large(pull, say); });
    const std::string address = server.hear();
    Device device = opened(PathChoice::Local, here);
    ProgressEngine engine = must(ProgressEngine::create(device));
    Connection connection = must(Connection::connect(engine, address, for_ever()));
    const RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
    MemoryRegion from = must(device.allocate_memory(kLarge)), to = must(device.allocate_memory(kLarge));
    test::fill(from, 3);
    const std::string text = explained(device);
    const bool refused = text.find(kRefused) != std::string::npos;
    EXPECT_EQ(text.find(kOneCopy) != std::string::npos, there && here && !refused) << text;
    constexpr std::uint32_t kMostBySmallRecords = (1 << 20) + 13;
    for (const std::uint32_t bytes : {64u << 10, kMostBySmallRecords, kLarge}) {
      if (bytes > kMostBySmallRecords && !(there && here)) break;
      std::memset(to.data(), 0, bytes);
      Operation answer = connection.receive(to.local());
      must(connection.send(from.local(0, bytes)).wait());
      EXPECT_EQ(must(answer.wait()).bytes, bytes);
      EXPECT_EQ(std::memcmp(from.data(), to.data(), bytes), 0) << bytes;
      if (bytes > kMostBySmallRecords) continue;
      std::memset(to.data(), 0, bytes);
      must(connection.write(from.local(0, bytes), remote).wait());
      must(connection.read(to.local(0, bytes), remote).wait());
      EXPECT_EQ(std::memcmp(from.data(), to.data(), bytes), 0) << bytes;
    }
    must(connection.close());
    EXPECT_EQ(server.wait(), 0);
  }
}

// Sends large messages, each of one word again and again, as long as it lives.
void pour(const std::function<void(const std::string&)>& say) {
  Device device = opened(PathChoice::Local);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLarge));
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  ConnectionRequest request = must(listener.wait_request());
  Connection connection = must(request.accept(for_ever()));
  must(connection.wait_established());
  const std::span words{reinterpret_cast<std::uint64_t*>(memory.data()), kLarge / 8};
  for (std::uint64_t value = 1;; ++value) {
    std::ranges::fill(words, value);
    if (!connection.send(memory.local()).wait()) return;
  }
}

TEST(LocalPath, a_sender_that_is_killed_within_a_large_message_leaves_whole_messages_alone) {
  for (const int milliseconds : {0, 4, 11, 40}) {
    Process server(pour);
    const std::string address = server.hear();
    Device device = opened(PathChoice::Local);
    ProgressEngine engine = must(ProgressEngine::create(device));
    Connection connection = must(Connection::connect(engine, address, for_ever()));
    MemoryRegion to = must(device.allocate_memory(kLarge));
    const std::span words{reinterpret_cast<const std::uint64_t*>(to.data()), kLarge / 8};
    bool killed = false;
    for (std::uint64_t value = 1;; ++value) {
      Operation message = connection.receive(to.local());
      if (value == 2) {
        engine.run_until([&] { return message.done(); }, Duration::milliseconds(milliseconds));
        server.signal(SIGKILL);
        killed = true;
      }
      if (!message.wait()) break;
      ASSERT_EQ(std::ranges::count(words, value), static_cast<std::ptrdiff_t>(words.size())) << value;
    }
    EXPECT_TRUE(killed);
    EXPECT_EQ(server.wait(), -SIGKILL);
  }
}

// ---- Many at once.

constexpr int kMany = 1000;

// A connection whose ends seldom sleep takes one descriptor in each of its two processes; a quarter of what one may
// have is left to the program.
bool may_have_many() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= kMany * 4 / 3 + 100;
}

ConnectionOptions small() {
  ConnectionOptions options = for_ever();
  options.queues.max_send_requests = options.queues.max_receive_requests = 4;
  return options;
}

std::uint64_t shared_kib() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::uint64_t kib = 0; word == "RssShmem:" && status >> kib) return kib;
  return 0;
}

// Sends back what comes, on each of its connections, until it is killed.
void echo_many(const std::function<void(const std::string&)>& say) {
  Device device = opened(PathChoice::Auto);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kMany * 8));
  Listener listener = must(Listener::create(engine));
  std::vector<Connection> connections;
  std::vector<Operation> receives(kMany), sends(kMany);
  listener.on_request([&] {
    const std::size_t i = connections.size();
    connections.push_back(must(listener.poll_request()->accept(small())));
    receives[i].on_done([&, i](Operation& self) {
      if (!self.result()) return;
      connections[i].send(sends[i], memory.local(i * 8, 8));
      self.submit();
    });
    connections[i].receive(receives[i], memory.local(i * 8, 8));
  });
  say(listener.address().to_string());
  engine.run_until([] { return false; });
}

TEST(LocalPath, a_thousand_connections_of_a_process_pass_traffic) {
  if (!may_have_many()) GTEST_SKIP() << "a process may not have descriptors enough here: raise ulimit -Hn";
  Process server(echo_many);
  const std::string address = server.hear();
  const std::uint64_t before = shared_kib();
  Device device = opened(PathChoice::Auto);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kMany * 16));
  const std::span words{reinterpret_cast<std::uint64_t*>(memory.data()), kMany * 2};
  std::vector<Connection> connections;
  for (int i = 0; i < kMany; ++i) connections.push_back(must(Connection::connect(engine, address, small())));
  std::vector<Operation> sends(kMany), receives(kMany);
  // All at once; then, after a while without use, some alone.
  for (const int step : {1, 1, 97}) {
    for (std::size_t i = 0; i < kMany; i += static_cast<std::size_t>(step)) {
      words[i] = i + 7u * static_cast<std::size_t>(step);
      connections[i].receive(receives[i], memory.local((kMany + i) * 8, 8));
      connections[i].send(sends[i], memory.local(i * 8, 8));
      if (step != 1) must(receives[i].wait());
    }
    for (std::size_t i = 0; i < kMany; i += static_cast<std::size_t>(step)) {
      must(receives[i].wait());
      EXPECT_EQ(words[kMany + i], words[i]);
    }
    engine.run_until([] { return false; }, Duration::milliseconds(20));
  }
  EXPECT_THAT(explained(device), HasSubstr("connections that share memory: 1000, by RoCE: 0"));
  const std::uint64_t shared = shared_kib() - before;
  EXPECT_GT(shared, 0u);
  EXPECT_LE(shared, kMany * 256u) << "KiB for all connections";
}

// ---- By hand: GID and QPN alone.

struct Hand {
  explicit Hand(PathChoice path, std::optional<bool> pull = true) : device(opened(path, pull)) {}
  void drive(Hand& other) {
    device.progress();
    other.device.progress();
  }
  Device device;
  CompletionQueue queue = must(device.create_completion_queue(16));
  MemoryRegion memory = must(device.allocate_memory(64));
  QueuePair pair = must(device.create_queue_pair(queue));
};

TEST(LocalPath, memory_alone_is_refused_by_an_error_that_says_so) {
  Hand a(PathChoice::Local), b(PathChoice::Roce);
  expect_error(a.pair.connect(b.pair.address()), ErrorCode::NotSupported, "no shared memory with", "path=local");
  EXPECT_EQ(a.pair.state(), QueuePairState::Error);
}

TEST(LocalPath, queue_pairs_that_are_connected_by_hand_find_each_other) {
  Hand a(PathChoice::Auto), b(PathChoice::Auto);
  must(a.pair.connect(b.pair.address()));
  must(b.pair.connect(a.pair.address()));
  const ScatterGather from = a.memory.local(), to = b.memory.local();
  EXPECT_EQ(b.pair.post_receive({.id = 1, .local = {&to, 1}}).posted, 1u);
  std::memcpy(a.memory.data(), "by hand", 8);
  SendRequest request;
  request.local = {&from, 1};
  EXPECT_EQ(a.pair.post_send(request).posted, 1u);
  std::array<Completion, 4> some;
  std::size_t received = 0, sent = 0;
  while (received == 0 || sent == 0) {
    a.drive(b);
    received += b.queue.poll(some);
    sent += a.queue.poll(some);
  }
  EXPECT_EQ(test::text_of(b.memory.bytes()), "by hand");
  EXPECT_THAT(explained(a.device), HasSubstr(kShared));
  EXPECT_THAT(explained(b.device), HasSubstr(kShared));
}

TEST(LocalPath, the_environment_chooses_where_the_program_does_not) {
  const char* const outside = std::getenv("VERBENA_PATH");
  const std::string before = outside == nullptr ? "" : outside;
  ASSERT_EQ(::setenv("VERBENA_PATH", "auto", 1), 0);
  EXPECT_THAT(explained(must(Device::open())), HasSubstr("offers it as @verbena/"));
  EXPECT_THAT(explained(opened(PathChoice::Roce)), HasSubstr("path=roce was asked for"));
  ASSERT_EQ(::setenv("VERBENA_PATH", "bus", 1), 0);
  expect_error(Device::open(), ErrorCode::InvalidArgument, "VERBENA_PATH is 'bus'", "auto, roce or local");
  ::setenv("VERBENA_PATH", before.c_str(), 1);  // empty is as not set
}

TEST(LocalPath, the_environment_forbids_to_copy_once) {
  ASSERT_EQ(::setenv("VERBENA_LOCAL_COPY", "staged", 1), 0);
  {
    Hand a(PathChoice::Local, std::nullopt), b(PathChoice::Local);
    must(a.pair.connect(b.pair.address()));
    must(b.pair.connect(a.pair.address()));
    const auto shares = [](Device& device) { return explained(device).find(kShared) != std::string::npos; };
    while (!shares(a.device) || !shares(b.device)) a.drive(b);
    EXPECT_THAT(explained(a.device), HasSubstr("every message takes two copies, as was asked for"));
    EXPECT_THAT(explained(b.device), HasSubstr("take two copies, because the peer lets nobody read its memory"));
  }
  ASSERT_EQ(::setenv("VERBENA_LOCAL_COPY", "twice", 1), 0);
  expect_error(Device::open(), ErrorCode::InvalidArgument, "VERBENA_LOCAL_COPY is 'twice'", "auto or staged");
  ::unsetenv("VERBENA_LOCAL_COPY");
}

TEST(LocalPath, a_folder_to_meet_in_is_of_the_program_or_else_of_the_environment) {
  const std::string path = ::testing::TempDir();
  ASSERT_EQ(::setenv("VERBENA_LOCAL_DIR", (path + "/missing").c_str(), 1), 0);
  expect_error(Device::open(), ErrorCode::InvalidArgument, "VERBENA_LOCAL_DIR", "/missing is not there: make");
  EXPECT_THAT(explained(opened(PathChoice::Roce)), HasSubstr("path=roce was asked for")) << "it is not looked at";
  EXPECT_THAT(explained(must(Device::open(OpenOptions{.local_dir = path}))),
              HasSubstr("is not offered to other networks in the folder " + path));
  EXPECT_THAT(explained(must(Device::open(OpenOptions{.local_dir = ""}))), ::testing::Not(HasSubstr("folder")));
  ::unsetenv("VERBENA_LOCAL_DIR");
  EXPECT_THAT(explained(must(Device::open())), ::testing::Not(HasSubstr("folder")));
}

TEST(LocalPath, other_users_are_of_the_program_or_else_of_the_environment) {
  ASSERT_EQ(::setenv("VERBENA_LOCAL_USERS", "4242,17", 1), 0);
  EXPECT_THAT(explained(must(Device::open())), HasSubstr("and by two copies of user 4242, 17"));
  EXPECT_THAT(explained(must(Device::open(OpenOptions{.local_users = {{3}}}))), HasSubstr("by two copies of user 3;"));
  EXPECT_THAT(explained(must(Device::open(OpenOptions{.local_users = {{}}}))),
              ::testing::Not(HasSubstr("two copies of user")));
  for (const char* list : {"alice", "1,", ",1", "1,,2", "-1", "1 2", "4294967296"}) {
    ASSERT_EQ(::setenv("VERBENA_LOCAL_USERS", list, 1), 0);
    expect_error(Device::open(), ErrorCode::InvalidArgument, "VERBENA_LOCAL_USERS is '", list, "numbers of users");
  }
  ::unsetenv("VERBENA_LOCAL_USERS");
  EXPECT_THAT(explained(must(Device::open())), ::testing::Not(HasSubstr("two copies of user")));
}

}  // namespace
}  // namespace verbena
