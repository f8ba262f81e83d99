# SPDX-License-Identifier: Apache-2.0
"""Runs inside the guest as its first process: does what the host asks, one JSON line for one JSON line."""

import json
import os
import signal
import subprocess
import time

CHANNEL = "/dev/vport0p1"
started = {}


def start(request):
    number = len(started) + 1
    path = f"/job/{number}.out"
    with open(path, "wb", buffering=0) as out:
        started[number] = subprocess.Popen(["/bin/bash", "-c", request["command"]], stdin=subprocess.DEVNULL,
                                           stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    return {"id": number}


def poll(request):
    """status: the exit status, the negative signal number, or null while it runs."""
    return {"status": started[request["id"]].poll()}


def kill(request):
    try:
        os.killpg(started[request["id"]].pid, request["signal"])
    except ProcessLookupError:
        pass
    return {}


def reap():
    """As the first process, this one inherits every orphan."""
    owned = {child.pid for child in started.values()}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) in owned:
            continue
        try:
            if open(f"/proc/{entry}/stat").read().rsplit(")", 1)[1].split()[:2] == ["Z", "1"]:
                os.waitpid(int(entry), os.WNOHANG)
        except (OSError, IndexError):
            pass


def main():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while not os.path.exists(CHANNEL):
        time.sleep(0.05)
    with open(CHANNEL, "r+b", buffering=0) as channel:
        channel.write(b'{"ready": true}\n')
        pending = b""
        while True:
            got = channel.read(65536)
            if not got:
                time.sleep(0.05)
                continue
            pending += got
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                request = json.loads(line)
                if request["do"] == "stop":
                    os.sync()
                    with open("/proc/sysrq-trigger", "w") as trigger:
                        trigger.write("o")
                    time.sleep(60)
                answer = {"start": start, "poll": poll, "kill": kill}[request["do"]](request)
                reap()
                channel.write(json.dumps(answer).encode() + b"\n")


main()
