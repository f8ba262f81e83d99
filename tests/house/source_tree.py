# SPDX-License-Identifier: Apache-2.0
"""The files of the repository as the house checks see them: text, code without comments, includes."""

import functools
import os
import re
import sys
from collections import namedtuple

# One broken rule. line is 1-based; 0 means the file as a whole.
Violation = namedtuple("Violation", "path line rule message")

SKIPPED_FOLDERS = {".git", ".cache", "build", "__pycache__"}
CPP = (".h", ".cc")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\\\s]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")

Include = namedtuple("Include", "line name quoted")


def blank(match):
    """The same shape without the words: newlines stay, so that line numbers hold."""
    text = match.group(0)
    newlines = "\n" * text.count("\n")
    return newlines + " " if text.startswith("/") else '""' + newlines


class SourceTree:
    """A folder of sources. Paths are relative to its root, with forward slashes."""

    def __init__(self, root):
        self.root = os.path.abspath(root)
        self.files = sorted(self._walk())
        self._known = set(self.files)

    def _walk(self):
        for folder, folders, names in os.walk(self.root):
            folders[:] = [f for f in folders if f not in SKIPPED_FOLDERS]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), self.root).replace(os.sep, "/")

    def has(self, path):
        return path in self._known

    @functools.lru_cache(maxsize=None)
    def text(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8", errors="replace") as file:
            return file.read()

    @functools.lru_cache(maxsize=None)
    def code(self, path):
        """C++ text with comments and literals blanked out, line for line."""
        return TOKEN.sub(blank, DIGIT_SEPARATOR.sub("", self.text(path)))

    def cpp(self, *folders):
        return [f for f in self.files if f.endswith(CPP) and (not folders or f.startswith(folders))]

    @functools.lru_cache(maxsize=None)
    def includes(self, path):
        found = []
        for number, line in enumerate(self.text(path).splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                found.append(Include(number, match.group(2), match.group(1) == '"'))
        return found

    def resolve(self, path, include):
        """The file of this tree that an include names, or None."""
        beside = os.path.normpath(os.path.join(os.path.dirname(path), include.name)).replace(os.sep, "/")
        candidates = ["include/" + include.name, "src/" + include.name, include.name]
        if include.quoted:
            candidates.append(beside)
        return next((c for c in candidates if self.has(c)), None)

    def closure(self, path):
        """path and every file of this tree it includes, directly or not, mapped to who included it."""
        reached = {path: None}
        waiting = [path]
        while waiting:
            current = waiting.pop()
            for include in self.includes(current):
                target = self.resolve(current, include)
                if target and target not in reached:
                    reached[target] = current
                    waiting.append(target)
        return reached


def is_test(path):
    """A test, or a file only tests use: foo_test.cc, test_foo.h, anything under tests/."""
    name = os.path.basename(path)
    return path.startswith("tests/") or name.endswith("_test.cc") or name.startswith("test_")


def report(name, violations):
    """Prints what was found and returns the exit status."""
    for v in sorted(violations):
        print(f"{v.path}:{v.line}: [{v.rule}] {v.message}")
    print(f"{name}: {len(violations)} violations" if violations else f"{name}: clean")
    return 1 if violations else 0


def main(name, check):
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..", "..")
    sys.exit(report(name, check(SourceTree(root))))
