# SPDX-License-Identifier: Apache-2.0
"""clang-tidy over the sources of a build tree, those of a folder as one, two folders at a time. A file that was clean,
and whose every input is unchanged, is not looked at again."""

import argparse
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict, namedtuple
from concurrent.futures import ThreadPoolExecutor

from source_tree import SourceTree

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = ("src/", "sim/", "tools/")
BATCH = 40  # files that are read as one at most
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
        for source in joined(os.path.join(entry["directory"], entry["file"])):
            path = os.path.relpath(source, root).replace(os.sep, "/")
            if path.startswith(FOLDERS) and not path.endswith("_test.cc"):
                commands.setdefault(path, ONLY_GNU.sub("", entry.get("command", "")))
    return commands


def joined(source):
    """The sources that the build compiles as this one."""
    if os.path.basename(os.path.dirname(source)) != "Unity":
        return [source]
    with open(source, encoding="utf-8") as file:
        return re.findall(r'^#include "(.*)"$', file.read(), re.MULTILINE)


def flags(command):
    """A compile command without its files."""
    words = shlex.split(command)
    named = {i + 1 for i, word in enumerate(words) if word in ("-o", "-c")}
    return tuple(word for i, word in enumerate(words) if i not in named and word not in ("-o", "-c"))


def batches(commands, paths):
    """Lists of paths that one run of clang-tidy reads as one source, the longest first: most of its time goes to what
    every source includes. So names of a folder are unique, those that a file keeps to itself, too."""
    alike = defaultdict(list)
    for path in sorted(paths):
        alike[os.path.dirname(path), flags(commands[path])].append(path)
    parts = [together[i:i + BATCH] for together in alike.values() for i in range(0, len(together), BATCH)]
    return sorted(parts, key=len, reverse=True)


def key_of(tree, path, command, common):
    digest = hashlib.sha256(common)
    digest.update(command.encode())
    for reached in sorted(tree.closure(path)):
        digest.update(reached.encode() + b"\0" + tree.text(reached).encode() + b"\0")
    return digest.hexdigest()


def look(root, folder, command, paths):
    """Diagnostics of clang-tidy for files of one command, read as one; [] when they are clean."""
    source = os.path.join(folder, paths[0].replace("/", "_"))
    with open(source, "w", encoding="utf-8") as file:
        file.writelines(f'#include "{os.path.join(root, path)}"\n' for path in paths)
    ran = subprocess.run(
        ["clang-tidy", "--quiet", f"--config-file={os.path.join(root, '.clang-tidy')}", source, "--",
         *flags(command)[1:], "-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=False, cwd=root)
    # A name without a place is one the compiler made up (the type of a requires expression): nobody can mend it.
    if ran.returncode == 0 or PLACELESS.sub("", ran.stdout).strip() == "":
        return []
    return DIAGNOSTIC.findall(ran.stdout) or [f"{paths[0]}: clang-tidy failed: {ran.stderr.strip()[-500:]}"]


def check(root, build, jobs):
    root, build = os.path.realpath(root), os.path.realpath(build)
    tree = SourceTree(root)
    clean = os.path.join(build, "tidy-clean")
    os.makedirs(clean, exist_ok=True)
    version = subprocess.run(["clang-tidy", "--version"], stdout=subprocess.PIPE, check=True).stdout
    common = version + tree.text(".clang-tidy").encode()
    commands = chosen(root, build)
    keys = {path: key_of(tree, path, command, common) for path, command in commands.items()}
    waiting = [path for path, key in keys.items() if not os.path.exists(os.path.join(clean, key))]
    reported = set()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(max_workers=jobs) as pool:
        parts = batches(commands, waiting)
        for part, diagnostics in zip(parts, pool.map(lambda p: look(root, folder, commands[p[0]], p), parts)):
            reported.update(d.replace(root + "/", "") for d in diagnostics)
            for path in part if not diagnostics else []:
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
