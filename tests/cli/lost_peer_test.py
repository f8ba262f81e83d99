# SPDX-License-Identifier: Apache-2.0
"""The other side is killed or stopped in the middle: who is left ends with a clear error and leaves no half file."""

import os
import random
import re
import signal
import subprocess
import time

from command import PATIENCE, Server, check, digest, end, leftovers, main, say, wait_until, write_file

ROUNDS = 5
STOPPED_SECONDS = 6  # well over the retry budget of a good two seconds
# By packets and through memory, and how much of the time a transfer takes there.
PATHS = {"roce": 1, "local": 0.3}
TROUBLE = ("RetryExceeded", "Disconnected", "ConnectionLost", "Unreachable", "TimedOut")


class Scene:
    """A server, a file at its place, and a client in the middle of moving it."""

    def __init__(self, setting, command, path):
        self.setting, self.command, self.path = setting, command, path
        self.size = 150_000_000 if setting.large else 40_000_000
        for folder in ("served", "mine"):
            if not os.path.exists(setting.path(folder, "file")):
                write_file(setting.path(folder, "file"), self.size)
        self.expected = digest(setting.path("mine", "file"))
        self.target = setting.path("mine", "got") if command == "get" else setting.path("served", "up")
        self.folder = os.path.dirname(self.target)

    def serve(self):
        return Server(self.setting, "serve", self.setting.path("served"), "--writable", "-v")

    def begin(self, server, delay):
        words = ("get", server.url("file"), self.target)
        if self.command == "put":
            words = ("put", self.setting.path("mine", "file"), server.url("up"))
        client = self.setting.start(*words, "--path", self.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(delay * PATHS[self.path])
        return client

    def check_target(self, complete_allowed=True):
        """Not there, or there as a whole; True when it is there."""
        check(not leftovers(self.folder), f"left behind: {leftovers(self.folder)}")
        if not os.path.exists(self.target):
            return False
        check(complete_allowed and digest(self.target) == self.expected, "a partial file stands under its name")
        os.remove(self.target)
        return True

    def check_next_client(self, server):
        """Somebody else is served after all that."""
        self.setting.run("get", server.url("file"), self.setting.path("mine", "next"), "--force", "-q")
        check(digest(self.setting.path("mine", "next")) == self.expected, "the next client got something else")


def delays(seed):
    source = random.Random(seed)
    return [round(source.uniform(0.02, 0.6), 3) for _ in range(ROUNDS)]


def server_dies(setting, command, path, seed):
    scene = Scene(setting, command, path)
    for delay in delays(seed):
        server = scene.serve()
        client = scene.begin(server, delay)
        end(server.process)
        _, errors = client.communicate(timeout=PATIENCE)
        errors = errors.decode()
        if client.returncode == 0:
            check(scene.check_target(), "status 0 and no file")
            say(f"{command} by {path}, server killed after {delay} s: it was done already")
            continue
        # Killed before the client came, its address may be another program's, which refuses; killed when it had
        # answered and not met the client yet, it offers no shared memory any more.
        gone = ["ConnectionRefused"] + ["nobody offers shared memory"] * (path == "local")
        check(client.returncode == 1 and any(word in errors for word in (*TROUBLE, *gone)),
              f"{client.returncode} {errors}")
        check(len(errors.splitlines()) >= 2, f"no advice: {errors}")
        check("RetryExceeded" not in errors or "stopped or killed" in errors, f"the advice misleads: {errors}")
        # A server may die between naming the file and saying so.
        scene.check_target(complete_allowed=command == "put")
        say(f"{command} by {path}, server killed after {delay} s: {errors.splitlines()[0]}")


def client_dies(setting, command, path, seed):
    scene = Scene(setting, command, path)
    server = scene.serve()
    for delay in delays(seed):
        client = scene.begin(server, delay)
        end(client)
        client.stderr.close()
        # Once this one was served, whoever came before it is known.
        setting.run("get", server.url("none"), setting.path("none"), status=1)
        wait_until(lambda: all_gone(server), "the server noticed")
        check(server.alive(), "the server ended")
        there = scene.check_target()
        say(f"{command} by {path}, client killed after {delay} s: {'done already' if there else 'nothing is left'}")
    scene.check_next_client(server)
    server.stop()


def all_gone(server):
    """Every client that came has ended, as the server sees it."""
    lines = server.errors().splitlines()
    came = [line.split(": ")[0] for line in lines if line.endswith(": connected")]
    ended = [line for line in lines if re.search(" files?, |no request", line)]
    return all(any(line.startswith(f"{peer}: ") for line in ended) for peer in came)


def server_stops(setting, command, path):
    scene = Scene(setting, command, path)
    server = scene.serve()
    client = scene.begin(server, 0.15)
    server.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    _, errors = client.communicate(timeout=PATIENCE)
    errors = errors.decode()
    check(client.returncode in (0, 1), f"{client.returncode} {errors}")
    if client.returncode == 1:
        check(any(word in errors for word in TROUBLE), errors)
        check("RetryExceeded" not in errors or "stopped or killed" in errors, f"the advice misleads: {errors}")
    time.sleep(max(0, STOPPED_SECONDS - (time.monotonic() - stopped)))
    server.process.send_signal(signal.SIGCONT)
    wait_until(lambda: all_gone(server), "the server noticed")
    scene.check_target()
    scene.check_next_client(server)
    check(server.alive(), "the server ended")
    server.stop()
    say(f"{command} by {path}, server stopped: {errors.splitlines()[0] if errors else 'it was done already'}")


def client_stops(setting, command, path):
    scene = Scene(setting, command, path)
    server = scene.serve()
    client = scene.begin(server, 0.15)
    client.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    scene.check_next_client(server)
    wait_until(lambda: all_gone(server), "the server noticed")
    lines = server.errors().splitlines()
    first = next(line.split(": ")[0] for line in lines if line.endswith(": connected"))
    told = next(line for line in lines if line.startswith(f"{first}: ") and not line.endswith(": connected"))
    scene.check_next_client(server)
    time.sleep(max(0, STOPPED_SECONDS - (time.monotonic() - stopped)))
    client.send_signal(signal.SIGCONT)
    _, errors = client.communicate(timeout=PATIENCE)
    errors = errors.decode()
    check(client.returncode in (0, 1), f"{client.returncode} {errors}")
    check(client.returncode == 0 or any(word in errors for word in TROUBLE), errors)
    scene.check_target()
    check(server.alive(), "the server ended")
    server.stop()
    said = errors.splitlines()[0] if errors else "ok"
    say(f"{command} by {path}, client stopped: the server said: {told}; the client said: {said}")


def get_when_the_server_is_killed(setting):
    for path in PATHS:
        server_dies(setting, "get", path, 1)


def put_when_the_server_is_killed(setting):
    for path in PATHS:
        server_dies(setting, "put", path, 2)


def get_when_the_client_is_killed(setting):
    for path in PATHS:
        client_dies(setting, "get", path, 3)


def put_when_the_client_is_killed(setting):
    for path in PATHS:
        client_dies(setting, "put", path, 4)


def get_when_the_server_is_stopped(setting):
    for path in PATHS:
        server_stops(setting, "get", path)


def put_when_the_server_is_stopped(setting):
    for path in PATHS:
        server_stops(setting, "put", path)


def get_when_the_client_is_stopped(setting):
    for path in PATHS:
        client_stops(setting, "get", path)


def put_when_the_client_is_stopped(setting):
    for path in PATHS:
        client_stops(setting, "put", path)


if __name__ == "__main__":
    main(get_when_the_server_is_killed, put_when_the_server_is_killed, get_when_the_client_is_killed,
         put_when_the_client_is_killed, get_when_the_server_is_stopped, put_when_the_server_is_stopped,
         get_when_the_client_is_stopped, put_when_the_client_is_stopped)
