# SPDX-License-Identifier: Apache-2.0
"""verbena doctor in networks of its own: what it says of an interface's MTU and of who holds the port, and that its
advice helps."""

import json
import re
import struct
import subprocess
import sys

from command import PATIENCE, Server, check, end, first_line, main, say
from networks import HERE, THERE, Network


class Patient(Network):
    """A network whose interface v0 has the address HERE, to be examined."""

    def __init__(self, setting):
        super().__init__(HERE, ["unshare", "-Urn"])
        self.setting = setting
        setting.started.append(self.holder)
        self.run("ip", "link", "add", "v0", "type", "veth", "peer", "name", "v1")
        self.run("ip", "addr", "add", f"{HERE}/24", "dev", "v0")
        for name in ("v0", "v1"):
            self.run("ip", "link", "set", name, "up")

    def command(self, *words):
        return subprocess.run([*self.inside, *self.setting.command(*words)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)

    def examined(self, *, ok=True):
        """The findings; the exit status says the same as they do."""
        done = self.command("doctor", "--json")
        told = json.loads(done.stdout)
        wrong = [one for one in told["findings"] if one["health"] == "wrong"]
        check(told["ok"] == ok == (not wrong) and done.returncode == (0 if ok else 1), f"{done}")
        for one in told["findings"]:
            check((one["health"] == "good") == (not one["what_to_do"]), f"{one}")
        return told["findings"]

    def text_says(self, findings):
        text = self.command("doctor").stdout.decode()
        for one in findings:
            lines = f"{one['health']:7} {one['subject']:15} {one['found']}\n"
            if one["what_to_do"]:
                lines += f"{'':23} {one['what_to_do']}\n"
            check(lines in text, f"{lines}is not in:\n{text}")

    def obeys(self, finding):
        """Does what the finding says, the last of several ways of it."""
        commands = re.findall(r"ip link set dev \S+ (?:mtu \d+|up)", finding["what_to_do"])
        check(commands, f"{finding} tells no command")
        self.run(*commands[-1].split())


def about(findings, subject, words):
    return [one for one in findings if one["subject"] == subject and words in one["found"]]


def the_one(findings, subject, words):
    found = about(findings, subject, words)
    check(len(found) == 1, f"{len(found)} findings about {subject} with '{words}': {findings}")
    return found[0]


def largest_packet(path):
    """Bytes of the largest IP packet in a pcapng file."""
    with open(path, "rb") as file:
        data = file.read()
    at, largest = 0, 0
    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 6:
            largest = max(largest, struct.unpack_from("<I", data, at + 24)[0])
        at += size
    return largest


def a_small_mtu_is_told_with_what_it_carries(setting):
    network = Patient(setting)
    network.run("ip", "addr", "add", f"{THERE}/24", "dev", "v0")
    device = f"soft-v0 ({HERE})"
    for mtu, payload in ((336, 256), (500, 256), (1499, 1024), (1500, 1024), (2200, 2048), (4175, 2048)):
        network.run("ip", "link", "set", "v0", "mtu", str(mtu))
        findings = network.examined()
        one = the_one(findings, "MTU", device)
        check(one["health"] == "advice", f"{one}")
        told = f": MTU {mtu} carries {payload} bytes of payload per packet, and 4096 are possible"
        check(one["found"].endswith(told), f"{one}")
        advice = one["what_to_do"]
        check("jumbo frames" in advice and advice.endswith("ip link set dev v0 mtu 4200"), advice)
        check(("As root: ip link set dev v0 mtu 1500;" in advice) == (payload < 1024), advice)
        check(the_one(findings, "address", device)["health"] == "good", f"{findings}")
        check(not about(findings, "MTU", "soft-lo"), "the loopback interface takes the largest packets")
        network.text_says([one])
        # What it says of the payload is what packets have.
        server = Server(setting, "ping", "-s", "--device", HERE, prefix=network.inside)
        capture = setting.path(f"{mtu}.pcapng")
        done = network.command("ping", server.address, "--device", THERE, "--path", "roce", "--op", "write",
                               "--size", "9000", "-c", "2", "-i", "0", "--pcap", capture)
        check(done.returncode == 0, f"{done}")
        server.stop()
        check(payload + 44 <= largest_packet(capture) <= min(mtu, payload + 80), f"{largest_packet(capture)} at {mtu}")
        network.obeys(one)
        check(not about(network.examined(), "MTU", "soft-v0"), f"content with what it told to do about MTU {mtu}")
    say(f"{one['found']}: {advice}")


def an_mtu_that_carries_all_is_not_told(setting):
    network = Patient(setting)
    for mtu in (4176, 4199, 4200, 9000):
        network.run("ip", "link", "set", "v0", "mtu", str(mtu))
        findings = network.examined()
        check(not about(findings, "MTU", ""), f"MTU {mtu}: {findings}")
        check(the_one(findings, "address", f"soft-v0 ({HERE})")["health"] == "good", f"{findings}")


def an_interface_that_cannot_be_used_is_told_with_the_way_to_use_it(setting):
    network = Patient(setting)
    network.run("ip", "link", "set", "v0", "mtu", "335")
    findings = network.examined()
    one = the_one(findings, "address", f"soft-v0 ({HERE})")
    check(one["health"] == "advice" and "interface v0 has MTU 335, RoCE needs 336" in one["found"], f"{one}")
    check("ip link set dev v0 mtu 1500" in one["what_to_do"] and "port" not in one["what_to_do"], f"{one}")
    check(not about(findings, "MTU", "v0"), "one finding about one thing")
    # Nothing is left when the default device has none either.
    network.run("ip", "link", "set", "lo", "mtu", "300")
    findings = network.examined(ok=False)
    check(the_one(findings, "devices", "none of ")["health"] == "wrong", f"{findings}")
    check("interface lo has MTU 300" in the_one(findings, "opening", "does not open")["found"], f"{findings}")
    loopback = the_one(findings, "address", "interface lo has MTU 300, RoCE needs 336")
    network.text_says([one, loopback])
    network.obeys(loopback)
    check(the_one(network.examined(), "opening", "opens")["health"] == "good", "the default device opens")
    network.obeys(one)
    check(the_one(network.examined(), "address", f"soft-v0 ({HERE})")["health"] == "good", "v0 has a good MTU")

    network.run("ip", "link", "set", "v0", "down")
    one = the_one(network.examined(), "address", f"soft-v0 ({HERE})")
    check(one["health"] == "advice" and one["found"].endswith("interface v0 is down"), f"{one}")
    check("ip link set dev v0 up" in one["what_to_do"] and "mtu" not in one["what_to_do"], f"{one}")
    network.obeys(one)
    check(the_one(network.examined(), "address", f"soft-v0 ({HERE})")["health"] == "good", "v0 is up")
    say(f"{loopback['found']}: {loopback['what_to_do']}")


# Takes UDP port 4791 of the address that it is given, under a name of its own.
HOLDER = """
import os, socket, sys, time
with open("/proc/self/comm", "w") as name:
    name.write("holds-4791")
holder = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
holder.bind((sys.argv[1], 4791))
print(os.getpid(), flush=True)
time.sleep(600)
"""


def who_holds_the_port_is_named(setting):
    network = Patient(setting)
    network.run("ip", "link", "set", "v0", "mtu", "4200")
    addresses = {"127.0.0.1": "soft-lo", HERE: "soft-v0"}
    if about(network.examined(), "address", "soft-lo-2 (::1)"):
        addresses["::1"] = "soft-lo-2"
    # Where it binds, which addresses that keeps from being used, and whether the default device opens nevertheless.
    # Of those of 127.0.0.0/8 any will do.
    cases = [(HERE, [HERE], True), ("127.0.0.1", [], True), ("0.0.0.0", ["127.0.0.1", HERE], False)]
    if "::1" in addresses:
        cases += [("::1", ["::1"], True), ("::", list(addresses), False)]
    for bound, kept, opens in cases:
        holder = subprocess.Popen([*network.inside, sys.executable, "-c", HOLDER, bound], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE)
        setting.started.append(holder)
        owner = f"is held by process {first_line(holder)} (holds-4791) of user root"
        if bound in ("0.0.0.0", "::"):
            owner += " (bound to every address)"
        findings = network.examined(ok=opens)
        for address in kept:
            one = the_one(findings, "address", f"{addresses[address]} ({address}): ")
            check(one["found"].endswith(f": UDP port 4791 on {address} {owner}"), f"{bound}: {one}")
            check(one["health"] == "advice", f"{bound}: {one}")
            check(one["what_to_do"] == "End the program that holds the port, or use another device.", f"{bound}: {one}")
        named = [one for one in findings if "is held by process" in one["found"] and one["subject"] == "address"]
        check(len(named) == len(kept), f"{bound}: others are held, too: {named}")
        good = [one for one in about(findings, "address", "") if one["health"] == "good"]
        check(len(good) == len(addresses) - len(kept), f"{bound}: the others are free: {findings}")
        network.text_says(named)
        opening, = about(findings, "opening", "")
        check((opening["health"] == "good") == opens, f"{bound}: {opening}")
        check(opens or f"UDP port 4791 on 127.0.0.1 {owner}" in opening["found"], f"{bound}: {opening}")
        check(bound != "127.0.0.1" or "127.0.0.2" in opening["found"], f"{bound}: {opening}")
        end(holder)
        holder.stdout.close()
        findings = network.examined()
        good = [one for one in about(findings, "address", "") if one["health"] == "good"]
        check(len(good) == len(addresses), f"after the end of the program: {findings}")
    say(f"{len(cases)} programs, one after the other: {owner}")


def a_program_of_ours_is_in_nobody_s_way(setting):
    network = Patient(setting)
    server = Server(setting, "ping", "-s", "--device", HERE, prefix=network.inside)
    one = the_one(network.examined(), "address", f"soft-v0 ({HERE})")
    check(one["health"] == "good" and one["found"].endswith("processes of this user share it"), f"{one}")
    server.stop()


if __name__ == "__main__":
    main(a_small_mtu_is_told_with_what_it_carries, an_mtu_that_carries_all_is_not_told,
         an_interface_that_cannot_be_used_is_told_with_the_way_to_use_it, who_holds_the_port_is_named,
         a_program_of_ours_is_in_nobody_s_way)
