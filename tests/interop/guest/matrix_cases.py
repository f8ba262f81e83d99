# SPDX-License-Identifier: Apache-2.0
"""Every operation and every refusal, both ways, by tests/interop/kernel; then a mixture over a link that misbehaves."""

from guest import GUEST, GuestError
from world import Shaped

# What netem does to the packets of each direction.
FAULTS = {
    "1 % loss": "loss 1%",
    "5 % loss": "loss 5%",
    "10 % duplication": "duplicate 10%",
    "reordering": "delay 2ms reorder 90% 50%",
    "loss, duplication, reordering": "delay 1ms 1ms loss 1% duplicate 5%",
}


def run_matrix(world, side, *words, seconds=300):
    """What it printed last. The kernel's side is slow under emulation, and waits by itself."""
    with world.there(f"{world.programs}/verbs_peer {side.port}") as peer:
        world.wait_for_listener(side.port)
        with world.here("matrix", "--device", side.here, "--peer", f"{GUEST}:{side.port}", "--peer-gid",
                        world.gid_index, *words) as matrix:
            status = matrix.wait(seconds)
            lines = matrix.output().splitlines()
            failed = [line for line in lines if not line.startswith("ok ")]
            if status != 0:
                raise GuestError(f"matrix ended with {status}:\n" + "\n".join(failed) + f"\n{peer.output()}")
    return lines[-1]


def whole(mtu):
    return lambda world: run_matrix(world, world.side(), "--mtu", mtu)


def over(netem, mtu):
    """Misbehaviour in both directions."""
    def case(world):
        side = world.side()
        with Shaped(world, side, netem):
            return run_matrix(world, side, "--mixed", "--mtu", mtu)
    return case


def cases():
    for mtu in (1024, 4096):
        yield f"matrix: path MTU {mtu}", whole(mtu)
    for number, (name, netem) in enumerate(FAULTS.items()):
        mtu = (1024, 4096)[number % 2]
        yield f"netem: {name}, both ways, path MTU {mtu}", over(netem, mtu)
