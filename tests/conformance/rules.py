# SPDX-License-Identifier: Apache-2.0
"""Every numbered rule has a test that bears its number; README.md lists which.

`rules.py ROOT` checks both, `rules.py ROOT --write` writes the list.
"""

import glob
import os
import re
import sys

# Rules of the format reference that concern reliable connected queue pairs and connection management.
REQUIRED = {
    "R": [(1, 13), (20, 24), (30, 37), (40, 44), (50, 58), (60, 68), (70, 86), (90, 94), (130, 134)],
    "Q": [(1, 6), (10, 31), (33, 35), (40, 42), (50, 53), (55, 55), (70, 70)],
    "O": [(1, 5)],
    "C": [(1, 20)],
}
TEST = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
NUMBERS = re.compile(r"^((?:[rqoC]\d+_)+)")
MARK = "<!-- The list below is written by rules.py. -->"


def required():
    for kind, ranges in REQUIRED.items():
        for first, last in ranges:
            for number in range(first, last + 1):
                yield kind, number


def name_of(kind, number):
    return f"{kind}-{number:0{ {'O': 1, 'C': 2}.get(kind, 3) }}"


def tests(root):
    """(rule, "Suite.name") for each rule that a test's name begins with."""
    for pattern in ("tests/conformance/*_test.cc", "src/soft/core/*_test.cc", "src/soft/cm/*_test.cc"):
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            with open(path, encoding="utf-8") as file:
                for suite, name in TEST.findall(file.read()):
                    numbers = NUMBERS.match(name)
                    for rule in numbers.group(1).strip("_").split("_") if numbers else []:
                        yield (rule[0].upper(), int(rule[1:])), f"{suite}.{name}"


def listing(found):
    lines = [MARK, "", "| Rule | Tests |", "| --- | --- |"]
    for rule in sorted(found, key=lambda r: ("RQOC".index(r[0]), r[1])):
        lines.append(f"| {name_of(*rule)} | {', '.join(f'`{test}`' for test in found[rule])} |")
    return "\n".join(lines) + "\n"


def main(root, write):
    found = {}
    for rule, test in tests(root):
        found.setdefault(rule, []).append(test)
    missing = [name_of(*rule) for rule in required() if rule not in found]
    for rule in missing:
        print(f"no test bears the number of {rule}")
    readme = os.path.join(root, "tests/conformance/README.md")
    with open(readme, encoding="utf-8") as file:
        text = file.read()
    fresh = text.split(MARK)[0] + listing(found)
    if write:
        with open(readme, "w", encoding="utf-8") as file:
            file.write(fresh)
    elif text != fresh:
        print("tests/conformance/README.md is out of date: run tests/conformance/rules.py . --write")
        return 1
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--write" in sys.argv[2:]))
