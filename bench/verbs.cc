// SPDX-License-Identifier: Apache-2.0
// Measures what verbs alone can do, as perftest does: a queue pair, a completion queue and a memory region.
// Latency: there and back of one message, or of one WRITE whose last byte is awaited. Rate: SENDs posted by lists, one
// completion for each list; the receiver posts as many receives anew as it polled. Bandwidth: WRITEs or READs within
// the host, one after the other, which are no requests, by the median of batches as memcpy beside it.
//   bench_verbs server [options]                        prints where it listens, serves one client and leaves
//   bench_verbs client --connect ADDRESS:PORT [options]
// Options, the same on both sides: --transport udp|local  --test latency|rate|bandwidth  --op send|write|read
//   --size BYTES  --iterations N (but of bandwidth)  --depth N (outstanding)  --list N (to a post)  --rcvbuf BYTES
//   --device ADDRESS  --cpu N  --wait busy|event (of bandwidth: how who is written or read does nothing else; of the
//   latency of SENDs: both sleep until the completion queue that they armed has something)  --threads any|single (see
//   OpenOptions::single_threaded); the client also takes --name METRIC. Output: see the head of run.py; a rate is NAME,
//   in M/s.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "peers/peer.h"
#include "verbena/verbena.h"

namespace {

using namespace verbena;

constexpr std::uint32_t kReceives = 1024, kFewReceives = 16;  // few, where messages come one by one
constexpr unsigned kIdleTurns = 1u << 16;

template <class T>
T must(Result<T> result) {
  if (!result) peer::usage(result.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*result);
}
void must(PostResult result) {
  if (!result) peer::usage("a post was refused");
}

class End {
 public:
  explicit End(const peer::Options& given)
      : size_(static_cast<std::uint32_t>(given.number("size", 8))),
        depth_(static_cast<std::uint32_t>(given.number("depth", 512))),
        list_(static_cast<std::uint32_t>(given.number("list", 64))),
        iterations_(given.number("iterations", 1'000'000) / std::max(list_, 1u) * list_),
        test_(given.text("test", "latency")),
        reads_(given.text("op", "send") == "read"),
        writes_(given.text("op", "send") == "write"),
        sleeps_(given.text("wait", "busy") == "event"),
        name_(given.text("name", "verbs")),
        device_(must(Device::open(open_options(given)))),
        aside_(stands_aside(given)),
        meeting_(aside_ ? *aside_ : device_),
        engine_(must(ProgressEngine::create(meeting_, {wait_mode(given)}))),
        source_(must(device_.allocate_memory(size_))),
        target_(must(device_.allocate_memory(size_))),
        completions_(must(device_.create_completion_queue(depth_ + receives_at_once()))),
        pair_(must(device_.create_queue_pair(completions_, pair_options()))),
        from_(source_.local()),
        to_(target_.local()),
        receives_(receives_at_once()),
        sleeps_until_(given.text("transport", "udp") == "local" ? Instant::never() : Instant{}) {
    const bool sends = !reads_ && !writes_;
    const bool known = test_ == "latency" ? sends || (writes_ && !sleeps_)
                       : test_ == "rate"  ? sends && !sleeps_
                                          : test_ == "bandwidth" && !sends;
    if (size_ == 0 || !known) usage();
    target_.bytes().back() = std::byte{0};
    for (ReceiveRequest& receive : receives_) receive.local = {&to_, 1};
    request_.opcode = writes_ ? SendOpcode::RdmaWrite : reads_ ? SendOpcode::RdmaRead : SendOpcode::Send;
    request_.local = {&from_, 1};
  }

  // What the queue pairs must know travels with a connection, which then waits for the end.
  void serve() {
    Listener listener = must(Listener::create(engine_, {.device = &meeting_}));
    peer::report_ready(listener.address().to_string());
    ConnectionRequest request = must(listener.wait_request(Duration::seconds(60)));
    meet(request.private_data());
    Connection control = must(request.accept(ConnectionOptions{}, introduction()));
    if (test_ == "latency") answer_all(control);
    if (test_ == "rate") take_all(control);
    engine_.run_until([&] { return control.closed(); }, Duration::seconds(60));
  }

  void measure(const std::string& to) {
    ConnectionOptions options;
    options.device = &meeting_;
    Connection control = must(Connection::connect(engine_, to, options, introduction()));
    meet(control.private_data());
    if (test_ == "latency") measure_latency(control);
    if (test_ == "rate") peer::report(name_, send_all(control) / 1e6, "M/s");
    if (test_ == "bandwidth") peer::report(name_, size_ / measure_copy(control), "GB/s");
    must(control.close());
  }

 private:
  static OpenOptions open_options(const peer::Options& given) {
    OpenOptions open;
    open.device = given.text("device", "");
    open.receive_buffer_bytes = static_cast<std::uint32_t>(given.number("rcvbuf", 0));
    open.path = given.text("transport", "udp") == "local" ? PathChoice::Local : PathChoice::Roce;
    const std::string threads = given.text("threads", "any");
    if (threads != "any" && threads != "single") usage();
    open.single_threaded = threads == "single";
    return open;
  }
  // Within the host a device would look at the ring of the connection by which the two meet, too.
  static std::optional<Device> stands_aside(const peer::Options& given) {
    if (given.text("transport", "udp") != "local" || given.text("test", "latency") == "bandwidth") return std::nullopt;
    return must(Device::open(open_options(given)));
  }
  [[noreturn]] static void usage() { peer::usage("bench_verbs: see its head"); }
  static WaitMode wait_mode(const peer::Options& given) {
    const std::string wait = given.text("wait", "busy");
    if (wait != "busy" && wait != "event") usage();
    return wait == "event" ? WaitMode::Event : WaitMode::Busy;
  }
  std::uint32_t receives_at_once() const { return test_ == "latency" ? kFewReceives : kReceives; }
  QueuePairOptions pair_options() const {
    if (list_ == 0 || list_ > depth_) usage();
    QueuePairOptions options;
    options.capabilities.max_send_requests = depth_;
    options.capabilities.max_receive_requests = receives_at_once();
    if (test_ != "bandwidth") options.capabilities.max_inline_bytes = size_;
    return options;
  }

  using Introduction = std::array<std::byte, QueuePairAddress::kWireBytes + RemoteMemory::kWireBytes>;
  Introduction introduction() const {
    Introduction bytes;
    std::ranges::copy(pair_.address().to_bytes(), bytes.begin());
    std::ranges::copy(target_.remote().to_bytes(), bytes.begin() + QueuePairAddress::kWireBytes);
    return bytes;
  }
  void meet(std::span<const std::byte> introduction) {
    if (introduction.size() < sizeof(Introduction)) usage();
    must(pair_.connect(must(QueuePairAddress::from_bytes(introduction.first(QueuePairAddress::kWireBytes)))));
    const RemoteMemory remote = must(RemoteMemory::from_bytes(introduction.subspan(QueuePairAddress::kWireBytes)));
    request_.remote_address = remote.address;
    request_.rkey = remote.rkey;
    must(pair_.post_receive(receives_));
  }

  // Completions that were polled: of receives, and of lists.
  struct Done {
    std::size_t receives = 0, lists = 0;
  };
  Done poll(const Connection& control) {
    Done done;
    const std::size_t count = completions_.poll(polled_);
    for (const Completion& completion : std::span(polled_).first(count)) {
      if (completion.status != CompletionStatus::Success) peer::usage("a request failed");
      ++(completion.opcode == CompletionOpcode::Receive ? done.receives : done.lists);
    }
    // So that one learns of a peer that went. Not who sleeps: the engine would take the event that is waited for, and
    // within the host another tells of the end.
    if (count == 0 && !sleeps_ && ++idle_ % kIdleTurns == 0) {
      engine_.run_once();
      if (control.closed()) must(control.status());
    }
    return done;
  }

  // ---- Latency.
  // One of so many completes: the queue is never full of what nobody will hear of.
  void post_one(std::uint64_t turn) {
    source_.bytes().back() = static_cast<std::byte>(turn);
    request_.flags = turn % (depth_ / 2 + 1) == 0 ? SendFlags::Inline | SendFlags::Signaled : SendFlags::Inline;
    must(pair_.post_send(request_));
  }
  void await(const Connection& control, std::uint64_t turn) {
    if (writes_) {
      while (std::atomic_ref(target_.bytes().back()).load(std::memory_order_acquire) != static_cast<std::byte>(turn))
        static_cast<void>(poll(control));
      return;
    }
    for (; received_ < turn; received_ += poll(control).receives) {
      if (!sleeps_) continue;
      if (std::exchange(armed_, true)) sleep();
      completions_.arm();  // what came before that raises no event: it is looked for now
    }
  }
  // The end of a peer that sends packets is told by nobody: one that says nothing for so long has gone. The clock is
  // read only then, and hardly within the host.
  void sleep() {
    device_.wait_event(sleeps_until_);
    bool anything = false;
    while (const auto event = device_.poll_event()) {
      if (event->async == AsyncEventType::PeerEnded && event->kind == DeviceEvent::Kind::Async)
        peer::usage("the peer ended");
      anything = true;
    }
    if (anything) {
      heard_ = true;
    } else if (device_.now() >= sleeps_until_) {
      if (!std::exchange(heard_, false)) peer::usage("nothing comes from the peer any more");
      sleeps_until_ = device_.now() + Duration::seconds(5);
    }
  }
  void post_receive_anew() {
    if (!writes_) must(pair_.post_receive(std::span(receives_).first(1)));
  }
  void answer_all(const Connection& control) {
    for (std::uint64_t turn = 1; turn <= iterations_; ++turn) {
      await(control, turn);
      post_one(turn);
      post_receive_anew();
    }
  }
  void measure_latency(const Connection& control) {
    std::vector<double> samples;
    samples.reserve(iterations_);
    for (std::uint64_t turn = 1; turn <= iterations_; ++turn) {
      const std::uint64_t before = peer::now_ns();
      post_one(turn);
      if (turn != 1) post_receive_anew();
      await(control, turn);
      samples.push_back(static_cast<double>(peer::now_ns() - before));
    }
    peer::report_latency(name_, samples);
  }

  // ---- Rate.
  void take_all(const Connection& control) {
    for (std::uint64_t got = 0; got < iterations_;) {
      const std::size_t count = poll(control).receives;
      if (count == 0) continue;
      got += count;
      must(pair_.post_receive(std::span(receives_).first(count)));
    }
  }

  // Messages a second, behind the warm-up.
  double send_all(const Connection& control) {
    request_.flags = SendFlags::Inline;
    std::vector<SendRequest> list(list_, request_);
    list.back().flags = SendFlags::Inline | SendFlags::Signaled;
    const std::uint64_t warm_up = iterations_ / 10;
    std::uint64_t posted = 0, done = 0, begin = peer::now_ns(), counted = 0;
    while (done < iterations_) {
      for (; posted < iterations_ && posted - done + list_ <= depth_; posted += list_) must(pair_.post_send(list));
      done += poll(control).lists * list_;
      if (counted == 0 && done >= warm_up) {
        begin = peer::now_ns();
        counted = iterations_ - done;
      }
    }
    return static_cast<double>(counted) * 1e9 / static_cast<double>(peer::now_ns() - begin);
  }

  // ---- Bandwidth.
  // The first are requests, by which the peer's memory comes within reach.
  template <class CopyNow>
  void bring_within_reach(const Connection& control, const CopyNow& copy_now) {
    constexpr int kTries = 20;
    for (int i = 0; i < kTries && !copy_now(); ++i) {
      request_.flags = SendFlags::Signaled;
      must(pair_.post_send(request_));
      while (poll(control).lists == 0) continue;
      engine_.run_until([] { return false; }, Duration::milliseconds(1));
    }
  }
  // How long a copy takes, in ns.
  template <class CopyNow>
  double measure_copy(const Connection& control, const CopyNow& copy_now) {
    bring_within_reach(control, copy_now);
    return peer::ns_per_operation([&] {
      if (!copy_now()) peer::usage("the peer's memory is not within reach");
    });
  }
  double measure_copy(const Connection& control) {
    const ShortWrite write{source_.bytes(), request_.remote_address, request_.rkey};
    const ShortRead read{source_.bytes(), request_.remote_address, request_.rkey};
    return writes_ ? measure_copy(control, [&] { return pair_.try_write_now(write); })
                   : measure_copy(control, [&] { return pair_.try_read_now(read); });
  }

  const std::uint32_t size_, depth_, list_;
  const std::uint64_t iterations_;
  const std::string test_;
  const bool reads_, writes_, sleeps_;
  const std::string name_;
  Device device_;
  std::optional<Device> aside_;
  Device& meeting_;  // of the connection by which the two meet
  ProgressEngine engine_;
  MemoryRegion source_, target_;
  CompletionQueue completions_;
  QueuePair pair_;
  const ScatterGather from_, to_;
  SendRequest request_;
  std::vector<ReceiveRequest> receives_;
  std::uint64_t received_ = 0;
  unsigned idle_ = 0;
  Instant sleeps_until_;  // in the past at first, where it is not for ever
  bool heard_ = true;     // since that was set
  bool armed_ = false;
  std::array<Completion, 64> polled_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  if (role != "server" && role != "client") peer::usage("bench_verbs server|client [--option value]...");
  const peer::Options given(std::span<char*>(argv, static_cast<std::size_t>(argc)).subspan(2),
                            {"transport", "test", "op", "device", "size", "iterations", "depth", "list", "rcvbuf",
                             "cpu", "connect", "name", "wait", "threads"});
  peer::settle_on(given.integer("cpu", role == "server" ? peer::kFarCpu : peer::kNearCpu));
  End end(given);
  role == "server" ? end.serve() : end.measure(given.text("connect", ""));
  return 0;
}
