// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/svg_plot.h"

namespace verbena::tools {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --line: #e4e7ec; --page: #f7f8fa; --card: #fff;
  --c0: #5b4bd6; --c1: #0e9384; --c2: #dc6803; --c3: #c01574; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --soft: #98a2b3; --line: #2d3444; --page: #12151c;
  --card: #1a1f2a; --c0: #a598ff; --c1: #5fe0cf; --c2: #fdb022; --c3: #f98bcb; } }
body { margin: 0; padding: 32px 16px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1000px; margin: 0 auto; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 17px; margin: 32px 0 12px; }
.lead { color: var(--soft); margin: 0 0 24px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin-bottom: 12px; }
.card, figure, table { background: var(--card); border: 1px solid var(--line); border-radius: 10px; }
.card { padding: 14px 18px; } .card b { display: block; font-size: 24px; font-weight: 650; }
.card span { color: var(--soft); font-size: 13px; }
figure { margin: 0 0 16px; padding: 14px; } svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--soft); }
svg .title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.grid { stroke: var(--line); stroke-width: 1; } polyline, .key { fill: none; stroke-width: 2; }
.key { stroke-width: 3; }
polyline.s0, .key.s0 { stroke: var(--c0); } circle.s0, rect.s0 { fill: var(--c0); }
polyline.s1, .key.s1 { stroke: var(--c1); } circle.s1 { fill: var(--c1); }
polyline.s2, .key.s2 { stroke: var(--c2); } circle.s2 { fill: var(--c2); }
polyline.s3, .key.s3 { stroke: var(--c3); } circle.s3 { fill: var(--c3); }
table { width: 100%; border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 14px; text-align: right; border-bottom: 1px solid var(--line); } tr:last-child td { border: 0; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
)";

constexpr double kMebibyte = 1 << 20;

double time_of(const BenchSettings& settings, const BenchRow& row, double part) {
  return bench_microseconds(settings, static_cast<double>(row.times.percentile(part)));
}

using Value = double (*)(const BenchSettings&, const BenchRow&);
PlotSeries series(std::string name, const BenchSettings& settings, const std::vector<BenchRow>& rows, Value value) {
  PlotSeries made{std::move(name), {}};
  for (const BenchRow& row : rows) made.points.emplace_back(row.bytes, value(settings, row));
  return made;
}

std::string figure(const std::string& svg) { return "<figure>\n" + svg + "</figure>\n"; }

std::string card(const std::string& value, const std::string& name) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", escape_markup(value), escape_markup(name));
}

std::string table_row(std::string_view cell, const std::vector<std::string>& texts) {
  std::string row = "<tr>";
  for (const std::string& text : texts) row += fmt::format("<{}>{}</{}>", cell, escape_markup(text), cell);
  return row + "</tr>\n";
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
  body += card(fmt::format("{:.2f} µs", time_of(settings, first, 0.5)), fmt::format("typical, {} bytes", first.bytes));
  body += card(fmt::format("{:.2f} µs", time_of(settings, first, 0.99)), "99 in 100 are not above");
  body += card(fmt::format("{:.2f} µs", time_of(settings, first, 0.999)), "999 in 1000 are not above");
  body += card(fmt::format("{}", first.messages), "operations");
  body += "</div>\n";
  if (rows.size() > 1) {
    Plot plot{"Latency by size", "bytes per message", "µs", true, {}};
    plot.series = {
        series("typical", settings, rows, [](const BenchSettings& s, const BenchRow& r) { return time_of(s, r, 0.5); }),
        series("99%", settings, rows, [](const BenchSettings& s, const BenchRow& r) { return time_of(s, r, 0.99); }),
        series("99.9%", settings, rows,
               [](const BenchSettings& s, const BenchRow& r) { return time_of(s, r, 0.999); })};
    body += figure(svg_by_size(plot));
  }
  Plot histogram{fmt::format("How long {} bytes take, without the slowest in 1000", first.bytes), "µs", "operations",
                 false, {bars(settings, first.times)}};
  body += figure(svg_histogram(histogram));
  body += "<h2>Numbers</h2>\n<table>\n";
  body += table_row("th", {"bytes", "iterations", "min", "typical", "avg", "stdev", "99%", "99.9%", "max (µs)"});
  for (const BenchRow& row : rows) {
    const auto shown = [&](double ns) { return fmt::format("{:.2f}", bench_microseconds(settings, ns)); };
    const auto part = [&](double of) { return fmt::format("{:.2f}", time_of(settings, row, of)); };
    body += table_row("td", {std::to_string(row.bytes), std::to_string(row.messages),
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
  body += card(fmt::format("{:.0f} MiB/s", bytes_rate(most) / kMebibyte), fmt::format("average, {} bytes", most.bytes));
  body += card(fmt::format("{:.2f} Gbit/s", bytes_rate(most) * 8e-9), "the same");
  body += card(fmt::format("{:.4f} M/s", fastest.average * 1e-6), fmt::format("messages of {} bytes", fastest.bytes));
  body += card(fmt::format("{}", settings.pairs), settings.bidirectional ? "queue pairs, both ways" : "queue pairs");
  body += "</div>\n";
  Plot rate{"Bandwidth by size", "bytes per message", "MiB/s", false, {}};
  rate.series = {series("average", settings, rows,
                        [](const BenchSettings&, const BenchRow& r) { return r.average * r.bytes / kMebibyte; })};
  if (!settings.no_peak)
    rate.series.push_back(series("peak", settings, rows, [](const BenchSettings&, const BenchRow& r) {
      return r.peak * r.bytes / kMebibyte;
    }));
  body += figure(svg_by_size(rate));
  Plot messages{"Messages by size", "bytes per message", "messages per second", true, {}};
  const auto message_rate = [](const BenchSettings&, const BenchRow& r) { return r.average; };
  messages.series = {series("average", settings, rows, message_rate)};
  body += figure(svg_by_size(messages));
  body += "<h2>Numbers</h2>\n<table>\n";
  body += table_row("th", {"bytes", "iterations", "peak MiB/s", "average MiB/s", "Gbit/s", "Mmsg/s"});
  for (const BenchRow& row : rows)
    body += table_row("td", {std::to_string(row.bytes), std::to_string(row.messages),
                             settings.no_peak ? "–" : fmt::format("{:.2f}", row.peak * row.bytes / kMebibyte),
                             fmt::format("{:.2f}", bytes_rate(row) / kMebibyte),
                             fmt::format("{:.3f}", bytes_rate(row) * 8e-9), fmt::format("{:.6f}", row.average * 1e-6)});
  return body + "</table>\n";
}

}  // namespace

std::string bench_page(const BenchSettings& settings, const BenchSurroundings& surroundings,
                       const std::vector<BenchRow>& rows) {
  const std::string title = fmt::format("verbena bench {}", settings.name());
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n<p class=\"lead\">",
      title, kStyle, title);
  page += escape_markup(fmt::format("{} {} {}, packets of up to {} bytes, {}{}", surroundings.local,
                                    settings.client ? "to" : "from", surroundings.remote, surroundings.mtu,
                                    settings.managed ? "connected by the connection manager" : "connected by hand",
                                    settings.ping_pong() ? "; times are half of there and back" : ""));
  page += "</p>\n";
  if (rows.empty()) page += "<p>This end measured nothing; the other end has the numbers.</p>\n";
  else page += settings.is_latency() ? latency_body(settings, rows) : bandwidth_body(settings, rows);
  return page + "</main>\n</body>\n</html>\n";
}

}  // namespace verbena::tools
