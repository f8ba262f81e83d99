# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a measurement, two at a time, and waits for the machine to be quiet."""
import contextlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

TIMEOUT_S = 60
VETH_NEAR, VETH_FAR = "10.80.0.1", "10.80.0.2"
# Says "up" and the process that holds the far host, and stays until its input ends. Neighbours are told, not asked for.
VETH_SET_UP = f"""
set -e
folder=$(mktemp -d); mkfifo $folder/wait
unshare -n sh -c "ip link set lo up; exec cat <$folder/wait >/dev/null" & far=$!
exec 9>$folder/wait; rm -r $folder
ip link set lo up
for i in 1 2 3 4 5 6 7 8 9 10; do
  [ "$(readlink /proc/self/ns/net)" = "$(readlink /proc/$far/ns/net)" ] || break
  sleep 0.05
done
ip link add va mtu 9000 type veth peer name vb mtu 9000 netns $far
ip addr add {VETH_NEAR}/24 dev va; ip link set va up
nsenter -t $far -n sh -c "ip addr add {VETH_FAR}/24 dev vb; ip link set vb up"
echo up $far
exec cat >/dev/null
"""
QUIET_CPU = 0.15  # what others may use of the CPUs during a measurement, in CPUs
QUIET_BUDGET_S = 60  # spent on waiting and repeating at most, over all rounds


class Missing(Exception):
    """There is no result, and why."""


def _busy_s():
    v = [int(x) for x in open("/proc/stat", encoding="ascii").readline().split()[1:9]]
    return (v[0] + v[1] + v[2]) / os.sysconf("SC_CLK_TCK")


def _own_s():
    usages = [resource.getrusage(w) for w in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(u.ru_utime + u.ru_stime for u in usages)


class Lab:
    def __init__(self, binaries, plain):
        self._binaries = binaries.resolve()
        self._plain = plain.resolve()
        self._budget_s = QUIET_BUDGET_S
        self._namespace = None
        self._veth = None
        self.disturbed = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for holder in (self._namespace, self._veth):
            if holder:
                holder.stdin.close()  # its cat ends, and the namespaces with it
                holder.wait()

    @contextlib.contextmanager
    def built_plainly(self):
        """Programs are those of the plain tree meanwhile."""
        tuned, self._binaries = self._binaries, self._plain
        try:
            yield
        finally:
            self._binaries = tuned

    def program(self, name):
        path = self._binaries / name
        if not path.exists():
            raise Missing(f"{name} has not been built")
        return str(path)

    def installed(self, name):
        path = shutil.which(name)
        if not path:
            raise Missing(f"{name} is not installed")
        return path

    def loopback_only(self):
        """A command prefix that enters a network namespace with nothing but a loopback: for peers that would listen on
        every address otherwise."""
        if self._namespace is None:
            for tool in ("unshare", "nsenter", "ip"):
                self.installed(tool)
            self._namespace = subprocess.Popen(
                ["unshare", "-Urn", "sh", "-c", "ip link set lo up && echo up && exec cat >/dev/null"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._namespace_up = self._namespace.stdout.readline() == "up\n"
        if not self._namespace_up:
            raise Missing("no network namespace may be made here")
        return ["nsenter", "-t", str(self._namespace.pid), "-U", "-n", "--preserve-credentials", "--"]

    def veth(self):
        """Command prefixes that enter two hosts joined by a veth pair, VETH_NEAR and VETH_FAR."""
        if self._veth is None:
            for tool in ("unshare", "nsenter", "ip"):
                self.installed(tool)
            self._veth = subprocess.Popen(["unshare", "-Urn", "sh", "-c", VETH_SET_UP], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._veth_far = self._veth.stdout.readline().removeprefix("up ").strip()
        if not self._veth_far:
            raise Missing("no pair of network namespaces may be made here")
        return [["nsenter", "-t", str(pid), "-U", "-n", "--preserve-credentials", "--"]
                for pid in (self._veth.pid, self._veth_far)]

    def run(self, command):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
                                  check=False)
        except subprocess.TimeoutExpired as e:
            raise Missing(f"{command[0]} took longer than {TIMEOUT_S} s") from e
        if done.returncode:
            raise Missing(f"{command[0]} exited with {done.returncode}: {last_line(done.stderr or done.stdout)}")
        return done.stdout

    def pair(self, server, client, env=None, delay_s=None):
        """Runs a server and a client and returns what both printed. Without delay_s the server says when it is ready,
        and the client is given its address as --connect."""
        env = dict(os.environ, **(env or {}))
        with tempfile.TemporaryFile("w+") as log, tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(server, env=env, stdout=log, stderr=errors, stdin=subprocess.DEVNULL)
            try:
                if delay_s is None:
                    client = client + ["--connect", self._address(process, log, errors)]
                else:
                    time.sleep(delay_s)
                output = self._client(client, env)
                process.wait(timeout=5)
            except subprocess.TimeoutExpired as e:
                raise Missing(f"the server {server[0]} did not leave after its client") from e
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if process.returncode:
                raise Missing(f"the server {server[0]} exited with {process.returncode}: {last_line(read(errors))}")
            return output + read(log)

    def _client(self, command, env):
        try:
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                  timeout=TIMEOUT_S, stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired as e:
            raise Missing(f"the client {command[0]} took longer than {TIMEOUT_S} s") from e
        if done.returncode:
            words = last_line(done.stderr or done.stdout)
            raise Missing(f"the client {command[0]} exited with {done.returncode}: {words}")
        return done.stdout

    @staticmethod
    def _address(process, log, errors):
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for line in read(log).splitlines(keepends=True):
                fields = line.split("\t")
                if line.endswith("\n") and fields[0] == "ready" and len(fields) == 3:
                    return fields[1]
            if process.poll() is not None:
                raise Missing(f"the server exited with {process.returncode}: {last_line(read(errors))}")
            time.sleep(0.005)
        raise Missing("the server was not ready within 10 s")

    def quietly(self, figure):
        """The value of figure(self), taken while nothing else uses the CPUs, if that can be had within the budget."""
        for attempt in range(3):
            self._settle()
            before, start = _busy_s() - _own_s(), time.monotonic()
            value = figure(self)
            took_s = max(time.monotonic() - start, 0.01)
            foreign = (_busy_s() - _own_s() - before) / took_s
            if foreign < QUIET_CPU:
                return value
            if attempt == 2 or self._budget_s < took_s:
                break
            self._budget_s -= took_s
        self.disturbed += 1
        return value

    def _settle(self):
        while self._budget_s > 0:
            before, start = _busy_s() - _own_s(), time.monotonic()
            time.sleep(0.1)
            if (_busy_s() - _own_s() - before) / (time.monotonic() - start) < 0.25:
                return
            time.sleep(0.4)
            self._budget_s -= 0.5


def read(file):
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "without a word"


def metrics(text):
    """{metric: value} of the "metric<TAB>value<TAB>unit" lines."""
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[0] != "ready":
            try:
                found[fields[0]] = float(fields[1])
            except ValueError:
                print(f"not a figure: {line!r}", file=sys.stderr)
    return found


def metric(text, name):
    found = metrics(text)
    if name not in found:
        raise Missing(f"no line {name} in the output")
    return found[name]
