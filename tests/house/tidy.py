# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources of a build tree, two at a time. A file that was clean, and whose every input is
unchanged, is not looked at again."""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

from source_tree import SourceTree

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = ("src/", "sim/", "tools/")
DIAGNOSTIC = re.compile(r"^(.*?:\d+:\d+: (?:warning|error): .*)$", re.MULTILINE)

PLACELESS = re.compile(r"^error: invalid case style for .*$", re.MULTILINE)

# What clang does not know, quoted or not.
ONLY_GNU = re.compile(r' "?-m(?:tune-ctrl|memcpy-strategy|memset-strategy)=[^ "]*"?')

Outcome = namedtuple("Outcome", "files cached violations")


def one_command(root, path):
    """A compile_commands.json for one file of root."""
    command = f'clang++ -std=c++20 "-mtune-ctrl=^one,^two" -mmemset-strategy=loop:-1:noalign -c {path}'
    return json.dumps([{"directory": root, "file": os.path.join(root, path), "command": command}])


def chosen(root, build):
    """{path relative to root: compile command} of what is to be looked at: sources, not their tests."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    commands = {}
    for entry in entries:
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root).replace(os.sep, "/")
        if path.startswith(FOLDERS) and not path.endswith("_test.cc"):
            commands[path] = entry.get("command", "")
    return commands


def write_for_clang(build, folder):
    """The build tree's compile_commands.json, into folder, without what only g++ takes."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    for entry in entries:
        entry["command"] = ONLY_GNU.sub("", entry.get("command", ""))
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(entries, file)


def key_of(tree, path, command, common):
    digest = hashlib.sha256(common)
    digest.update(command.encode())
    for reached in sorted(tree.closure(path)):
        digest.update(reached.encode() + b"\0" + tree.text(reached).encode() + b"\0")
    return digest.hexdigest()


def look(root, commands, path):
    """Diagnostics of clang-tidy for one file; [] when it is clean. commands: folder of its compile_commands.json."""
    ran = subprocess.run(
        ["clang-tidy", "--quiet", "-p", commands, "--extra-arg=-Wno-unknown-warning-option",
         "--extra-arg=-Wno-ignored-optimization-argument", os.path.join(root, path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False)
    # A name without a place is one the compiler made up (the type of a requires expression): nobody can mend it.
    if ran.returncode == 0 or PLACELESS.sub("", ran.stdout).strip() == "":
        return []
    return DIAGNOSTIC.findall(ran.stdout) or [f"{path}: clang-tidy failed: {ran.stderr.strip()[-500:]}"]


def check(root, build, jobs):
    root, build = os.path.realpath(root), os.path.realpath(build)
    tree = SourceTree(root)
    clean = os.path.join(build, "tidy-clean")
    os.makedirs(clean, exist_ok=True)
    write_for_clang(build, clean)
    version = subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    common = version + tree.text(".clang-tidy").encode()
    keys = {path: key_of(tree, path, command, common) for path, command in chosen(root, build).items()}
    waiting = [path for path, key in keys.items() if not os.path.exists(os.path.join(clean, key))]
    reported = set()
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        for path, diagnostics in zip(waiting, pool.map(lambda p: look(root, clean, p), waiting)):
            reported.update(d.replace(root + "/", "") for d in diagnostics)
            if not diagnostics:
                with open(os.path.join(clean, keys[path]), "w", encoding="utf-8"):
                    pass
    for line in sorted(reported):
        print(line)
    return Outcome(len(keys), len(keys) - len(waiting), len(reported))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=os.path.join(HERE, "..", ".."))
    parser.add_argument("--build", required=True, help="build tree with a compile_commands.json")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    outcome = check(options.root, options.build, options.jobs)
    print(f"tidy: {outcome.files} files, {outcome.cached} unchanged, {outcome.violations} violations")
    sys.exit(1 if outcome.violations or outcome.files == 0 else 0)
