// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <utility>

#include "tools/bench_common.h"

namespace verbena::tools {

namespace {

// Polls between two looks at the control link and at the wish to stop.
constexpr std::uint32_t kPollsPerGlance = 256;
// Messages between two calls of the progress function.
constexpr std::uint64_t kProgressStride = 256;

SendOpcode opcode_of(const BenchSettings& settings) {
  switch (settings.verb) {
    case BenchVerb::Send: return SendOpcode::Send;
    case BenchVerb::Write: return SendOpcode::RdmaWrite;
    case BenchVerb::Read: return SendOpcode::RdmaRead;
    case BenchVerb::Atomic: break;
  }
  return settings.compare_and_swap ? SendOpcode::CompareAndSwap : SendOpcode::FetchAndAdd;
}

}  // namespace

// Only what was posted since then counts: what was before may have been done before, and is met all at once.
void BenchRun::Peak::add(Instant now, std::uint64_t posted, std::uint64_t completed) {
  while (window_.size() > 1 && completed >= window_[1].second + size_) window_.pop_front();
  if (!window_.empty()) {
    const auto& [since, before] = window_.front();
    if (completed >= before + size_ && now > since)
      best_ = std::max(best_, static_cast<double>(completed - before) * 1e9 / static_cast<double>((now - since).ns));
  }
  window_.emplace_back(now, posted);
}

Result<std::unique_ptr<BenchRun>> BenchRun::create(ProgressEngine& engine, Device& device, BenchPairs& pairs,
                                                   BenchControl& control, const BenchSettings& settings,
                                                   StopQuestion stopped) {
  std::unique_ptr<BenchRun> run(new BenchRun(engine, pairs, control, settings, std::move(stopped)));
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  run->half_ = std::max<std::size_t>(settings.max_size(), 8);
  auto memory = device.allocate_memory(std::max(2 * run->half_, settings.huge_pages ? kHugePage : 0));
  if (!memory) return std::move(memory).error();
  if (settings.huge_pages && memory->pages() != PageKind::Huge)
    return Error(ErrorCode::ResourceExhausted,
                 fmt::format("--use_hugepages: {} MiB in huge pages are wanted, and as many are not free; as root: "
                             "sysctl -w vm.nr_hugepages=N reserves more",
                             (memory->size() + kHugePage - 1) / kHugePage * 2));
  run->memory_ = std::move(*memory);
  run->list_.resize(settings.post_list);
  return run;
}

Result<void> BenchRun::prepare() {
  const std::uint64_t lent = 2 * half_;
  const RemoteMemory ours = memory_.remote();
  if (auto sent = control_.send({{"address", ours.address}, {"length", lent}, {"rkey", ours.rkey.value()}});
      !sent)
    return sent;
  auto message = control_.receive();
  if (!message) return std::move(message).error();
  const auto address = number_of(*message, "address"), length = number_of(*message, "length"),
             rkey = number_of(*message, "rkey");
  if (!address || !length || !rkey || *length != lent)
    return Error(ErrorCode::ProtocolError, "the other side lends other memory than was agreed");
  const RemoteMemory theirs{*address, *length, RKey{static_cast<std::uint32_t>(*rkey)}};
  auto half = theirs.sub_range(*length / 2, *length / 2);
  if (!half) return std::move(half).error();
  remote_ = *half;
  counts_.resize(settings_.pairs);
  const bool receives = !settings_.client || settings_.bidirectional || settings_.is_latency();
  if (!settings_.two_sided() || !receives) return {};
  // Of a queue that all share, the first pair's stand for all.
  for (std::uint64_t k = 0; k < settings_.receives(); ++k)
    if (auto posted = post_receive(static_cast<std::uint32_t>(k / settings_.receive_depth)); !posted) return posted;
  return {};
}

Result<void> BenchRun::post_receive(std::uint32_t index) {
  return pairs_.post_receive(index, memory_.local(half_, settings_.max_size()));
}

std::uint64_t BenchRun::completed() const {
  std::uint64_t sum = 0;
  for (const PairCount& one : counts_) sum += one.completed;
  return sum;
}
std::uint64_t BenchRun::received() const {
  std::uint64_t sum = 0;
  for (const PairCount& one : counts_) sum += one.received;
  return sum;
}
std::uint64_t BenchRun::posted() const {
  std::uint64_t sum = 0;
  for (const PairCount& one : counts_) sum += one.posted;
  return sum;
}

void BenchRun::handle(const Completion& completion) {
  const auto index = static_cast<std::uint32_t>(completion.id >> 1);
  const bool is_receive = (completion.id & 1) != 0;
  if (error_) return;
  if (completion.status != CompletionStatus::Success) {
    error_ = Error(to_error_code(completion.status),
                   fmt::format("{} on queue pair {} of {}, {} bytes: {}", is_receive ? "receive" : settings_.name(),
                               index + 1, settings_.pairs, size_, to_string(completion.status)),
                   static_cast<int>(completion.status), ErrorDomain::WorkCompletion);
    return;
  }
  PairCount& count = counts_[index];
  if (!is_receive) {
    count.completed = std::min(count.completed + settings_.signal_every, count.posted);
    return;
  }
  ++count.received;
  if (completion.byte_count != size_)
    error_ = Error(ErrorCode::ProtocolError,
                   fmt::format("a message of {} bytes came, and {} were due", completion.byte_count, size_));
  else if (auto posted = post_receive(index); !posted)
    error_ = posted.error();
}

bool BenchRun::poll() {
  return pairs_.poll([this](const Completion& completion) { handle(completion); });
}

Result<void> BenchRun::poll_until(const Question& done, Duration patience) {
  Instant deadline = Instant::never();
  while (!done()) {
    const bool further = poll();
    if (error_) return *error_;
    if (further) deadline = Instant::never();
    const bool waits = settings_.events && !further;
    if (waits) pairs_.wait(engine_.now() + kBenchGlance, [this](const Completion& completion) { handle(completion); });
    // Also where every poll finds something: copies into a peer's memory are complete as soon as they are posted.
    if (!waits && ++polls_ % kPollsPerGlance != 0) continue;
    // The other end may be waiting for this very processor.
    if (!further) std::this_thread::yield();
    if (stopped_()) return Error(ErrorCode::Cancelled, "interrupted");
    if (auto heard = listen(); !heard) return heard;
    const Instant now = engine_.now();
    if (further) continue;
    if (deadline.is_never()) deadline = now + patience;
    if (now >= deadline && !done())
      return Error(ErrorCode::TimedOut, fmt::format("nothing came for {} s", patience.ns / 1'000'000'000));
  }
  return {};
}

Result<void> BenchRun::listen() {
  if (told_ || !control_.ready()) return {};
  auto message = control_.receive();
  if (!message) return std::move(message).error();
  told_ = std::move(*message);
  return {};
}

Result<nlohmann::json> BenchRun::wait_told(Duration patience) {
  if (auto heard = poll_until([this] { return told_.has_value(); }, patience); !heard)
    return std::move(heard).error();
  nlohmann::json message = std::move(*told_);
  told_.reset();
  return message;
}

SendRequest BenchRun::request(std::uint32_t index) const {
  SendRequest one;
  one.id = BenchPairs::send_id(index);
  one.opcode = opcode_of(settings_);
  one.flags = SendFlags::None;
  one.local = {&piece_, 1};
  one.remote_address = remote_.address;
  one.rkey = remote_.rkey;
  one.swap_or_add = 1;
  const bool outgoing = settings_.verb == BenchVerb::Send || settings_.verb == BenchVerb::Write;
  if (outgoing && size_ <= settings_.inline_bytes) one.flags = one.flags | SendFlags::Inline;
  return one;
}

// Every signal_every-th request completes, and the last.
Result<void> BenchRun::post(std::uint32_t index, std::uint64_t count) {
  PairCount& pair = counts_[index];
  for (std::uint64_t i = 0; i < count; ++i) {
    list_[i] = request(index);
    const std::uint64_t number = ++pair.posted;
    const bool completes = number % settings_.signal_every == 0 || number == limit();
    if (completes) list_[i].flags = list_[i].flags | SendFlags::Signaled;
  }
  return pairs_.post_send(index, std::span(list_).first(count));
}

// By whole lists; part of one where nothing that is out would make room for all of it. Once the time is up, up to the
// next request that completes.
Result<void> BenchRun::fill_queues(bool time_is_up) {
  for (std::uint32_t i = 0; i < settings_.pairs; ++i) {
    const PairCount& pair = counts_[i];
    for (;;) {
      std::uint64_t left = limit() - pair.posted;
      if (time_is_up) left = (settings_.signal_every - pair.posted % settings_.signal_every) % settings_.signal_every;
      const std::uint64_t out = pair.posted - pair.completed, room = settings_.send_depth - out;
      std::uint64_t count = std::min<std::uint64_t>(left, settings_.post_list);
      if (out < settings_.signal_every) count = std::min(count, room);
      if (count == 0 || count > room) break;
      if (auto done = post(i, count); !done) return done;
    }
  }
  return {};
}

Result<void> BenchRun::stream(const Progress& progress, BenchTraffic& traffic) {
  constexpr std::uint64_t kQueues = 16;  // that many full ones in a row
  Peak peak(kQueues * settings_.send_depth * settings_.pairs);
  const Instant begun = engine_.now();
  const Instant end = begun + time_limit();
  Instant now = begun;
  std::uint64_t done = 0, drawn = 0;
  const auto all_posted = [&](bool time_is_up) {
    return std::ranges::all_of(counts_, [&](const PairCount& pair) {
      return time_is_up ? pair.posted % settings_.signal_every == 0 : pair.posted == limit();
    });
  };
  for (;;) {
    const bool time_is_up = now >= end;
    if (auto filled = fill_queues(time_is_up); !filled) return filled;
    if (all_posted(time_is_up) && done == posted()) break;
    const std::uint64_t before = done;
    if (auto moved = poll_until([&] { return completed() != before; }, settings_.patience); !moved) return moved;
    now = engine_.now();
    done = completed();
    if (!settings_.no_peak) peak.add(now, posted(), done);
    if (done - drawn >= kProgressStride) progress(size_, drawn = done);
  }
  traffic = {done, now - begun, 0};
  // In millionths, as the other end is told: both print the same.
  if (!settings_.no_peak) traffic.peak = std::ceil(std::max(peak.best(), traffic.average()) * 1e6) / 1e6;
  return {};
}

// Message `number` of the other end, counted from 1.
bool BenchRun::arrived(std::uint64_t number) const {
  if (settings_.verb == BenchVerb::Send) return counts_.front().received >= number;
  std::byte& last = memory_.data()[half_ + size_ - 1];
  return std::atomic_ref(last).load(std::memory_order_acquire) == static_cast<std::byte>(number);
}

// A WRITE's last byte tells the other end that all of it is there.
Result<void> BenchRun::post_turn(std::uint64_t number) {
  const auto room = [this] { return posted() - completed() < settings_.send_depth; };
  if (auto waited = poll_until(room, settings_.patience); !waited) return waited;
  if (settings_.verb == BenchVerb::Write) memory_.data()[size_ - 1] = static_cast<std::byte>(number);
  return post(0, 1);
}

void BenchRun::note_time(BenchRow& row, Duration time) const {
  row.times.add(time.ns);
  ++row.messages;
  if (settings_.keep_times && row.kept.size() < kMaxKeptTimes) row.kept.push_back(time.ns);
}

// The asking side: one operation, and what it waits for, at a time.
Result<void> BenchRun::ask(const Progress& progress, BenchRow& row) {
  const Instant begun = engine_.now();
  const Instant end = begun + time_limit();
  Instant now = begun;
  for (std::uint64_t number = 1; number <= limit() && now < end; ++number) {
    if (auto posted = post_turn(number); !posted) return posted;
    const auto answered = [this, number] {
      return settings_.ping_pong() ? arrived(number) : completed() >= number;
    };
    if (auto waited = poll_until(answered, settings_.patience); !waited) return waited;
    const Instant then = std::exchange(now, engine_.now());
    note_time(row, now - then);
    if (number % kProgressStride == 0) progress(size_, number);
  }
  row.taken = now - begun;
  return {};
}

// The answering side measures from answer to answer, until the other end says that it is through.
Result<void> BenchRun::answer(const Progress& progress, BenchRow& row) {
  Instant then{};
  for (std::uint64_t number = 1;; ++number) {
    const auto due = [this, number] { return arrived(number) || told_.has_value(); };
    if (auto waited = poll_until(due, settings_.patience); !waited) return waited;
    if (!arrived(number)) return {};
    const Instant now = engine_.now();
    if (auto posted = post_turn(number); !posted) return posted;
    if (number > 1) {
      note_time(row, now - then);
      row.taken = row.taken + (now - then);
    }
    then = now;
    if (number % kProgressStride == 0) progress(size_, number);
  }
}

Result<void> BenchRun::meet(std::uint32_t size) {
  size_ = size;
  std::ranges::fill(counts_, PairCount{});
  const bool fetches = settings_.verb == BenchVerb::Read || settings_.verb == BenchVerb::Atomic;
  piece_ = memory_.local(0, size);
  if (!fetches) std::ranges::fill(memory_.bytes().first(size), std::byte{0x5a});
  memory_.data()[half_ + size - 1] = std::byte{0};
  if (auto sent = control_.send({{"size", size}}); !sent) return sent;
  auto message = wait_told(settings_.patience);
  if (!message) return std::move(message).error();
  const auto theirs = number_of(*message, "size");
  if (!theirs || *theirs != size) return Error(ErrorCode::ProtocolError, "the other side measures another size");
  return {};
}

// Both tell what they moved. What was sent here has completed there, so it has arrived here, or is about to be found.
Result<BenchTraffic> BenchRun::finish(const BenchTraffic& own) {
  const auto all_done = [this] { return completed() == posted(); };
  if (auto done = poll_until(all_done, settings_.patience); !done) return std::move(done).error();
  const auto ns = static_cast<std::uint64_t>(own.taken.ns);
  const auto peak = static_cast<std::uint64_t>(std::llround(own.peak * 1e6));
  const bool waits_first = !settings_.active();
  const nlohmann::json ours{{"messages", own.messages}, {"ns", ns}, {"peak_millionths", peak}, {"posted", posted()}};
  if (!waits_first)
    if (auto sent = control_.send(ours); !sent) return std::move(sent).error();
  auto message = wait_told(waits_first || settings_.bidirectional ? Duration::forever() : settings_.patience);
  if (!message) return std::move(message).error();
  const auto messages = number_of(*message, "messages"), taken = number_of(*message, "ns"),
             theirs_peak = number_of(*message, "peak_millionths"), sent = number_of(*message, "posted");
  if (!messages || !taken || !theirs_peak || !sent)
    return Error(ErrorCode::ProtocolError, "the other side tells no result");
  if (settings_.two_sided()) {
    const auto all_here = [&] { return received() >= *sent; };
    if (auto done = poll_until(all_here, settings_.patience); !done) return std::move(done).error();
    if (received() != *sent)
      return Error(ErrorCode::ProtocolError, fmt::format("{} messages came of {}", received(), *sent));
  }
  if (waits_first)
    if (auto told = control_.send(ours); !told) return std::move(told).error();
  return BenchTraffic{*messages, Duration{static_cast<std::int64_t>(*taken)},
                      static_cast<double>(*theirs_peak) / 1e6};
}

Result<std::optional<BenchRow>> BenchRun::measure(std::uint32_t size, const Progress& progress) {
  if (auto met = meet(size); !met) return std::move(met).error();
  BenchRow row;
  row.bytes = size;
  BenchTraffic own;
  Result<void> done;
  if (!settings_.is_latency() && settings_.active()) done = stream(progress, own);
  else if (settings_.is_latency() && settings_.client) done = ask(progress, row);
  else if (settings_.ping_pong()) done = answer(progress, row);
  if (!done) return std::move(done).error();
  auto theirs = finish(own);
  if (!theirs) return std::move(theirs).error();
  if (settings_.is_latency())
    return row.times.count() == 0 ? std::optional<BenchRow>() : std::optional<BenchRow>(std::move(row));
  const BenchTraffic& first = settings_.active() ? own : *theirs;
  row.messages = first.messages;
  row.taken = first.taken;
  row.average = own.average() + theirs->average();
  row.peak = own.peak + theirs->peak;
  return std::optional<BenchRow>(std::move(row));
}

// Polling would meet the flush of an end that parted first.
Result<void> BenchRun::part() {
  if (auto told = control_.send({{"end", true}}); !told) return told;
  if (!told_) {
    auto message = control_.receive();
    if (!message) return std::move(message).error();
    told_ = std::move(*message);
  }
  if (!told_->contains("end")) return Error(ErrorCode::ProtocolError, "the other side goes on after the end");
  return {};
}

}  // namespace verbena::tools
