# SPDX-License-Identifier: Apache-2.0
"""Every operation and every refusal, both ways, by tests/interop/kernel; then a mixture over a link that misbehaves."""

from guest import GUEST, GuestError

# What netem does to the packets of each direction.
FAULTS = {
    "1 % loss": "loss 1%",
    "5 % loss": "loss 5%",
    "10 % duplication": "duplicate 10%",
    "reordering": "delay 2ms reorder 90% 50%",
    "loss, duplication, reordering": "delay 1ms 1ms loss 1% duplicate 5%",
}


def run_matrix(world, *words, seconds=300):
    """What it printed last. The kernel's side is slow under emulation, and waits by itself."""
    side = world.side()
    world.introduce(side)
    with world.there(f"{world.programs}/verbs_peer {side.port}") as peer:
        world.wait_for(f"ss -Hltn sport = :{side.port} | grep -q .")
        with world.here("matrix", "--device", side.here, "--peer", f"{GUEST}:{side.port}", "--peer-gid",
                        world.gid_index, *words) as matrix:
            status = matrix.wait(seconds)
            lines = matrix.output().splitlines()
            failed = [line for line in lines if not line.startswith("ok ")]
            if status != 0:
                raise GuestError(f"matrix ended with {status}:\n" + "\n".join(failed) + f"\n{peer.output()}")
    return lines[-1]


def whole(mtu):
    return lambda world: run_matrix(world, "--mtu", mtu)


def over(netem, mtu):
    """Misbehaviour in both directions: netem shapes what leaves the guest, and by way of an ifb what comes in."""
    def case(world):
        guest = world.guest
        guest.run("modprobe ifb numifbs=0; ip link add in0 type ifb; ip link set in0 up; "
                  "tc filter add dev net0 ingress pref 9999 matchall action mirred egress redirect dev in0")
        try:
            for device in ("net0", "in0"):
                guest.run(f"tc qdisc replace dev {device} root netem {netem} limit 100000")
            return run_matrix(world, "--mixed", "--mtu", mtu)
        finally:
            guest.run("tc filter del dev net0 ingress pref 9999; tc qdisc del dev net0 root; ip link del in0")
    return case


def cases():
    for mtu in (1024, 4096):
        yield f"matrix: path MTU {mtu}", whole(mtu)


def alone():
    for number, (name, netem) in enumerate(FAULTS.items()):
        mtu = (1024, 4096)[number % 2]
        yield f"netem: {name}, both ways, path MTU {mtu}", over(netem, mtu)
