// SPDX-License-Identifier: Apache-2.0
#include "tools/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace verbena::tools {

namespace {

constexpr double kWidth = 720, kHeight = 340;
constexpr double kLeft = 72, kRight = 20, kTop = 44, kBottom = 52;
// Ticks that do not collide, at the font size of the page.
constexpr int kMaxTicks = 12;
constexpr double kLegendRow = 16, kCharacter = 6.1;

// The names of the series above the plot: as many beside each other as have room.
struct Legend {
  double width = 130;
  std::size_t columns = 1, rows = 1;

  explicit Legend(const Plot& plot) {
    for (const PlotSeries& one : plot.series)
      width = std::max(width, 30 + kCharacter * static_cast<double>(one.name.size()));
    columns = std::max<std::size_t>(static_cast<std::size_t>((kWidth - kLeft) / width), 1);
    rows = std::max<std::size_t>((plot.series.size() + columns - 1) / columns, 1);
  }
  // Where the plot begins.
  double bottom() const { return kTop + kLegendRow * static_cast<double>(rows - 1); }
  std::string entry(std::size_t i, const std::string& name) const {
    const std::size_t row = i / columns;
    const double x = kLeft + width * static_cast<double>(i % columns);
    const double y = 33 + kLegendRow * static_cast<double>(row);
    return fmt::format("<line class=\"key s{}\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>"
                       "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\">{}</text>\n",
                       i, x, x + 18, y, y, x + 24, y + 4, escape_markup(name));
  }
};

struct Scale {
  double low = 0, high = 1;  // in the scale's own measure: logarithms where it is logarithmic
  bool logarithmic = false;
  double from = 0, to = 0;  // pixels

  double measure(double value) const { return logarithmic ? std::log2(value) : value; }
  double at(double value) const { return from + (measure(value) - low) / (high - low) * (to - from); }
};

bool shown(const Plot& plot, const std::pair<double, double>& point) {
  return point.first > 0 && std::isfinite(point.second) && (!plot.log_y || point.second > 0);
}

// "64", "4k", "8M"
std::string size_text(double bytes) {
  if (bytes >= 1 << 20) return fmt::format("{:g}M", bytes / (1 << 20));
  if (bytes >= 1 << 10) return fmt::format("{:g}k", bytes / (1 << 10));
  return fmt::format("{:g}", bytes);
}

std::string number_text(double value) {
  // Powers of ten come here by way of logarithms.
  if (value > 999'999) return fmt::format("{:.3g}M", value / 1e6);
  if (value > 9'999) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.4g}", value);
}

// A step of 1, 2 or 5 times a power of ten, for about six of them up to `high`.
double round_step(double high) {
  const double raw = high / 6;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

void vertical_tick(std::string& svg, const Scale& y, double value) {
  svg += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>"
                     "<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                     kLeft, kWidth - kRight, y.at(value), y.at(value), kLeft - 8, y.at(value) + 4, number_text(value));
}

void horizontal_tick(std::string& svg, const Scale& x, double top, double value, const std::string& text) {
  svg += fmt::format("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>"
                     "<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     x.at(value), x.at(value), top, kHeight - kBottom, x.at(value), kHeight - kBottom + 18, text);
}

std::string frame(const Plot& plot) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" role=\"img\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>{}</title>\n"
      "<text class=\"title\" x=\"{}\" y=\"20\">{}</text>\n"
      "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
      "<text class=\"name\" transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
      kWidth, kHeight, escape_markup(plot.title), kLeft, escape_markup(plot.title), (kLeft + kWidth - kRight) / 2,
      kHeight - 12, escape_markup(plot.x_name), (kTop + kHeight - kBottom) / 2, escape_markup(plot.y_name));
}

Scale x_scale(const Plot& plot) {
  Scale x{std::numeric_limits<double>::max(), std::numeric_limits<double>::lowest(), true, kLeft, kWidth - kRight};
  for (const PlotSeries& one : plot.series)
    for (const auto& point : one.points) {
      if (!shown(plot, point)) continue;
      x.low = std::min(x.low, x.measure(point.first));
      x.high = std::max(x.high, x.measure(point.first));
    }
  if (x.low > x.high) x.low = x.high = 0;
  // A single size stands in the middle.
  if (x.high - x.low < 1e-6) x.low -= 1, x.high += 1;
  return x;
}

Scale y_scale(const Plot& plot, double top) {
  Scale y{0, 0, plot.log_y, kHeight - kBottom, top};
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const PlotSeries& one : plot.series)
    for (const auto& points : {one.points, one.dashed})
      for (const auto& point : points) {
        if (!shown(plot, point)) continue;
        low = std::min(low, point.second);
        high = std::max(high, point.second);
      }
  if (high <= 0) low = high = 1;
  if (plot.log_y) {
    y.low = std::log2(std::pow(10, std::floor(std::log10(low))));
    y.high = std::log2(std::pow(10, std::ceil(std::log10(high) + 1e-9)));
  } else {
    const double step = round_step(high);
    y.high = std::ceil(high / step + 0.05) * step;
  }
  return y;
}

void vertical_axis(std::string& svg, const Scale& y) {
  if (y.logarithmic) {
    for (double value = std::exp2(y.low); y.measure(value) <= y.high + 1e-6; value *= 10) {
      vertical_tick(svg, y, value);
      for (const double part : {2.0, 5.0})
        if (y.high - y.low < 12 && y.measure(value * part) < y.high) vertical_tick(svg, y, value * part);
    }
  } else {
    const double step = round_step(y.high);
    for (double value = 0; value <= y.high * 1.0001; value += step) vertical_tick(svg, y, value);
  }
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string safe;
  for (const char one : text) {
    if (one == '&') safe += "&amp;";
    else if (one == '<') safe += "&lt;";
    else if (one == '>') safe += "&gt;";
    else if (one == '"') safe += "&quot;";
    else safe += one;
  }
  return safe;
}

std::string svg_by_size(const Plot& plot) {
  const Legend legend(plot);
  const Scale x = x_scale(plot), y = y_scale(plot, legend.bottom());
  std::string svg = frame(plot);
  vertical_axis(svg, y);
  const int first = static_cast<int>(std::ceil(x.low - 1e-9)), last = static_cast<int>(std::floor(x.high + 1e-9));
  const int stride = (last - first) / kMaxTicks + 1;
  for (int power = std::max(first, 0); power <= last; power += stride)
    horizontal_tick(svg, x, legend.bottom(), std::exp2(power),
                    plot.bytes ? size_text(std::exp2(power)) : number_text(std::exp2(power)));
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    std::string path, dots;
    for (const auto& point : plot.series[i].points) {
      if (!shown(plot, point)) continue;
      path += fmt::format("{:.1f},{:.1f} ", x.at(point.first), y.at(point.second));
      dots += fmt::format("<circle class=\"s{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\"><title>{}, {} {}: {:.6g}"
                          "</title></circle>\n", i, x.at(point.first), y.at(point.second),
                          escape_markup(plot.series[i].name), point.first,
                          escape_markup(plot.bytes ? "bytes" : plot.x_name), point.second);
    }
    svg += fmt::format("<polyline class=\"s{}\" points=\"{}\"/>\n{}", i, path, dots);
    path.clear();
    for (const auto& point : plot.series[i].dashed)
      if (shown(plot, point)) path += fmt::format("{:.1f},{:.1f} ", x.at(point.first), y.at(point.second));
    if (!path.empty()) svg += fmt::format("<polyline class=\"s{} dashed\" points=\"{}\"/>\n", i, path);
    svg += legend.entry(i, plot.series[i].name);
  }
  return svg + "</svg>\n";
}

std::string svg_histogram(const Plot& plot) {
  const Scale x = x_scale(plot), y = y_scale(plot, kTop);
  std::string svg = frame(plot);
  vertical_axis(svg, y);
  const double span = std::exp2(x.high) / std::exp2(x.low);
  int ticks = 0;
  double decade = std::pow(10, std::floor(std::log10(std::exp2(x.low))));
  for (; decade <= std::exp2(x.high); decade *= 10)
    for (const double part : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0}) {
      const double value = decade * part;
      const bool fine = part == 1.5 || part == 3.0 || part == 7.0;
      if (x.measure(value) < x.low || x.measure(value) > x.high || (fine && span > 100) || ++ticks > 2 * kMaxTicks)
        continue;
      horizontal_tick(svg, x, kTop, value, number_text(value));
    }
  const double floor = kHeight - kBottom;
  double left = kLeft;
  for (const auto& point : plot.series.front().points) {
    if (!shown(plot, point)) continue;
    const double right = std::max(x.at(point.first), left);
    const double top = y.at(point.second);
    // Never narrower than can be seen.
    const double begin = std::min(std::max(left, right - 12), right - 1.5);
    svg += fmt::format("<rect class=\"s0\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
                       "<title>up to {:.4g}: {:.0f}</title></rect>\n",
                       begin, top, right - begin, floor - top, point.first, point.second);
    left = right;
  }
  return svg + "</svg>\n";
}

}  // namespace verbena::tools
