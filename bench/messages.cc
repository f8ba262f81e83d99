// SPDX-License-Identifier: Apache-2.0
// Measures a message protocol between two processes: there and back, or as many as go.
//   bench_messages server [options]                     prints where it listens, serves one client and leaves
//   bench_messages client --connect ADDRESS:PORT [options]
//   bench_messages memory --protocol KIND --senders N   what a receiver takes for so many senders
// Options, the same on both sides: --protocol KIND (as messaging::parse_kind() reads it)  --transport udp|local
//   --test latency|bandwidth  --size BYTES  --iterations N  --depth N  --batch N  --ring BYTES  --mtu BYTES
//   --rcvbuf BYTES  --cpu N  --memory lent|copied (what is longer than inline is sent from where it stands, or copied
//   first); the client also takes --name METRIC. Output: see the head of run.py; a bandwidth comes with NAME.rate.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "peers/peer.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;
using messaging::Message;
using messaging::Receiver;
using messaging::Sender;

template <class T>
T must(Result<T> result) {
  if (!result) peer::usage(result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}

messaging::Options message_options(const peer::Options& given, Device& device) {
  messaging::Options options;
  options.kind = must(messaging::parse_kind(given.text("protocol", "send-receive")));
  options.max_message_bytes = static_cast<std::uint32_t>(given.number("size", 8));
  options.depth = static_cast<std::uint32_t>(given.number("depth", 64));
  options.ring_bytes = given.number("ring", options.ring_bytes);
  while (options.ring_bytes < std::uint64_t{4} * options.max_message_bytes) options.ring_bytes *= 2;
  options.connection.device = &device;
  options.connection.path_mtu = static_cast<std::uint32_t>(given.number("mtu", 4096));
  return options;
}

// A device with both ways on it: the first connection carries messages from the client, the second from the server.
class End {
 public:
  explicit End(const peer::Options& given)
      : size_(static_cast<std::uint32_t>(given.number("size", 8))),
        iterations_(given.number("iterations", 10000)),
        batch_(given.number("batch", 1)),
        latency_(given.text("test", "latency") == "latency"),
        name_(given.text("name", "messages")),
        device_(must(Device::open(open_options(given)))),
        engine_(must(ProgressEngine::create(device_, {WaitMode::Busy}))),
        options_(message_options(given, device_)),
        memory_(must(device_.allocate_memory(std::max(size_, 8u)))),
        target_(must(device_.allocate_memory(std::max(size_, 8u)))),
        receiver_(must(Receiver::create(engine_, options_))) {
    std::fill(memory_.bytes().begin(), memory_.bytes().end(), std::byte{1});
    // As the bare verbs are measured: all of them from one place and, where there is a choice, to one.
    const std::string memory = given.text("memory", "lent");
    if (memory != "lent" && memory != "copied") peer::usage("--memory is lent or copied");
    lends_ = memory == "lent" && size_ > device_.info().max_inline_bytes;
    if (lends_ && messaging::traits_of(options_.kind).zero_copy)
      receiver_.on_place([this](messaging::PeerId, std::uint32_t bytes) -> std::optional<messaging::LentMemory> {
        return messaging::LentMemory::of(target_, 0, bytes);
      });
  }

  void serve() {
    Listener listener = must(Listener::create(engine_, {.device = &device_}));
    peer::report_ready(listener.address().to_string());
    must(receiver_.accept(must(listener.wait_request(Duration::seconds(60)))));
    sender_.emplace(must(Sender::accept(engine_, must(listener.wait_request(Duration::seconds(60))), options_)));
    latency_ ? answer() : take_all();
    while (receiver_.peers() != 0) engine_.run_until([&] { return receiver_.peers() == 0; });
  }

  void measure(const std::string& to) {
    sender_.emplace(must(Sender::connect(engine_, to, options_)));
    must(receiver_.connect(to));
    latency_ ? measure_latency() : measure_bandwidth();
    static_cast<void>(sender_->close());
  }

 private:
  static OpenOptions open_options(const peer::Options& given) {
    OpenOptions open;
    open.receive_buffer_bytes = static_cast<std::uint32_t>(given.number("rcvbuf", 0));
    open.path = given.text("transport", "udp") == "local" ? PathChoice::Local : PathChoice::Roce;
    return open;
  }

  // Waiting is looking: nothing sleeps. Nothing: the other end has gone.
  std::optional<Message> take_one() {
    for (;;) {
      auto message = receiver_.try_receive();
      if (message || receiver_.peers() == 0) return message;
    }
  }
  // A message is given back when it is answered.
  void answer() {
    for (std::uint64_t turn = 0; turn < iterations_; ++turn) {
      const auto message = take_one();
      if (!message) return;
      send_one();
    }
  }
  messaging::SendResult send_some(std::uint64_t most) {
    if (batch_ == 1)
      return lends_ ? sender_->try_lend(messaging::LentMemory::of(memory_, 0, size_))
                    : sender_->try_send(memory_.bytes().first(size_));
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(most, batch_));
    if (lends_) {
      lent_.assign(count, messaging::LentMemory::of(memory_, 0, size_));
      return sender_->try_lend_batch(lent_);
    }
    copied_.assign(count, memory_.bytes().first(size_));
    return sender_->try_send_batch(copied_);
  }
  void send_one() {
    while (!send_some(1)) {
      if (sender_->closed()) must(sender_->status());
      engine_.run_once();
    }
  }

  void take_all() {
    std::vector<Message> batch(32);
    for (std::uint64_t got = 0; got < iterations_;) {
      const std::size_t count = receiver_.try_receive(batch);
      for (std::size_t i = 0; i < count; ++i) batch[i].give_back();
      got += count;
      if (count == 0 && receiver_.peers() == 0) return;
    }
    send_one();
  }

  void measure_latency() {
    std::vector<double> samples;
    samples.reserve(iterations_);
    for (std::uint64_t turn = 0; turn < iterations_; ++turn) {
      const std::uint64_t before = peer::now_ns();
      send_one();
      if (!take_one()) peer::usage("the other end has gone");
      samples.push_back(static_cast<double>(peer::now_ns() - before));
    }
    peer::report_latency(name_, samples);
  }

  // The clock runs from behind the warm-up until the receiver says that it has all.
  void measure_bandwidth() {
    const std::uint64_t warm_up = iterations_ / 10;
    std::uint64_t begin = peer::now_ns();
    for (std::uint64_t sent = 0; sent < iterations_;) {
      const std::uint64_t before = sent;
      sent += send_some(iterations_ - sent).taken;
      if (before < warm_up && sent >= warm_up) begin = peer::now_ns();
      if (sent != before) continue;
      if (sender_->closed()) must(sender_->status());
      engine_.run_once();
    }
    if (!take_one()) peer::usage("the other end has gone");
    const double seconds = static_cast<double>(peer::now_ns() - begin) / 1e9;
    const double rate = static_cast<double>(iterations_ - warm_up) / seconds;
    peer::report(name_, rate * size_ / 1e9, "GB/s");
    peer::report(name_ + ".rate", rate / 1e6, "M/s");
  }

  const std::uint32_t size_;
  const std::uint64_t iterations_, batch_;
  const bool latency_;
  const std::string name_;
  Device device_;
  ProgressEngine engine_;
  const messaging::Options options_;
  MemoryRegion memory_, target_;
  Receiver receiver_;
  std::optional<Sender> sender_;
  bool lends_ = false;
  std::vector<messaging::LentMemory> lent_;
  std::vector<std::span<const std::byte>> copied_;
};

// Of one receiver, when that many senders are there.
void report_memory(const peer::Options& given) {
  Device device = must(Device::open()), far = must(Device::open());
  ProgressEngine engine = must(ProgressEngine::create(device));
  must(engine.add(far));
  messaging::Options options = message_options(given, device);
  options.max_senders = static_cast<std::uint32_t>(given.number("senders", 64));
  Receiver receiver = must(Receiver::create(engine, options));
  Listener listener = must(Listener::create(engine, {.device = &device}));
  listener.on_request([&] { must(receiver.accept(std::move(*listener.poll_request()))); });
  options.connection.device = &far;
  std::vector<Sender> senders;
  while (senders.size() < options.max_senders)
    senders.push_back(must(Sender::connect(engine, listener.address().to_string(), options)));
  peer::report(given.text("name", "memory"), static_cast<double>(receiver.memory_bytes()) / 1024, "KiB");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "server" && role != "client" && role != "memory")
    peer::usage("bench_messages server|client|memory [--option value]...");
  const peer::Options given(std::span<char*>(argv, static_cast<std::size_t>(argc)).subspan(2),
                            {"protocol", "transport", "test", "size", "iterations", "depth", "batch", "mtu", "rcvbuf",
                             "cpu", "connect", "name", "senders", "ring", "memory"});
  if (role == "memory") {
    report_memory(given);
    return 0;
  }
  peer::settle_on(given.integer("cpu", role == "server" ? peer::kFarCpu : peer::kNearCpu));
  End end(given);
  role == "server" ? end.serve() : end.measure(given.text("connect", ""));
  return 0;
}
