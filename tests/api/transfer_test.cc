// SPDX-License-Identifier: Apache-2.0
// Everything that moves bytes, between two devices over UDP on the loopback network.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "test_pair.h"

namespace verbena {
namespace {

using test::fill;
using test::must;
using test::Pair;
using test::same;

TEST(Transfer, sends_a_message_into_the_receive_that_waits) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion out = must(pair.client.allocate_memory(5000));
  MemoryRegion in = must(pair.server.allocate_memory(5000));
  fill(out, 1);
  Operation receive = pair.far_end().receive(in.local());
  Operation send = near.send(out.local());
  EXPECT_EQ(must(send.wait()).bytes, 5000u);
  const OperationOutcome got = must(receive.wait());
  EXPECT_EQ(got.bytes, 5000u);
  EXPECT_EQ(got.kind, CompletionOpcode::Receive);
  EXPECT_FALSE(got.immediate);
  EXPECT_TRUE(same(in, out));
}

TEST(Transfer, sends_small_bytes_inline_and_carries_immediates) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion in = must(pair.server.allocate_memory(64));
  Operation receive = pair.far_end().receive(in.local());
  must(near.send_inline(test::bytes_of("hello")).wait());
  EXPECT_EQ(must(receive.wait()).bytes, 5u);
  EXPECT_EQ(test::text_of(in.bytes()), "hello");

  Operation again = pair.far_end().receive(in.local());
  must(near.send_with_immediate(Segments{}, 0xdecafbad).wait());
  EXPECT_EQ(must(again.wait()).immediate, 0xdecafbadu);
}

TEST(Transfer, an_operation_that_failed_says_why_until_it_is_started_again) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(64));
  MemoryRegion there = must(pair.server.allocate_memory(64));
  Operation operation;
  RemoteMemory little = there.remote();
  little.length = 8;
  const auto outcome = near.write(operation, here.local(), little).wait();
  ASSERT_NE(operation.error(), nullptr);
  EXPECT_EQ(operation.error()->code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(operation.error()->to_string(), outcome.error().to_string());
  must(near.write(operation, here.local(), there.remote()).wait());
  EXPECT_EQ(operation.error(), nullptr);
}

// An operation is used for another request than before: nothing of that one is left.
TEST(Transfer, one_operation_makes_every_kind_of_request_in_turn) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(64));
  MemoryRegion there = must(pair.server.allocate_memory(64));
  const auto word = [](const MemoryRegion& region) {
    std::uint64_t value;
    std::memcpy(&value, region.bytes().data(), sizeof value);
    return value;
  };
  fill(here, 1);
  fill(there, 2);
  const std::uint64_t before = word(there);
  Operation operation;
  EXPECT_EQ(must(near.fetch_and_add(operation, there.remote(), 5).wait()).value, before);
  EXPECT_EQ(word(there), before + 5);
  EXPECT_EQ(must(near.write(operation, here.local(), there.remote()).wait()).bytes, 64u);
  EXPECT_EQ(word(there), word(here));
  Operation receive = pair.far_end().receive(there.local());
  const ScatterGather whole = here.local();
  const std::vector<ScatterGather> parts{{whole.address, 8, whole.lkey}, {whole.address + 8, 4, whole.lkey}};
  EXPECT_EQ(must(near.send(operation, parts).wait()).bytes, 12u);
  EXPECT_EQ(must(receive.wait()).bytes, 12u);
  Operation again = pair.far_end().receive(there.local());
  EXPECT_EQ(must(near.send(operation, Segments{}).wait()).bytes, 0u);
  const OperationOutcome got = must(again.wait());
  EXPECT_EQ(got.bytes, 0u);
  EXPECT_FALSE(got.immediate);
  EXPECT_EQ(must(near.read(operation, here.local(), there.remote()).wait()).bytes, 64u);
  EXPECT_EQ(must(near.compare_and_swap(operation, there.remote(), word(there), 9).wait()).bytes, 8u);
  EXPECT_EQ(word(there), 9u);
}

TEST(Transfer, writes_and_reads_a_megabyte) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(1 << 20));
  MemoryRegion there = must(pair.server.allocate_memory(1 << 20));
  fill(here, 2);
  must(near.write(here.local(), there.remote()).wait());
  EXPECT_TRUE(same(here, there));
  fill(there, 3);
  EXPECT_EQ(must(near.read(here.local(), there.remote()).wait()).bytes, 1u << 20);
  EXPECT_TRUE(same(here, there));
}

TEST(Transfer, gathers_segments_and_writes_sub_ranges) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(3000));
  MemoryRegion there = must(pair.server.allocate_memory(4000));
  fill(here, 4);
  const RemoteMemory target = must(there.remote(500, 3000));
  must(near.write({here.local(2000, 1000), here.local(0, 1000), here.local(1000, 1000)}, target).wait());
  EXPECT_EQ(std::memcmp(there.data() + 500, here.data() + 2000, 1000), 0);
  EXPECT_EQ(std::memcmp(there.data() + 1500, here.data(), 2000), 0);
  EXPECT_EQ(there.bytes()[499], std::byte{0});
  EXPECT_EQ(there.bytes()[3500], std::byte{0});
}

TEST(Transfer, a_write_with_immediate_finishes_a_receive) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(20000));
  MemoryRegion there = must(pair.server.allocate_memory(20000));
  fill(here, 5);
  Operation receive = pair.far_end().receive(Segments{});
  Operation write = near.write_with_immediate(here.local(), there.remote(), 7);
  const OperationOutcome got = must(receive.wait());
  EXPECT_EQ(got.kind, CompletionOpcode::ReceiveRdmaWithImmediate);
  EXPECT_EQ(got.immediate, 7u);
  EXPECT_EQ(got.bytes, 20000u);
  EXPECT_TRUE(same(here, there));
  must(write.wait());
}

TEST(Transfer, atomics_return_what_was_there) {
  Pair pair;
  Connection near = pair.connect();
  std::vector<std::uint64_t> cell{40};
  MemoryRegion region = must(pair.server.register_memory(cell));
  EXPECT_EQ(must(near.fetch_and_add(region.remote(), 2).wait()).value, 40u);
  EXPECT_EQ(must(near.compare_and_swap(region.remote(), 42, 7).wait()).value, 42u);
  EXPECT_EQ(must(near.compare_and_swap(region.remote(), 42, 8).wait()).value, 7u);
  EXPECT_EQ(cell[0], 7u);
}

TEST(Transfer, a_callback_resubmits_its_operation) {
  Pair pair;
  Connection near = pair.connect();
  std::vector<std::uint64_t> cell{0};
  MemoryRegion region = must(pair.server.register_memory(cell));
  Operation operation;
  int left = 1000;
  operation.on_done([&left](Operation& self) {
    if (self.result() && --left > 0) self.submit();
  });
  near.fetch_and_add(operation, region.remote(), 1);
  EXPECT_TRUE(pair.engine.run_until([&] { return left == 0; }, Duration::seconds(30)));
  EXPECT_EQ(cell[0], 1000u);
}

TEST(Transfer, a_deadline_holds_where_every_run_finds_something) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(64)), there = must(pair.server.allocate_memory(64));
  Operation operation;
  std::uint64_t times = 0;
  bool goes_on = true;
  operation.on_done([&](Operation& self) {
    ++times;
    if (goes_on) self.submit();
  });
  near.write(operation, here.local(), there.remote());
  EXPECT_FALSE(pair.engine.run_until([] { return false; }, Duration::milliseconds(20)));
  EXPECT_GT(times, 1u);
  goes_on = false;
  EXPECT_TRUE(pair.engine.run_until([&] { return operation.done(); }, Duration::seconds(10)));
}

TEST(Transfer, a_full_queue_of_operations_finishes_in_order) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion here = must(pair.client.allocate_memory(64 * 4096));
  MemoryRegion there = must(pair.server.allocate_memory(64 * 4096));
  fill(here, 6);
  std::vector<int> order;
  std::vector<Operation> operations(64);
  for (int i = 0; i < 64; ++i) {
    const auto offset = static_cast<std::uint64_t>(i) * 4096;
    operations[static_cast<std::size_t>(i)].on_done([&order, i](Operation&) { order.push_back(i); });
    near.write(operations[static_cast<std::size_t>(i)], here.local(offset, 4096),
               must(there.remote(offset, 4096)));
  }
  for (Operation& operation : operations) must(operation.wait());
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order.size(), 64u);
  EXPECT_TRUE(same(here, there));
}

TEST(Transfer, raw_posts_complete_with_the_users_ids) {
  Pair pair;
  Connection near = pair.connect();
  MemoryRegion in = must(pair.server.allocate_memory(64));
  std::vector<std::uint64_t> sent, received;
  near.on_completion([&](const Completion& c) { sent.push_back(c.id); });
  pair.far_end().on_completion([&](const Completion& c) { received.push_back(c.id); });
  const ScatterGather target = in.local();
  const ReceiveRequest receives[]{{11, {&target, 1}}, {12, {&target, 1}}};
  EXPECT_EQ(pair.far_end().post_receive(receives).posted, 2u);
  SendRequest requests[2];
  requests[0].id = 21;
  requests[1].id = 22;
  EXPECT_EQ(near.post_send(requests).posted, 2u);
  EXPECT_TRUE(
      pair.engine.run_until([&] { return sent.size() == 2 && received.size() == 2; }, Duration::seconds(30)));
  EXPECT_THAT(sent, ::testing::ElementsAre(21, 22));
  EXPECT_THAT(received, ::testing::ElementsAre(11, 12));
}

TEST(Transfer, queue_pairs_connect_by_hand) {
  Device a = must(Device::open()), b = must(Device::open());
  CompletionQueue queue_a = must(a.create_completion_queue(16)),
                  queue_b = must(b.create_completion_queue(16));
  QueuePair one = must(a.create_queue_pair(queue_a)), two = must(b.create_queue_pair(queue_b));
  must(one.connect(must(QueuePairAddress::from_bytes(two.address().to_bytes()))));
  must(two.connect(must(QueuePairAddress::from_bytes(one.address().to_bytes()))));
  MemoryRegion from = must(a.allocate_memory(4096)), to = must(b.allocate_memory(4096));
  fill(from, 7);
  const ScatterGather piece = from.local();
  SendRequest request;
  request.id = 5;
  request.opcode = SendOpcode::RdmaWrite;
  request.local = {&piece, 1};
  request.remote_address = to.remote().address;
  request.rkey = to.rkey();
  ASSERT_TRUE(one.post_send(request));
  std::optional<Completion> done;
  while (!done) {
    b.progress();
    done = queue_a.poll_one();
  }
  EXPECT_EQ(done->id, 5u);
  EXPECT_EQ(done->status, CompletionStatus::Success);
  EXPECT_TRUE(same(from, to));
}

TEST(Transfer, an_armed_queue_raises_one_event) {
  Device a = must(Device::open()), b = must(Device::open());
  CompletionQueue queue_a = must(a.create_completion_queue(16)),
                  queue_b = must(b.create_completion_queue(16));
  QueuePair one = must(a.create_queue_pair(queue_a)), two = must(b.create_queue_pair(queue_b));
  must(one.connect(two.address()));
  must(two.connect(one.address()));
  queue_b.arm();
  ASSERT_TRUE(two.post_receive(ReceiveRequest{}));
  ASSERT_TRUE(one.post_send(SendRequest{}));
  std::optional<DeviceEvent> event;
  while (!event || event->kind != DeviceEvent::Kind::Completion) {
    b.wait_event(b.now() + Duration::seconds(30));
    event = b.poll_event();
  }
  EXPECT_EQ(event->completion_queue, queue_b.id());
  EXPECT_TRUE(queue_b.poll_one());
}

TEST(Transfer, a_capture_of_the_device_has_its_packets) {
  const std::string file = ::testing::TempDir() + "api_capture.pcapng";
  {
    OpenOptions options;
    options.pcap_file = file;
    Device device = must(Device::open(options)), peer = must(Device::open());
    ProgressEngine engine = must(ProgressEngine::create(device));
    must(engine.add(peer));
    Listener listener = must(Listener::create(engine, {.device = &peer}));
    std::optional<Connection> far;
    listener.on_request([&] { far.emplace(must(listener.poll_request()->accept())); });
    Connection near = must(Connection::connect(engine, listener.address().to_string()));
    must(near.close());
  }
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(bytes.substr(0, 4), "\x0a\x0d\x0d\x0a");
  EXPECT_GT(bytes.size(), 1500u);  // five management datagrams at least
  std::remove(file.c_str());
}

class Waiting : public ::testing::TestWithParam<WaitMode> {};

TEST_P(Waiting, every_way_to_wait_finishes_operations) {
  EngineOptions options;
  options.wait = GetParam();
  Pair pair{options};
  Connection near = pair.connect();
  std::vector<std::uint64_t> cell{0};
  MemoryRegion region = must(pair.server.register_memory(cell));
  for (std::uint64_t i = 0; i < 20; ++i)
    EXPECT_EQ(must(near.fetch_and_add(region.remote(), 1).wait()).value, i);
  must(near.close());
}

INSTANTIATE_TEST_SUITE_P(Modes, Waiting,
                         ::testing::Values(WaitMode::Busy, WaitMode::Event, WaitMode::Adaptive));

}  // namespace
}  // namespace verbena
