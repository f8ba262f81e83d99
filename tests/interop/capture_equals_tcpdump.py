# SPDX-License-Identifier: Apache-2.0
"""In a network namespace the driver's capture equals, byte for byte, what tcpdump saw on the wire."""

import collections
import os
import subprocess
import sys
import tempfile
import time

import lab


def wait_for_file(path, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (os.path.exists(path) and os.path.getsize(path) >= 24):
        time.sleep(0.02)


def traffic(verbena, space, folder, here, there):
    a, b = (space.inside(name) for name in space.names)
    family = "v6" if ":" in there else "v4"
    target = f"[{there}]:7471" if ":" in there else f"{there}:7471"
    captures = []
    server = lab.Process([verbena, "ping", "--server", "--device", there, "--port", 7471],
                         prefix=b, stdout=subprocess.PIPE)
    with server:
        server.first_line()
        for operation in ("send", "write", "read", "fadd"):
            size = 8 if operation == "fadd" else 5000
            captures.append(f"{folder}/{operation}{family}.pcapng")
            lab.run(verbena, "ping", target, "--device", here, "--op", operation, "-c", 5, "-i", 0.01, "--size", size,
                    "--pcap", captures[-1], prefix=a)
    return captures


def main():
    lab.need("tcpdump", "ethtool", "ip")
    if os.geteuid() != 0:
        lab.skip("named network namespaces need root")
    with tempfile.TemporaryDirectory() as folder, lab.Namespaces() as space:
        os.chmod(folder, 0o777)  # tcpdump gives up root
        sniffer = lab.Process(["tcpdump", "-i", "veth0", "-U", "-B", "16384", "--immediate-mode", "-s", "0", "-w",
                               f"{folder}/tcpdump.pcap", "udp", "port", "4791"],
                              prefix=space.inside(space.names[0]), stderr=subprocess.DEVNULL)
        with sniffer:
            wait_for_file(f"{folder}/tcpdump.pcap")
            time.sleep(0.3)
            captures = traffic(sys.argv[1], space, folder, *space.addresses)
            captures += traffic(sys.argv[1], space, folder, *space.addresses6)
            time.sleep(0.5)
        ours = collections.Counter(bytes(p) for c in captures for p in lab.ip_packets(c))
        theirs = collections.Counter(bytes(p) for p in lab.ip_packets(f"{folder}/tcpdump.pcap"))
        assert sum(ours.values()) > 100, "hardly any packet was captured"
        only_ours, only_theirs = ours - theirs, theirs - ours
        for name, rest in (("capture only", only_ours), ("tcpdump only", only_theirs)):
            for packet in list(rest)[:3]:
                print(f"{name}: {packet.hex()}")
        assert not only_ours, f"{sum(only_ours.values())} packets of the capture were never seen by tcpdump"
        # What arrived after a client had closed its device is on the wire, but nobody was there to capture it.
        late = sum(only_theirs.values())
        assert late <= 2 * len(captures), f"{late} packets seen by tcpdump are missing from the capture"
    print(f"{sum(ours.values())} packets equal byte for byte, IPv4 and IPv6")


if __name__ == "__main__":
    main()
