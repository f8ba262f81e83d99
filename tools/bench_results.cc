// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/bench_common.h"

namespace verbena::tools {

double bench_microseconds(const BenchSettings& settings, double ns) {
  return ns * 1e-3 / (settings.ping_pong() ? 2 : 1);
}

std::string bench_header(const BenchSettings& settings, const BenchDisplay& display) {
  if (!settings.is_latency()) {
    const std::string_view unit = display.gigabits ? "Gb" : "MB";
    return fmt::format(" #bytes     #iterations    BW peak[{0}/sec]    BW average[{0}/sec]   MsgRate[Mpps]\n", unit);
  }
  if (settings.duration != 0) return " #bytes        #iterations       t_avg[usec]    tps average\n";
  return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
         "99% percentile[usec]   99.9% percentile[usec] \n";
}

std::string bench_line(const BenchSettings& settings, const BenchDisplay& display, const BenchRow& row) {
  if (!settings.is_latency()) {
    const double unit = row.bytes * (display.gigabits ? 8e-9 : 1 / kMebibyte);
    return fmt::format(" {:<7}    {:<10}       {:<7.2f}            {:<7.2f}\t\t   {:<7.6f}\n", row.bytes, row.messages,
                       row.peak * unit, row.average * unit, row.average * 1e-6);
  }
  const auto shown = [&](double ns) { return bench_microseconds(settings, ns); };
  const auto part = [&](double of) { return shown(static_cast<double>(row.times.percentile(of))); };
  const double average = shown(row.times.average());
  const double seconds = std::max(static_cast<double>(row.taken.ns) * 1e-9, 1e-9);
  if (settings.duration != 0)
    return fmt::format(" {:<7}       {}            {:<7.2f}        {:<7.2f}\n", row.bytes, row.messages, average,
                       static_cast<double>(row.messages) / seconds);
  return fmt::format(" {:<7} {:<10}      {:<7.2f}        {:<7.2f}      {:<7.2f}  \t       {:<7.2f}     \t{:<7.2f}\t\t"
                     "{:<7.2f} \t\t{:<7.2f}\n",
                     row.bytes, row.messages, shown(static_cast<double>(row.times.min())),
                     shown(static_cast<double>(row.times.max())), part(0.5), average,
                     shown(row.times.standard_deviation()), part(0.99), part(0.999));
}

std::string bench_times(const BenchSettings& settings, const BenchDisplay& display, const BenchRow& row) {
  std::vector<std::int64_t> times = row.kept;
  if (!display.unsorted) std::ranges::sort(times);
  std::string text = "#, usec\n";
  for (std::size_t i = 0; i < times.size(); ++i)
    text += fmt::format("{}, {:.3f}\n", i + 1, bench_microseconds(settings, static_cast<double>(times[i])));
  return text;
}

nlohmann::json bench_json(const BenchSettings& settings, const BenchSurroundings& surroundings,
                          const std::vector<BenchRow>& rows) {
  nlohmann::json all{{"command", "bench"},
                     {"test", std::string(to_string(settings.verb))},
                     {"measure", std::string(to_string(settings.measure))},
                     {"role", settings.client ? "client" : "server"},
                     {"local", surroundings.local},
                     {"remote", surroundings.remote},
                     {"mtu", surroundings.mtu},
                     {"path", std::string(surroundings.path.name())},
                     {"path_reason", surroundings.path.reason},
                     {"connection_manager", settings.managed},
                     {"queue_pairs", settings.pairs},
                     {"tx_depth", settings.send_depth},
                     {"cq_mod", settings.signal_every},
                     {"bidirectional", settings.bidirectional}};
  if (settings.duration != 0) all["duration_s"] = settings.duration;
  nlohmann::json results = nlohmann::json::array();
  for (const BenchRow& row : rows) {
    nlohmann::json one{{"bytes", row.bytes},
                       {"iterations", row.messages},
                       {"seconds", static_cast<double>(row.taken.ns) * 1e-9}};
    if (settings.is_latency()) {
      const auto shown = [&](double ns) { return bench_microseconds(settings, ns); };
      const auto part = [&](double of) { return shown(static_cast<double>(row.times.percentile(of))); };
      one["time_us"] = {{"min", shown(static_cast<double>(row.times.min()))},
                        {"max", shown(static_cast<double>(row.times.max()))},
                        {"typical", part(0.5)},
                        {"avg", shown(row.times.average())},
                        {"stdev", shown(row.times.standard_deviation())},
                        {"p90", part(0.9)},
                        {"p99", part(0.99)},
                        {"p99.9", part(0.999)},
                        {"p99.99", part(0.9999)}};
      nlohmann::json histogram = nlohmann::json::array();
      for (const auto& [most, count] : row.times.buckets())
        histogram.push_back({{"up_to_us", shown(static_cast<double>(most))}, {"count", count}});
      one["histogram"] = std::move(histogram);
    } else {
      one["messages_per_s"] = row.average;
      one["bytes_per_s"] = row.average * row.bytes;
      one["peak_bytes_per_s"] = settings.no_peak ? nlohmann::json() : nlohmann::json(row.peak * row.bytes);
    }
    results.push_back(std::move(one));
  }
  all["results"] = std::move(results);
  return all;
}

}  // namespace verbena::tools
