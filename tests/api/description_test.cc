// SPDX-License-Identifier: Apache-2.0
// Connections without connection management: what two ends tell each other, who may come first, and how it ends.
#include <array>
#include <cstdio>
#include <fstream>

#include "test_pair.h"

namespace verbena {
namespace {

using test::bytes_of;
using test::expect_error;
using test::must;
using test::text_of;

// Two devices of one engine, and no listener.
struct TwoDevices {
  ConnectionOptions on(Device& device) const {
    ConnectionOptions all = options;
    all.device = &device;
    return all;
  }
  Connection prepare(Device& device) { return must(Connection::prepare(engine, on(device))); }

  Device a = must(Device::open()), b = must(Device::open());
  ConnectionOptions options;
  ProgressEngine engine = must(ProgressEngine::create(a));
  Result<void> both = engine.add(b);
};

TEST(Description, two_ends_connect_through_a_file) {
  TwoDevices t;
  const std::string file = ::testing::TempDir() + "description";
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  MemoryRegion lent = must(t.b.allocate_memory(4096)), memory = must(t.a.allocate_memory(4096));
  test::fill(memory, 3);
  std::ofstream(file) << must(far.describe(lent.remote().to_bytes())).to_string() << "\n";
  std::ifstream in(file);
  std::string line{std::istreambuf_iterator<char>(in), {}};
  must(near.connect_to(must(ConnectionDescription::parse(line))));
  must(far.connect_to(must(near.describe(bytes_of("hello")))));
  EXPECT_EQ(text_of(far.private_data()), "hello");
  const RemoteMemory remote = must(RemoteMemory::from_bytes(near.private_data()));
  must(near.write(memory.local(), remote).wait());
  EXPECT_TRUE(test::same(memory, lent));
  EXPECT_EQ(must(near.fetch_and_add(must(remote.sub_range(8, 8)), 1).wait()).bytes, 8u);
  EXPECT_THAT(near.explain(), ::testing::Contains(::testing::HasSubstr("by its description")));
  must(near.close());
}

TEST(Description, what_is_sent_before_the_peer_is_up_arrives_when_it_is) {
  TwoDevices t;
  t.options.reliability.timeout = 17;  // eight periods of half a second
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  MemoryRegion inbox = must(t.b.allocate_memory(64));
  Operation receive = far.receive(inbox.local());  // at once: it knows no peer yet
  must(near.connect_to(must(far.describe())));
  Operation early = near.send_inline(bytes_of("early"));
  t.engine.run_until([&] { return early.done(); }, Duration::milliseconds(100));
  EXPECT_TRUE(early.in_flight());
  must(far.connect_to(must(near.describe())));
  must(early.wait());
  must(receive.wait());
  EXPECT_EQ(text_of(inbox.bytes()), "early");
}

TEST(Description, a_peer_that_never_comes_ends_the_retry_budget) {
  TwoDevices t;
  t.options.reliability.timeout = 8;  // a millisecond
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  must(near.connect_to(must(far.describe())));
  expect_error(near.send_inline(bytes_of("x")).wait(), ErrorCode::RetryExceeded, "127.0.0.", "queue pair");
  EXPECT_EQ(near.phase(), ConnectionPhase::Broken);
  std::array<char, 64> both;
  std::snprintf(both.data(), both.size(), "queue pair 0x%06x by our qpn 0x%06x: ", near.remote_qpn().value(),
                near.local_qpn().value());
  expect_error(near.status(), ErrorCode::RetryExceeded, both.data());
}

TEST(Description, a_connection_is_made_from_one_and_describes_itself_afterwards) {
  TwoDevices t;
  Connection near = t.prepare(t.a);
  Connection far = must(Connection::from_description(t.engine, must(near.describe()), t.on(t.b)));
  must(near.connect_to(must(far.describe())));
  MemoryRegion inbox = must(t.b.allocate_memory(64));
  Operation receive = far.receive(inbox.local());
  must(near.send_inline(bytes_of("there")).wait());
  must(receive.wait());
}

TEST(Description, closing_is_noticed_by_the_keep_alive_of_the_peer) {
  TwoDevices t;
  t.options.reliability.timeout = 8;
  t.options.connect_timeout = t.options.keep_alive = Duration::milliseconds(20);
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  must(near.connect_to(must(far.describe())));
  must(far.connect_to(must(near.describe())));
  MemoryRegion inbox = must(t.b.allocate_memory(64));
  Operation waits = far.receive(inbox.local());
  must(near.close());
  EXPECT_EQ(near.phase(), ConnectionPhase::Closed);
  EXPECT_TRUE(t.engine.run_until([&] { return far.closed(); }, Duration::seconds(30)));
  EXPECT_EQ(far.phase(), ConnectionPhase::Broken);
  expect_error(far.status(), ErrorCode::RetryExceeded, "keep-alive");
  expect_error(waits.wait(), ErrorCode::ConnectionLost);
}

TEST(Description, close_waits_until_what_was_sent_has_arrived) {
  TwoDevices t;
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  must(near.connect_to(must(far.describe())));
  must(far.connect_to(must(near.describe())));
  MemoryRegion lent = must(t.b.allocate_memory(1 << 20)), memory = must(t.a.allocate_memory(1 << 20));
  test::fill(memory, 4);
  Operation write = near.write(memory.local(), lent.remote());
  must(near.close());
  must(write.result());
  EXPECT_TRUE(test::same(memory, lent));
}

TEST(Description, is_refused_when_truncated_tampered_with_or_of_another_version) {
  TwoDevices t;
  Connection near = t.prepare(t.a);
  const ConnectionDescription whole = must(near.describe(bytes_of("user")));
  const std::vector<std::byte> bytes = whole.to_bytes();
  EXPECT_EQ(must(ConnectionDescription::from_bytes(bytes)), whole);
  EXPECT_EQ(must(ConnectionDescription::parse(" " + whole.to_string() + "\n")), whole);
  for (std::size_t n = 0; n < bytes.size(); ++n)
    expect_error(ConnectionDescription::from_bytes(std::span(bytes).first(n)), ErrorCode::InvalidArgument, "truncated");
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = bytes;
      bad[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(ConnectionDescription::from_bytes(bad)) << "byte " << i << " bit " << bit;
    }
  auto newer = bytes;
  newer[bytes.size() - 3] = std::byte{2};
  expect_error(ConnectionDescription::from_bytes(newer), ErrorCode::CorruptData, "version 2", "knows 1");
  auto damaged = bytes;
  damaged[20] ^= std::byte{1};
  expect_error(ConnectionDescription::from_bytes(damaged), ErrorCode::CorruptData, "damaged");
  expect_error(ConnectionDescription::parse("40zz"), ErrorCode::InvalidArgument, "position 2");
  expect_error(ConnectionDescription::parse("400"), ErrorCode::InvalidArgument, "position 2");
}

TEST(Description, is_refused_where_it_does_not_fit) {
  TwoDevices t;
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  expect_error(near.connect_to(must(near.describe())), ErrorCode::InvalidArgument, "of this side");
  const std::vector<std::byte> much(ConnectionDescription::kMaxUserData + 1);
  expect_error(near.describe(much), ErrorCode::InvalidArgument, "1025", "1024");
  ConnectionDescription by_hand = must(near.describe(bytes_of("user")));
  const ConnectionDescription before = by_hand;
  expect_error(by_hand.set_user_data(much), ErrorCode::InvalidArgument, "1025", "1024");
  EXPECT_EQ(by_hand, before);
  must(by_hand.set_user_data(std::span(much).first(ConnectionDescription::kMaxUserData)));
  EXPECT_EQ(must(ConnectionDescription::from_bytes(by_hand.to_bytes())), by_hand);
  ConnectionDescription six = must(far.describe());
  six.address.gid = *Gid::parse("fe80::1");
  expect_error(near.connect_to(six), ErrorCode::Unreachable, "IP version");
  const ConnectionDescription good = must(far.describe());
  must(near.connect_to(good));
  expect_error(near.connect_to(good), ErrorCode::WrongState, "used already");
  must(near.close());
  expect_error(near.describe(), ErrorCode::WrongState, "closed");
}

// One that was put together by hand: nothing was sealed that could not be.
TEST(Description, is_refused_with_a_number_that_no_queue_pair_has) {
  TwoDevices t;
  Connection near = t.prepare(t.a), far = t.prepare(t.b);
  const ConnectionDescription good = must(far.describe());
  const auto expect_refused = [&](const ConnectionDescription& bad, const char* field) {
    expect_error(ConnectionDescription::from_bytes(bad.to_bytes()), ErrorCode::CorruptData, field);
    expect_error(near.connect_to(bad), ErrorCode::InvalidArgument, field);
    expect_error(Connection::from_description(t.engine, bad, t.on(t.a)), ErrorCode::InvalidArgument, field);
  };
  for (const std::uint32_t qpn : {0u, 1u, 0xffffffu}) {
    ConnectionDescription bad = good;
    bad.address.qpn = Qpn{qpn};
    expect_refused(bad, "queue pair number");
  }
  for (const std::uint32_t mtu : {0u, 1u, 128u, 1000u, 4095u, 8192u, 0xffffffffu}) {
    ConnectionDescription bad = good;
    bad.address.mtu = mtu;
    expect_refused(bad, "MTU");
  }
  for (const char* gid : {"::", "0.0.0.0", "0.0.0.1", "0.255.255.255", "224.0.0.1", "239.255.255.255", "240.0.0.1",
                          "255.255.255.255", "ff02::1", "ff00::"}) {
    ConnectionDescription bad = good;
    bad.address.gid = must(Gid::parse(gid));
    expect_refused(bad, "GID");
  }
  must(near.connect_to(good));  // nothing has changed
}

TEST(Description, a_memory_of_the_peer_travels_as_text) {
  const RemoteMemory memory{0x7f0012345678, 4096, RKey{0xdecafbad}};
  EXPECT_EQ(must(RemoteMemory::parse(memory.to_string())), memory);
  std::string bad = memory.to_string();
  bad[3] = bad[3] == '0' ? '1' : '0';
  expect_error(RemoteMemory::parse(bad), ErrorCode::CorruptData, "damaged");
  expect_error(RemoteMemory::parse("text"), ErrorCode::InvalidArgument, "position 0");
}

TEST(Description, one_that_is_refused_changes_nothing) {
  test::Pair pair;
  Connection near = pair.connect();
  const Endpoint before = near.peer();
  ConnectionDescription other;
  other.address = {Gid::from_ipv4(127, 9, 8, 7), Qpn{77}, Psn{1}, 1024};
  expect_error(near.connect_to(other), ErrorCode::WrongState);
  EXPECT_EQ(near.peer(), before) << near.peer().to_string() << ", was " << before.to_string();
}

TEST(Description, one_that_is_refused_leaves_the_peer_of_another_that_was_taken) {
  test::Pair pair;
  Connection a = must(Connection::prepare(pair.engine)),
             b = must(Connection::prepare(pair.engine, {.device = &pair.server}));
  must(a.connect_to(must(b.describe())));
  must(b.connect_to(must(a.describe())));
  const Endpoint before = a.peer();
  ConnectionDescription other = must(b.describe());
  other.address.gid = Gid::from_ipv4(127, 9, 8, 7);
  expect_error(a.connect_to(other), ErrorCode::WrongState);
  EXPECT_EQ(a.peer(), before);
}

}  // namespace
}  // namespace verbena
