// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/bench_common.h"
#include "tools/html_page.h"
#include "tools/svg_plot.h"

namespace verbena::tools {

namespace {

double time_of(const BenchSettings& settings, const BenchRow& row, double part) {
  return bench_microseconds(settings, static_cast<double>(row.times.percentile(part)));
}

using Value = double (*)(const BenchSettings&, const BenchRow&);
PlotSeries series(std::string name, const BenchSettings& settings, const std::vector<BenchRow>& rows, Value value) {
  PlotSeries made{std::move(name), {}};
  for (const BenchRow& row : rows) made.points.emplace_back(row.bytes, value(settings, row));
  return made;
}

// Many narrow buckets together are what can be seen: about 60 of equal width in logarithms.
PlotSeries bars(const BenchSettings& settings, const Histogram& times) {
  PlotSeries made{"", {}};
  const auto buckets = times.buckets();
  // A tail of one in a thousand would leave the rest a few pixels.
  const auto measure = [&](std::int64_t ns) {
    return std::log(bench_microseconds(settings, static_cast<double>(std::max<std::int64_t>(ns, 1))));
  };
  const double low = measure(times.min()), high = measure(times.percentile(0.999));
  const double width = std::max((high - low) / 60, 1.0 / 128);
  made.points.emplace_back(std::exp(low), 0);  // where the first bar begins
  for (const auto& [most, count] : buckets) {
    const double at = measure(most);
    if (at > high + width) break;
    const double edge = std::exp(low + (std::floor((at - low) / width) + 1) * width);
    if (std::abs(made.points.back().first / edge - 1) < 1e-6)
      made.points.back().second += static_cast<double>(count);
    else
      made.points.emplace_back(edge, static_cast<double>(count));
  }
  return made;
}

std::string latency_body(const BenchSettings& settings, const std::vector<BenchRow>& rows) {
  const BenchRow& first = rows.front();
  std::string body = "<div class=\"cards\">\n";
  body +=
      html_card(fmt::format("{:.2f} µs", time_of(settings, first, 0.5)), fmt::format("typical, {} bytes", first.bytes));
  body += html_card(fmt::format("{:.2f} µs", time_of(settings, first, 0.99)), "99 in 100 are not above");
  body += html_card(fmt::format("{:.2f} µs", time_of(settings, first, 0.999)), "999 in 1000 are not above");
  body += html_card(fmt::format("{}", first.messages), "operations");
  body += "</div>\n";
  if (rows.size() > 1) {
    Plot plot{"Latency by size", "bytes per message", "µs", true, {}};
    plot.series = {
        series("typical", settings, rows, [](const BenchSettings& s, const BenchRow& r) { return time_of(s, r, 0.5); }),
        series("99%", settings, rows, [](const BenchSettings& s, const BenchRow& r) { return time_of(s, r, 0.99); }),
        series("99.9%", settings, rows,
               [](const BenchSettings& s, const BenchRow& r) { return time_of(s, r, 0.999); })};
    body += html_figure(svg_by_size(plot));
  }
  Plot histogram{fmt::format("How long {} bytes take, without the slowest in 1000", first.bytes), "µs", "operations",
                 false, {bars(settings, first.times)}};
  body += html_figure(svg_histogram(histogram));
  body += "<h2>Numbers</h2>\n<table>\n";
  body += html_row("th", {"bytes", "iterations", "min", "typical", "avg", "stdev", "99%", "99.9%", "max (µs)"});
  for (const BenchRow& row : rows) {
    const auto shown = [&](double ns) { return fmt::format("{:.2f}", bench_microseconds(settings, ns)); };
    const auto part = [&](double of) { return fmt::format("{:.2f}", time_of(settings, row, of)); };
    body += html_row("td", {std::to_string(row.bytes), std::to_string(row.messages),
                            shown(static_cast<double>(row.times.min())), part(0.5), shown(row.times.average()),
                            shown(row.times.standard_deviation()), part(0.99), part(0.999),
                            shown(static_cast<double>(row.times.max()))});
  }
  return body + "</table>\n";
}

std::string bandwidth_body(const BenchSettings& settings, const std::vector<BenchRow>& rows) {
  const auto bytes_rate = [](const BenchRow& row) { return row.average * row.bytes; };
  const BenchRow& most = *std::ranges::max_element(rows, {}, bytes_rate);
  const BenchRow& fastest = *std::ranges::max_element(rows, {}, &BenchRow::average);
  std::string body = "<div class=\"cards\">\n";
  body += html_card(fmt::format("{:.0f} MiB/s", bytes_rate(most) / kMebibyte),
                    fmt::format("average, {} bytes", most.bytes));
  body += html_card(fmt::format("{:.2f} Gbit/s", bytes_rate(most) * 8e-9), "the same");
  body += html_card(fmt::format("{:.4f} M/s", fastest.average * 1e-6),
                    fmt::format("messages of {} bytes", fastest.bytes));
  body += html_card(fmt::format("{}", settings.pairs),
                    settings.bidirectional ? "queue pairs, both ways" : "queue pairs");
  body += "</div>\n";
  Plot rate{"Bandwidth by size", "bytes per message", "MiB/s", false, {}};
  rate.series = {series("average", settings, rows,
                        [](const BenchSettings&, const BenchRow& r) { return r.average * r.bytes / kMebibyte; })};
  if (!settings.no_peak)
    rate.series.push_back(series("peak", settings, rows, [](const BenchSettings&, const BenchRow& r) {
      return r.peak * r.bytes / kMebibyte;
    }));
  body += html_figure(svg_by_size(rate));
  Plot messages{"Messages by size", "bytes per message", "messages per second", true, {}};
  const auto message_rate = [](const BenchSettings&, const BenchRow& r) { return r.average; };
  messages.series = {series("average", settings, rows, message_rate)};
  body += html_figure(svg_by_size(messages));
  body += "<h2>Numbers</h2>\n<table>\n";
  body += html_row("th", {"bytes", "iterations", "peak MiB/s", "average MiB/s", "Gbit/s", "Mmsg/s"});
  for (const BenchRow& row : rows)
    body += html_row("td", {std::to_string(row.bytes), std::to_string(row.messages),
                            settings.no_peak ? "–" : fmt::format("{:.2f}", row.peak * row.bytes / kMebibyte),
                            fmt::format("{:.2f}", bytes_rate(row) / kMebibyte),
                            fmt::format("{:.3f}", bytes_rate(row) * 8e-9), fmt::format("{:.6f}", row.average * 1e-6)});
  return body + "</table>\n";
}

}  // namespace

std::string bench_page(const BenchSettings& settings, const BenchSurroundings& surroundings,
                       const std::vector<BenchRow>& rows) {
  const std::string title = fmt::format("verbena bench {}", settings.name());
  const std::string lead =
      fmt::format("{} {} {}, {}, {}{}", surroundings.local, settings.client ? "to" : "from", surroundings.remote,
                  surroundings.path.is_local() ? surroundings.path.reason
                                               : fmt::format("packets of up to {} bytes", surroundings.mtu),
                  settings.managed ? "connected by the connection manager" : "connected by hand",
                  settings.ping_pong() ? "; times are half of there and back" : "");
  if (rows.empty()) return html_page(title, lead, "<p>This end measured nothing; the other end has the numbers.</p>\n");
  return html_page(title, lead, settings.is_latency() ? latency_body(settings, rows) : bandwidth_body(settings, rows));
}

}  // namespace verbena::tools
