# SPDX-License-Identifier: Apache-2.0
"""Every numbered rule has a test that bears its number; README.md lists which. What a rule says of requests and their
outcomes holds by packets and through memory, and is tested on both ways; what it says of packets alone says why.

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
TEST = re.compile(r"\b(TEST(?:_F|_P)?)\(\s*(\w+)\s*,\s*(\w+)\s*\)")
# Rules without a counterpart through memory, and why.
PACKETS_ONLY = {
    "R": [
        (1, 10, "form of a datagram"), (12, 13, "form of a datagram"), (20, 24, "sequence numbers of packets"),
        (30, 30, "nothing comes twice"), (32, 37, "nothing comes twice"), (40, 42, "order of packets in a message"),
        (44, 44, "opcodes of packets"), (50, 57, "lengths of packets"), (80, 80, "packets of an answer"),
        (91, 91, "message count of packets"),
    ],
    "Q": [
        (1, 5, "packets of a request"), (11, 13, "acknowledgements of packets"), (15, 15, "nothing is lost"),
        (17, 17, "form of a datagram"), (20, 21, "nothing is lost"), (29, 29, "the wait is drawn where both meet"),
    ],
    "C": [(1, 20, "connections are made by packets on either way")],
}
NUMBERS = re.compile(r"^((?:[rqoC]\d+_)+)")
MARK = "<!-- The list below is written by rules.py. -->"


def required():
    for kind, ranges in REQUIRED.items():
        for first, last in ranges:
            for number in range(first, last + 1):
                yield kind, number


def name_of(kind, number):
    return f"{kind}-{number:0{ {'O': 1, 'C': 2}.get(kind, 3) }}"


def why_packets_only(rule):
    for first, last, why in PACKETS_ONLY.get(rule[0], []):
        if first <= rule[1] <= last:
            return why
    return None


def tests(root):
    """(rule, "Suite.name", through memory) for each rule that a test's name begins with."""
    for pattern in ("tests/conformance", "src/soft/core", "src/soft/cm", "src/soft/local"):
        for path in sorted(glob.glob(os.path.join(root, pattern, "*_test.cc"))):
            with open(path, encoding="utf-8") as file:
                for macro, suite, name in TEST.findall(file.read()):
                    numbers = NUMBERS.match(name)
                    # In tests/conformance a parameter is the way.
                    memory = pattern == "src/soft/local" or (pattern == "tests/conformance" and macro == "TEST_P")
                    for rule in numbers.group(1).strip("_").split("_") if numbers else []:
                        yield (rule[0].upper(), int(rule[1:])), f"{suite}.{name}", memory


def listing(found):
    lines = [MARK, "", "| Rule | Tests | Through memory |", "| --- | --- | --- |"]
    for rule in sorted(found, key=lambda r: ("RQOC".index(r[0]), r[1])):
        names = lambda memory: ", ".join(f"`{test}`" for test, m in found[rule] if m == memory)
        why = why_packets_only(rule)
        lines.append(f"| {name_of(*rule)} | {names(False)} | {names(True) or 'none: ' + str(why)} |")
    return "\n".join(lines) + "\n"


def main(root, write):
    found = {}
    for rule, test, memory in tests(root):
        found.setdefault(rule, []).append((test, memory))
    missing = [rule for rule in required() if rule not in found]
    for rule in missing:
        print(f"no test bears the number of {name_of(*rule)}")
    for rule, all_tests in sorted(found.items()):
        if not why_packets_only(rule) and not any(memory for _, memory in all_tests):
            print(f"no test of {name_of(*rule)} goes through memory, and nothing says why")
            missing.append(rule)
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
