# SPDX-License-Identifier: Apache-2.0
"""--path: shared memory or packets between two processes, by what the device counted."""

import os
import re
import signal

from command import PATIENCE, Server, check, main, say, wait_until

WAYS = [("local", "local", True), ("auto", "auto", True), ("auto", "roce", False), ("roce", "auto", False)]


def packets_sent(setting, name, *words):
    """Runs a command, and returns how many packets its device counted, but for answers of connection management to
    whoever looks for another that had the address before; and whether it counted a connection through memory."""
    folder = setting.path(name)
    os.environ["VERBENA_COUNTERS"] = folder
    try:
        setting.run(*words)
    finally:
        del os.environ["VERBENA_COUNTERS"]
    (counters,) = os.listdir(folder)
    with open(os.path.join(folder, counters), encoding="utf-8") as text:
        count = {name: int(value) for name, value in re.findall(r"^(\w+) (\d+)$", text.read(), re.MULTILINE)}
    return count["sent_pkts"] - count["sent_cm_pkts"], count.get("local_connections", 0) == 1


def both_ends_take_the_path_they_can(setting):
    for theirs, ours, shared in WAYS:
        server = Server(setting, "pingpong", "-n", "200", "-c", "--path", theirs)
        host, port = server.address.rsplit(":", 1)
        words = ["pingpong", host, "-p", port, "-n", "200", "-c", "--path", ours]
        sent, counted = packets_sent(setting, f"{theirs}-{ours}", *words)
        server.process.communicate(timeout=PATIENCE)
        check(server.process.returncode == 0, server.errors())
        check((sent == 0) == shared == counted, f"{theirs} and {ours}: {sent} packets, {counted}")
    say(f"{len(WAYS)} pairs of --path")


def memory_alone_says_what_is_missing(setting):
    server = Server(setting, "pingpong", "--path", "roce")
    host, port = server.address.rsplit(":", 1)
    _, errors = setting.run("pingpong", host, "-p", port, "--path", "local", status=1)
    check("no shared memory with" in errors and "path=local" in errors, errors)
    check("leave --path local out" in errors, errors)
    _, errors = setting.run("pingpong", host, "--path", "bus", status=2)
    check("--path" in errors, errors)
    say("a peer without memory, and a path that is none")


def each_of_several_at_an_address_is_reached(setting):
    first = Server(setting, "ping", "-s", "--path", "local")
    host = first.address.rsplit(":", 1)[0]
    servers = [first] + [Server(setting, "ping", "-s", "--path", "local", "--device", host) for _ in range(2)]
    for device in ([], ["--device", host]):
        for server in servers:
            setting.run("ping", server.address, "--path", "local", "-c", "3", *device)
    for doomed in servers[:2]:
        doomed.process.send_signal(signal.SIGKILL)
        doomed.process.wait(PATIENCE)
        setting.run("ping", servers[2].address, "--path", "local", "-c", "3", "--device", host)
    heir = Server(setting, "ping", "-s", "--path", "local", "--device", host)
    for server in (servers[2], heir):
        setting.run("ping", server.address, "--path", "local", "-c", "3")
        server.stop()
    say("three processes at one address, two killed, one in their place")


def state_of(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as text:
        return text.read().rsplit(")", 1)[1].split()[0]


def who_is_stopped_and_goes_on_is_waited_for(setting):
    server, other = (Server(setting, "ping", "-s", "--path", "local") for _ in range(2))
    pinger, beside = (setting.start("ping", s.address, "--path", "local", "-c", "300", "-i", "0.005", "-q")
                      for s in (server, other))
    setting.run("ping", server.address, "--path", "local", "-c", "3")
    server.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(server.process) == "T", "the server stops")
    setting.run("ping", other.address, "--path", "local", "-c", "20", "-i", "0.005")
    server.process.send_signal(signal.SIGCONT)
    for process in (pinger, beside):
        check(process.wait(PATIENCE) == 0, f"a ping failed: {process.args}")
    server.stop()
    other.stop()
    say("a server that was stopped for a while")


if __name__ == "__main__":
    main(both_ends_take_the_path_they_can, memory_alone_says_what_is_missing,
         each_of_several_at_an_address_is_reached, who_is_stopped_and_goes_on_is_waited_for)
