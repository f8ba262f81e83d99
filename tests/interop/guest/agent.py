# SPDX-License-Identifier: Apache-2.0
"""Runs inside the guest as its first process: starts and kills what the host asks for, and says how each ended.

In: {"do": "start", "id": N, "command": C}, {"do": "kill", "id": N, "signal": S}, {"do": "stop"}, a line each.
Out: {"ready": true} once, then {"id": N, "status": S} when a command ended: the exit status, or the negative signal
number. Every emulated instruction counts: nothing here polls.
"""

import json
import os
import signal
import subprocess
import time

CHANNEL = "/dev/vport0p1"


class Agent:
    def __init__(self, channel):
        self.channel = channel
        self.running = {}  # process id: (number, Popen)
        self.starting = False
        self.ended_early = {}  # between a start and the moment its process id is known

    def reap(self, *_):
        """SIGCHLD. As the first process, this one inherits every orphan too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            status = os.waitstatus_to_exitcode(status)
            if pid in self.running:
                self.say_ended(pid, status)
            elif self.starting:
                self.ended_early[pid] = status

    def say_ended(self, pid, status):
        number, child = self.running.pop(pid)
        child.returncode = status
        self.channel.write(json.dumps({"id": number, "status": status}).encode() + b"\n")

    def start(self, request):
        self.starting = True
        with open(f"/job/{request['id']}.out", "wb", buffering=0) as out:
            child = subprocess.Popen(["/bin/bash", "-c", request["command"]], stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, start_new_session=True)
        self.running[child.pid] = (request["id"], child)
        self.starting = False
        if child.pid in self.ended_early:
            self.say_ended(child.pid, self.ended_early[child.pid])
        self.ended_early.clear()

    def kill(self, request):
        for pid, (number, _) in list(self.running.items()):
            if number == request["id"]:
                os.killpg(pid, request["signal"])

    def stop(self, _):
        os.sync()
        with open("/proc/sysrq-trigger", "w") as trigger:
            trigger.write("o")
        time.sleep(60)

    def serve(self):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, self.reap)
        self.channel.write(b'{"ready": true}\n')
        pending = b""
        while True:
            got = self.channel.read(65536)
            if not got:
                time.sleep(0.05)
            pending += got
            while b"\n" in pending:
                line, pending = pending.split(b"\n", 1)
                request = json.loads(line)
                {"start": self.start, "kill": self.kill, "stop": self.stop}[request["do"]](request)


while not os.path.exists(CHANNEL):
    time.sleep(0.05)
with open(CHANNEL, "r+b", buffering=0) as opened:
    Agent(opened).serve()
