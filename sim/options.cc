// SPDX-License-Identifier: Apache-2.0
#include "sim/options.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "soft/wire/text.h"

namespace verbena::sim {

namespace {

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed ^ 0x5eed'0f'0b'7a'1e'0001u) {}
  bool chance(double p) { return random_.chance(p); }
  std::uint64_t between(std::uint64_t low, std::uint64_t high) { return low + random_.below(high - low + 1); }
  std::uint32_t u32(std::uint32_t low, std::uint32_t high) {
    return static_cast<std::uint32_t>(between(low, high));
  }
  std::uint8_t u8(std::uint8_t low, std::uint8_t high) {
    return static_cast<std::uint8_t>(between(low, high));
  }
  Duration duration(Duration low, Duration high) {
    return Duration{
        low.ns + static_cast<std::int64_t>(random_.below(static_cast<std::uint64_t>((high - low).ns + 1)))};
  }
  template <class T, std::size_t n>
  T of(const T (&values)[n]) {
    return values[random_.below(n)];
  }

 private:
  SeededRandom random_;
};

constexpr Duration us(std::int64_t n) { return Duration::microseconds(n); }

void draw_network(Draw& draw, NetworkOptions& n) {
  n.delay = draw.duration(us(1), us(50));
  if (draw.chance(0.4)) n.jitter = draw.duration(us(1), us(40));
  if (draw.chance(0.05)) n.jitter = n.delay * 100;
  if (draw.chance(0.3)) {
    n.bits_per_second = draw.of<std::uint64_t>({1'000'000'000, 10'000'000'000, 40'000'000'000});
    n.queue_bytes = draw.u32(16 * 1024, 512 * 1024);
  }
  if (draw.chance(0.55)) n.loss = draw.of({0.001, 0.01, 0.01, 0.03, 0.05, 0.1, 0.3});
  if (draw.chance(0.25)) {
    n.burst_begin = draw.of({0.001, 0.005, 0.02});
    n.burst_end = draw.of({0.1, 0.3, 0.5});
  }
  if (draw.chance(0.35)) {
    n.reorder = draw.of({0.01, 0.05, 0.3});
    n.reorder_delay = draw.duration(us(1), us(100));
  }
  if (draw.chance(0.35)) {
    n.duplicate = draw.of({0.01, 0.05, 0.3});
    n.max_duplicates = draw.u32(1, 5);
  }
  if (draw.chance(0.2)) {
    n.replay = draw.of({0.005, 0.02});
    n.replay_delay = draw.duration(us(200), us(5000));
  }
  if (draw.chance(0.3)) n.corrupt = draw.of({0.005, 0.02, 0.1});
  if (draw.chance(0.2)) n.hostile = draw.of({0.01, 0.1});
  if (draw.chance(0.15)) n.ghost = 0.05;
  if (draw.chance(0.1)) {
    n.cuts = draw.u32(1, 4);
    n.cut_time = draw.duration(us(100), us(20'000));
  }
}

void draw_host(Draw& draw, HostOptions& h) {
  if (draw.chance(0.4)) h.max_poll_delay = draw.duration(us(1), us(30));
  if (draw.chance(0.3)) h.max_timer_delay = draw.duration(us(1), us(2000));
  if (draw.chance(0.1)) h.receive_buffer_bytes = draw.u32(24 * 1024, 100 * 1024);
  if (draw.chance(0.12)) {
    h.pauses = draw.u32(1, 3);
    h.pause_time = draw.duration(us(500), us(60'000));
  }
  if (draw.chance(0.3)) h.lazy_poll = draw.of({0.3, 0.9});
  h.flush_acks = draw.chance(0.6);
  h.notify = draw.chance(0.5);
  h.train_datagrams = draw.of<std::uint32_t>({1, 2, 7, 64});
  h.gather_from_bytes = draw.of<std::uint32_t>({0, 1, 512, 2048, 1u << 20});
  h.source_ports = draw.u32(1, 4);
}

void draw_queues(Draw& draw, QueueOptions& q) {
  q.path_mtu = draw.of<std::uint32_t>({256, 256, 256, 512, 1024, 1024, 2048, 4096});
  q.near_wrap = draw.chance(0.5);
  q.send_depth = draw.of<std::uint32_t>({1, 2, 4, 16, 32, 64, 128});
  q.receive_depth = draw.of<std::uint32_t>({1, 2, 4, 16, 32, 64, 128});
  q.segments = draw.u32(1, 8);
  q.inline_bytes = draw.of<std::uint32_t>({0, 16, 64, 256});
  q.signal_all = draw.chance(0.2);
  q.rd_atomic = draw.of<std::uint8_t>({1, 1, 2, 4, 8, 16});
  q.timeout = draw.u8(9, 14);
  q.retry_count = draw.chance(0.8) ? std::uint8_t{7} : draw.u8(1, 6);
  q.rnr_retry = draw.chance(0.85) ? std::uint8_t{7} : draw.u8(2, 6);
  q.min_rnr_timer = draw.u8(1, 10);
  q.through_cm = draw.chance(0.15);
  q.quick_cm = draw.chance(0.8);
}

void draw_transport(Draw& draw, roce::Config& t) {
  if (draw.chance(0.5)) t.initial_window_packets = draw.of<std::uint32_t>({1, 2, 8, 32, 256});
  if (draw.chance(0.3)) t.max_window_bytes = draw.u32(4096, 192 * 1024);
  t.ack_request_interval = draw.of<std::uint32_t>({1, 2, 4, 16, 16, 64});
  t.read_chunk_bytes = draw.of<std::uint32_t>({4096, 8192, 64 * 1024});
  if (draw.chance(0.3)) t.min_retransmission_time = draw.duration(us(100), us(2000));
  if (draw.chance(0.3)) t.initial_retransmission_time = draw.duration(us(500), us(10'000));
  if (draw.chance(0.5)) t.max_owed_ack_time = draw.duration(us(0), us(100));
}

void draw_work(Draw& draw, Options& o) {
  WorkOptions& w = o.work;
  w.pairs = draw.u32(1, 4);
  w.operations = draw.u32(300, 900);
  for (std::uint32_t& weight : w.weights) weight = draw.chance(0.2) ? 0 : draw.u32(1, 8);
  w.weights[draw.between(0, 6)] = 8;
  w.max_packets = draw.of<std::uint32_t>({1, 2, 4, 8, 16});
  w.think = draw.duration(us(1), us(20));
  w.unsignaled = draw.of({0.0, 0.3, 0.8});
  w.fence = draw.of({0.0, 0.1, 0.4});
  w.inlined = draw.of({0.0, 0.3});
  if (draw.chance(0.4)) w.late_receive = draw.of({0.1, 0.5, 0.9});
  if (draw.chance(0.4)) w.invalid = draw.of({0.005, 0.02});
  if (draw.chance(0.2)) w.drain = draw.of({0.005, 0.05});
  if (draw.chance(0.2)) w.misuse = draw.of({0.01, 0.1});
  if (draw.chance(0.3)) w.kill = draw.of({0.002, 0.01});
}

}  // namespace

Options options_for_seed(std::uint64_t seed) {
  Draw draw(seed);
  Options o;
  o.seed = seed;
  o.nodes = draw.chance(0.7) ? 2 : draw.u32(2, 4);
  o.ipv6 = draw.chance(0.2);
  // Times near which a count of nanoseconds, or of microseconds, overflows some integer; or crosses zero.
  constexpr std::int64_t kWraps[] = {std::int64_t{1} << 31,          std::int64_t{1} << 32,
                                     (std::int64_t{1} << 32) * 1000, std::int64_t{1} << 53,
                                     std::int64_t{1} << 62,          0};
  if (draw.chance(0.5))
    o.start = Instant{draw.of(kWraps) - static_cast<std::int64_t>(draw.between(0, 3'000'000))};
  else
    o.start = Instant{static_cast<std::int64_t>(draw.between(0, 1'000'000'000'000))};
  draw_network(draw, o.network);
  draw_host(draw, o.host);
  draw_queues(draw, o.queues);
  draw_transport(draw, o.transport);
  draw_work(draw, o);
  // With an unseen identification 16 bits of the ICRC are left, and damage slips through once in 65,536.
  o.host.hide_identification = !o.ipv6 && o.network.corrupt == 0 && draw.chance(0.3);
  // A pair whose retries are spent before a pause or cut ends is killed for good reason, but then all time
  // goes there.
  if (o.host.pauses + o.network.cuts != 0) o.queues.timeout = std::max<std::uint8_t>(o.queues.timeout, 11);
  return o;
}

std::string_view to_string(core::PlantedBug bug) {
  constexpr std::string_view kNames[] = {"None",
                                         "SkipReplayCheck",
                                         "AckBeforeStore",
                                         "ForgetTailAfterRnr",
                                         "ReexecuteDuplicateAtomic",
                                         "AcceptGap",
                                         "NeverSendSequenceNak",
                                         "CompleteReadOnAck",
                                         "IgnoreImpliedNak",
                                         "PsnWrapOffByOne",
                                         "MsnCountsPackets",
                                         "RetransmitFromWrongPsn",
                                         "LoseUnsignaledError",
                                         "FlushInReverse",
                                         "SkipFlush",
                                         "CompleteTwice",
                                         "RangeCheckOffByOne",
                                         "StaleKeyAccepted",
                                         "WriteWithImmediateDropsImmediate",
                                         "GhostAckAccepted",
                                         "RnrConsumesReceive"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(core::PlantedBug::Count));
  return kNames[static_cast<std::size_t>(bug)];
}

namespace {

class Text {
 public:
  Text& section(std::string_view name) {
    line_.add(line_.empty() ? "" : "\n").add(name).add(":");
    return *this;
  }
  Text& number(std::string_view name, std::uint64_t value) {
    line_.add(" ").add(name).add(" ").decimal(value);
    return *this;
  }
  Text& time(std::string_view name, Duration value) {
    if (value.ns == 0) return *this;
    line_.add(" ").add(name).add(" ").decimal(static_cast<std::uint64_t>(value.ns)).add(" ns");
    return *this;
  }
  // A probability in units of 1/10,000; nothing when it is 0.
  Text& chance(std::string_view name, double p) {
    const auto parts = static_cast<std::uint64_t>(std::llround(p * 10'000));
    if (parts == 0) return *this;
    line_.add(" ")
        .add(name)
        .add(" ")
        .decimal(parts / 100)
        .add(".")
        .decimal(parts / 10 % 10)
        .decimal(parts % 10)
        .add("%");
    return *this;
  }
  Text& flag(std::string_view name, bool value) {
    if (value) line_.add(" ").add(name);
    return *this;
  }
  std::string take() { return line_.take() + "\n"; }

 private:
  class Line {
   public:
    Line& add(std::string_view t) { return empty_ = empty_ && t.empty(), inner_.add(t), *this; }
    Line& decimal(std::uint64_t v) { return empty_ = false, inner_.decimal(v), *this; }
    bool empty() const { return empty_; }
    std::string take() { return inner_.take(); }

   private:
    wire::Line inner_;
    bool empty_ = true;
  };
  Line line_;
};

}  // namespace

std::string to_string(const Options& o) {
  Text t;
  const NetworkOptions& n = o.network;
  t.section("world")
      .number("seed", o.seed)
      .number("nodes", o.nodes)
      .flag("ipv6", o.ipv6)
      .flag("before-zero", o.start.ns < 0);
  t.number("start", static_cast<std::uint64_t>(o.start.ns < 0 ? -o.start.ns : o.start.ns));
  if (o.bug != core::PlantedBug::None) t.flag(to_string(o.bug), true);
  t.section("network").time("delay", n.delay).time("jitter", n.jitter).number("rate", n.bits_per_second);
  t.number("queue", n.queue_bytes).chance("loss", n.loss).chance("burst", n.burst_begin);
  t.chance("reorder", n.reorder).time("by", n.reorder_delay).chance("duplicate", n.duplicate);
  t.chance("replay", n.replay)
      .chance("corrupt", n.corrupt)
      .chance("hostile", n.hostile)
      .chance("ghost", n.ghost);
  if (n.cuts != 0) t.number("cuts", n.cuts).time("of", n.cut_time);
  const HostOptions& h = o.host;
  t.section("hosts").time("poll-delay", h.max_poll_delay).time("timer-delay", h.max_timer_delay);
  t.number("buffer", h.receive_buffer_bytes)
      .chance("lazy-poll", h.lazy_poll)
      .flag("flush-acks", h.flush_acks);
  t.flag("hidden-identification", h.hide_identification).flag("notify", h.notify);
  t.number("train", h.train_datagrams)
      .number("gather-from", h.gather_from_bytes)
      .number("ports", h.source_ports);
  if (h.pauses != 0) t.number("pauses", h.pauses).time("of", h.pause_time);
  const QueueOptions& q = o.queues;
  t.section("queues").number("mtu", q.path_mtu).flag("near-wrap", q.near_wrap).number("send", q.send_depth);
  t.number("receive", q.receive_depth).number("segments", q.segments).number("inline", q.inline_bytes);
  t.flag("signal-all", q.signal_all).number("rd-atomic", q.rd_atomic).number("timeout", q.timeout);
  t.number("retry", q.retry_count).number("rnr-retry", q.rnr_retry).number("rnr-timer", q.min_rnr_timer);
  t.flag("through-cm", q.through_cm).flag("quick-cm", q.through_cm && q.quick_cm);
  const WorkOptions& w = o.work;
  t.section("work")
      .number("pairs", w.pairs)
      .number("operations", w.operations)
      .number("max-packets", w.max_packets);
  t.time("think", w.think)
      .chance("unsignaled", w.unsignaled)
      .chance("fence", w.fence)
      .chance("inline", w.inlined);
  t.chance("late-receive", w.late_receive).chance("invalid", w.invalid).chance("kill", w.kill);
  t.chance("drain", w.drain).chance("misuse", w.misuse);
  const roce::Config& c = o.transport;
  t.section("transport")
      .number("window", c.initial_window_packets)
      .number("window-bytes", c.max_window_bytes);
  t.number("ack-interval", c.ack_request_interval).number("read-chunk", c.read_chunk_bytes);
  t.time("min-rto", c.min_retransmission_time).time("rto", c.initial_retransmission_time);
  t.time("owed-ack", c.max_owed_ack_time);
  return t.take();
}

}  // namespace verbena::sim
