# SPDX-License-Identifier: Apache-2.0
"""tshark reads what the driver captured: no malformed packet, RC opcodes by name, and every ICRC is right."""

import os
import subprocess
import sys
import tempfile

import lab

OPERATIONS = ("send", "write", "read", "cas", "fadd")
# Names of tshark's dissector that the traffic below must show.
EXPECTED = (
    "RC Send Only",
    "RC Send Middle",
    "RC RDMA Write First",
    "RC RDMA Write Middle",
    "RC RDMA Write Last",
    "RC RDMA Read Request",
    "RC RDMA Read response First",
    "RC RDMA Read response Middle",
    "RC Acknowledge",
    "RC Atomic Acknowledge",
    "RC Compare Swap",
    "RC Fetch Add",
    "CM ConnectRequest",
    "CM ConnectReply",
    "CM ReadyToUse",
)


def make_traffic(verbena, folder):
    captures = []
    server = lab.Process([verbena, "ping", "--server", "--port", "0", "--pcap", f"{folder}/server.pcapng"],
                         stdout=subprocess.PIPE)
    with server:
        address = server.first_line().split()[-1]
        for operation in OPERATIONS:
            # Not SENDs of 8 bytes: tshark's guess at RPC over RDMA reads 16 of them and calls the packet malformed.
            for size in (8,) if operation in ("cas", "fadd") else (64, 10000):
                capture = f"{folder}/{operation}{size}.pcapng"
                lab.run(verbena, "ping", address, "--op", operation, "-c", 3, "-i", 0.01, "--size", size,
                        "--pcap", capture)
                captures.append(capture)
    return captures + [f"{folder}/server.pcapng"]


def check(capture):
    packets = [p for p in lab.ip_packets(capture) if lab.is_roce(p)]
    assert packets, f"{capture} holds no RoCE packet"
    wrong = sum(not lab.icrc_is_right(p) for p in packets)
    assert wrong == 0, f"{wrong} of {len(packets)} ICRCs in {capture} are wrong"
    malformed = lab.run("tshark", "-r", capture, "-Y", "_ws.malformed || _ws.short")
    assert malformed == "", f"malformed packets in {capture}:\n{malformed}"
    return len(packets)


def main():
    lab.need("tshark")
    verbena = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        captures = make_traffic(verbena, folder)
        total = sum(check(c) for c in captures)
        text = "".join(lab.run("tshark", "-r", c) for c in captures).lower().replace(":", "").replace("_", " ")
        missing = [name for name in EXPECTED if name.lower() not in text]
        names = sorted({line.split("rc ", 1)[1].split(" qp")[0] for line in text.splitlines() if "rc " in line})
        assert not missing, f"tshark names none of {missing}; it names {names}"
    print(f"{len(captures)} captures, {total} packets, every ICRC right, none malformed")


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C")
    main()
