# SPDX-License-Identifier: Apache-2.0
"""Everything that crosses the tap, before judges nobody here wrote: zlib's CRC and tshark's dissector."""

import signal
import subprocess
import time

import lab
from guest import GuestError

# tshark guesses at these in the payload of SENDs, whatever it is.
GUESSES = ("rpcordma", "smb_direct", "nvme-rdma", "iser")


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
        off = [word for name in GUESSES for word in ("--disable-protocol", name)]
        malformed = lab.run("tshark", "-r", self.file, *off, "-Y", "_ws.malformed || _ws.short", timeout=240)
        if malformed:
            raise GuestError(f"tshark calls these malformed:\n{malformed}")
        return f"{len(packets)} packets, every ICRC right, none malformed"
