// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/host_device.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "soft/driver/loopback/hub.h"
#include "soft/driver/loopback/test_device_pair.h"

namespace verbena::soft {
namespace {

// A network without anybody: it says what the device hands to it.
class DeafPort final : public Port {
 public:
  DeafPort(std::uint32_t& longest, std::uint32_t segments, int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))
      : fd_(fd), longest_(longest), segments_(segments) {}
  ~DeafPort() override { ::close(fd_); }
  bool receive(DatagramSink& sink, bool) override {
    if (on_look) on_look();
    if (finds == 0) return false;
    --finds;
    if (!found.empty()) sink.on_datagrams({}, std::nullopt, found, found.size());
    return true;
  }
  void send(std::span<const roce::Train* const> trains) override {
    for (const roce::Train* train : trains) longest_ = std::max(longest_, train->datagrams());
    if (first_trains == 0) first_trains = trains.size();
    if (on_send) on_send();
    segments_ = 1;  // it has met a network without segmentation
  }
  std::span<const int> fds() const override { return {&fd_, 1}; }
  roce::TrainLimits limits() const override {
    roce::TrainLimits limits;
    limits.max_datagrams = segments_;
    return limits;
  }
  std::string hint_about(const Gid&) override { return {}; }
  std::vector<std::string> explain() const override { return {}; }
  std::vector<NamedCounter> counters() override { return {}; }

  std::function<void()> on_send, on_look;
  int finds = 0;  // so many looks find something that says nothing
  std::vector<std::byte> found;
  std::size_t first_trains = 0;  // that came with the first send

  // Whether something seems to have come.
  void ring(bool on) {
    std::uint64_t count = 1;
    EXPECT_EQ(on ? ::write(fd_, &count, sizeof count) : ::read(fd_, &count, sizeof count), 8);
  }

 private:
  const int fd_;
  std::uint32_t& longest_;
  std::uint32_t segments_;
};

NicConfig config_for(std::uint8_t last) {
  NicConfig config;
  config.address = Gid::from_ipv4(192, 0, 2, last);
  config.path_mtu = 4096;
  return config;
}

// Nobody drives it but who uses it.
HostDevice unserved(std::unique_ptr<DeafPort> port) {
  HostDevice::Options options;
  options.service_thread = false;
  return HostDevice(config_for(1), std::make_unique<SeededRandom>(1), std::move(port), std::move(options));
}

// Identifications are part of the checksum: datagrams that leave one by one all have the first one.
TEST(HostDevice, sends_single_datagrams_once_the_port_has_lost_its_segmentation) {
  std::uint32_t longest = 0;
  HostDevice device = unserved(std::make_unique<DeafPort>(longest, 64));
  test::End end(device);
  end.connect(end, 1024);
  end.post(SendOpcode::RdmaWrite, end, 0, 16 * 1024, 0);
  EXPECT_GT(longest, 1u);
  longest = 0;
  while (longest == 0) device.progress();  // until it is sent again
  EXPECT_EQ(longest, 1u);
}

// The peer takes the first while the next is put together.
TEST(HostDevice, hands_over_long_trains_one_by_one) {
  std::uint32_t longest = 0;
  auto port = std::make_unique<DeafPort>(longest, 64);
  const DeafPort& network = *port;
  HostDevice device = unserved(std::move(port));
  test::End end(device), other(device);
  for (test::End* each : {&end, &other}) each->connect(*each, 1024);
  device.gather_kicks(true);
  for (test::End* each : {&end, &other}) each->post(SendOpcode::RdmaWrite, *each, 0, 32 * 1024, 0);
  device.gather_kicks(false);
  EXPECT_EQ(network.first_trains, 3u) << "two first packets, which are longer than others, and one of two long trains";
}

// They come singly. Who polls seldom gets some of them all the same.
TEST(HostDevice, takes_a_few_long_trains_in_a_turn) {
  for (const std::size_t bytes : {20'000u, 20u}) {
    std::uint32_t longest = 0;
    auto port = std::make_unique<DeafPort>(longest, 64);
    DeafPort& network = *port;
    HostDevice device = unserved(std::move(port));
    network.found.resize(bytes);
    network.finds = 10;
    device.progress();
    EXPECT_EQ(network.finds, bytes == 20 ? 9 : 6);
  }
}

// What one thread gathers leaves in one train; what others post meanwhile leaves as ever, and takes it along.
TEST(HostDevice, gathers_what_a_thread_posts) {
  std::uint32_t longest = 0;
  HostDevice device = unserved(std::make_unique<DeafPort>(longest, 64));
  test::End end(device);
  end.connect(end, 1024);
  device.gather_kicks(true);
  for (int i = 0; i < 3; ++i) end.post(SendOpcode::RdmaWrite, end, 0, 8, 0);
  EXPECT_EQ(longest, 0u);
  device.gather_kicks(false);
  EXPECT_EQ(longest, 3u);
  longest = 0;
  device.gather_kicks(true);
  std::thread other([&] { end.post(SendOpcode::RdmaWrite, end, 0, 8, 0); });
  other.join();
  EXPECT_GE(longest, 1u);
  device.gather_kicks(false);
}

// Another thread posts whenever the first sends: that one goes on with its own, and the device with what comes in.
TEST(HostDevice, does_not_answer_the_doorbells_of_others_without_end) {
  std::uint32_t longest = 0;
  auto port = std::make_unique<DeafPort>(longest, 64);
  DeafPort& network = *port;
  HostDevice device = unserved(std::move(port));
  test::End end(device);
  end.connect(end, 1024);
  constexpr int kMost = 32;
  int sends = 0;
  network.on_send = [&] {
    if (++sends == kMost) return;
    std::thread([&] { end.post(SendOpcode::RdmaWrite, end, 0, 8, 0); }).join();
  };
  end.post(SendOpcode::RdmaWrite, end, 0, 8, 0);
  EXPECT_GT(sends, 1);
  EXPECT_LT(sends, kMost);
  const int before = sends;
  network.on_send = [&] { ++sends; };
  device.progress();
  EXPECT_GT(sends, before) << "what rang last is not forgotten";
}

// With a service thread. Counts how often others than the test's own thread look at its network.
class ServedDevice : public testing::Test {
 protected:
  static std::unique_ptr<DeafPort> watched(std::uint32_t& longest, std::atomic<int>& looks_of_others) {
    auto port = std::make_unique<DeafPort>(longest, 64);
    port->on_look = [&looks_of_others, me = std::this_thread::get_id()] {
      if (std::this_thread::get_id() != me) ++looks_of_others;
    };
    return port;
  }

  std::uint32_t longest = 0;
  std::atomic<int> looks_of_others{0};
  std::unique_ptr<DeafPort> port = watched(longest, looks_of_others);
  DeafPort& network = *port;
  HostDevice device{config_for(1), std::make_unique<SeededRandom>(1), std::move(port), {}};
};

// The pause of that thread is put off while somebody polls; that ends with the polling, each time.
TEST_F(ServedDevice, is_served_again_whenever_nobody_polls_any_more) {
  for (int turn = 0; turn < 5; ++turn) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(5 * turn);
    do device.progress();
    while (std::chrono::steady_clock::now() < end);
    const int before = looks_of_others;
    network.ring(true);
    while (looks_of_others == before) std::this_thread::yield();
    network.ring(false);
  }
}

// Who polls now and then leaves the device to the service thread between, also where it polled without a gap before.
TEST_F(ServedDevice, is_served_between_the_turns_of_who_polls_seldom) {
  network.ring(true);  // it does not sleep
  const auto after = [](std::chrono::microseconds time) { return std::chrono::steady_clock::now() + time; };
  for (const auto end = after(std::chrono::milliseconds(5)); std::chrono::steady_clock::now() < end;) device.progress();
  for (const int before = looks_of_others; looks_of_others == before; device.progress()) {
    const auto computed = after(std::chrono::microseconds(600));
    while (std::chrono::steady_clock::now() < computed) continue;
  }
}

// What a peer reads at once may be more than one turn sends: what is left leaves without being asked for.
TEST(HostDevice, serves_a_long_read_in_turns) {
  loopback::Hub hub;
  NicConfig greedy = config_for(1);
  greedy.transport.read_chunk_bytes = 4u << 20;  // as peers do that ask for all of it with one packet
  const auto first = std::move(hub.open(greedy, std::make_unique<SeededRandom>(1), {}).value());
  const auto second = std::move(hub.open(config_for(2), std::make_unique<SeededRandom>(2), {}).value());
  test::End a(*first), b(*second);
  a.connect(b, 4096, 20);  // one packet asks for all: its period must hold the whole answer, on a slow machine too
  b.connect(a);
  std::fill(b.memory.begin(), b.memory.end(), std::byte{0x5a});
  a.post(SendOpcode::RdmaRead, b, 0, 4u << 20, 0);
  ASSERT_EQ(a.poll().status, CompletionStatus::Success);
  EXPECT_TRUE(a.memory == b.memory);
}

// In a time that stands still, so that nothing is due by itself.
class StandingTime final : public VirtualTime {
 public:
  Instant now() const override { return Instant{1'000'000}; }
  void wait(Instant) override {}
};

// Of what answers six requests, the acknowledgement follows the sixth in the same call.
TEST(HostDevice, acknowledges_behind_a_short_answer) {
  StandingTime time;
  loopback::Hub hub;
  const auto open = [&](std::uint8_t last) {
    HostDevice::Options options;
    options.time = &time;
    options.service_thread = false;
    return std::move(hub.open(config_for(last), std::make_unique<SeededRandom>(last), std::move(options)).value());
  };
  const auto first = open(1), second = open(2);
  test::End a(*first), b(*second);
  a.connect(b);
  b.connect(a);
  const auto put = [](test::End& from, const test::End& to) {
    const ScatterGather local = from.at(0, 8);
    SendRequest request;
    request.opcode = SendOpcode::RdmaWrite;
    request.local = {&local, 1};
    request.remote_address = test::kBase;
    request.rkey = to.region.rkey;
    return from.device.post_short(*from.qp.queues, request);
  };
  const std::uint32_t held = roce::Config{}.max_held_acknowledgements;
  for (std::uint32_t turn = 1; turn <= held; ++turn) {
    ASSERT_TRUE(put(a, b));
    second->progress();
    EXPECT_EQ(a.qp.queues->send_queue().retired(), 0u) << turn;
    ASSERT_TRUE(put(b, a));
    first->progress();
  }
  EXPECT_EQ(a.qp.queues->send_queue().retired(), held);
}

// The service thread sleeps beside the one that waits: it must not take the wake-up that is meant for the other.
TEST(HostDevice, wakes_a_waiter_for_the_deadline_of_a_request_another_thread_posts) {
  loopback::Hub hub;
  const auto first = std::move(hub.open(config_for(1), std::make_unique<SeededRandom>(1), {}).value());
  const auto second = std::move(hub.open(config_for(2), std::make_unique<SeededRandom>(2), {}).value());
  test::End a(*first), deaf(*second);
  for (int round = 0; round < 100; ++round) {
    a.connect(deaf, 4096, 8, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the service thread has gone to sleep
    std::thread poster([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      a.post(SendOpcode::RdmaWrite, deaf, 0, 8, 0);
    });
    EXPECT_EQ(a.wait().status, CompletionStatus::RetryExceeded);
    poster.join();
    a.reset();
  }
}

// A wake() that no wait took is not found by an event loop for ever.
TEST(HostDevice, quiets_its_descriptor_after_a_wake_that_nobody_waited_for) {
  loopback::Hub hub;
  const auto device = std::move(hub.open(config_for(1), std::make_unique<SeededRandom>(1), {}).value());
  pollfd fd{device->event_fd(), POLLIN, 0};
  device->wake();
  EXPECT_EQ(::poll(&fd, 1, 0), 1);
  EXPECT_FALSE(device->poll_event());
  EXPECT_EQ(::poll(&fd, 1, 0), 0);
}

// Who waits drives, and need not be told of what he found by himself.
TEST(HostDevice, tells_by_its_descriptor_of_what_no_wait_returned_for) {
  loopback::Hub hub;
  HostDevice::Options alone;
  alone.service_thread = false;
  const auto first = std::move(hub.open(config_for(1), std::make_unique<SeededRandom>(1), std::move(alone)).value());
  const auto second = std::move(hub.open(config_for(2), std::make_unique<SeededRandom>(2), {}).value());
  test::End a(*first), b(*second);
  a.connect(b);
  b.connect(a);
  const auto readable = [&] {
    pollfd fd{first->event_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  Completion done;
  for (int round = 0; round < 3; ++round) {
    first->arm(*a.ring, false);
    a.post(SendOpcode::RdmaWrite, b, 0, 8, 0);
    first->wait_event(Instant::never());
    EXPECT_FALSE(readable());
    EXPECT_TRUE(first->poll_event());
    EXPECT_FALSE(first->poll_event());
    EXPECT_EQ(a.ring->poll({&done, 1}), 1u);

    first->arm(*a.ring, false);
    a.post(SendOpcode::RdmaWrite, b, 0, 8, 0);
    while (a.ring->looks_empty()) first->progress();
    EXPECT_TRUE(readable());
    EXPECT_TRUE(first->poll_event());
    EXPECT_FALSE(readable());
    EXPECT_EQ(a.ring->poll({&done, 1}), 1u);
  }
}

// Whoever looks into the device hears a doorbell that rang meanwhile, as those who drive it do.
TEST(HostDevice, hears_a_doorbell_that_rings_while_somebody_reads_counters) {
  loopback::Hub hub;
  const auto open = [&hub](std::uint8_t last) {
    return std::move(hub.open(config_for(last), std::make_unique<SeededRandom>(last), {}).value());
  };
  const auto first = open(1), second = open(2);
  test::End a(*first), b(*second);
  a.connect(b);
  b.connect(a);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) static_cast<void>(first->counters());
  });
  for (int i = 0; i < 100; ++i) {
    a.post(SendOpcode::RdmaWrite, b, 0, 8, 0);
    Completion done;
    while (a.ring->poll({&done, 1}) == 0) std::this_thread::yield();  // nobody drives but those who let go
    ASSERT_EQ(done.status, CompletionStatus::Success);
  }
  stop = true;
  reader.join();
}

// In how many sets of this process it is.
int sets_that_watch(int fd) {
  int sets = 0;
  for (const auto& file : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream lines(file.path());
    for (std::string word; lines >> word;)
      if (int watched = -1; word == "tfd:" && lines >> watched && watched == fd) ++sets;
  }
  return sets;
}

struct Watched {
  explicit Watched(std::unique_ptr<DeafPort> of) : port(*of), fd(of->fds()[0]) {
    port.on_look = [this] { ++looks; };
    HostDevice::Options options;
    options.service_thread = false;
    device = std::make_unique<HostDevice>(config_for(1), std::make_unique<SeededRandom>(1), std::move(of),
                                          std::move(options));
  }
  // Sleeps until something was seen to come by the port, and says whether it was.
  bool hears(const std::function<void()>& send) {
    std::thread sleeper([this] { device->wait_event(device->now() + Duration::seconds(20)); });
    while (!goes_to_sleep()) std::this_thread::yield();
    const int before = looks;
    send();
    const Instant end = device->now() + Duration::seconds(10);
    while (looks == before && device->now() < end) std::this_thread::yield();
    const bool heard = looks != before;
    device->wake();
    sleeper.join();
    return heard;
  }
  // What comes by the port from here on wakes it, or keeps it from its sleep.
  bool goes_to_sleep() const { return sets_that_watch(fd) != 0; }

  DeafPort& port;
  const int fd;
  std::atomic<int> looks{0};
  std::unique_ptr<HostDevice> device;
};

// Each set costs who sends.
TEST(HostDevice, leaves_the_sets_of_sleepers_while_its_packets_are_found_by_polling) {
  std::uint32_t longest = 0;
  Watched watched(std::make_unique<DeafPort>(longest, 64));
  watched.device->wait_event(watched.device->now() + Duration::milliseconds(1));
  EXPECT_EQ(sets_that_watch(watched.fd), 1);
  watched.port.finds = 1000;
  while (watched.port.finds != 0) watched.device->progress();
  EXPECT_EQ(sets_that_watch(watched.fd), 0);
  EXPECT_TRUE(watched.hears([&] { watched.port.ring(true); }));
  EXPECT_EQ(sets_that_watch(watched.fd), 1);
}

// Beside one that waits for ever, which comes and goes. One that misses its time would sleep as long: nothing comes.
TEST(HostDevice, of_several_that_wait_each_wakes_at_its_own_time) {
  constexpr int kWaits = 1000;
  std::uint32_t longest = 0;
  Watched watched(std::make_unique<DeafPort>(longest, 64));
  HostDevice& device = *watched.device;
  std::atomic<int> waits{0};
  std::thread for_ever([&] {
    while (waits.load() < kWaits) device.wait_event(Instant::never());
  });
  std::thread often([&, random = SeededRandom(1)]() mutable {
    for (; waits.load() < kWaits; ++waits)
      device.wait_event(device.now() + Duration::microseconds(static_cast<std::int64_t>(random.below(200))));
  });
  for (int seen = 0; seen < kWaits; seen = waits.load()) {
    device.wake();
    while (waits.load() == seen) std::this_thread::yield();
  }
  often.join();
  device.wake();
  for_ever.join();
}

TEST(HostDevice, an_alarm_for_a_wait_that_is_over_keeps_nobody_awake) {
  for (const bool went_off : {false, true}) {
    std::uint32_t longest = 0;
    Watched watched(std::make_unique<DeafPort>(longest, 64));
    HostDevice& device = *watched.device;
    std::thread first([&] { device.wait_event(device.now() + Duration::milliseconds(20)); });
    while (!watched.goes_to_sleep()) std::this_thread::yield();
    device.wake();
    first.join();
    if (went_off) std::this_thread::sleep_for(std::chrono::milliseconds(30));
    watched.looks = 0;
    const Instant end = device.now() + Duration::milliseconds(60);
    std::thread second([&] { device.wait_event(end); });
    device.wait_event(end);
    second.join();
    EXPECT_GE(device.now(), end);
    EXPECT_LT(watched.looks, 1000);
  }
}

// A file cannot be watched: so it is where the system refuses.
TEST(HostDevice, looks_again_and_again_where_a_port_cannot_be_watched) {
  std::uint32_t longest = 0;
  Watched watched(std::make_unique<DeafPort>(longest, 64, ::memfd_create("no poll", MFD_CLOEXEC)));
  std::thread sleeper([&] { watched.device->wait_event(watched.device->now() + Duration::seconds(20)); });
  while (watched.looks < 5) std::this_thread::yield();
  watched.device->wake();
  sleeper.join();
  EXPECT_EQ(sets_that_watch(watched.fd), 0);
}

}  // namespace
}  // namespace verbena::soft
