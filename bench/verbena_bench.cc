// SPDX-License-Identifier: Apache-2.0
// Measures the library the way its users use it: connections, prepared operations, an engine that polls.
// Options and output: see the head of run.py.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "peers/peer.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

struct Options {
  std::string role, connect, device, name = "verbena", op = "send", test = "latency", transport = "udp";
  std::uint32_t size = 8, iterations = 10000, depth = 8, mtu = 4096, receive_buffer = 0;
  int cpu = -1;
  WaitMode wait = WaitMode::Busy;
  bool posted = false;
  bool own_memory = false;  // the program's, which is registered; otherwise allocated by Verbena
};

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "bench_verbena: %s\n", what.c_str());
  std::exit(1);
}

[[noreturn]] void usage(const std::string& what) {
  std::fprintf(stderr, "bench_verbena: %s; see the head of bench/run.py\n", what.c_str());
  std::exit(2);
}

template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().to_string());
  return std::move(*result);
}
void must(Result<void> result) {
  if (!result) die(result.error().to_string());
}

Options parse(int argc, char** argv) {
  Options o;
  if (argc < 2) usage("server or client?");
  o.role = argv[1];
  if (o.role != "server" && o.role != "client") usage("unknown role " + o.role);
  if (argc % 2 != 0) usage("an option lacks its value");
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string_view key = argv[i];
    const std::string value = argv[i + 1];
    const auto number = [&] { return static_cast<std::uint32_t>(std::strtoul(value.c_str(), nullptr, 10)); };
    if (key == "--connect")
      o.connect = value;
    else if (key == "--device")
      o.device = value;
    else if (key == "--name")
      o.name = value;
    else if (key == "--op")
      o.op = value;
    else if (key == "--test")
      o.test = value;
    else if (key == "--transport")
      o.transport = value;
    else if (key == "--size")
      o.size = number();
    else if (key == "--iterations")
      o.iterations = number();
    else if (key == "--depth")
      o.depth = number();
    else if (key == "--mtu")
      o.mtu = number();
    else if (key == "--rcvbuf")
      o.receive_buffer = number();
    else if (key == "--posted" && (value == "yes" || value == "no"))
      o.posted = value == "yes";
    else if (key == "--memory" && (value == "allocated" || value == "registered"))
      o.own_memory = value == "registered";
    else if (key == "--wait" && value == "busy")
      o.wait = WaitMode::Busy;
    else if (key == "--wait" && value == "event")
      o.wait = WaitMode::Event;
    else if (key == "--wait" && value == "adaptive")
      o.wait = WaitMode::Adaptive;
    else if (key == "--cpu")
      o.cpu = static_cast<int>(number());
    else
      usage("unknown option " + std::string(key));
  }
  if (o.transport != "udp" && o.transport != "local") usage("unknown transport " + o.transport);
  if (o.op != "send" && o.op != "write" && o.op != "read") usage("unknown operation " + o.op);
  if (o.size == 0 || o.iterations < 10 || o.depth == 0)
    usage("size, iterations (10 at least) and depth are positive");
  if (o.test != "latency" && o.iterations < 2 * o.depth) usage("iterations: twice the depth at least");
  return o;
}

// One end: a device, an engine, one connection, a buffer to send from and one that the peer writes to and
// reads from.
class End {
 public:
  explicit End(const Options& options)
      : options_(options),
        device_(must(Device::open(open_options(options)))),
        engine_(must(ProgressEngine::create(device_, {options.wait}))),
        source_(make_memory()),
        target_(make_memory()) {
    std::fill(target_.bytes().begin(), target_.bytes().end(), std::byte{0});
  }

  void serve() {
    Listener listener = must(Listener::create(engine_));
    std::printf("ready\t%s:%u\t%s\n", device_.address().to_string().c_str(), listener.port(),
                device_.address().to_string().c_str());
    std::fflush(stdout);
    ConnectionRequest request = must(listener.wait_request(Duration::seconds(60)));
    remote_ = must(RemoteMemory::from_bytes(request.private_data()));
    Connection prepared = must(Connection::prepare(engine_, connection_options()));
    post_receives(prepared);
    connection_ = std::make_unique<Connection>(must(request.accept(std::move(prepared), introduction())));
    must(connection_->wait_established());
    if (options_.test == "latency") options_.op == "write" ? echo_writes() : echo_sends();
    engine_.run_until([&] { return connection_->closed(); }, Duration::seconds(60));
  }

  void run_client() {
    connection_ = std::make_unique<Connection>(must(Connection::prepare(engine_, connection_options())));
    post_receives(*connection_);
    must(connection_->connect_to(options_.connect, introduction()));
    remote_ = must(RemoteMemory::from_bytes(connection_->private_data()));
    if (options_.test == "latency")
      measure_latency();
    else if (reads_ && options_.own_memory && options_.transport == "local")
      measure_beside_bare_call();
    else
      measure_bandwidth();
    static_cast<void>(connection_->close());
  }

 private:
  static constexpr std::size_t kReceives = 512;  // as perftest
  static constexpr std::size_t kSends =
      16;  // a SEND may still await its acknowledgement when the answer is here

  static OpenOptions open_options(const Options& o) {
    OpenOptions open;
    open.receive_buffer_bytes = o.receive_buffer;
    open.device = o.device;
    open.path = o.transport == "local" ? PathChoice::Local : PathChoice::Roce;
    return open;
  }

  MemoryRegion make_memory() {
    if (!options_.own_memory) return must(device_.allocate_memory(options_.size));
    return must(device_.register_memory(std::span(peer::touched_pages(options_.size), options_.size)));
  }

  // The buffer, and whose it is.
  std::array<std::byte, RemoteMemory::kWireBytes + sizeof(pid_t)> introduction() const {
    std::array<std::byte, RemoteMemory::kWireBytes + sizeof(pid_t)> all;
    std::ranges::copy(target_.remote().to_bytes(), all.begin());
    const pid_t self = ::getpid();
    std::memcpy(all.data() + RemoteMemory::kWireBytes, &self, sizeof self);
    return all;
  }

  ConnectionOptions connection_options() const {
    ConnectionOptions c;
    c.queues.max_send_requests = std::max(options_.depth, 64u);
    c.queues.max_receive_requests = kReceives;
    c.path_mtu = options_.mtu;
    c.keep_alive = Duration{0};
    return c;
  }

  void post_receives(Connection& connection) {
    if (options_.op != "send") return;
    receives_ = std::make_unique<std::array<Operation, kReceives>>();
    for (Operation& receive : *receives_) {
      receive.on_done([this](Operation& done) {
        if (done.error() != nullptr) return;  // the connection has ended
        ++received_;
        if (options_.test != "latency") return static_cast<void>(done.submit());
        if (taken_ != nullptr) taken_->submit();
        taken_ = &done;
      });
      connection.receive(receive, target_.local());
    }
  }

  // The next of a few sends that go round; waits for its previous use. A WRITE within the host need be none.
  void send_one() {
    if (done_now()) return;
    Operation& op = sends_[sent_++ % kSends];
    if (op.in_flight()) engine_.run_until([&] { return !op.in_flight(); });
    if (!op.submit()) post(op);
  }

  // What is no request between processes of one host.
  bool done_now() {
    if (options_.posted) return false;
    if (reads_) return connection_->try_read_now(source_.bytes(), remote_);
    return writes_ && connection_->try_write_now(source_.bytes(), remote_);
  }

  void post(Operation& op) {
    const bool fits_inline = options_.size <= connection_->queues().max_inline_bytes;
    const SendFlags flags = fits_inline && !reads_ ? SendFlags::Inline : SendFlags::None;
    if (reads_)
      connection_->read(op, source_.local(), remote_);
    else if (writes_)
      connection_->write(op, source_.local(), remote_, flags);
    else
      connection_->send(op, source_.local(), flags);
  }

  // Sends, and receives that found something.
  double system_calls() const {
    double calls = 0;
    for (const NamedCounter& counter : device_.counters())
      if (counter.name == "udp_send_calls" || counter.name == "udp_received_trains")
        calls += static_cast<double>(counter.value);
    return calls;
  }

  bool ended() const { return connection_->closed(); }

  // An answer does not wait for the receive to be posted anew.
  void post_taken() {
    if (taken_ != nullptr) std::exchange(taken_, nullptr)->submit();
  }

  void echo_sends() {
    for (std::uint64_t turn = 1; turn <= options_.iterations && !ended(); ++turn) {
      engine_.run_until([&] { return received_ >= turn || ended(); });
      if (!ended()) send_one();
      post_taken();
    }
  }

  // The last byte of the buffer that the peer writes; WRITE publishes it after all others.
  std::byte last_byte() { return std::atomic_ref(target_.bytes().back()).load(std::memory_order_acquire); }

  // Memory that changes by itself is looked at more often than the engine is driven, which takes longer. False: the
  // peer has gone.
  bool await_byte(std::byte value) {
    const auto is_there = [&] { return last_byte() == value || ended(); };
    if (options_.wait != WaitMode::Busy) return engine_.run_until(is_there) && !ended();
    for (;;) {
      for (int look = 0; look < looks_; ++look, spin_pause())
        if (last_byte() == value) return true;
      engine_.run_once();
      if (ended()) return false;
    }
  }

  void echo_writes() {
    for (std::uint64_t turn = 1; turn <= options_.iterations; ++turn) {
      if (!await_byte(static_cast<std::byte>(turn))) return;
      source_.bytes().back() = static_cast<std::byte>(turn);
      send_one();
    }
  }

  void measure_latency() {
    std::vector<double> samples_ns;
    samples_ns.reserve(options_.iterations);
    for (std::uint64_t turn = 1; turn <= options_.iterations; ++turn) {
      const std::uint64_t before = peer::now_ns();
      source_.bytes().back() = static_cast<std::byte>(turn);
      send_one();
      post_taken();
      if (!await_answer(turn)) must(connection_->status());
      samples_ns.push_back(static_cast<double>(peer::now_ns() - before));
    }
    peer::report_latency(options_.name, samples_ns);
  }
  bool await_answer(std::uint64_t turn) {
    if (writes_) return await_byte(static_cast<std::byte>(turn));
    engine_.run_until([&] { return received_ >= turn || ended(); });
    return !ended();
  }

  // Whether what is asked for now needs no request; the first few do in any case.
  bool goes_now() {
    constexpr int kTries = 20;
    for (int i = 0; i < kTries && !ended(); ++i) {
      if (done_now()) return true;
      Operation op;
      post(op);
      must(op.wait());
      engine_.run_until([] { return false; }, Duration::milliseconds(1));
    }
    return false;
  }

  void measure_bandwidth() {
    const std::uint64_t total = options_.iterations;
    const std::uint64_t warm_up = std::max<std::uint64_t>(total / 10, options_.depth);
    begin_ = engine_.now();
    const bool may_copy = options_.transport == "local" && options_.op != "send" && !options_.posted;
    may_copy && goes_now() ? copy_all(total, warm_up) : request_all(total, warm_up);
    const double seconds = static_cast<double>((engine_.now() - begin_).ns) / 1e9;
    const double bytes = static_cast<double>(total - warm_up) * options_.size;
    std::printf("%s\t%.4f\tGB/s\n", options_.name.c_str(), bytes / seconds / 1e9);
    const double calls = system_calls() / (static_cast<double>(total) * options_.size / (1 << 20));
    std::printf("%s.system_calls\t%.2f\tcalls/MiB\n", options_.name.c_str(), calls);
  }

  // In turns with the kernel's copy of the same bytes to the same place, without Verbena: which pages they are decides
  // as much about how quick a copy is.
  void measure_beside_bare_call() {
    constexpr std::uint64_t kTurns = 20;
    const std::uint64_t each = std::max<std::uint64_t>(options_.iterations / kTurns, options_.depth);
    const bool now = goes_now();  // and the memory is reached, in any case
    if (!now && !options_.posted) die("the peer's memory is not reached without a request");
    Duration by_verbena{}, by_call{};
    for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
      const Instant before = engine_.now();
      now ? copy_all(each, 0) : request_all(each, 0);
      const Instant between = engine_.now();
      for (std::uint64_t i = 0; i < each; ++i) call_once();
      by_verbena = by_verbena + (between - before);
      by_call = by_call + (engine_.now() - between);
    }
    const double bytes = static_cast<double>(each * kTurns) * options_.size;
    std::printf("%s\t%.4f\tGB/s\n", options_.name.c_str(), bytes / static_cast<double>(by_verbena.ns));
    const double by_call_gbs = bytes / static_cast<double>(by_call.ns);
    std::printf("%s.process_vm_readv\t%.4f\tGB/s\n", options_.name.c_str(), by_call_gbs);
  }

  void call_once() {
    pid_t peer = 0;
    std::memcpy(&peer, connection_->private_data().data() + RemoteMemory::kWireBytes, sizeof peer);
    const iovec near{source_.bytes().data(), options_.size};
    const iovec far{reinterpret_cast<void*>(static_cast<std::uintptr_t>(remote_.address)), options_.size};
    if (::process_vm_readv(peer, &near, 1, &far, 1, 0) != static_cast<ssize_t>(options_.size))
      die(std::string("process_vm_readv: ") + std::strerror(errno));
  }

  void copy_all(std::uint64_t total, std::uint64_t warm_up) {
    constexpr std::uint64_t kTurnEvery = 1024;  // nothing waits for the engine but the end of the connection
    for (std::uint64_t i = 0; i < total; ++i) {
      if (i == warm_up) begin_ = engine_.now();
      if (i % kTurnEvery == 0) engine_.run_once();
      if (!done_now() && !goes_now()) die("the peer's memory is not reached any more");
    }
  }

  void request_all(std::uint64_t total, std::uint64_t warm_up) {
    std::vector<std::unique_ptr<Operation>> operations;
    std::uint64_t started = 0, finished = 0;
    const auto next = [&](Operation& op) {
      if (started++ < total) post(op);
    };
    for (std::uint32_t i = 0; i < options_.depth; ++i) {
      operations.push_back(std::make_unique<Operation>());
      operations.back()->on_done([&](Operation& op) {
        if (op.error() != nullptr) return;
        if (++finished == warm_up) begin_ = engine_.now();
        next(op);
      });
      next(*operations.back());
    }
    engine_.run_until([&] { return finished >= total || ended(); });
    if (finished < total) must(connection_->status());
  }

  const Options options_;
  const bool writes_ = options_.op == "write", reads_ = options_.op == "read";
  // Packets are stored by whoever drives; only memory of this host changes by itself.
  const int looks_ = options_.transport == "local" ? 16 : 1;
  Device device_;
  ProgressEngine engine_;
  MemoryRegion source_, target_;
  RemoteMemory remote_;
  std::unique_ptr<std::array<Operation, kReceives>> receives_;
  std::array<Operation, kSends> sends_;
  Instant begin_;               // of what counts
  Operation* taken_ = nullptr;  // a receive that is to be posted anew
  std::uint64_t received_ = 0, sent_ = 0;
  std::unique_ptr<Connection> connection_;
};

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  peer::settle_on(options.cpu);
  End end(options);
  options.role == "server" ? end.serve() : end.run_client();
  return 0;
}
