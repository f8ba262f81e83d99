# SPDX-License-Identifier: Apache-2.0
"""Everything that crosses the tap, before judges nobody here wrote: zlib's CRC and tshark's dissector."""

import signal
import subprocess
import time

import lab
from guest import GuestError

class Wire:
    """Captures while it is open."""

    def __init__(self, folder):
        self.file = folder / "wire.pcap"
        self.log = folder / "tcpdump.log"
        self.tcpdump = subprocess.Popen(
            ["tcpdump", "-i", "tap0", "-Z", "root", "-U", "-B", "65536", "-s", "0", "-w", str(self.file),
             "udp port 4791"],
            stdout=subprocess.DEVNULL, stderr=open(self.log, "wb"))
        end = time.monotonic() + 10
        while not (self.file.exists() and self.file.stat().st_size >= 24):
            if self.tcpdump.poll() is not None or time.monotonic() > end:
                raise GuestError(f"tcpdump does not capture; log: {self.log}")
            time.sleep(0.02)

    def close(self):
        if self.tcpdump.poll() is None:
            time.sleep(0.3)  # what the kernel has not handed over yet
            self.tcpdump.send_signal(signal.SIGINT)
            self.tcpdump.wait(20)

    def judge(self, _world):
        """A case: every ICRC of both sides is right, and no packet is malformed."""
        self.close()
        packets = [p for p in lab.ip_packets(self.file) if lab.is_roce(p)]
        if not packets:
            raise GuestError("no RoCE packet was captured")
        wrong = [p for p in packets if not lab.icrc_is_right(p)]
        if wrong:
            raise GuestError(f"{len(wrong)} of {len(packets)} ICRCs are wrong, first: {wrong[0].hex()}")
        listed = lab.run("tshark", "-r", self.file, "-Y", "_ws.malformed || _ws.short", "-T", "fields",
                         "-e", "frame.number", "-e", "frame.protocols", timeout=240)
        # tshark also guesses at payloads (an EtherType in the first bytes, RPC over RDMA): what it makes of those is no
        # verdict on the packet.
        malformed = [line for line in listed.splitlines() if line.endswith(":infiniband")]
        if malformed:
            raise GuestError("tshark calls these malformed:\n" + "\n".join(malformed))
        return f"{len(packets)} packets, every ICRC right, none malformed"
