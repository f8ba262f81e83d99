# SPDX-License-Identifier: Apache-2.0
"""Connection management against the kernel's: who connects, who listens, and what gets lost on the way."""

from guest import GuestError
from world import Dropped

PAIRS = (("verbena", "kernel"), ("kernel", "verbena"))  # (client, server)


def expect(job, status, *lines, seconds=40):
    ended = job.wait(seconds)
    text = job.output()
    missing = [line for line in lines if line not in text]
    if ended != status or missing:
        raise GuestError(f"`{job.command}` ended with {ended}, not {status}; lines missing: {missing}; "
                         f"it said:\n{text}")
    return text


def talk(world, side, client, server, stays=False):
    """A whole conversation: request and answer with private data, a message each way, an orderly end."""
    with world.listen(server, side, "stay" if stays else "accept") as listener, \
            world.connect(client, side) as connector:
        expect(connector, 0, "established fine", "received pong", "disconnected")
        if stays:
            listener.until("disconnected")
        else:
            expect(listener, 0, "request hello", "established", "received ping", "disconnected")


def conversation(client, server, six):
    def case(world):
        talk(world, world.side(six), client, server)
    return case


def rejection(client, server):
    def case(world):
        side = world.side()
        with world.listen(server, side, "reject", "not-today") as listener, world.connect(client, side) as connector:
            text = expect(connector, 3, "not-today")
            # 28: the consumer said no.
            expected = "RDMA_CM_EVENT_REJECTED 28" if client == "kernel" else "Rejected"
            if expected not in text:
                raise GuestError(f"no {expected!r} in {text}")
            expect(listener, 0, "request hello", "rejected")
    return case


def nobody_listens(client):
    def case(world):
        side = world.side()
        # A device that is there, with a listener on another port.
        other = world.side()
        other.here, other.there = side.here, side.there
        server = "kernel" if client == "verbena" else "verbena"
        with world.listen(server, other), world.connect(client, side) as connector:
            # 8: invalid service id.
            expect(connector, 3, "RDMA_CM_EVENT_REJECTED 8" if client == "kernel" else "ConnectionRefused")
    return case


def lost(message, client, server):
    """The first MESSAGE of whoever sends it is lost; the conversation takes place all the same."""
    sender = client if message in ("REQ", "RTU", "DREQ") else server
    # Verbena's connection management ends with its process: to be asked again for a DREP, it must still be there.
    stays = message == "DREP" and server == "verbena"

    def case(world):
        side = world.side()
        with Dropped(world, side, message, sender) as drop:
            talk(world, side, client, server, stays)
            drop.check()
    return case


def cases():
    for client, server in PAIRS:
        names = f"{client} -> {server}"
        for six in (False, True):
            yield f"cm: conversation, {names}, {'IPv6' if six else 'IPv4'}", conversation(client, server, six)
        yield f"cm: rejection with private data, {names}", rejection(client, server)
        yield f"cm: nobody listens, {names}", nobody_listens(client)
        for message in ("REQ", "REP", "RTU", "DREQ", "DREP"):
            yield f"cm: lost {message}, {names}", lost(message, client, server)
