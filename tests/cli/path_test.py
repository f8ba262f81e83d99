# SPDX-License-Identifier: Apache-2.0
"""--path: shared memory or packets between two processes, by what the device counted."""

import os
import re

from command import PATIENCE, Server, check, main, say

WAYS = [("local", "local", True), ("auto", "auto", True), ("auto", "roce", False), ("roce", "auto", False)]


def packets_sent(setting, name, *words):
    """Runs a command, and returns how many packets its device counted."""
    folder = setting.path(name)
    os.environ["VERBENA_COUNTERS"] = folder
    try:
        setting.run(*words)
    finally:
        del os.environ["VERBENA_COUNTERS"]
    (counters,) = os.listdir(folder)
    with open(os.path.join(folder, counters), encoding="utf-8") as text:
        return int(re.search(r"sent_pkts (\d+)", text.read()).group(1))


def both_ends_take_the_path_they_can(setting):
    for theirs, ours, shared in WAYS:
        server = Server(setting, "pingpong", "-n", "200", "-c", "--path", theirs)
        host, port = server.address.rsplit(":", 1)
        words = ["pingpong", host, "-p", port, "-n", "200", "-c", "--path", ours]
        sent = packets_sent(setting, f"{theirs}-{ours}", *words)
        server.process.communicate(timeout=PATIENCE)
        check(server.process.returncode == 0, server.errors())
        check((sent == 0) == shared, f"{theirs} and {ours}: {sent} packets")
    say(f"{len(WAYS)} pairs of --path")


def memory_alone_says_what_is_missing(setting):
    server = Server(setting, "pingpong", "--path", "roce")
    host, port = server.address.rsplit(":", 1)
    _, errors = setting.run("pingpong", host, "-p", port, "--path", "local", status=1)
    check("no shared memory with" in errors and "path=local" in errors, errors)
    _, errors = setting.run("pingpong", host, "--path", "bus", status=2)
    check("--path" in errors, errors)
    say("a peer without memory, and a path that is none")


if __name__ == "__main__":
    main(both_ends_take_the_path_they_can, memory_alone_says_what_is_missing)
