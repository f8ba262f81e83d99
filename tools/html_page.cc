// SPDX-License-Identifier: Apache-2.0
#include "tools/html_page.h"

#include <fmt/format.h>

#include "tools/svg_plot.h"

namespace verbena::tools {

namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ink: #1d2330; --soft: #667085; --line: #e4e7ec; --page: #f7f8fa; --card: #fff;
  --c0: #5b4bd6; --c1: #0e9384; --c2: #dc6803; --c3: #c01574;
  --c4: #1570ef; --c5: #4d7c0f; --c6: #b42318; --c7: #8a6a00; --c8: #475467; --c9: #9f1ab1; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --soft: #98a2b3; --line: #2d3444; --page: #12151c;
  --card: #1a1f2a; --c0: #a598ff; --c1: #5fe0cf; --c2: #fdb022; --c3: #f98bcb;
  --c4: #84caff; --c5: #a6ef67; --c6: #fda29b; --c7: #fde272; --c8: #d0d5dd; --c9: #eeaafd; } }
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
polyline.dashed { stroke-width: 1; stroke-dasharray: 6 4; }
polyline.s0, .key.s0 { stroke: var(--c0); } circle.s0, rect.s0 { fill: var(--c0); }
polyline.s1, .key.s1 { stroke: var(--c1); } circle.s1 { fill: var(--c1); }
polyline.s2, .key.s2 { stroke: var(--c2); } circle.s2 { fill: var(--c2); }
polyline.s3, .key.s3 { stroke: var(--c3); } circle.s3 { fill: var(--c3); }
polyline.s4, .key.s4 { stroke: var(--c4); } circle.s4 { fill: var(--c4); }
polyline.s5, .key.s5 { stroke: var(--c5); } circle.s5 { fill: var(--c5); }
polyline.s6, .key.s6 { stroke: var(--c6); } circle.s6 { fill: var(--c6); }
polyline.s7, .key.s7 { stroke: var(--c7); } circle.s7 { fill: var(--c7); }
polyline.s8, .key.s8 { stroke: var(--c8); } circle.s8 { fill: var(--c8); }
polyline.s9, .key.s9 { stroke: var(--c9); } circle.s9 { fill: var(--c9); }
table { width: 100%; border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
th, td { padding: 7px 14px; text-align: right; border-bottom: 1px solid var(--line); } tr:last-child td { border: 0; }
th { color: var(--soft); font-weight: 600; font-size: 13px; }
.warning { border-left: 4px solid var(--c6); padding-left: 12px; }
td.word, th.word { text-align: left; } summary { cursor: pointer; margin: 12px 0; }
)";

}  // namespace

std::string html_page(const std::string& title, const std::string& lead, const std::string& body) {
  const std::string name = escape_markup(title);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n<p class=\"lead\">{}</p>\n{}"
      "</main>\n</body>\n</html>\n",
      name, kStyle, name, escape_markup(lead), body);
}

std::string html_figure(const std::string& svg) { return "<figure>\n" + svg + "</figure>\n"; }

std::string html_card(const std::string& value, const std::string& name) {
  return fmt::format("<div class=\"card\"><b>{}</b><span>{}</span></div>\n", escape_markup(value), escape_markup(name));
}

std::string html_row(std::string_view cell, const std::vector<std::string>& texts, std::size_t words) {
  std::string row = "<tr>";
  for (std::size_t i = 0; i < texts.size(); ++i)
    row += fmt::format("<{}{}>{}</{}>", cell, i < words ? " class=\"word\"" : "", escape_markup(texts[i]), cell);
  return row + "</tr>\n";
}

}  // namespace verbena::tools
