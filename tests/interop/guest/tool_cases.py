# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own programs, unmodified, with Verbena at the other end."""

import signal
import time

from cm_cases import expect
from guest import GUEST, GuestError
from world import Shaped

PINGS = 5


def rping_client(*flags, six=False):
    """verbena rping -c against rping -s."""
    def case(world):
        side = world.side(six)
        listen = "::0" if six else "0.0.0.0"
        with world.there(f"rping -s -a {listen} -p {side.port} -C {PINGS} {' '.join(flags)}") as server:
            world.wait_for_service(side.port)
            with world.here("verbena", "rping", "-c", "-a", side.there, "-I", side.here, "-p", side.port, "-C", PINGS,
                            "-v", "-V", *flags) as client:
                text = expect(client, 0)
                if text.count("rdma-ping-") < PINGS:
                    raise GuestError(f"fewer than {PINGS} pings:\n{text}")
            server.wait(10)
    return case


def rping_server(*flags, six=False):
    """rping -c against verbena rping -s."""
    def case(world):
        side = world.side(six)
        with world.here("verbena", "rping", "-s", "-a", side.here, "-p", side.port, *flags) as server:
            server.until(str(side.port))
            with world.there(f"rping -c -a {side.here} -p {side.port} -C {PINGS} -v -V {' '.join(flags)}") as client:
                text = expect(client, 0)
                if text.count("rdma-ping-") < PINGS:
                    raise GuestError(f"fewer than {PINGS} pings:\n{text}")
            expect(server, 0)
    return case


def persistent_there(world):
    """One rping -s -P serves several clients of ours, one after the other and two at a time. The two do not connect
    at the same moment: rping keeps one place for a connection that arrives, and loses the first of two."""
    side, other = world.side(), world.side()
    def client(own, *flags):
        return world.here("verbena", "rping", "-c", "-a", side.there, "-I", own.here, "-p", side.port, "-V", *flags)
    with world.there(f"rping -s -P -p {side.port}") as server:
        world.wait_for_service(side.port)
        for _ in range(2):
            with client(side, "-C", PINGS) as one:
                expect(one, 0)
        with client(side, "-v") as one:
            one.until("rdma-ping-2")
            with client(other, "-C", PINGS) as two:
                expect(two, 0)
            seen = one.output().count("rdma-ping-")
            one.until(f"rdma-ping-{seen + 2}")


def persistent_here(world):
    """One verbena rping -s -P serves several kernel clients, one after the other and two at a time."""
    side = world.side()
    command = f"rping -c -a {side.here} -p {side.port} -C {PINGS} -V"
    with world.here("verbena", "rping", "-s", "-P", "-a", side.here, "-p", side.port) as server:
        server.until(str(side.port))
        for _ in range(2):
            with world.there(command) as one:
                expect(one, 0)
        with world.there(command) as one, world.there(command) as two:
            expect(one, 0)
            expect(two, 0)
        if server.wait(0) is not None:
            raise GuestError(f"the server ended:\n{server.output()}")


def killed_there(world):
    """The kernel's process is killed in the middle: ours says so, and the next conversation works."""
    side = world.side()
    with world.there(f"rping -s -p {side.port}") as server:
        world.wait_for_service(side.port)
        with world.here("verbena", "rping", "-c", "-a", side.there, "-I", side.here, "-p", side.port, "-v") as client:
            client.until("rdma-ping-2")
            server.kill()
            status = client.wait(30)
            if status in (None, 0) or not any(word in client.output() for word in ("Disconnected", "ConnectionLost",
                                                                                  "RetryExceeded", "disconnected")):
                raise GuestError(f"the client ended with {status} and said:\n{client.output()}")
    rping_client()(world)


def killed_here(world):
    """Ours is killed in the middle: another at the same address serves the kernel's next client."""
    side = world.side()
    def serve():
        return world.here("verbena", "rping", "-s", "-P", "-a", side.here, "-p", side.port, "-v")
    with serve() as server, world.there(f"rping -c -a {side.here} -p {side.port} -v") as client:
        server.until("rdma-ping-2")
        server.kill()
        server.wait(5)
        with serve() as again:
            again.until(str(side.port))
            with world.there(f"rping -c -a {side.here} -p {side.port} -C {PINGS} -V") as other:
                expect(other, 0)
        # The kernel's device retries for ever with the retry count rping asks for; its user gives up.
        client.kill(signal.SIGKILL)


def twice_asked(world):
    """Every packet of the kernel's arrives twice while it connects: one connection comes of it."""
    side = world.side()
    with Shaped(world, side, "duplicate 100%", ways=["egress"]), \
            world.here("verbena", "rping", "-s", "-P", "-a", side.here, "-p", side.port, "-v") as server:
        server.until(str(side.port))
        with world.there(f"rping -c -a {side.here} -p {side.port} -C {PINGS} -v -V") as client:
            expect(client, 0)
        time.sleep(0.2)
        if server.output().count("rdma-ping-0:") != 1:
            raise GuestError(f"not one connection:\n{server.output()}")


def pingpong_client(*flags):
    """verbena pingpong against ibv_rc_pingpong as the server."""
    def case(world):
        side = world.side()
        words = " ".join(map(str, flags))
        with world.there(f"ibv_rc_pingpong -d rxe0 -g {world.gid_index} -p {side.port} {words}") as server:
            world.wait_for_listener(side.port)
            with world.here("verbena", "pingpong", "-d", side.here, "-p", side.port, *flags, GUEST) as client:
                expect(client, 0, "usec/iter")
            expect(server, 0, "usec/iter")
    return case


def pingpong_server(*flags):
    """ibv_rc_pingpong as the client of verbena pingpong."""
    def case(world):
        side = world.side()
        words = " ".join(map(str, flags))
        with world.here("verbena", "pingpong", "-d", side.here, "-p", side.port, *flags) as server:
            time.sleep(0.3)
            there = f"ibv_rc_pingpong -d rxe0 -g {world.gid_index} -p {side.port} {words} {side.here}"
            with world.there(there) as client:
                expect(client, 0, "usec/iter")
            expect(server, 0, "usec/iter")
    return case


def cmatose(server, connections, messages, size):
    def case(world):
        side = world.side()
        words = ["-c", connections, "-C", messages, "-S", size, "-p", side.port]
        there = "ucmatose " + " ".join(map(str, words))
        if server == "kernel":
            with world.there(there) as listener:
                world.wait_for_service(side.port)
                with world.here("cmatose_peer", "-s", side.there, "-b", side.here, *words) as connector:
                    expect(connector, 0, f"client: {connections} connections")
                expect(listener, 0, "test complete", "return status 0")
        else:
            with world.here("cmatose_peer", "-b", side.here, *words) as listener:
                listener.until(str(side.port))
                with world.there(f"{there} -s {side.here}") as connector:
                    expect(connector, 0, "test complete", "return status 0")
                expect(listener, 0, f"server: {connections} connections")
    return case


def cases():
    for six in (False, True):
        name = "IPv6" if six else "IPv4"
        yield f"rping: verbena -> kernel, {name}", rping_client(six=six)
        yield f"rping: kernel -> verbena, {name}", rping_server(six=six)
    for size in (1500, 10000):
        yield f"rping: verbena -> kernel, {size} bytes", rping_client("-S", str(size))
        yield f"rping: kernel -> verbena, {size} bytes", rping_server("-S", str(size))
    yield "rping: persistent kernel server", persistent_there
    yield "rping: persistent verbena server", persistent_here
    yield "rping: kernel -> verbena, every packet twice", twice_asked
    yield "rping: kernel server killed", killed_there
    yield "rping: verbena server killed", killed_here
    for flags in (("-n", 200), ("-s", 65536, "-m", 4096, "-n", 100), ("-e", "-c", "-n", 100),
                  ("-s", 1, "-r", 10, "-n", 200), ("-m", 256, "-s", 1000, "-n", 100)):
        name = " ".join(map(str, flags))
        yield f"pingpong: verbena -> kernel, {name}", pingpong_client(*flags)
        yield f"pingpong: kernel -> verbena, {name}", pingpong_server(*flags)
    for server, names in (("kernel", "verbena -> kernel"), ("verbena", "kernel -> verbena")):
        yield f"ucmatose: {names}, 5 connections", cmatose(server, 5, 10, 100)
        yield f"ucmatose: {names}, long messages", cmatose(server, 2, 5, 50000)
