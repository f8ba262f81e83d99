# SPDX-License-Identifier: Apache-2.0
"""scripts/interop says in one line why it cannot run, where the log is, and leaves nothing behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lab

PROJECT = Path(__file__).resolve().parents[2]
QEMU = "qemu-system-x86_64"


def tools(folder, **replaced):
    """A PATH with every program of this machine but those replaced: a script's text, or None for a missing one."""
    for place in os.environ["PATH"].split(":"):
        for program in sorted(Path(place).glob("*")) if os.path.isdir(place) else []:
            if program.name not in replaced and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    for name, text in replaced.items():
        if text is not None:
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
    return str(folder)


def project_without_guest(folder):
    """The scripts alone, in a tree whose guest is yet to be built."""
    for part in ("scripts", "tests/interop"):
        shutil.copytree(PROJECT / part, folder / part)
    return folder


def run(root, path, *arguments):
    done = subprocess.run([root / "scripts/interop", "--no-build", *arguments], env={**os.environ, "PATH": path},
                          capture_output=True, text=True, timeout=150, check=False)
    return done.returncode, done.stdout + done.stderr


def refuses(name, status, *words, root=PROJECT, **replaced):
    with tempfile.TemporaryDirectory() as folder:
        code, text = run(root, tools(Path(folder), **replaced))
    lines = [line for line in text.splitlines() if line.startswith("interop: ")]
    assert code == status and len(lines) == 1 and all(word in lines[0] for word in words), f"{name}: {code}\n{text}"
    print(f"{name}: {lines[0]}")


def children_of(pid):
    pairs = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            pairs.append((int(entry.parent.name), int(entry.read_text().rsplit(")", 1)[1].split()[1])))
        except OSError:
            pass  # it has ended meanwhile
    found, last = {pid}, 0
    while len(found) != last:
        last = len(found)
        found |= {child for child, parent in pairs if parent in found}
    return found - {pid}


def leaves_nothing_after(number):
    before = set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set()
    child = subprocess.Popen([PROJECT / "scripts/interop", "--no-build", "--only", "conversation"], text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    line = child.stdout.readline()
    while line and "the guest runs" not in line:
        line = child.stdout.readline()
    assert line, "the guest did not come up"
    family = children_of(child.pid) | {child.pid}
    assert len(family) >= 3, "QEMU is not among its children"
    os.killpg(child.pid, number)
    assert child.wait(30) == 130, child.returncode
    end = time.monotonic() + 10
    alive = lambda: [pid for pid in family if os.path.exists(f"/proc/{pid}")]  # noqa: E731
    while alive() and time.monotonic() < end:
        time.sleep(0.05)
    assert not alive(), f"still there: {alive()}"
    after = set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set()
    assert after <= before, after - before
    print(f"{signal.Signals(number).name}: {len(family)} processes, none left")


def main():
    lab.need(QEMU)
    refuses("no QEMU", 77, "not installed", "scripts/install-deps", **{QEMU: None})
    refuses("an old QEMU", 77, "too old", **{QEMU: "#!/bin/sh\necho 'QEMU emulator version 2.12.0'\n"})
    refuses("no namespaces", 77, "namespace", unshare="#!/bin/sh\nexit 1\n")
    with tempfile.TemporaryDirectory() as folder:
        root = project_without_guest(Path(folder))
        nothing = "#!/bin/sh\necho 'E: no such thing' >&2\nexit 100\n"
        refuses("an unknown kernel package", 1, "linux-image-amd64", "build.log", root=root,
                **{"apt-cache": nothing, "apt-get": nothing})
        known = "#!/bin/sh\necho '  Depends: linux-image-9.9.9-amd64'\n"
        refuses("a kernel package that cannot be had", 1, "linux-image-9.9.9-amd64 cannot be downloaded", "build.log",
                root=root, **{"apt-cache": known, "apt-get": nothing})
    if not (PROJECT / "build/guest/stamp").exists() or not os.access("/dev/net/tun", os.W_OK):
        lab.skip("the guest is not built, or there is no tap")
    version = subprocess.run([QEMU, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    refuses("a guest that does not start", 1, "QEMU did not start", "qemu.log",
            **{QEMU: f"#!/bin/sh\n[ \"$1\" = --version ] && echo '{version}' && exit\necho broken >&2\nexit 1\n"})
    leaves_nothing_after(signal.SIGINT)
    leaves_nothing_after(signal.SIGTERM)


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
