// SPDX-License-Identifier: Apache-2.0
// The line that moves while files move.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace verbena::tools {

// "1.2 MB", powers of 1000, three digits.
std::string format_bytes(double bytes);
// "1 file", "2 files".
std::string format_count(std::uint64_t count, std::string_view one, std::string_view several);
// "3.4 s", "1:07", "2:03:44".
std::string format_seconds(double seconds);

struct ProgressState {
  std::uint64_t bytes = 0;
  std::uint64_t total_bytes = 0;  // 0: unknown
  std::uint64_t files = 0;
  double seconds = 0;   // since the beginning
  double rate = 0;      // bytes per second, lately
  std::string_view name;  // the file at hand, printable
};

// At most `columns` wide: percentage, bar, bytes, rate, time to go, name.
std::string progress_line(const ProgressState& state, std::size_t columns);

// Draws on stderr, ten times a second at most; nothing at all when not enabled.
class Progress {
 public:
  explicit Progress(bool enabled) : enabled_(enabled) {}
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }

  bool enabled() const { return enabled_; }
  void set_total(std::uint64_t bytes) { total_bytes_ = bytes; }
  void update(std::uint64_t bytes, std::uint64_t files, std::string_view name);
  // Takes the line away, so that others may print.
  void clear();

  // A terminal is there to draw on.
  static bool possible();

 private:
  bool enabled_;
  bool drawn_ = false;
  std::uint64_t total_bytes_ = 0;
  double started_ = -1, drawn_at_ = 0;
  double rate_ = 0;
  std::uint64_t drawn_bytes_ = 0;
};

// Seconds of a clock that only goes forward.
double monotonic_seconds();

}  // namespace verbena::tools
