// SPDX-License-Identifier: Apache-2.0
#include "tools/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "tools/say.h"

namespace verbena::tools {

namespace {

constexpr double kDrawInterval = 0.1;  // seconds
constexpr std::size_t kBarColumns = 20;

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// The first characters of UTF-8 text that fit.
std::string_view fit(std::string_view text, std::size_t columns) {
  std::size_t bytes = 0, characters = 0;
  while (bytes < text.size()) {
    if ((text[bytes] & 0xc0) != 0x80 && characters++ == columns) break;
    ++bytes;
  }
  return text.substr(0, bytes);
}

}  // namespace

std::string format_bytes(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  if (unit == 0 || bytes >= 99.95) return fmt::format("{:.0f} {}", bytes, kUnits[unit]);
  return fmt::format("{:.{}f} {}", bytes, bytes >= 9.995 ? 1 : 2, kUnits[unit]);
}

std::string format_count(std::uint64_t count, std::string_view one, std::string_view several) {
  return fmt::format("{} {}", count, count == 1 ? one : several);
}

std::string format_seconds(double seconds) {
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::min(seconds + 0.5, 1e9));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_line(const ProgressState& state, std::size_t columns) {
  std::string line;
  if (state.total_bytes != 0) {
    const double part = std::min(1.0, static_cast<double>(state.bytes) / static_cast<double>(state.total_bytes));
    const auto full = static_cast<std::size_t>(part * kBarColumns);
    line = fmt::format("{:3.0f}% [{}{}] ", std::floor(part * 100), std::string(full, '#'),
                       std::string(kBarColumns - full, '.'));
  }
  line += fmt::format("{}, {}/s", format_bytes(static_cast<double>(state.bytes)), format_bytes(state.rate));
  if (state.total_bytes > state.bytes && state.rate > 0)
    line += ", " + format_seconds(static_cast<double>(state.total_bytes - state.bytes) / state.rate) + " to go";
  line += fmt::format("  {}", state.name);
  return std::string(fit(line, columns));
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Progress::possible() { return ::isatty(STDERR_FILENO) == 1; }

void Progress::update(std::uint64_t bytes, std::uint64_t files, std::string_view name) {
  if (!enabled_) return;
  const double now = monotonic_seconds();
  if (started_ < 0) {
    started_ = drawn_at_ = now;
    return;
  }
  const double passed = now - drawn_at_;
  if (passed < kDrawInterval) return;
  const double present = static_cast<double>(bytes - std::min(bytes, drawn_bytes_)) / passed;
  rate_ = rate_ == 0 ? present : 0.8 * rate_ + 0.2 * present;
  drawn_at_ = now;
  drawn_bytes_ = bytes;
  ProgressState state;
  state.bytes = bytes;
  state.total_bytes = total_bytes_;
  state.files = files;
  state.seconds = now - started_;
  state.rate = rate_;
  state.name = name;
  say(stderr, "\r\x1b[K{}", progress_line(state, terminal_columns() - 1));
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::clear() {
  if (!drawn_) return;
  say(stderr, "\r\x1b[K");
  std::fflush(stderr);
  drawn_ = false;
}

}  // namespace verbena::tools
