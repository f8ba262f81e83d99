# SPDX-License-Identifier: Apache-2.0
"""Sizes, names and words: what a reader sees of a file before reading it."""

import ast
import os
import re

from source_tree import Violation, is_test, main

FUNCTION_LINES = 70
FILE_LINES = 600
TEST_FILE_LINES = 900
LINE_COLUMNS = 120
PUBLIC_MACROS = 5

# Documents: lines at most, by the beginning of their path. The first that fits counts.
DOCUMENT_LINES = [
    ("README.md", 250),
    ("ARCHITECTURE.md", 300),
    ("CONTRIBUTING.md", 80),
    ("CHANGELOG.md", 1000),
    ("doc/adr/", 80),
    ("doc/errors.md", 900),
    ("", 600),
]

SPDX = "SPDX-License-Identifier: Apache-2.0"
SNAKE_CASE = re.compile(r"^[a-z0-9]+(_[a-z0-9]+)*\.(h|cc|py|cmake)$")
# Words in lower case, the specification's abbreviations, the number of the rule a test proves:
# R_021_drops_a_packet_for_nobody, C05_a_lost_REP_is_sent_again.
SENTENCE = re.compile(r"^(?:[a-z0-9]+|[A-Z]{2,}s?|[A-Z]\d*[a-z]?)(?:_(?:[a-z0-9]+|[A-Z]{2,}s?|[A-Z]\d*[a-z]?))+$")
TEST_NAME = re.compile(r"\bTEST(?:_F|_P)?\(\s*\w+\s*,\s*(\w+)\s*\)")

# Spelled so that this file does not contain what it looks for.
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
MACHINE_PATH = re.compile(r"(?:^|[^A-Za-z0-9_/.$}-])/(?:home|root|work|farm|Users)/")
# The project speaks of itself, not of how or where it was written.
FOREIGN_WORDS = re.compile(
    r"\b(tick" r"ets?|issue\s+#?\d+|this ses" r"sion|lang" r"uage model|sub-?ag" r"ents?)\b", re.IGNORECASE)
DOCUMENT = re.compile(r"(?<![\w/.-])((?:\.\./)*[A-Za-z][\w./-]*\.md)\b")

# C++ that one of the compilers lacks or that the project does without: (what, where, why).
BANNED_CODE = [
    (r"\bstd::expected\b", "", "Result<T> instead"),
    (r"\bstd::format\b|<format>", "", "neither compiler has it; fmt in tools"),
    (r"\b(?:std::)?(?:ranges::)?views::", "", "clang 14 cannot parse range views"),
    (r"\bstd::source_location\b", "", "clang 14 has none"),
    (r"\bstd::move_only_function\b", "", "C++23"),
    (r"\bhardware_(?:de|con)structive_interference_size\b", "", "clang 14 has none; our own constant is 64"),
    (r"\bthrow\b", "include/ src/ sim/", "errors are values"),
    (r"\busing namespace\b", ".h", "not in a header"),
]


def at(path, line, rule, message):
    return Violation(path, line, rule, message)


def is_cpp(path):
    return path.endswith((".h", ".cc"))


def is_script(tree, path):
    """Python, CMake and anything that starts with #!."""
    if path.endswith((".py", ".cmake", ".sh")) or os.path.basename(path) == "CMakeLists.txt":
        return True
    return "." not in os.path.basename(path) and tree.text(path).startswith("#!")


def check_header(tree, path):
    lines = tree.text(path).splitlines()
    if SPDX not in "\n".join(lines[:3]):
        yield at(path, 1, "spdx", f"the first lines lack '{SPDX}'")
    if path.endswith(".h") and "#pragma once" not in lines:
        yield at(path, 1, "pragma_once", "a header without #pragma once")
    name = os.path.basename(path)
    if name.endswith((".h", ".cc", ".py", ".cmake")) and not SNAKE_CASE.match(name) and not path.startswith("cmake/"):
        yield at(path, 0, "file_name", "file names are snake_case")


def check_sizes(tree, path):
    lines = tree.text(path).splitlines()
    limit = TEST_FILE_LINES if is_test(path) else FILE_LINES
    if len(lines) > limit:
        yield at(path, 0, "file_length", f"{len(lines)} lines, at most {limit}")
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS:
            yield at(path, number, "line_length", f"{len(line)} columns, at most {LINE_COLUMNS}")
    functions = cpp_functions(tree.code(path)) if is_cpp(path) else python_functions(path, tree.text(path))
    for first, last in functions:
        if last - first + 1 > FUNCTION_LINES:
            yield at(path, first, "function_length", f"{last - first + 1} lines, at most {FUNCTION_LINES}")


def python_functions(path, text):
    if not path.endswith(".py"):
        return []
    return [(node.lineno, node.end_lineno) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]


SCOPE = re.compile(r"\b(?:namespace|class|struct|union|enum|extern)\b")
BODY = re.compile(r"\)\s*(?:(?:const|noexcept|override|final|mutable|try|&&?|->.*|requires.*)\s*)*$", re.DOTALL)


class Declarations:
    """Walks code brace by brace and finds the functions; what is inside one is not looked at."""

    def __init__(self, code):
        self.code = code
        self.found = []
        self.head = ""          # what was read since the last declaration ended
        self.head_line = 1
        self.inside = []        # line where the outer function began, or None for a scope or initialiser

    def open_brace(self, line):
        if any(self.inside):
            self.inside.append(None)
            return
        head = self.head.strip()
        template_free = re.sub(r"^template\s*<[^{]*?>\s*(?=\b(?:class|struct|union)\b)", "", head)
        is_function = BODY.search(head) and not re.match(r"(?:\w+\s+)*?(?:namespace|enum)\b", template_free)
        self.inside.append(self.head_line if is_function else None)
        if not is_function and SCOPE.search(template_free) and "(" not in template_free.split("{")[0]:
            self.head = ""

    def close_brace(self, line):
        started = self.inside.pop() if self.inside else None
        if started:
            self.found.append((started, line))
            self.head = ""
        elif not any(self.inside) and self.head:
            self.head += ")"    # the end of a braced initialiser, as in X() : a_{1} {}

    def run(self):
        line = 1
        for character in self.code:
            if character == "{":
                self.open_brace(line)
            elif character == "}":
                self.close_brace(line)
            elif not any(self.inside):
                if character == ";":
                    self.head = ""
                elif self.head or not character.isspace():
                    if not self.head:
                        self.head_line = line
                    self.head += character
            if character == "\n":
                line += 1
        return self.found


PREPROCESSOR = re.compile(r"^[ \t]*#(?:[^\n\\]|\\\n|\\.)*", re.MULTILINE)


def cpp_functions(code):
    """(first, last) line of every function of code whose comments and literals are blank."""
    without_macros = PREPROCESSOR.sub(lambda m: "\n" * m.group(0).count("\n"), code)
    return Declarations(re.sub(r"\b(public|private|protected)\s*:", lambda m: ";", without_macros)).run()


def applies(path, where):
    if where == ".h":
        return path.endswith(".h")
    return not where or path.startswith(tuple(where.split()))


def check_code(tree, path):
    for number, line in enumerate(tree.code(path).splitlines(), 1):
        for pattern, where, why in BANNED_CODE:
            if applies(path, where) and re.search(pattern, line):
                yield at(path, number, "banned_code", f"'{re.search(pattern, line).group(0)}': {why}")
        if path.startswith("include/") and "tl::" in line and not path.endswith("base/result.h"):
            yield at(path, number, "tl", "tl:: is the business of result.h alone")
    if path == "include/verbena/base/result.h":
        yield from check_result_header(tree, path)
    for match in TEST_NAME.finditer(tree.text(path)):
        if not SENTENCE.match(match.group(1)):
            line = tree.text(path)[:match.start()].count("\n") + 1
            yield at(path, line, "test_name", f"{match.group(1)}: test names are sentences: words_in_lower_case")


def check_result_header(tree, path):
    """Above `private:` of each class only constructors may name tl::, after the colon of their initialisers."""
    private = False
    for number, line in enumerate(tree.code(path).splitlines(), 1):
        if re.match(r"\s*private:", line):
            private = True
        elif re.match(r"class\b|template\b", line):
            private = False
        signature = re.sub(r"\)\s*:\s*inner_\(.*", "", line)
        if "tl::" in signature and not private:
            yield at(path, number, "tl", "tl:: in a public signature")


def check_words(tree, path):
    for number, line in enumerate(tree.text(path).splitlines(), 1):
        for rule, pattern in (("unfinished", UNFINISHED), ("machine_path", MACHINE_PATH), ("words", FOREIGN_WORDS)):
            match = pattern.search(line)
            if match:
                yield at(path, number, rule, f"'{match.group(0).strip()}' does not belong here")
        if path.startswith("tests/house/"):
            continue
        for match in DOCUMENT.finditer(re.sub(r"https?://\S+", "", line)):
            name = match.group(1)
            places = [name, "doc/" + name, os.path.join(os.path.dirname(path), name)]
            if not any(tree.has(os.path.normpath(place)) for place in places):
                yield at(path, number, "document", f"there is no document {name}")


def check_documents(tree, path):
    limit = next(lines for prefix, lines in DOCUMENT_LINES if path.startswith(prefix))
    length = len(tree.text(path).splitlines())
    if length > limit:
        yield at(path, 0, "document_length", f"{length} lines, at most {limit}")


def check_macros(tree):
    names = {}
    for path in tree.cpp("include/", "src/"):
        for number, line in enumerate(tree.code(path).splitlines(), 1):
            match = re.match(r"\s*#\s*define\s+(\w+)", line)
            if not match:
                continue
            if not match.group(1).startswith("VERBENA_"):
                yield at(path, number, "macro", f"{match.group(1)}: a macro's name starts with VERBENA_")
            elif path.endswith(".h"):
                names.setdefault(match.group(1), (path, number))
    if len(names) > PUBLIC_MACROS:
        path, number = sorted(names.values())[-1]
        listed = ", ".join(sorted(names))
        yield at(path, number, "macro_count", f"{len(names)} macros, at most {PUBLIC_MACROS}: {listed}")


def check(tree):
    found = list(check_macros(tree))
    for path in tree.files:
        if path == "LICENSE" or "/corpus/" in path or path.endswith(".html") or "\0" in tree.text(path):
            continue
        found.extend(check_words(tree, path))
        if is_cpp(path):
            found.extend(check_code(tree, path))
        if is_cpp(path) or is_script(tree, path):
            found.extend(check_header(tree, path))
            found.extend(check_sizes(tree, path))
        elif path.endswith(".md"):
            found.extend(check_documents(tree, path))
    return found


if __name__ == "__main__":
    main("text", check)
