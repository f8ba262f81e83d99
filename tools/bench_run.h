// SPDX-License-Identifier: Apache-2.0
// The measurement itself, one size after the other, at either end.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tools/bench_control.h"
#include "tools/bench_pairs.h"
#include "tools/bench_settings.h"
#include "tools/histogram.h"

namespace verbena::tools {

// What one direction moved. Rates are of messages per second.
struct BenchTraffic {
  std::uint64_t messages = 0;
  Duration taken{};
  double peak = 0;  // 0: not asked for
  double average() const {
    return taken.ns == 0 ? 0 : static_cast<double>(messages) * 1e9 / static_cast<double>(taken.ns);
  }
};

// One line of the result.
struct BenchRow {
  std::uint32_t bytes = 0;
  std::uint64_t messages = 0;
  Duration taken{};
  double peak = 0, average = 0;  // bandwidth: messages per second, of both directions with -b
  Histogram times;               // latency: of one operation; ping-pong: of there and back
  std::vector<std::int64_t> kept;  // with keep_times, in order, ns
};

class BenchRun {
 public:
  // Messages and bytes moved so far by this end, now and then; may draw.
  using Progress = std::function<void(std::uint32_t bytes, std::uint64_t messages)>;

  // The best rate of messages within any window of `size` completions, or more where completions come together.
  class Peak {
   public:
    explicit Peak(std::uint64_t size) : size_(size) {}
    void add(Instant now, std::uint64_t posted, std::uint64_t completed);
    double best() const { return best_; }

   private:
    const std::uint64_t size_;
    std::deque<std::pair<Instant, std::uint64_t>> window_;
    double best_ = 0;
  };

  static Result<std::unique_ptr<BenchRun>> create(ProgressEngine& engine, Device& device, BenchPairs& pairs,
                                                  BenchControl& control, const BenchSettings& settings,
                                                  StopQuestion stopped);
  BenchRun(const BenchRun&) = delete;
  BenchRun& operator=(const BenchRun&) = delete;

  // Tells the other end of this one's memory and learns of its.
  Result<void> prepare();
  Result<void> post_receive(std::uint32_t index);
  // Errors: TimedOut, Cancelled, ProtocolError, those of completions and of the control link. None: this end has no
  // numbers (the passive end of a READ's or an atomic's latency).
  Result<std::optional<BenchRow>> measure(std::uint32_t size, const Progress& progress);
  // After the last size: back when the other end polls no more either, and the connections may end.
  Result<void> part();

 private:
  struct PairCount {
    std::uint64_t posted = 0, completed = 0;
    std::uint64_t received = 0;
  };

  BenchRun(ProgressEngine& engine, BenchPairs& pairs, BenchControl& control, const BenchSettings& settings,
           StopQuestion stopped)
      : engine_(engine), pairs_(pairs), control_(control), settings_(settings), stopped_(std::move(stopped)) {}
  Result<void> meet(std::uint32_t size);
  Result<void> stream(const Progress& progress, BenchTraffic& traffic);
  Result<void> fill_queues(bool time_is_up);
  Result<void> ask(const Progress& progress, BenchRow& row);
  Result<void> answer(const Progress& progress, BenchRow& row);
  Result<BenchTraffic> finish(const BenchTraffic& own);
  Result<void> post(std::uint32_t index, std::uint64_t count);
  Result<void> post_turn(std::uint64_t number);
  SendRequest request(std::uint32_t index) const;
  // Polls until `done` holds, with an eye on the other end and the user. Errors: TimedOut (nothing completed for
  // `patience`), Cancelled, those of completions and of the control link.
  using Question = std::function<bool()>;
  Result<void> poll_until(const Question& done, Duration patience);
  // Takes what the other end says into told_.
  Result<void> listen();
  Result<nlohmann::json> wait_told(Duration patience);
  bool poll();
  void handle(const Completion& completion);
  void note_time(BenchRow& row, Duration time) const;
  bool arrived(std::uint64_t number) const;
  Duration time_limit() const {
    return settings_.duration == 0 ? Duration::forever() : Duration::seconds(settings_.duration);
  }
  // Requests per queue pair.
  std::uint64_t limit() const { return settings_.duration != 0 ? ~std::uint64_t{0} : settings_.iterations; }
  std::uint64_t completed() const;
  std::uint64_t received() const;
  std::uint64_t posted() const;

  ProgressEngine& engine_;
  BenchPairs& pairs_;
  BenchControl& control_;
  const BenchSettings settings_;
  const StopQuestion stopped_;
  MemoryRegion memory_;  // what leaves, then what arrives
  std::size_t half_ = 0;  // bytes of either
  RemoteMemory remote_;
  std::uint32_t size_ = 0;  // at hand
  ScatterGather piece_;     // what leaves or is read into
  std::vector<PairCount> counts_;
  std::vector<SendRequest> list_;
  std::uint32_t polls_ = 0;  // over all waits: one that ends with its first poll counts too
  std::optional<nlohmann::json> told_;
  std::optional<Error> error_;
};

}  // namespace verbena::tools
