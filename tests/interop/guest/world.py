# SPDX-License-Identifier: Apache-2.0
"""Both sides of an interop case: Verbena's programs here, the kernel's in the guest, and what happens between them."""

import signal
import subprocess
import threading
import time

from guest import GUEST, GUEST6, MAC, GuestError, ip

MOST_SIDES = 100
ATTRIBUTES = {"REQ": 0x10, "MRA": 0x11, "REJ": 0x12, "REP": 0x13, "RTU": 0x14, "DREQ": 0x15, "DREP": 0x16}


class HostJob:
    """A command on this side, with the face of guest.Job."""

    def __init__(self, arguments, path):
        self.command = " ".join(map(str, arguments))
        self.path = path
        with open(path, "wb", buffering=0) as out:
            self.child = subprocess.Popen(list(map(str, arguments)), stdin=subprocess.DEVNULL, stdout=out,
                                          stderr=subprocess.STDOUT)

    def output(self):
        return self.path.read_text(errors="replace")

    def wait(self, seconds=30):
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def until(self, text, seconds=15):
        end = time.monotonic() + seconds
        while text not in self.output():
            if time.monotonic() > end or (self.child.poll() is not None and text not in self.output()):
                raise GuestError(f"`{self.command}` did not print {text!r}:\n{self.output()}")
            time.sleep(0.01)
        return self

    def kill(self, number=signal.SIGKILL):
        self.child.send_signal(number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


class Side:
    """Addresses of one case: Verbena owns one of its own, so that cases do not meet."""

    def __init__(self, number, six=False):
        self.number = number
        self.six = six
        self.here = f"fd77::{0x100 + number:x}" if six else f"10.77.{1 + number // 200}.{number % 200 + 1}"
        self.there = GUEST6 if six else GUEST
        self.port = 7200 + number

    @staticmethod
    def with_port(address, port):
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class World:
    """`programs`: the folder of the built programs, the same path here and in the guest."""

    def __init__(self, guest, programs, folder, gid_index):
        self.guest, self.programs, self.folder, self.gid_index = guest, programs, folder, gid_index
        self.lock = threading.Lock()
        self.sides = 0
        self.host_jobs = 0
        guest.run("ip route add 10.77.0.0/16 dev net0")
        self.introduce()

    def side(self, six=False):
        with self.lock:
            self.sides += 1
            assert self.sides <= MOST_SIDES
            side = Side(self.sides, six)
        ip("addr", "add", f"{side.here}/{64 if six else 16}", "dev", "tap0", *(["nodad"] if six else []))
        return side

    def introduce(self):
        """Both ends know each other's link address: what is tested is not what becomes of a lost ARP, and while the
        kernel asks for one address, its management of connections waits, everybody's."""
        mac = ip("-o", "link", "show", "dev", "tap0").split("link/ether ")[1].split()[0]
        sides = [Side(number, six).here for number in range(1, MOST_SIDES + 1) for six in (False, True)]
        batch = "\n".join(f"neigh replace {here} lladdr {mac} dev net0" for here in sides)
        self.guest.run(f"ip -batch - <<< '{batch}'")
        for there in (GUEST, GUEST6):
            ip("neigh", "replace", there, "lladdr", MAC, "dev", "tap0")

    def here(self, program, *arguments):
        with self.lock:
            self.host_jobs += 1
            path = self.folder / f"host{self.host_jobs}.out"
        return HostJob([self.programs / program, *arguments], path)

    def there(self, command):
        return self.guest.start(command)

    def wait_for(self, condition):
        """Until a command succeeds in the guest."""
        self.guest.run(f"for i in {{1..200}}; do {condition} && exit 0; sleep 0.1; done; exit 1")

    def wait_for_listener(self, port):
        """Until the guest listens on a TCP port; the shell asks the kernel itself, a program would cost more."""
        self.wait_for("read -rd '' four </proc/net/tcp; read -rd '' six </proc/net/tcp6; "
                      f"[[ $four$six =~ :{port:04X}\\ 0+:0000\\ 0A ]]")

    def wait_for_service(self, port):
        """Until the guest listens with rdma_cm."""
        self.wait_for(f"rdma resource show cm_id | grep -q ':{port} '")

    # kernel_connect and verbena_connect speak alike: SIDE is "kernel" or "verbena".
    def listen(self, kind, side, answer="accept", text="fine"):
        if kind == "kernel":
            job = self.there(f"{self.programs}/kernel_connect listen {side.there} {side.port} {answer} {text}")
        else:
            job = self.here("verbena_connect", side.here, "listen", side.port, answer, text)
        return job.until("listening")

    def connect(self, kind, side, text="hello"):
        if kind == "kernel":
            return self.there(f"{self.programs}/kernel_connect connect {side.here} {side.port} {text}")
        return self.here("verbena_connect", side.here, "connect", side.with_port(side.there, side.port), text)


class Dropped:
    """While the block runs, every other management packet of one kind between the guest and one side is lost, the first
    among them."""

    def __init__(self, world, side, kind, sender):
        self.world, self.kind = world, kind
        self.way = "egress" if sender == "kernel" else "ingress"
        self.pref = side.number
        end = "dst" if sender == "kernel" else "src"
        self.rule = (f"protocol ip pref {self.pref} u32 match ip {end} {side.here}/32 match u16 4791 0xffff at 22 "
                     f"match u8 0x64 0xff at 28 match u16 {ATTRIBUTES[kind]} 0xffff at 64 "
                     "action drop random determ ok 2")

    def __enter__(self):
        self.world.guest.run(f"tc filter add dev net0 {self.way} {self.rule}")
        return self

    def check(self):
        """Something was lost indeed."""
        text = self.world.guest.run(f"tc -s filter show dev net0 {self.way} pref {self.pref}")
        seen = [line for line in text.splitlines() if "dropped" in line]
        if not any("dropped 0," not in line for line in seen):
            raise GuestError(f"no {self.kind} came by to be lost:\n{text}")

    def __exit__(self, *_):
        self.world.guest.run(f"tc filter del dev net0 {self.way} pref {self.pref}")


class Shaped:
    """While the block runs, netem treats IPv4 packets between the guest and one side, and no others."""

    def __init__(self, world, side, netem, ways=("egress", "ingress")):
        self.guest, self.side, self.netem, self.ways = world.guest, side, netem, ways
        self.device = f"netem{side.number}"
        self.pref = 10000 + side.number

    def __enter__(self):
        commands = [f"modprobe ifb numifbs=0; ip link add {self.device} txqlen 100000 type ifb",
                    f"ip link set {self.device} up",
                    f"tc qdisc add dev {self.device} root netem {self.netem} limit 100000"]
        for way in self.ways:
            end = "dst" if way == "egress" else "src"
            commands.append(f"tc filter add dev net0 {way} protocol ip pref {self.pref} u32 "
                            f"match ip {end} {self.side.here}/32 action mirred egress redirect dev {self.device}")
        self.guest.run("set -e; " + "; ".join(commands))
        return self

    def __exit__(self, *_):
        filters = [f"tc filter del dev net0 {way} pref {self.pref}" for way in self.ways]
        self.guest.run("; ".join(filters) + f"; ip link del {self.device}")
