// SPDX-License-Identifier: Apache-2.0
// Memory from Verbena that processes of one host reach by themselves: one copy, whoever ends, stops or
// deregisters.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "test_process.h"

namespace verbena {
namespace {

using test::expect_error;
using test::counter;
using test::explained;
using test::kLentBytes;
using test::must;
using test::opened;
using test::Process;
using ::testing::HasSubstr;

void run_for(ProgressEngine& engine, Duration time) {
  engine.run_until([] { return false; }, time);
}

bool is_all(const MemoryRegion& memory, std::byte value) {
  return std::all_of(memory.bytes().begin(), memory.bytes().end(),
                     [value](std::byte b) { return b == value; });
}

// Lends memory of each kind to one peer after another, until that goes.
void lend(Access access, bool own, const std::function<void(const std::string&)>& say, int peers = 1,
          std::size_t size = kLentBytes) {
  Device device = opened(PathChoice::Local);
  ProgressEngine engine = must(ProgressEngine::create(device));
  std::vector<std::byte> bytes(own ? size : 0);
  MemoryRegion memory =
      own ? must(device.register_memory(bytes, access)) : must(device.allocate_memory(size, access));
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{7});
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  for (int i = 0; i < peers; ++i) {
    Connection connection = must(must(listener.wait_request()).accept({}, memory.remote().to_bytes()));
    engine.run_until([&] { return connection.closed(); }, Duration::seconds(60));
    say(std::to_string(counter(device, "served_writes")) + " " +
        std::to_string(counter(device, "served_reads")) + " " +
        std::to_string(static_cast<int>(memory.bytes()[size - 1])));
  }
}

struct Borrower {
  explicit Borrower(const std::string& address, PathChoice path = PathChoice::Local, std::size_t size = kLentBytes)
      : device(opened(path)),
        engine(must(ProgressEngine::create(device))),
        memory(must(device.allocate_memory(size))),
        connection(must(Connection::connect(engine, address))),
        remote(must(RemoteMemory::from_bytes(connection.private_data()))) {}

  Device device;
  ProgressEngine engine;
  MemoryRegion memory;
  Connection connection;
  RemoteMemory remote;
};

// Serves so many peers at once, and adds as well, by a thread of its own; says what they counted together.
void count_together(int peers, int own, const std::function<void(const std::string&)>& say) {
  Device device = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(4096));
  std::memset(memory.data(), 0, 8);
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  std::vector<Connection> connections;
  for (int i = 0; i < peers; ++i)
    connections.push_back(must(must(listener.wait_request()).accept({}, memory.remote().to_bytes())));
  std::thread adding([&] {
    std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(memory.data()));
    for (int i = 0; i < own; ++i) word.fetch_add(1);
  });
  const auto is_over = [&] {
    return std::all_of(connections.begin(), connections.end(), [](const Connection& c) { return c.closed(); });
  };
  engine.run_until(is_over, Duration::seconds(60));
  adding.join();
  std::uint64_t sum = 0;
  std::memcpy(&sum, memory.data(), 8);
  say(std::to_string(sum));
}

TEST(LocalRegions, r083_atomics_of_several_processes_and_the_processor_add_up_by_whatever_way_they_go) {
  constexpr int kPeers = 4, kAdds = 3000, kOwn = 2'000'000;
  Process server([](const auto& say) { count_together(kPeers, kOwn, say); });
  const std::string address = server.hear();
  const auto add = [&address](const auto& say) {
    Borrower client(address);
    for (int tries = 0; tries < 1000 && counter(client.device, "direct_requests") == 0; ++tries) {
      must(client.connection.read(client.memory.local(0, 8), client.remote).wait());
      run_for(client.engine, Duration::milliseconds(1));
    }
    for (int i = 0; i < kAdds; ++i) {
      Operation read;  // what follows it takes the ring
      if (i % 100 == 0) client.connection.read(read, client.memory.local(0, 8), client.remote);
      must(client.connection.fetch_and_add(client.remote, 1).wait());
    }
    say(std::to_string(counter(client.device, "direct_requests")));
    must(client.connection.close());
  };
  Process second(add), third(add);
  Process by_packets([&address](const auto& say) {
    Borrower client(address, PathChoice::Roce);
    for (int i = 0; i < kAdds; ++i) must(client.connection.fetch_and_add(client.remote, 1).wait());
    say(std::to_string(counter(client.device, "direct_requests")));
    must(client.connection.close());
  });
  add([](const std::string& direct) { EXPECT_GT(std::stoi(direct), kAdds / 2); });
  EXPECT_GT(std::stoi(second.hear()), kAdds / 2);
  EXPECT_GT(std::stoi(third.hear()), kAdds / 2);
  EXPECT_EQ(by_packets.hear(), "0");
  EXPECT_EQ(server.hear(), std::to_string(kPeers * kAdds + kOwn));
}

TEST(LocalRegions, memory_for_atomics_alone_is_reached_too) {
  Process server([](const auto& say) { lend(Access::LocalWrite | Access::RemoteAtomic, false, say); });
  {
    Borrower client(server.hear());
    for (int tries = 0; tries < 1000 && counter(client.device, "direct_requests") == 0; ++tries) {
      must(client.connection.fetch_and_add(client.remote, 0).wait());
      run_for(client.engine, Duration::milliseconds(1));
    }
    EXPECT_GT(counter(client.device, "direct_requests"), 0u);
  }
  server.hear();
}

// A request now and then, until one is not needed.
bool write_without_request(Borrower& client, std::span<const std::byte> bytes, int tries = 200) {
  for (; tries != 0; --tries) {
    if (client.connection.try_write_now(bytes, client.remote)) return true;
    const ScatterGather same = client.memory.local(0, static_cast<std::uint32_t>(bytes.size()));
    must(client.connection.write(same, client.remote).wait());
    run_for(client.engine, Duration::milliseconds(1));
  }
  return false;
}

TEST(LocalRegions, a_short_write_or_read_needs_no_request_and_no_registered_memory) {
  Process server([](const auto& say) { lend(Access::All, false, say); });
  {
    Borrower client(server.hear());
    std::array<std::byte, 64> bytes{};
    for (int i = 1; i < 100; ++i) {
      bytes.fill(static_cast<std::byte>(i));
      ASSERT_TRUE(write_without_request(client, bytes)) << i;
      must(client.connection.read(client.memory.local(0, 64), client.remote).wait());
      ASSERT_EQ(std::memcmp(client.memory.data(), bytes.data(), bytes.size()), 0) << i;
    }
    std::array<std::byte, 64> read{};
    ASSERT_TRUE(client.connection.try_read_now(read, client.remote));
    EXPECT_EQ(read, bytes);
    const RemoteMemory shorter{client.remote.address, 63, client.remote.rkey};
    EXPECT_FALSE(client.connection.try_write_now(bytes, shorter));
    EXPECT_FALSE(client.connection.try_read_now(read, shorter));
    must(client.connection.close());
    EXPECT_FALSE(client.connection.try_write_now(bytes, client.remote));
    EXPECT_FALSE(client.connection.try_read_now(read, client.remote));
  }
  server.hear();
}

TEST(LocalRegions, a_write_of_which_a_request_is_needed_says_so) {
  Process server([](const auto& say) { lend(Access::All, true, say); });
  {
    Borrower client(server.hear());
    const std::array<std::byte, 8> bytes{};
    EXPECT_FALSE(write_without_request(client, bytes, 20)) << "the memory is not Verbena's";
  }
  server.hear();
}

TEST(LocalRegions, writes_and_reads_go_straight_to_memory_from_verbena) {
  Process server([](const auto& say) { lend(Access::All, false, say); });
  {
    Borrower client(server.hear());
    for (int i = 0; i < 50; ++i) {
      std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), static_cast<std::byte>(i));
      must(client.connection.write(client.memory.local(), client.remote).wait());
      std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), std::byte{99});
      must(client.connection.read(client.memory.local(), client.remote).wait());
      ASSERT_TRUE(is_all(client.memory, static_cast<std::byte>(i)));
      run_for(client.engine, Duration::milliseconds(1));
    }
    EXPECT_THAT(explained(client.device), HasSubstr("1 region of the peer is mapped here; R_Key 0x"));
    EXPECT_THAT(explained(client.device), HasSubstr(" is mapped here, for writing too"));
    EXPECT_GT(counter(client.device, "direct_requests"), 50u);
    EXPECT_GT(counter(client.device, "direct_bytes"), 50 * kLentBytes);
    EXPECT_EQ(counter(client.device, "rdma_writes"), 50u);
    must(client.connection.close());
  }
  int writes = 0, reads = 0, last = 0;
  ASSERT_EQ(std::sscanf(server.hear().c_str(), "%d %d %d", &writes, &reads, &last), 3);
  EXPECT_LT(writes, 50) << "the owner takes no part in what goes straight";
  EXPECT_LT(reads, 50);
  EXPECT_EQ(last, 49);
  EXPECT_EQ(server.wait(), 0);
}

TEST(LocalRegions, memory_that_is_not_to_be_reached_straight_goes_by_the_ring) {
  Process server([](const auto& say) { lend(Access::All | Access::NoDirect, false, say); });
  {
    Borrower client(server.hear());
    for (int i = 0; i < 20; ++i) {
      std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), static_cast<std::byte>(i));
      must(client.connection.write(client.memory.local(), client.remote).wait());
      std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), std::byte{99});
      must(client.connection.read(client.memory.local(), client.remote).wait());
      ASSERT_TRUE(is_all(client.memory, static_cast<std::byte>(i)));
      run_for(client.engine, Duration::milliseconds(1));
    }
    EXPECT_THAT(explained(client.device), HasSubstr("0 regions of the peer are mapped here"));
    EXPECT_THAT(explained(client.device), HasSubstr(" goes by the ring: its owner does not lend it"));
    EXPECT_EQ(counter(client.device, "direct_requests"), 0u);
    must(client.connection.close());
  }
  int writes = 0, reads = 0;
  ASSERT_EQ(std::sscanf(server.hear().c_str(), "%d %d", &writes, &reads), 2);
  EXPECT_EQ(writes, 20);
  EXPECT_EQ(reads, 20);
}

std::size_t free_huge_pages() {
  std::ifstream info("/proc/meminfo");
  std::size_t count = 0;
  for (std::string word; info >> word;)
    if (word == "HugePages_Free:") info >> count;
  return count;
}

TEST(LocalRegions, huge_pages_of_the_pool_are_reached_straight_too) {
  if (free_huge_pages() < 8) GTEST_SKIP() << "fewer than 8 huge pages in the pool (vm.nr_hugepages)";
  constexpr std::size_t kHuge = 2 << 20;
  Process server([](const auto& say) { lend(Access::All, false, say, 1, kHuge); });
  {
    Borrower client(server.hear(), PathChoice::Local, kHuge);
    EXPECT_EQ(client.memory.pages(), PageKind::Huge);
    for (int i = 0; i < 20; ++i) {
      std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), static_cast<std::byte>(i));
      must(client.connection.write(client.memory.local(), client.remote).wait());
      std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), std::byte{99});
      must(client.connection.read(client.memory.local(), client.remote).wait());
      ASSERT_TRUE(is_all(client.memory, static_cast<std::byte>(i)));
      run_for(client.engine, Duration::milliseconds(1));
    }
    EXPECT_THAT(explained(client.device), HasSubstr("1 region of the peer is mapped here"));
    EXPECT_GT(counter(client.device, "direct_requests"), 10u);
    must(client.connection.close());
  }
  server.hear();
  EXPECT_EQ(server.wait(), 0);
}

TEST(LocalRegions, memory_that_may_only_be_read_is_mapped_for_reading_and_a_write_is_refused) {
  Process server([](const auto& say) { lend(Access::RemoteRead, false, say); });
  Borrower client(server.hear());
  for (int i = 0; i < 20; ++i) {
    must(client.connection.read(client.memory.local(), client.remote).wait());
    ASSERT_TRUE(is_all(client.memory, std::byte{7}));
    run_for(client.engine, Duration::milliseconds(1));
  }
  EXPECT_THAT(explained(client.device), HasSubstr(" is mapped here, for reading"));
  expect_error(client.connection.write(client.memory.local(), client.remote).wait(),
               ErrorCode::RemoteAccessError, "WRITE of 1048576 bytes");
}

TEST(LocalRegions, memory_of_the_users_own_is_read_by_one_copy_and_written_by_its_owner) {
  Process server([](const auto& say) { lend(Access::All, true, say); });
  {
    Borrower client(server.hear());
    for (int i = 0; i < 20; ++i) {
      must(client.connection.read(client.memory.local(), client.remote).wait());
      ASSERT_TRUE(is_all(client.memory, std::byte{7}));
      must(client.connection.write(client.memory.local(), client.remote).wait());
      run_for(client.engine, Duration::milliseconds(1));
    }
    EXPECT_THAT(explained(client.device), HasSubstr("0 regions of the peer are mapped here"));
    EXPECT_THAT(explained(client.device),
                HasSubstr(" is read by one copy (process_vm_readv) and written by its owner"));
    std::vector<std::byte> bytes(kLentBytes);
    EXPECT_TRUE(client.connection.try_read_now(bytes, client.remote));
    EXPECT_EQ(bytes, std::vector<std::byte>(kLentBytes, std::byte{7}));
    EXPECT_FALSE(client.connection.try_write_now(bytes, client.remote));
    std::array<Operation, 8> reads;
    std::fill(client.memory.bytes().begin(), client.memory.bytes().end(), std::byte{0});
    for (std::uint32_t i = 0; i < 8; ++i)
      client.connection.read(reads[i], client.memory.local(i * 1000, 1000), client.remote);
    for (Operation& read : reads) must(read.wait());
    for (std::size_t i = 0; i < 8000; ++i) ASSERT_EQ(client.memory.bytes()[i], std::byte{7}) << i;
    must(client.connection.close());
  }
  int writes = 0, reads = 0;
  ASSERT_EQ(std::sscanf(server.hear().c_str(), "%d %d", &writes, &reads), 2);
  EXPECT_EQ(writes, 20);
  EXPECT_LT(reads, 20) << "where the kernel lets one process read another";
}

TEST(LocalRegions, without_the_wish_for_one_copy_nothing_is_mapped) {
  Process server([](const auto& say) { lend(Access::All, false, say); });
  Device device = opened(PathChoice::Local, false);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Connection connection = must(Connection::connect(engine, server.hear()));
  const RemoteMemory remote = must(RemoteMemory::from_bytes(connection.private_data()));
  for (int i = 0; i < 10; ++i) {
    must(connection.write(memory.local(), remote).wait());
    run_for(engine, Duration::milliseconds(1));
  }
  EXPECT_EQ(counter(device, "direct_requests"), 0u);
  EXPECT_THAT(explained(device), HasSubstr("every message takes two copies, as was asked for"));
}

// Writes all the time, to one connection after another; its process id goes along.
void write_to_one_after_another(const std::string& address) {
  Device device = opened(PathChoice::Local);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0xee});
  const pid_t pid = ::getpid();
  for (;;) {
    auto connection = Connection::connect(engine, address, {}, std::as_bytes(std::span(&pid, 1)));
    if (!connection) continue;
    const RemoteMemory remote = must(RemoteMemory::from_bytes(connection->private_data()));
    Operation write;
    connection->write(write, memory.local(), remote);
    while (write.wait()) write.submit();
  }
}

bool stands_still(pid_t pid) {
  std::string path = "/proc/" + std::to_string(pid) + "/stat", text(512, '\0');
  FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return true;
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  const std::size_t end = text.rfind(')');
  return end != std::string::npos && (text[end + 2] == 'T' || text[end + 2] == 'Z');
}

// Ends each connection while the peer stands still, in whatever it was doing; until that was a copy, if anything can
// show it. Says how often its pages had to be renewed, or what was wrong.
void outlive_stopped_writers(bool deregister, const std::function<void(const std::string&)>& say) {
  using namespace std::chrono_literals;
  Device device = opened(PathChoice::Local);
  ProgressEngine engine = must(ProgressEngine::create(device));
  MemoryRegion memory = must(device.allocate_memory(kLentBytes));
  Listener listener = must(Listener::create(engine));
  say(listener.address().to_string());
  const auto goes_on = [&](int round) {
    return round < 16 || (!deregister && round < 400 && counter(device, "regions_renewed") == 0);
  };
  for (int round = 0; goes_on(round); ++round) {
    std::optional<ConnectionRequest> request(must(listener.wait_request(Duration::seconds(30))));
    pid_t pid = 0;
    std::memcpy(&pid, request->private_data().data(), sizeof pid);
    std::optional<Connection> connection(must(request->accept({}, memory.remote().to_bytes())));
    // Longer and longer, where this is not enough for the first straight copy to begin.
    run_for(engine, Duration::microseconds((4000 + 137 * (round % 16)) * (1 + round / 16)));
    ::kill(pid, SIGSTOP);
    while (!stands_still(pid)) std::this_thread::sleep_for(100us);
    if (deregister) {
      MemoryRegion other = must(device.allocate_memory(kLentBytes));
      std::swap(memory, other);
    }
    connection.reset();
    std::fill(memory.bytes().begin(), memory.bytes().end(), static_cast<std::byte>(round));
    ::kill(pid, SIGCONT);
    std::this_thread::sleep_for(2ms);
    if (!is_all(memory, static_cast<std::byte>(round)))
      return say("written after the connection ended, round " + std::to_string(round));
  }
  say(std::to_string(counter(device, "regions_renewed")));
}

TEST(LocalRegions, f16_what_ends_is_final_though_the_peer_was_stopped_in_the_middle_of_a_copy) {
  for (const bool deregister : {false, true}) {
    Process owner([deregister](const auto& say) { outlive_stopped_writers(deregister, say); });
    const std::string address = owner.hear();
    Process writer([address](const auto&) { write_to_one_after_another(address); });
    const std::string said = owner.hear();
    EXPECT_THAT(said, ::testing::MatchesRegex("[0-9]+"));
    if (!deregister) {
      EXPECT_GT(std::atoi(said.c_str()), 0) << "no stop met a copy";
    }
    EXPECT_EQ(owner.wait(), 0);
  }
}

}  // namespace
}  // namespace verbena
