#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of several users at one address, with a broker and without; only root can become these users."""

import json
import os
import signal
import subprocess

from command import PATIENCE, Server, Skip, check, end, first_line, main, say, unshare

ANNA, BERT, STRANGER = 11001, 11002, 11003
SHARED, THIRD = "127.0.0.1", "127.0.0.2"


class Network:
    """A network of the test's own, and words that run a command in it as somebody."""

    def __init__(self, setting):
        self.setting = setting
        if os.geteuid() != 0:
            raise Skip("only root can become another user")
        script = "ip link set lo up && echo ready && exec sleep 600"
        self.holder = subprocess.Popen([*unshare("-n"), "sh", "-c", script], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE)
        setting.started.append(self.holder)
        first_line(self.holder)
        for user in (ANNA, BERT, STRANGER):
            done = subprocess.run([*self.of(user, ()), *setting.command("--version")], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)
            if done.returncode != 0:
                raise Skip(f"user {user} cannot run the command: {done.stdout.decode().strip()}")

    def of(self, user, names):
        words = ["nsenter", "-t", str(self.holder.pid), "-n", "--"]
        if user != 0:
            words += ["setpriv", "--reuid", str(user), "--regid", str(user), "--clear-groups", "--"]
        return words + ["env", "VERBENA_ADDRESS_USERS=" + ",".join(map(str, names))]

    def server(self, user, names, address=SHARED):
        return Server(self.setting, "ping", "-s", "--device", address, prefix=self.of(user, names))

    def start_ping(self, user, names, server, *words, address=SHARED):
        return self.setting.start("ping", server.address, "--device", address, *words, prefix=self.of(user, names),
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def ping(self, *arguments, status=0, **options):
        return finish(self.start_ping(*arguments, "-c", "3", "-i", "0.01", **options), status)


def finish(process, status=0):
    output, errors = process.communicate(timeout=PATIENCE)
    check(process.returncode == status, f"{process.args}: {process.returncode}\n{output.decode()}{errors.decode()}")
    return output.decode() + errors.decode()


def users_who_name_each_other_share_an_address(setting):
    network = Network(setting)
    both = (ANNA, BERT)
    third = network.server(0, (), THIRD)
    servers = {user: network.server(user, both) for user in both}
    going = [network.start_ping(user, both, third, "-i", "0.005", "-c", "400", "-q", "--op", op)
             for user in both for op in ("send", "write")]
    going += [network.start_ping(0, (), server, "-i", "0.005", "-c", "400", "-q", address=THIRD)
              for server in servers.values()]
    for server in servers.values():  # connection management finds whoever listens, from all sides
        network.ping(0, (), server, address=THIRD)
        for user in both:
            network.ping(user, both, server)
    port = servers[ANNA].address.rsplit(":", 1)[1]
    taken = setting.start("ping", "-s", "--device", SHARED, "--port", port, prefix=network.of(BERT, both),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    text = finish(taken, 1)
    check("AddressInUse" in text and str(servers[ANNA].process.pid) in text, text)
    for process in going:
        finish(process)
    # The first of all, who opened the sockets, is killed while others go on.
    going = [network.start_ping(BERT, both, third, "-i", "0.005", "-c", "400", "-q"),
             network.start_ping(0, (), servers[BERT], "-i", "0.005", "-c", "400", "-q", address=THIRD)]
    network.ping(ANNA, both, third)
    servers[ANNA].process.send_signal(signal.SIGKILL)
    servers[ANNA].process.wait(PATIENCE)
    for user in both:
        network.ping(user, both, servers[BERT])
        network.ping(user, both, third)
    for process in going:
        finish(process)
    servers[BERT].stop()
    third.stop()


def who_is_not_named_is_told_to_take_another_address(setting):
    network = Network(setting)
    server = network.server(ANNA, (ANNA, BERT))
    for user, names in ((STRANGER, ()), (STRANGER, (ANNA, BERT)), (BERT, ()), (ANNA, ()), (ANNA, (BERT, STRANGER))):
        text = network.ping(user, names, server, status=1)
        check("AddressInUse" in text and "use another address" in text and "VERBENA_ADDRESS_USERS" in text,
              f"user {user} who names {names}: {text}")
        network.ping(user, names, server, address="127.0.0.3")
    devices = subprocess.run([*network.of(BERT, (ANNA, BERT)), *setting.command("devices", "--json")],
                             stdout=subprocess.PIPE, check=False)
    check(json.loads(devices.stdout)[0]["usable"], devices.stdout.decode())
    server.stop()


def a_broker_keeps_an_address_for_users_who_come_and_go(setting):
    network = Network(setting)
    broker = setting.start("broker", "--users", f"{ANNA},{BERT}", "--device", SHARED, "--json",
                           prefix=network.of(0, ()), stdout=subprocess.PIPE)
    told = ""
    while not told.endswith("}\n"):
        told += first_line(broker) + "\n"
    told = json.loads(told)
    everybody = [0, ANNA, BERT]
    check(told == {"address": SHARED, "users": everybody, "variable": f"VERBENA_ADDRESS_USERS=0,{ANNA},{BERT}"}, told)
    third = network.server(0, (), THIRD)
    for user in (ANNA, BERT):
        server = network.server(user, everybody)
        network.ping(0, (), server, address=THIRD)
        network.ping(user, everybody, third)
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(PATIENCE)
    text = network.ping(STRANGER, everybody, third, status=1)
    check(f"does not name user {STRANGER}" in text, text)
    server = network.server(BERT, everybody)
    going = network.start_ping(0, (), server, "-i", "0.005", "-c", "400", "-q", address=THIRD)
    network.ping(ANNA, everybody, server)
    broker.send_signal(signal.SIGKILL)
    broker.wait(PATIENCE)
    network.ping(ANNA, everybody, server)
    finish(going)
    again = setting.start("broker", "--device", SHARED, prefix=network.of(0, everybody), stdout=subprocess.PIPE)
    check(first_line(again) == f"holding {SHARED} for users 0 (root), {ANNA}, {BERT}", "the second broker")
    check(f"VERBENA_ADDRESS_USERS=0,{ANNA},{BERT}" in first_line(again), "what the others set")
    again.send_signal(signal.SIGTERM)
    check(again.wait(PATIENCE) == 0, "it ends well")
    network.ping(ANNA, everybody, server)
    server.stop()
    third.stop()


def wrong_users_are_told(setting):
    for users, words in (("nobody-of-that-name", "there is no user 'nobody-of-that-name'"),
                         ("4294967295", "0 to 4294967294"), ("1,1x", "'1x'")):
        _, errors = setting.run("broker", "--users", users, status=2)
        check(words in errors and "--help" in errors, errors)
    _, errors = setting.run("broker", status=2)
    check("--users" in errors, errors)
    say("users by name and number")


if __name__ == "__main__":
    main(users_who_name_each_other_share_an_address, who_is_not_named_is_told_to_take_another_address,
         a_broker_keeps_an_address_for_users_who_come_and_go, wrong_users_are_told)
