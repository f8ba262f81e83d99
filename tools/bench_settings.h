// SPDX-License-Identifier: Apache-2.0
// What one run of `verbena bench` measures. Flags, defaults and columns are perftest's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verbena/base/time.h"
#include "verbena/base/verbs.h"

namespace verbena::tools {

enum class BenchVerb : std::uint8_t { Send, Write, Read, Atomic };
enum class BenchMeasure : std::uint8_t { Latency, Bandwidth };
inline constexpr std::string_view kBenchVerbNames[] = {"send", "write", "read", "atomic"};
inline constexpr std::string_view kBenchMeasureNames[] = {"lat", "bw"};

constexpr std::string_view to_string(BenchVerb verb) { return kBenchVerbNames[static_cast<std::size_t>(verb)]; }
constexpr std::string_view to_string(BenchMeasure measure) {
  return kBenchMeasureNames[static_cast<std::size_t>(measure)];
}

// perftest's.
inline constexpr std::uint16_t kBenchPort = 18515;
inline constexpr std::uint32_t kMaxBenchBytes = 1u << 23;  // of -a; -s takes more
inline constexpr std::uint32_t kMaxBenchSize = 1u << 30;
inline constexpr std::uint32_t kMaxBenchPairs = 256;
inline constexpr std::uint64_t kMaxBenchIterations = 1u << 31;
// -H and -U keep every time, 8 bytes each.
inline constexpr std::uint64_t kMaxKeptTimes = 1u << 20;

struct BenchSettings {
  BenchVerb verb = BenchVerb::Send;
  BenchMeasure measure = BenchMeasure::Bandwidth;
  bool client = false;
  bool all_sizes = false;           // -a
  std::uint32_t size = 65536;       // -s, bytes
  std::uint64_t iterations = 1000;  // -n, per queue pair
  std::uint32_t duration = 0;       // -D, seconds; 0: -n counts
  std::uint32_t pairs = 1;          // -q
  std::uint32_t send_depth = 128;   // -t
  std::uint32_t receive_depth = 512;  // -r
  std::uint32_t post_list = 1;      // -l
  std::uint32_t signal_every = 1;   // -Q
  std::uint32_t inline_bytes = 0;   // -I
  std::uint32_t outstanding = 0;    // -o; 0: as many as the device can
  std::uint32_t mtu = 0;            // -m; 0: the largest both ends can do
  std::uint32_t timeout_code = 16;  // -u
  std::uint8_t traffic_class = 0;   // -T
  bool bidirectional = false;       // -b
  bool managed = false;             // -R
  bool events = false;              // -e
  bool no_peak = false;             // -N
  bool shared_receives = false;     // --use-srq
  bool huge_pages = false;          // --use_hugepages
  bool compare_and_swap = false;    // -A CMP_AND_SWAP
  bool keep_times = false;          // -H, -U
  Duration patience = Duration::seconds(10);  // of every wait for the other side

  bool is_latency() const { return measure == BenchMeasure::Latency; }
  // The other side's application takes part: it receives, or answers.
  bool two_sided() const { return verb == BenchVerb::Send; }
  // Receives that may be posted, of all queue pairs.
  std::uint64_t receives() const {
    if (!two_sided()) return 0;
    return std::uint64_t{receive_depth} * (shared_receives ? 1 : pairs);
  }
  // A latency of which each end measures its own: half of there and back.
  bool ping_pong() const { return is_latency() && (verb == BenchVerb::Send || verb == BenchVerb::Write); }
  // This end posts requests that are measured.
  bool active() const { return client || bidirectional || ping_pong(); }
  std::vector<std::uint32_t> sizes() const;
  std::uint32_t max_size() const { return verb == BenchVerb::Atomic ? 8 : all_sizes ? kMaxBenchBytes : size; }
  // "write bw"
  std::string name() const;
};

// What both ends must have given alike, as flags and their values; see bench_difference().
nlohmann::json bench_agreement(const BenchSettings& settings);
// "-s is 65536 here and 2 there": the first flag in which `here` and `there`, both of bench_agreement(), differ.
std::optional<std::string> bench_difference(const nlohmann::json& here, const nlohmann::json& there);

}  // namespace verbena::tools
