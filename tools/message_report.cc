// SPDX-License-Identifier: Apache-2.0
#include "tools/message_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/bench_common.h"
#include "tools/html_page.h"
#include "tools/message_choice.h"
#include "tools/message_kinds.h"
#include "tools/message_model.h"
#include "tools/progress.h"
#include "tools/svg_plot.h"

namespace verbena::tools {

namespace {

constexpr double kMuchError = 0.3;  // typical error of a model that says little
constexpr std::size_t kMaxSeries = 10;  // that the page has colours for

using Rows = std::vector<MessageRow>;

std::string microseconds(double value) { return fmt::format("{:.2f}", value); }
std::string nanoseconds(double value) { return fmt::format("{:.3f}", value * 1e3); }
std::string yes(bool is) { return is ? "yes" : "–"; }

std::string measure_text(const MessageTest& test) {
  return std::string(kMessageMeasureNames[static_cast<std::size_t>(test.measure)]);
}

std::vector<PathChoice> paths_of(const Rows& rows) {
  std::vector<PathChoice> paths;
  for (const MessageRow& row : rows)
    if (std::ranges::find(paths, row.test.path) == paths.end()) paths.push_back(row.test.path);
  return paths;
}

// What one plot takes from the rows of a path.
struct View {
  Plot plot;
  bool (*takes)(const MessageRow&);
  double (*x)(const MessageRow&);
  double (*y)(const MessageRow&);
  double (*predicted)(const MessageModel&, double x) = nullptr;
};

bool is_single_stream(const MessageRow& row) {
  return !row.test.is_latency() && row.test.is_alone() && row.test.batch == 1;
}
bool is_single_latency(const MessageRow& row) { return row.test.is_latency() && row.test.is_alone(); }
double size_of(const MessageRow& row) { return row.test.size; }

// One series for each kind, in the order of the rows, and what the model of it predicts. Of several rows at one place
// the last counts.
std::string figure_of(View view, const Rows& rows, PathChoice path) {
  std::vector<std::pair<messaging::Kind, std::map<double, double>>> kinds;
  for (const MessageRow& row : rows) {
    if (row.test.path != path || !is_measured(row) || !view.takes(row)) continue;
    auto kind = std::ranges::find(kinds, row.kind, [](const auto& one) { return one.first; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {row.kind, {}});
    kind->second[view.x(row)] = view.y(row);
  }
  if (kinds.empty()) return "";
  std::string figures;
  const std::string title = view.plot.title;
  const std::size_t parts = (kinds.size() + kMaxSeries - 1) / kMaxSeries;
  for (std::size_t part = 0; part < parts; ++part) {
    view.plot.series.clear();
    if (parts > 1) view.plot.title = fmt::format("{} ({} of {})", title, part + 1, parts);
    for (std::size_t i = part * kinds.size() / parts; i < (part + 1) * kinds.size() / parts; ++i) {
      const auto& [kind, points] = kinds[i];
      PlotSeries series{messaging::to_string(kind), {points.begin(), points.end()}, {}};
      if (view.predicted != nullptr)
        if (const auto model = fit_message_model(rows, kind, path))
          for (const auto& [x, y] : points) series.dashed.emplace_back(x, view.predicted(*model, x));
      view.plot.series.push_back(std::move(series));
    }
    figures += html_figure(svg_by_size(view.plot));
  }
  return figures;
}

// Numbers of senders are compared by messages of one size: that of the first such row.
std::string figures_by_number(const Rows& rows, PathChoice path, bool threads) {
  const auto number = [&](const MessageRow& row) { return threads ? row.test.threads : row.test.senders; };
  const auto other = [&](const MessageRow& row) { return threads ? row.test.senders : row.test.threads; };
  const auto many = std::ranges::find_if(rows, [&](const MessageRow& row) {
    return row.test.path == path && !row.test.is_latency() && number(row) > 1;
  });
  if (many == rows.end()) return "";
  Rows alike, latencies;
  for (const MessageRow& row : rows)
    if (other(row) == 1 && row.test.size == many->test.size && row.test.batch == many->test.batch)
      (row.test.is_latency() ? latencies : alike).push_back(row);
  const std::string title = threads ? "Messages of {} bytes by pairs of threads (N:N)"
                                    : "Messages of {} bytes by senders to one receiver (N:1)";
  const auto rate = [](const MessageRow& row) { return row.messages_per_second(); };
  const auto any = [](const MessageRow&) { return true; };
  const auto x = threads ? [](const MessageRow& row) { return static_cast<double>(row.test.threads); }
                         : [](const MessageRow& row) { return static_cast<double>(row.test.senders); };
  Plot plot{fmt::format(fmt::runtime(title), many->test.size), threads ? "pairs of threads" : "senders",
            "messages per second", true, {}, false};
  std::string figures = figure_of({plot, any, x, rate}, alike, path);
  if (threads) return figures;
  plot.title = "Memory at the receiver by senders";
  plot.y_name = "KiB";
  figures += figure_of({plot, any, x, [](const MessageRow& row) {
                          return static_cast<double>(row.receiver_bytes) / 1024;
                        }}, alike, path);
  plot.title = fmt::format("Latency of {} bytes by senders, one after the other", many->test.size);
  plot.y_name = "µs";
  return figures + figure_of({plot, any, x, [](const MessageRow& row) { return row.typical; }}, latencies, path);
}

std::string figures_of(const Rows& rows, PathChoice path) {
  const std::string what = fmt::format(" by size, {}", words_for(path)), bytes = "bytes per message";
  const View latency{{"Latency" + what, bytes, "µs (dashed: predicted)", true, {}}, is_single_latency, size_of,
                     [](const MessageRow& row) { return row.typical; },
                     [](const MessageModel& model, double x) { return model.one_way(static_cast<std::uint32_t>(x)); }};
  const View bandwidth{{"Bandwidth" + what, bytes, "MiB/s", true, {}}, is_single_stream, size_of,
                       [](const MessageRow& row) { return row.bytes_per_second() / kMebibyte; }};
  const View rate{{"Messages" + what, bytes, "messages per second", true, {}}, is_single_stream, size_of,
                  [](const MessageRow& row) { return row.messages_per_second(); }};
  std::string body = fmt::format("<h2>Over {}</h2>\n", words_for(path));
  for (const View& view : {latency, bandwidth, rate}) body += figure_of(view, rows, path);
  return body + figures_by_number(rows, path, false) + figures_by_number(rows, path, true);
}

std::string choices(const Rows& rows) {
  std::string body = "<h2>Which to take, by these numbers</h2>\n<table>\n";
  body += html_row("th", {"over", "wanted", "take", "because"}, 4);
  for (const PathChoice path : paths_of(rows))
    for (const MessageWish wish : kMessageWishes)
      if (const auto choice = recommend_measured(rows, wish, path))
        body += html_row("td", {std::string(words_for(path)), std::string(to_string(wish)),
                                messaging::to_string(choice->row.kind), choice->reason}, 4);
  return body + "</table>\n";
}

std::string properties() {
  constexpr std::string_view kPassive[] = {"–", "sender", "receiver"};
  std::string body = "<h2>What each gives</h2>\n<table>\n";
  body += html_row("th", {"protocol", "copied by nobody", "short ones take little", "issues nothing", "wakes a sleeper",
                          "held ones hold up none", "senders share memory", "senders are isolated",
                          "needs order in a WRITE", "round trips before"}, 1);
  for (const messaging::Kind& kind : plain_kinds()) {
    const messaging::Traits traits = traits_of(kind);
    body += html_row("td", {messaging::to_string(kind), yes(traits.zero_copy), yes(traits.variable_size),
                            std::string(kPassive[static_cast<std::size_t>(traits.passive)]), yes(traits.interrupts),
                            yes(traits.non_blocking), yes(traits.shares_memory), yes(traits.isolates_senders),
                            yes(traits.order_in_write), std::to_string(traits.round_trips)}, 1);
  }
  return body + "</table>\n";
}

std::string predicted_rows(const std::vector<MessagePrediction>& all, const MessageModel& model) {
  std::string body;
  for (const MessagePrediction& one : all) {
    const bool latency = one.test.is_latency();
    const auto text = [&](double value) {
      return latency ? fmt::format("{:.2f} µs", value) : fmt::format("{:.4g} messages/s", value);
    };
    body += html_row("td", {messaging::to_string(model.kind), std::string(words_for(model.path)),
                            measure_text(one.test), std::to_string(one.test.size), text(one.measured),
                            text(one.predicted), fmt::format("{:+.0f} %", one.error() * 100)}, 3);
  }
  return body;
}

std::string models(const Rows& rows) {
  const std::vector<MessageModel> all = fit_all_models(rows);
  if (all.empty()) return "";
  std::string body =
      "<h2>A model of it</h2>\n<p>LogGP, fitted to the rows of one sender: o is what handing over takes the sender's "
      "processor, L what is left until the receiver has the message, g the gap between messages that follow one "
      "another; each with a part for each byte. Times in µs, for each byte in ns.</p>\n<table>\n";
  body += html_row("th", {"protocol", "over", "o", "per byte", "L", "per byte", "g", "per byte (G)",
                          "half bandwidth at", "typical error"}, 2);
  std::vector<std::string> unsure;
  std::string compared = html_row("th", {"protocol", "over", "measure", "bytes", "measured", "predicted", "error"}, 3);
  for (const MessageModel& model : all) {
    const auto rows_of_it = predictions(model, rows);
    const double error = typical_error(rows_of_it);
    if (error > kMuchError)
      unsure.push_back(fmt::format("{} over {} (typical error {:.0f} %)", messaging::to_string(model.kind),
                                   words_for(model.path), error * 100));
    body += html_row("td", {messaging::to_string(model.kind), std::string(words_for(model.path)),
                            microseconds(model.overhead.fixed), nanoseconds(model.overhead.per_byte),
                            microseconds(model.latency.fixed), nanoseconds(model.latency.per_byte),
                            microseconds(model.gap.fixed), nanoseconds(model.gap.per_byte),
                            format_bytes(model.half_bandwidth_bytes()),
                            fmt::format("{:.0f} %", error * 100)}, 2);
    compared += predicted_rows(rows_of_it, model);
  }
  body += "</table>\n";
  if (!unsure.empty())
    body += fmt::format("<p class=\"warning\">Not to be trusted: the model does not fit what was measured of {}. Take "
                        "the measurements themselves, or measure again when the machine does nothing else.</p>\n",
                        escape_markup(fmt::format("{}", fmt::join(unsure, ", "))));
  return body + "<details>\n<summary>Predicted and measured</summary>\n<table>\n" + compared +
         "</table>\n</details>\n";
}

std::string numbers(const Rows& rows) {
  std::string body = "<h2>Numbers</h2>\n<table>\n";
  body += html_row("th", {"protocol", "over", "measure", "bytes", "senders", "threads", "batch", "typical µs",
                          "99% µs", "messages/s", "MiB/s", "overhead µs", "memory there"}, 3);
  for (const MessageRow& row : rows) {
    const bool latency = row.test.is_latency();
    body += html_row("td", {messaging::to_string(row.kind), std::string(words_for(row.test.path)),
                            measure_text(row.test), std::to_string(row.test.size), std::to_string(row.test.senders),
                            std::to_string(row.test.threads), std::to_string(row.test.batch),
                            latency ? microseconds(row.typical) : "–", latency ? microseconds(row.p99) : "–",
                            latency ? "–" : fmt::format("{:.0f}", row.messages_per_second()),
                            latency ? "–" : fmt::format("{:.2f}", row.bytes_per_second() / kMebibyte),
                            fmt::format("{:.3f}", row.overhead),
                            format_bytes(static_cast<double>(row.receiver_bytes))}, 3);
  }
  return body + "</table>\n";
}

std::string failures(const std::vector<MessageFailure>& all) {
  if (all.empty()) return "";
  std::string body = "<h2>What did not come to its end</h2>\n<table>\n";
  body += html_row("th", {"protocol", "over", "measure", "bytes", "senders", "threads", "why"}, 7);
  for (const auto& [test, why] : all)
    body += html_row("td", {messaging::to_string(test.kind), std::string(words_for(test.path)), measure_text(test),
                            std::to_string(test.size), std::to_string(test.senders), std::to_string(test.threads), why},
                     7);
  return body + "</table>\n";
}

}  // namespace

std::string message_page(const MessageReport& report) {
  const std::string lead =
      fmt::format("{} to {}: {} tests of message protocols{}. Latencies are half of there and back.", report.local,
                  report.remote, report.rows.size() + report.failures.size(),
                  report.failures.empty() ? "" : fmt::format(", {} of which failed", report.failures.size()));
  std::string body;
  if (!report.incomplete.empty())
    body = fmt::format("<p class=\"warning\">Not all of what was planned: it ended before ({}).</p>\n",
                       escape_markup(report.incomplete));
  if (report.rows.empty()) body += "<p>Nothing was measured.</p>\n";
  else body += choices(report.rows);
  for (const PathChoice path : paths_of(report.rows)) body += figures_of(report.rows, path);
  body += properties() + models(report.rows) + failures(report.failures);
  if (!report.rows.empty()) body += numbers(report.rows);
  return html_page("verbena bench message", lead, body);
}

}  // namespace verbena::tools
