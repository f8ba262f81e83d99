# SPDX-License-Identifier: Apache-2.0
"""A Linux kernel of its own under QEMU, joined to this network namespace by a tap, with a program that obeys."""

import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOST, GUEST = "10.77.0.1", "10.77.0.11"
HOST6, GUEST6 = "fd77::1", "fd77::11"
LINK_MTU = 9000  # room for a path MTU of 4096
MAC = "52:54:00:77:00:0b"
# Without "enhanced" string moves, which the emulator does byte by byte and every kernel then copies with.
CPU = "max,erms=off,fsrm=off"


class GuestError(Exception):
    """What went wrong, in one line that says where to look."""


class Job:
    """A command that runs in the guest."""

    def __init__(self, guest, number, command):
        self.guest, self.number, self.command = guest, number, command

    def output(self):
        path = self.guest.folder / f"{self.number}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(self, seconds=30):
        """The exit status, or the negative signal number; None when the command still runs."""
        return self.guest.wait(self.number, seconds)

    def until(self, text, seconds=15):
        """Waits until the output holds `text`."""
        end = time.monotonic() + seconds
        while text not in self.output():
            if time.monotonic() > end or (self.wait(0) is not None and text not in self.output()):
                raise GuestError(f"`{self.command}` did not print {text!r}:\n{self.output()}")
            time.sleep(0.02)
        return self

    def kill(self, number=signal.SIGKILL):
        self.guest.tell({"do": "kill", "id": self.number, "signal": int(number)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.wait(0) is None:
            self.kill()
            self.wait(10)


class Guest:
    """Boots at once. `folder` receives the console and what every command printed. Any thread may use it."""

    def __init__(self, image, folder, memory_mib=768, cpus=2):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.console = self.folder / "console"
        shutil.copy(HERE / "agent.py", self.folder / "agent.py")
        self.channel = None
        self.news = threading.Condition()
        self.jobs = 0
        self.ended = {}  # job number: status
        self.gone = ""  # why the guest can do nothing more
        add_tap()
        channel = self.folder / "channel"
        channel.unlink(missing_ok=True)
        share = "local,security_model=none,multidevs=remap"
        self.process = subprocess.Popen(
            ["qemu-system-x86_64", "-M", "pc", "-accel", "tcg,thread=multi,tb-size=512", "-cpu", CPU,
             "-smp", str(cpus), "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none",
             "-no-reboot", "-kernel", f"{image}/vmlinux", "-initrd", f"{image}/initrd",
             "-append", "console=ttyS0 quiet panic=-1 mitigations=off nokaslr audit=0 nmi_watchdog=0 net.ifnames=0",
             "-chardev", f"file,id=console,path={self.console}", "-serial", "chardev:console",
             "-device", "virtio-serial-pci", "-chardev", f"socket,id=agent,path={channel},server=on,wait=off",
             "-device", "virtserialport,chardev=agent,name=agent",
             "-fsdev", f"{share},id=root,path=/,readonly=on", "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
             "-fsdev", f"{share},id=job,path={self.folder}", "-device", "virtio-9p-pci,fsdev=job,mount_tag=job",
             "-object", "rng-random,filename=/dev/urandom,id=random", "-device", "virtio-rng-pci,rng=random",
             "-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no",
             "-device", f"virtio-net-pci,netdev=net,mac={MAC},host_mtu={LINK_MTU}"],
            stdin=subprocess.DEVNULL, stdout=open(self.folder / "qemu.log", "wb"), stderr=subprocess.STDOUT)
        try:
            self.connect(channel)
        except BaseException:
            self.stop()
            raise

    def connect(self, path, seconds=90):
        end = time.monotonic() + seconds
        self.channel = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.channel.connect(str(path))
                break
            except OSError:
                if self.process.poll() is not None:
                    raise GuestError(f"QEMU did not start; log: {self.folder}/qemu.log") from None
                if time.monotonic() > end:
                    raise GuestError(f"QEMU opened no channel; log: {self.folder}/qemu.log") from None
                time.sleep(0.02)
        self.channel.settimeout(max(end - time.monotonic(), 1))
        lines = self.channel.makefile("rb")
        try:
            ready = lines.readline()
        except OSError:
            ready = b""
        if not ready or not json.loads(ready).get("ready"):
            raise GuestError(f"the guest does not come up; its console: {self.console}")
        self.channel.settimeout(None)
        threading.Thread(target=self.listen, args=[lines], daemon=True).start()

    def listen(self, lines):
        """A thread: takes note of what ended, until the guest itself does."""
        try:
            for line in lines:
                end = json.loads(line)
                with self.news:
                    self.ended[end["id"]] = end["status"]
                    self.news.notify_all()
        except (OSError, ValueError):
            pass
        with self.news:
            self.gone = f"the guest has gone; its console: {self.console}"
            self.news.notify_all()

    def wait(self, number, seconds):
        with self.news:
            self.news.wait_for(lambda: number in self.ended or self.gone, seconds)
            if number in self.ended:
                return self.ended[number]
            if self.gone:
                raise GuestError(self.gone)
            return None

    def tell(self, request):
        try:
            self.channel.sendall(json.dumps(request).encode() + b"\n")
        except OSError:
            raise GuestError(f"the guest has gone; its console: {self.console}") from None

    def start(self, command):
        with self.news:
            self.jobs += 1
            job = Job(self, self.jobs, command)
            self.tell({"do": "start", "id": job.number, "command": command})
        return job

    def run(self, command, seconds=60):
        """What the command printed; GuestError when it failed or took longer."""
        with self.start(command) as job:
            status = job.wait(seconds)
        if status != 0:
            how = f"did not end in {seconds} s" if status is None else f"ended with {status}"
            raise GuestError(f"`{command}` {how}:\n{job.output()}")
        return job.output()

    def stop(self):
        if self.channel is not None and self.process.poll() is None:
            try:
                self.tell({"do": "stop"})
                self.process.wait(5)
            except (GuestError, subprocess.TimeoutExpired):
                pass
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


def ip(*arguments):
    result = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise GuestError(f"`ip {' '.join(arguments)}` failed: {result.stderr.strip()}")
    return result.stdout


def add_tap():
    """The host's end, in the network namespace this process runs in."""
    ip("tuntap", "add", "tap0", "mode", "tap")
    ip("link", "set", "tap0", "mtu", str(LINK_MTU), "up")
    ip("addr", "add", f"{HOST}/24", "dev", "tap0")
    ip("addr", "add", f"{HOST6}/64", "dev", "tap0", "nodad")


def prepare_rxe(guest):
    """The guest's end, and rxe0 on it; returns the GID index of its IPv4 address."""
    guest.run("set -e; ip link set lo up; modprobe -a rdma_rxe rdma_ucm ib_uverbs; ip link set eth0 name net0; "
              f"tc qdisc add dev net0 clsact; ip link set net0 mtu {LINK_MTU} up; "
              f"ip addr add {GUEST}/24 dev net0; ip addr add {GUEST6}/64 dev net0 nodad; "
              "rdma link add rxe0 type rxe netdev net0")
    return gid_index(guest, "rxe0", "0000:0000:0000:0000:0000:ffff:0a4d:000b")


def gid_index(guest, device, gid):
    listing = guest.run(f"cd /sys/class/infiniband/{device}/ports/1/gids; grep -l '{gid}' [0-9] || true")
    if not listing.strip():
        raise GuestError(f"{device} has no GID {gid}")
    return int(listing.split()[0])
