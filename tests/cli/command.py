# SPDX-License-Identifier: Apache-2.0
"""Runs the verbena command as a user does: servers on addresses they choose themselves, clients that meet them."""

import hashlib
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

# How long a command may take that must end by itself; many times what it needs on a busy machine.
PATIENCE = 90
SKIPPED = 77


class Skip(Exception):
    """The surroundings lack something; the text says what."""


def say(text):
    print(text, flush=True)


def check(condition, text):
    if not condition:
        raise AssertionError(text)


class Setting:
    """What a test has to work with: the programs, a folder of its own, what it started."""

    def __init__(self, bin_folder, large):
        self.bin = bin_folder
        self.large = large
        self.folder = tempfile.mkdtemp(prefix="verbena-cli-")
        self.started = []

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def command(self, *words):
        return [os.path.join(self.bin, "verbena"), *words]

    def start(self, *words, prefix=(), **options):
        process = subprocess.Popen([*prefix, *self.command(*words)], stdin=subprocess.DEVNULL, **options)
        self.started.append(process)
        return process

    def run(self, *words, status=0, cwd=None):
        """Runs to the end and returns standard output and standard error; checks the exit status."""
        done = subprocess.run(self.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, cwd=cwd, timeout=PATIENCE, check=False)
        output = done.stdout.decode(errors="replace")
        errors = done.stderr.decode(errors="replace")
        shown = b" ".join(map(os.fsencode, words)).decode(errors="replace")
        check(done.returncode == status,
              f"verbena {shown}: exit status {done.returncode}, not {status}\n{output}{errors}")
        return output, errors

    def close(self):
        for process in self.started:
            end(process)
        for folder, folders, _ in os.walk(self.folder):
            for name in folders:
                try:
                    os.chmod(os.path.join(folder, name), 0o700)
                except OSError:
                    pass
        shutil.rmtree(self.folder, ignore_errors=True)


def end(process):
    """Ends a process by its id, stopped or not."""
    if process.poll() is not None:
        return
    process.kill()
    try:
        process.send_signal(signal.SIGCONT)
    except ProcessLookupError:
        pass
    process.wait(PATIENCE)


def fault_of(process):
    """What the kernel told of a process that a fault ended, where it may be asked: which instruction it was."""
    if process.returncode not in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE):
        return ""
    told = subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=False).stdout
    return "".join(f"{line}\n" for line in told.splitlines() if f"[{process.pid}]" in line)


def first_line(process):
    """The first line of standard output, which must come."""
    line = b""
    deadline = time.monotonic() + PATIENCE
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        check(ready, f"the server printed no first line, only {line!r}")
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            raise AssertionError(f"the server ended with status {process.wait(PATIENCE)} before its first line")
        line += byte
    return line.decode().rstrip("\n")


def output_until(process, is_enough):
    """What a process prints on standard output, until it is enough."""
    output = b""
    deadline = time.monotonic() + PATIENCE
    while not is_enough(output):
        ready, _, _ = select.select([process.stdout], [], [], max(0, deadline - time.monotonic()))
        part = os.read(process.stdout.fileno(), 4096) if ready else b""
        check(part, f"no more was printed than {output!r}")
        output += part
    return output


class Server:
    """`verbena serve` or `verbena ping -s`, listening; knows where."""

    def __init__(self, setting, *words, prefix=(), stderr=None):
        self.log = open(setting.path(f"server-{len(setting.started)}.log"), "w+b")
        self.process = setting.start(*words, "--port", "0", prefix=prefix, stdout=subprocess.PIPE,
                                     stderr=self.log if stderr is None else stderr)
        line = first_line(self.process)
        check(line.startswith("listening on "), f"the first line is {line!r}")
        self.address = line[len("listening on "):]

    def url(self, path=""):
        return f"verbena://{self.address}/{path}"

    def errors(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as log:
            return log.read() + fault_of(self.process)

    def alive(self):
        return self.process.poll() is None

    def stop(self, expected=0):
        """Asks it to end, and checks that it does, well."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(PATIENCE)
        check(status == expected, f"the server ended with status {status}\n{self.errors()}")


def unshare(*flags):
    """The words that put a command into namespaces of its own."""
    words = ["unshare", *flags, "--"]
    try:
        done = subprocess.run([*words, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except FileNotFoundError as error:
        raise Skip("there is no unshare") from error
    if done.returncode != 0:
        raise Skip("no namespaces: " + done.stdout.decode().strip())
    return words


def write_file(path, size, seed=1):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    source = random.Random(seed)
    with open(path, "wb") as file:
        while size > 0:
            part = source.randbytes(min(size, 1 << 20))
            file.write(part)
            size -= len(part)


def digest(path):
    total = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            total.update(part)
    return total.hexdigest()


def tree(path):
    """What stands below a folder: kind, permissions, content of every entry, by its path in bytes."""
    path = os.fsencode(path)
    found = {}
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            full = os.path.join(folder, name)
            relative = os.path.relpath(full, path)
            mode = os.lstat(full).st_mode & 0o777
            if os.path.islink(full):
                found[relative] = ("link", os.readlink(full))
            elif os.path.isdir(full):
                found[relative] = ("folder", mode)
            elif os.path.isfile(full):
                found[relative] = ("file", mode, digest(full))
            else:
                found[relative] = ("other", mode)
    return found


def leftovers(path):
    """Unfinished files that something left behind."""
    return [name for folder, _, files in os.walk(path) for name in files if name.startswith(".verbena-")]


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        check(time.monotonic() < deadline, f"waited in vain until {what}")
        time.sleep(0.02)


def main(*tests):
    """Runs test functions, each with a Setting of its own. Arguments: BIN_FOLDER [--large]."""
    failed = skipped = 0
    for test in tests:
        name = test.__name__.replace("_", " ")
        setting = Setting(os.path.abspath(sys.argv[1]), "--large" in sys.argv[2:])
        try:
            test(setting)
            say(f"ok       {name}")
        except Skip as reason:
            skipped += 1
            say(f"skipped  {name}: {reason}")
        except Exception:  # pylint: disable=broad-except
            failed += 1
            say(f"FAILED   {name}\n{traceback.format_exc()}")
        finally:
            setting.close()
    say(f"{len(tests) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    sys.exit(1 if failed else SKIPPED if skipped == len(tests) else 0)
