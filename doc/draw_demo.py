# SPDX-License-Identifier: Apache-2.0
"""Draws doc/demo.svg, of a run with the same words:
scripts/demo build/release/bin/verbena | python3 doc/draw_demo.py build/release/bin/verbena >doc/demo.svg"""

import html
import re
import sys

LINE, LEFT, WIDTH, COLUMNS = 18, 20, 1000, 118
COLOURS = [("#ffffff", r"\$ "), ("#c792ea", r"== "), ("#ffcb6b", r".*(sha256 [0-9a-f]|files?, .* bytes in )"),
           ("#a5e075", r"diff -r: identical|demo: ok"), ("#82aaff", r" +\d+ [\d.]+ +\S+ → ")]
PLAIN = "#d8d3e0"


def colour(line):
    return next((code for code, start in COLOURS if re.match(start, line)), PLAIN)


def main():
    said = re.sub(r"\x1b\[[0-9;]*m|\x1b\(B", "", sys.stdin.read()).splitlines()
    begin = next(i for i, line in enumerate(said) if line.startswith("== "))  # what was built is no part of it
    lines = [" ".join(["$ scripts/demo", *sys.argv[1:]]), *said[begin:]]
    height = LINE * (len(lines) + 2)
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
          f'viewBox="0 0 {WIDTH} {height}" role="img" aria-label="scripts/demo at work">')
    print(f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#15131a"/>')
    print(f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13.5" fill="{PLAIN}" '
          'xml:space="preserve">')
    for i, line in enumerate(lines):
        shown = line if len(line) <= COLUMNS else line[:COLUMNS - 1] + "…"
        print(f'<text x="{LEFT}" y="{34 + LINE * i}" fill="{colour(line)}">{html.escape(shown)}</text>')
    print("</g>\n</svg>")


if __name__ == "__main__":
    main()
