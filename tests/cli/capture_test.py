# SPDX-License-Identifier: Apache-2.0
"""--pcap: what the command captures, read by tshark."""

import os
import shutil
import subprocess

from command import Server, Skip, check, main, say, write_file


def tshark(path, *words):
    if shutil.which("tshark") is None:
        raise Skip("there is no tshark")
    done = subprocess.run(["tshark", "-r", path, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    check(done.returncode == 0, done.stderr.decode())
    return done.stdout.decode().splitlines()


def check_capture(path, wanted):
    lines = tshark(path)
    check(lines, f"{path} is empty")
    bad = tshark(path, "-Y", "_ws.malformed || _ws.expert.severity == error")
    check(not bad, f"{len(bad)} malformed packets, the first: {bad[:1]}")
    text = "\n".join(lines)
    for word in wanted:
        check(word in text, f"no {word} in {path}:\n{text[:2000]}")
    return len(lines)


def every_command_captures_what_tshark_reads(setting):
    if shutil.which("tshark") is None:
        raise Skip("there is no tshark")
    write_file(setting.path("served", "file"), 300_000)
    pcap = setting.path
    server = Server(setting, "serve", setting.path("served"), "--writable", "--pcap", pcap("serve.pcap"))
    setting.run("get", server.url("file"), setting.path("got"), "--pcap", pcap("get.pcap"))
    setting.run("put", setting.path("got"), server.url("up"), "--pcap", pcap("put.pcap"))
    server.stop()
    server = Server(setting, "ping", "-s", "--pcap", pcap("server.pcap"))
    for operation in ("send", "write", "read", "cas", "fadd"):
        setting.run("ping", server.address, "--op", operation, "-c", "3", "-i", "0", "--pcap",
                    pcap(f"{operation}.pcap"))
    server.stop()
    setting.run("sim", "--seed", "4", "--pcap", pcap("sim.pcap"))
    wanted = {"get": ["RDMA Read Request", "RDMA Read Response", "Send Only"], "put": ["RDMA Write", "Send Only"],
              "serve": ["RDMA Read Response", "RDMA Write"], "send": ["Send Only"], "write": ["RDMA Write Only"],
              "read": ["RDMA Read Request"], "cas": ["Compare Swap"], "fadd": ["Fetch Add"], "server": ["Send Only"]}
    for name, words in wanted.items():
        count = check_capture(pcap(f"{name}.pcap"), words + ["ConnectRequest", "DisconnectRequest"])
        say(f"{name}.pcap: {count} packets, {os.path.getsize(pcap(f'{name}.pcap'))} bytes")
    check(tshark(pcap("sim.pcap")), "sim.pcap is empty")


if __name__ == "__main__":
    main(every_command_captures_what_tshark_reads)
