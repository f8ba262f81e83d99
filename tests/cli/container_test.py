#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two containers of one host, each with users, processes, mounts and a network of its own, that share a folder."""

import json
import os
import re
import shutil
import signal
import subprocess

from command import PATIENCE, Server, Skip, check, digest, first_line, main, say, wait_until, write_file
from networks import TwoNetworks

LARGE = 8 << 20


class Container:
    """Runs the command inside. Who sees it from outside sees `unshare`, and it below that."""

    def __init__(self, setting, network, folder):
        self.setting = setting
        self.address = network.address
        words = ["unshare", "-U", "-r", "-p", "-i", "-m", "--fork", "--kill-child", "--"]
        variables = [f"VERBENA_LOCAL_DIR={folder}"] if folder else []
        self.counters = setting.path(f"counters-{network.address}-{len(setting.started)}")
        self.inside = [*network.inside, *words, "env", f"VERBENA_COUNTERS={self.counters}", *variables]
        done = subprocess.run([*self.inside, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise Skip("no namespaces within namespaces: " + done.stdout.decode().strip())

    def server(self, *words):
        return Server(self.setting, *words, "--device", self.address, prefix=self.inside)

    def run(self, *words, status=0):
        """Runs to the end and returns standard output, standard error and what its device counted."""
        shutil.rmtree(self.counters, ignore_errors=True)
        process = self.setting.start(*words, "--device", self.address, prefix=self.inside, stdout=subprocess.PIPE,
                                     stderr=subprocess.PIPE)
        output, errors = (text.decode() for text in process.communicate(timeout=PATIENCE))
        check(process.returncode == status, f"{words}: status {process.returncode}\n{output}{errors}")
        return output, errors, self.counted()

    def counted(self):
        names = os.listdir(self.counters) if os.path.isdir(self.counters) else []
        if not names:
            return {}
        with open(os.path.join(self.counters, names[0]), encoding="utf-8") as text:
            return {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text.read(), re.MULTILINE)}


def process_in(server):
    """The number of the command itself, seen from here."""
    outside = server.process.pid
    found = []

    def is_there():
        with open(f"/proc/{outside}/task/{outside}/children", encoding="ascii") as text:
            found[:] = text.read().split()
        return found

    wait_until(is_there, "the command runs in its container")
    return int(found[0])


def stop(server, number=signal.SIGTERM):
    os.kill(process_in(server), number)
    return server.process.wait(PATIENCE)


def by_memory(counted):
    """Whether no packet went but those of connection management."""
    return counted["local_connections"] == 1 and counted["sent_pkts"] == counted["sent_cm_pkts"]


class TwoContainers:
    def __init__(self, setting, shared=True):
        self.setting = setting
        self.networks = TwoNetworks()
        self.folder = setting.path("shared")
        os.mkdir(self.folder, 0o700)
        self.shared = shared

    def __enter__(self):
        here, there = self.networks.__enter__()
        try:
            folder = self.folder if self.shared else None
            return Container(self.setting, here, folder), Container(self.setting, there, folder), self.folder
        except Skip:
            self.networks.__exit__()
            raise

    def __exit__(self, *_):
        self.networks.__exit__()


def files_and_pings_go_through_memory(setting):
    with TwoContainers(setting) as (here, there, folder):
        write_file(setting.path("served", "file"), LARGE)
        server = here.server("serve", setting.path("served"))
        check(len(os.listdir(folder)) == 1, f"{os.listdir(folder)}")
        _, _, counted = there.run("get", server.url("file"), setting.path("got"))
        check(digest(setting.path("got")) == digest(setting.path("served", "file")), "the file differs")
        check(by_memory(counted), f"{counted}")
        check(stop(server) == 0, server.errors())
        server = here.server("ping", "-s")
        for kind in (("--op", "send"), ("--op", "write", "--size", "100000"), ("--op", "read", "--size", "100000")):
            output, _, counted = there.run("ping", server.address, "-c", "20", "-i", "0.001", "--path", "local",
                                           "--json", *kind)
            result = json.loads(output)
            check(result["done"] == 20 and result["failed"] == 0 and by_memory(counted), f"{kind}: {output}{counted}")
            direct = counted["direct_requests"]
            check((direct > 0) == ("send" not in kind), f"{kind}: {direct} straight to memory from Verbena")
        check(stop(server) == 0, server.errors())
        check(not os.listdir(folder), f"left behind: {os.listdir(folder)}")
        say(f"{LARGE} bytes and three kinds of pings, and nothing is left")


def without_the_folder_packets_go(setting):
    with TwoContainers(setting, shared=False) as (here, there, folder):
        server = here.server("ping", "-s")
        _, _, counted = there.run("ping", server.address, "-c", "3", "-i", "0.01")
        check(counted["local_connections"] == 0 and counted["sent_pkts"] > counted["sent_cm_pkts"], f"{counted}")
        _, errors, _ = there.run("ping", server.address, "-c", "3", "-i", "0.01", "--path", "local", status=1)
        check("nobody offers shared memory for that address on this host" in errors, errors)
        check(stop(server) == 0 and not os.listdir(folder), server.errors())


def who_was_killed_is_replaced(setting):
    with TwoContainers(setting) as (here, there, folder):
        for _ in range(2):
            server = here.server("ping", "-s")
            there.run("ping", server.address, "-c", "3", "-i", "0.01", "--path", "local")
            check(stop(server, signal.SIGKILL) != 0, "it was killed")
            check(len(os.listdir(folder)) == 1, f"nobody tidied up: {os.listdir(folder)}")
        server = here.server("ping", "-s")
        check(len(os.listdir(folder)) == 1, f"{os.listdir(folder)}")
        there.run("ping", server.address, "-c", "3", "-i", "0.01", "--path", "local")
        doomed = here.server("ping", "-s")  # beside it, at the same address
        check(len(os.listdir(folder)) == 2, f"{os.listdir(folder)}")
        there.run("ping", doomed.address, "-c", "3", "-i", "0.01", "--path", "local")
        stop(doomed, signal.SIGKILL)
        check(len(os.listdir(folder)) == 2, f"{os.listdir(folder)}")
        check(stop(server) == 0, server.errors())
        check(not os.listdir(folder), f"left behind: {os.listdir(folder)}")
        say("three were killed, and who went last left nothing of them")


def a_folder_that_vanishes_costs_memory_alone(setting):
    with TwoContainers(setting) as (here, there, folder):
        server = here.server("ping", "-s")
        pinger = setting.start("ping", server.address, "--device", there.address, "-c", "400", "-i", "0.005", "--path",
                               "local", prefix=there.inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first_line(pinger)
        shutil.rmtree(folder)
        _, errors, _ = there.run("ping", server.address, "-c", "3", "-i", "0.01", status=1)
        check("is not there" in errors and folder in errors, errors)
        os.mkdir(folder, 0o700)
        _, _, counted = there.run("ping", server.address, "-c", "3", "-i", "0.01")
        check(counted["local_connections"] == 0, f"{counted}")
        check(pinger.wait(PATIENCE) == 0, "who had met went on")
        check(stop(server) == 0, server.errors())
        check(not os.listdir(folder), f"{os.listdir(folder)}")


def what_is_no_folder_is_refused(setting):
    write_file(setting.path("file"), 1)
    for name, words in (("missing", "is not there: make it"), ("file", "is no folder")):
        os.environ["VERBENA_LOCAL_DIR"] = setting.path(name)
        try:
            _, errors = setting.run("ping", "127.0.0.1:1", status=1)
            check(words in errors and setting.path(name) in errors, errors)
            setting.run("devices", "--path", "roce")
            found = json.loads(setting.run("doctor", "--json", status=1)[0])["findings"]
            check(any(words in one["found"] for one in found if one["subject"] == "opening"), f"{found}")
        finally:
            del os.environ["VERBENA_LOCAL_DIR"]


def loopback_stays_out_of_it(setting):
    folder = setting.path("shared")
    os.mkdir(folder)
    os.environ["VERBENA_LOCAL_DIR"] = folder
    try:
        server = Server(setting, "ping", "-s")
        setting.run("ping", server.address, "-c", "3", "-i", "0.01", "--path", "local")
        check(not os.listdir(folder), f"{os.listdir(folder)}")
        server.stop()
        found = json.loads(setting.run("doctor", "--json")[0])["findings"]
        check(any("each network has loopback addresses of its own" in one["found"] for one in found), f"{found}")
    finally:
        del os.environ["VERBENA_LOCAL_DIR"]


READ_ONLY = "mount -t tmpfs -o ro,mode=0 none /dev/shm"
# What is left of /dev is what any program may expect of it.
ABSENT = """kept=$(mktemp -d) && mount -t tmpfs none $kept && for name in null zero urandom; do
  touch $kept/$name && mount --bind /dev/$name $kept/$name || exit 1; done && mount --rbind $kept /dev &&
  test ! -e /dev/shm"""


def dev_shm_is_not_needed(setting):
    for name, script in (("read-only", READ_ONLY), ("absent", ABSENT)):
        inside = ["unshare", "-U", "-r", "-m", "--", "sh", "-c", f'{{ {script}; }} && exec "$@"', "sh"]
        done = subprocess.run([*inside, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise Skip(f"no /dev/shm that is {name}: " + done.stdout.decode().strip())
        server = Server(setting, "ping", "-s", prefix=inside)
        for kind in ("send", "write", "read"):
            ping = setting.start("ping", server.address, "-c", "3", "-i", "0.01", "--path", "local", "--op", kind,
                                 "--json", prefix=inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            output, errors = ping.communicate(timeout=PATIENCE)
            check(ping.returncode == 0 and json.loads(output)["done"] == 3, f"{name}: {output}{errors}")
        server.stop()


if __name__ == "__main__":
    main(files_and_pings_go_through_memory, without_the_folder_packets_go, who_was_killed_is_replaced,
         a_folder_that_vanishes_costs_memory_alone, what_is_no_folder_is_refused, loopback_stays_out_of_it,
         dev_shm_is_not_needed)
