# SPDX-License-Identifier: Apache-2.0
"""Networks of a test's own, for which nobody needs more rights than a user has."""

import subprocess

from command import Skip, end, first_line

HERE, THERE = "10.91.7.1", "10.91.7.2"


class Network:
    """A network namespace, alive as long as the process that holds it."""

    def __init__(self, address, words):
        self.address = address
        script = "ip link set lo up && echo ready && exec sleep 600"
        try:
            self.holder = subprocess.Popen([*words, "sh", "-c", script], stdin=subprocess.DEVNULL,
                                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            first_line(self.holder)
        except (FileNotFoundError, AssertionError) as error:
            raise Skip(f"no network namespaces: {error}") from error
        self.inside = ["nsenter", "-t", str(self.holder.pid), "-U", "-n", "--preserve-credentials"]

    def run(self, *words):
        done = subprocess.run([*self.inside, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise Skip(f"{' '.join(words)}: {done.stdout.decode().strip()}")

    def left(self):
        """What of port 4791 and of the places where processes meet is still there."""
        with open(f"/proc/{self.holder.pid}/net/udp", encoding="ascii") as file:
            found = [line for line in file if ":12B7" in line]
        with open(f"/proc/{self.holder.pid}/net/unix", encoding="ascii") as file:
            return found + [line for line in file if "@verbena" in line]


class TwoNetworks:
    def __enter__(self):
        self.here = Network(HERE, ["unshare", "-Urn"])
        try:
            self.there = Network(THERE, [*self.here.inside, "unshare", "-n"])
        except Skip:
            end(self.here.holder)
            raise
        try:
            self.here.run("ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth0",
                          "netns", str(self.there.holder.pid))
            for network in (self.here, self.there):
                network.run("ip", "addr", "add", f"{network.address}/24", "dev", "veth0")
                network.run("ip", "link", "set", "veth0", "up")
        except Skip:
            self.__exit__()
            raise
        return self.here, self.there

    def __exit__(self, *_):
        end(self.there.holder)
        end(self.here.holder)
