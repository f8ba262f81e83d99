// SPDX-License-Identifier: Apache-2.0
// Plots as SVG, to stand inside an HTML page: its style sheet colours the classes s0, s1, ... s9, grid.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace verbena::tools {

struct PlotSeries {
  std::string name;
  std::vector<std::pair<double, double>> points;    // ascending x
  std::vector<std::pair<double, double>> dashed{};  // likewise: what stands beside them
};

struct Plot {
  std::string title, x_name, y_name;
  bool log_y = false;
  std::vector<PlotSeries> series;
  bool bytes = true;  // x is: its labels are sizes; otherwise numbers of what x_name says
};

// Lines, and dashed ones without points, over a logarithmic x of powers of two. Points whose coordinate cannot be shown
// (x or a logarithmic y not above 0) are left out.
std::string svg_by_size(const Plot& plot);
// Bars: `plot.series` holds one series of (upper edge, height), over a logarithmic x.
std::string svg_histogram(const Plot& plot);

// &, <, > and quotes as entities.
std::string escape_markup(std::string_view text);

}  // namespace verbena::tools
