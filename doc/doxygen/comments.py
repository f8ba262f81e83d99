# SPDX-License-Identifier: Apache-2.0
"""Doxygen's input filter: shows it the plain comments of a header as documentation. Lines keep their numbers."""

import re
import sys

# A comment behind code: not one inside a string, and none that speaks to a tool or repeats a namespace's name.
TRAILING = re.compile(r'^((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*?\S)\s*// (?!NOLINT|namespace )(.*)$')
ALONE = re.compile(r"^(\s*)//(?!/)(.*)$")


# What Doxygen would take for a command, a tag or a link.
SPECIAL = re.compile(r"[\\@<>#&%]|(?<!\w)::")


def escaped(text):
    return SPECIAL.sub(lambda found: "\\" + found[0], text)


def documentation(text):
    """What stands behind // on a line of its own. Drawings and examples are indented; Markdown wants four columns."""
    if text.startswith("   "):
        return "///    " + text
    return "///" + escaped(re.sub(r"^ ---- ", " ", text))


def documented(lines):
    for number, line in enumerate(lines):
        alone, trailing = ALONE.match(line), TRAILING.match(line)
        if number == 0:
            yield "/// \\file"  # in the place of the licence; what follows is about the file
        elif alone:
            yield alone[1] + documentation(alone[2])
        elif trailing and trailing[1].endswith("{"):
            yield f"/** {escaped(trailing[2])} */ {trailing[1].lstrip()}"
        elif trailing:
            yield f"{trailing[1]}  ///< {escaped(trailing[2])}"
        else:
            yield line


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(documented(header.read().splitlines())))
