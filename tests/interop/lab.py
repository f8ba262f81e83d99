# SPDX-License-Identifier: Apache-2.0
"""What the interop tests share: capture files, CRCs, processes that end by their id, network namespaces."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import zlib

SKIP = 77


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIP)


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            skip(f"{program} is not installed (scripts/install-deps test)")


class Process:
    """A child that is ended by its id when the block ends. `prefix`: e.g. ip netns exec NAME."""

    def __init__(self, arguments, prefix=(), **options):
        self.child = subprocess.Popen([*prefix, *map(str, arguments)], text=True, **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    def first_line(self):
        line = self.child.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{self.child.args} said nothing")
        return line

    def end(self, number=signal.SIGTERM):
        if self.child.poll() is None:
            self.child.send_signal(number)
            try:
                self.child.wait(10)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()


def run(*arguments, prefix=(), timeout=60):
    result = subprocess.run([*prefix, *map(str, arguments)], capture_output=True, text=True, timeout=timeout)
    if result.returncode != 0:
        raise RuntimeError(f"{arguments} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def ip_packets(path):
    """The IP packets of a pcap or pcapng file, without link headers."""
    data = open(path, "rb").read()
    return list(pcapng_packets(data) if data[:4] == b"\x0a\x0d\x0d\x0a" else pcap_packets(data))


def pcapng_packets(data):
    at, link = 0, 101
    while at + 12 <= len(data):
        kind, size = struct.unpack_from("<II", data, at)
        if kind == 1:
            link = struct.unpack_from("<H", data, at + 8)[0]
        if kind == 6:
            length = struct.unpack_from("<I", data, at + 20)[0]
            yield strip_link(data[at + 28 : at + 28 + length], link)
        at += size


def pcap_packets(data):
    link = struct.unpack_from("<I", data, 20)[0]
    at = 24
    while at + 16 <= len(data):
        length = struct.unpack_from("<I", data, at + 8)[0]
        yield strip_link(data[at + 16 : at + 16 + length], link)
        at += 16 + length


def strip_link(frame, link):
    if link == 101:
        return frame
    if link != 1:
        raise RuntimeError(f"link type {link} is not known here")
    frame = frame[14:]
    # Ethernet pads short frames: the IP header says how much is meant.
    ipv4 = frame[0] >> 4 == 4
    length = struct.unpack_from("!H", frame, 2)[0] if ipv4 else 40 + struct.unpack_from("!H", frame, 4)[0]
    return frame[:length]


def is_roce(packet):
    header = 20 if packet[0] >> 4 == 4 else 40
    protocol = packet[9] if header == 20 else packet[6]
    return protocol == 17 and packet[header + 2 : header + 4] == b"\x12\xb7"


def icrc_is_right(packet):
    """A second implementation of the ICRC, on zlib."""
    body = bytearray(packet[:-4])
    if packet[0] >> 4 == 4:
        body[1] = body[8] = body[10] = body[11] = 0xFF
        udp = 20
    else:
        body[0] |= 0x0F
        body[1] = body[2] = body[3] = body[7] = 0xFF
        udp = 40
    body[udp + 6] = body[udp + 7] = body[udp + 12] = 0xFF
    return zlib.crc32(b"\xff" * 8 + bytes(body)) == struct.unpack("<I", packet[-4:])[0]


class Namespaces:
    """Two network namespaces joined by a veth pair without offloads, so that what is seen is what is sent."""

    names = (f"vb{os.getpid()}a", f"vb{os.getpid()}b")
    addresses = ("10.91.7.1", "10.91.7.2")
    addresses6 = ("fd91:7::1", "fd91:7::2")

    def __enter__(self):
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            run("ip", "link", "add", "veth0", "netns", self.names[0], "type", "veth",
                "peer", "name", "veth0", "netns", self.names[1])
            for name, address, address6 in zip(self.names, self.addresses, self.addresses6):
                run("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "veth0")
                run("ip", "-n", name, "addr", "add", f"{address6}/64", "dev", "veth0", "nodad")
                run("ip", "-n", name, "link", "set", "lo", "up")
                run("ip", "-n", name, "link", "set", "veth0", "mtu", "1500", "up")
                run("ethtool", "-K", "veth0", "tx", "off", "gso", "off", "gro", "off", "tso", "off",
                    prefix=self.inside(name))
        except RuntimeError as error:
            self.__exit__()
            skip(f"no network namespaces here: {error}")
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    @staticmethod
    def inside(name):
        return ("ip", "netns", "exec", name)
