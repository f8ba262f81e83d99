#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many processes at one address: two networks with several each, some killed while the others go on."""

import json
import signal
import subprocess

from command import PATIENCE, Server, check, digest, end, first_line, main, say, wait_until, write_file
from networks import HERE, THERE, TwoNetworks


def serve(setting, network, *words):
    return Server(setting, *words, "--device", network.address, prefix=network.inside)


class Pinger:
    """A client whose pings go on for some seconds; every one must be answered."""

    def __init__(self, setting, network, server, *words, count=600):
        self.count = count
        self.process = setting.start("ping", server.address, "--device", network.address, "-c", str(count), "-i",
                                     "0.005", "-q", "--json", *words, prefix=network.inside,
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self):
        output, errors = self.process.communicate(timeout=PATIENCE)
        check(self.process.returncode == 0, f"{self.process.args}: {errors.decode()}{output.decode()}")
        result = json.loads(output)
        check(result["done"] == self.count and result["failed"] == 0, f"{result}")


def processes_die_and_the_others_go_on(setting):
    with TwoNetworks() as (here, there):
        kinds = [("--op", "send"), ("--op", "write", "--size", "40000"), ("--op", "read", "--size", "100000")]
        servers = {n: [serve(setting, n, "ping", "-s") for _ in kinds] for n in (here, there)}
        pingers = [Pinger(setting, client, server, *kind)
                   for client, host in ((here, there), (there, here))
                   for server, kind in zip(servers[host], kinds)]
        doomed_server = serve(setting, here, "ping", "-s")
        doomed = [Pinger(setting, there, doomed_server), Pinger(setting, here, servers[there][0])]
        port = doomed_server.address.rsplit(":", 1)[1]
        Pinger(setting, there, doomed_server, count=3).finish()
        Pinger(setting, here, servers[there][1], count=3).finish()  # all is under way
        for process in (doomed_server.process, doomed[0].process, doomed[1].process):
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE)
        heir = setting.start("ping", "-s", "--device", HERE, "--port", port, prefix=here.inside,
                             stdout=subprocess.PIPE)
        check(first_line(heir) == f"listening on {HERE}:{port}", "the port of the dead is not free")
        doomed_server.process = heir
        late = [Pinger(setting, there, doomed_server, count=100), Pinger(setting, here, servers[there][2], count=100)]
        for pinger in late + pingers:
            pinger.finish()
        for server in servers[here] + servers[there]:
            Pinger(setting, there if server in servers[here] else here, server, count=1).finish()
            server.stop()
        end(heir)
        wait_until(lambda: not here.left() and not there.left(), f"nothing is left: {here.left()} {there.left()}")
        say(f"{len(pingers)} clients went on while three processes were killed, and no ping was lost")


def who_was_alone_goes_on_when_others_come(setting):
    with TwoNetworks() as (here, there):
        server = serve(setting, here, "ping", "-s")
        first = Pinger(setting, there, server, "--op", "write", "--size", "100000")
        check(len(here.left()) == 4,
              f"the port, at it a socket for one peer, the meeting place and the offer of memory of one: {here.left()}")
        wait_until(lambda: len(there.left()) == 4, "the client is there")
        late = serve(setting, here, "ping", "-s")
        Pinger(setting, there, late, count=20).finish()
        Pinger(setting, there, server, count=20).finish()
        check(first.process.poll() is None, "the first client was not at work any more")
        check(len(here.left()) > 60 and len(there.left()) > 60, "they share")
        first.finish()
        server.stop()
        Pinger(setting, there, late, count=20).finish()
        late.stop()
        say("no ping was lost when both ends were joined by others")


def files_arrive_whole_at_processes_that_share(setting):
    with TwoNetworks() as (here, there):
        for i in range(2):
            write_file(setting.path("served", str(i)), 20 << 20, i)
        servers = [serve(setting, here, "serve", setting.path("served")) for _ in range(2)]
        clients = [setting.start("get", servers[i].url(str(i)), setting.path(f"got{i}"), "--device", THERE,
                                 prefix=there.inside, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                   for i in range(2)]
        for i, client in enumerate(clients):
            _, errors = client.communicate(timeout=PATIENCE)
            check(client.returncode == 0, errors.decode())
            check(digest(setting.path(f"got{i}")) == digest(setting.path("served", str(i))), f"file {i} differs")
        for server in servers:
            server.stop()


def a_port_of_an_address_is_listened_on_by_one_process(setting):
    with TwoNetworks() as (here, there):
        first = serve(setting, here, "ping", "-s")
        port = first.address.rsplit(":", 1)[1]
        second = setting.start("ping", "-s", "--device", HERE, "--port", port, prefix=here.inside,
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, errors = second.communicate(timeout=PATIENCE)
        check(second.returncode == 1 and b"AddressInUse" in errors and str(first.process.pid).encode() in errors,
              errors.decode())
        refused = setting.start("ping", f"{HERE}:1", "-c", "1", "--device", THERE, prefix=there.inside,
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        _, errors = refused.communicate(timeout=PATIENCE)
        check(refused.returncode == 1 and b"ConnectionRefused" in errors, errors.decode())
        devices = subprocess.run([*here.inside, *setting.command("devices")], stdout=subprocess.PIPE, check=True)
        check(b"processes of this user share it" in devices.stdout, devices.stdout.decode())
        first.stop()
        check(not here.left(), f"left behind: {here.left()}")
        say("the second listener was refused, by the first one's process number")


if __name__ == "__main__":
    main(processes_die_and_the_others_go_on, who_was_alone_goes_on_when_others_come,
         files_arrive_whole_at_processes_that_share, a_port_of_an_address_is_listened_on_by_one_process)
