# SPDX-License-Identifier: Apache-2.0
"""Programs that a compiler must refuse: each line marked `// refused: WORDS` with an error that has these words. With
VERBENA_RIGHT_USE defined the same file shows the right use, and compiles.

misuse.py INCLUDE COMPILER FLAG...: the flags make it tell all errors."""

import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "misuse"
MARK = re.compile(r"// refused: (.+)$")


def check(condition, text):
    if not condition:
        raise SystemExit(f"misuse: {text}")


def compiled(command, path, *more):
    """Whether the file compiles, and what the compiler says."""
    done = subprocess.run([*command, *more, str(path)], text=True, capture_output=True, check=False,
                          env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"})
    return done.returncode == 0, done.stdout + done.stderr


def refusals(said):
    """Of each error what it says, and the places it names. g++ tells before it where a template was wanted, clang
    after it."""
    lines = said.splitlines()
    errors = [n for n, line in enumerate(lines) if re.search(r": (fatal )?error: ", line)]
    for before, n, after in zip([-1, *errors], errors, [*errors[1:], len(lines)]):
        yield "\n".join(lines[n:n + 3]), "\n".join(lines[before + 1:after])


def look_at(command, path):
    right, said = compiled(command, path, "-DVERBENA_RIGHT_USE")
    check(right, f"{path.name}: the right use does not compile:\n{said}")
    wrong, said = compiled(command, path)
    check(not wrong, f"{path.name} compiles")
    errors = list(refusals(said))
    marked = 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = MARK.search(line)
        if mark:
            marked += 1
            refused = any(mark[1] in what and f"{path}:{number}:" in places for what, places in errors)
            check(refused, f"{path.name}:{number} is not refused with \"{mark[1]}\":\n{line}\n{said}")
    check(marked > 0, f"{path.name} has no marked line")
    return marked


def main():
    include, *compiler = sys.argv[1:]
    command = [*compiler, "-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include}"]
    sources = sorted(HERE.glob("*.cc"))
    check(sources, "there is nothing to refuse")
    print(f"{sum(look_at(command, path) for path in sources)} lines are refused")


if __name__ == "__main__":
    main()
