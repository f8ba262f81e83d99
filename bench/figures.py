# SPDX-License-Identifier: Apache-2.0
"""What is measured and how (FIGURES), and what is shown against what with which goal (ROWS)."""
import json
import operator
import re
import socket
import statistics
import time
from dataclasses import dataclass

from lab import VETH_FAR, VETH_NEAR, Missing, metric, metrics

MIB = 1 << 20
# Linux doubles what is asked for, and what comes out is the default of net.core.rmem_default: 212,992 bytes.
RCVBUF = 106496
NEAR, FAR = "0", "1"
EACH = object()


@dataclass(frozen=True)
class Row:
    name: str
    unit: str
    figure: str  # key in FIGURES
    against: str | None = None  # key in FIGURES
    goal: str | None = None  # "<= 1.5" or ">= 0.85": of the ratio, or of the value where there is no against;
    #                         "<= against + 0.3": of the value, in its unit


def goal_met(goal, pairs):
    """Whether the median over (ours, theirs) pairs, each of one round, meets the goal."""
    m = re.fullmatch(r"(<=|>=) (against \+ )?([\d.]+)", goal)
    if not m:
        raise ValueError(f"goal {goal!r}")
    sides = [(a - b) if m[2] else (a / b) for a, b in pairs]
    return {"<=": operator.le, ">=": operator.ge}[m[1]](statistics.median(sides), float(m[3]))


def hosts(lab, path):
    """How to enter the client's and the server's host, and their addresses; of loopback any will do."""
    return (*lab.veth(), VETH_NEAR, VETH_FAR) if path == "veth" else ([], [], "", "")


def verbena(op, test, size, iterations, mtu=4096, depth=16, path="lo", name=None, cpus=(NEAR, FAR), wait="busy",
            posted="no", memory="allocated"):
    """`path`: lo and veth carry packets, local goes through memory. `name`: of the bandwidth's further figures; EACH:
    all of them."""
    def run(lab):
        near, far, here, there = hosts(lab, path)
        program = lab.program("bench_verbena")
        options = ["--transport", "local" if path == "local" else "udp", "--wait", wait, "--posted", posted,
                   "--memory", memory,
                   "--op", op, "--test", test, "--size", str(size), "--iterations", str(iterations),
                   "--depth", str(depth), "--mtu", str(mtu), "--rcvbuf", str(RCVBUF)]
        text = lab.pair([*far, program, "server", *options, "--cpu", cpus[1], "--device", there],
                        [*near, program, "client", *options, "--cpu", cpus[0], "--device", here, "--name", "figure"])
        return metrics(text) if name is EACH else metric(text, "figure.p50" if test == "latency" else name or "figure")
    return run


def in_turns(program, names):
    """Figures that one program takes in turns, {figure: metric}. Whichever a round asks for first runs it."""
    taken = {}

    def figure(name):
        def run(lab):
            if name not in taken:
                found = program(lab)
                taken.update({key: found.get(key) for key in names.values()})
            value = taken.pop(name)
            if value is None:
                raise Missing(f"no line {name} in the output")
            return value
        return run
    return {key: figure(name) for key, name in names.items()}


def verbs(op, test, iterations, path="lo", size=8, wait="busy", threads="any", cpus=(NEAR, FAR)):
    """By verbs. Of a rate 512 are outstanding, posted by 128, with one completion for each list. `wait`: of the peer,
    too, beside which memory is copied. `threads`: "single", as what UCX measures is."""
    def run(lab):
        near, far, here, there = hosts(lab, path)
        program = lab.program("bench_verbs")
        options = ["--transport", "local" if path == "local" else "udp", "--op", op, "--test", test,
                   "--size", str(size), "--iterations", str(iterations), "--rcvbuf", str(RCVBUF), "--wait", wait,
                   "--threads", threads]
        options += ["--depth", "16", "--list", "1"] if test == "latency" else ["--depth", "512", "--list", "128"]
        text = lab.pair([*far, program, "server", *options, "--cpu", cpus[1], "--device", there],
                        [*near, program, "client", *options, "--cpu", cpus[0], "--device", here, "--name", "figure"])
        return metric(text, "figure.p50" if test == "latency" else "figure")
    return run


def plain(run):
    """The same by programs of -O2 alone."""
    def run_plainly(lab):
        with lab.built_plainly():
            return run(lab)
    return run_plainly


def message(protocol, test, size, iterations, path="local", depth=64, batch=1, name=None, memory="lent"):
    """A message protocol; `name`: of the bandwidth's further figures. `memory`: what is longer than inline is sent from
    where it stands, as the verbs send it, or copied first."""
    def run(lab):
        program = lab.program("bench_messages")
        options = ["--protocol", protocol, "--transport", "local" if path == "local" else "udp", "--test", test,
                   "--size", str(size), "--iterations", str(iterations), "--depth", str(depth), "--batch", str(batch),
                   "--rcvbuf", str(RCVBUF), "--memory", memory]
        text = lab.pair([program, "server", *options, "--cpu", FAR],
                        [program, "client", *options, "--cpu", NEAR, "--name", "figure"])
        return metric(text, "figure.p50" if test == "latency" else name or "figure")
    return run


def message_memory(protocol, senders):
    """KiB that one receiver takes for so many senders."""
    return lambda lab: metric(lab.run([lab.program("bench_messages"), "memory", "--protocol", protocol, "--senders",
                                       str(senders), "--size", "4096"]), "memory")


def zeromq(test, iterations):
    def run(lab):
        program = lab.program("bench_zeromq")
        options = ["--test", test, "--iterations", str(iterations)]
        text = lab.pair([program, "server", *options], [program, "client", *options])
        return metric(text, "rtt.p50" if test == "latency" else "rtt")
    return run


def rate(run, bytes_each):
    """Millions of them a second, of a figure in GB/s."""
    return lambda lab: run(lab) * 1e3 / bytes_each


def together(program, name, *words):
    """One of several figures that one run of the program gives for a round."""
    def run(lab):
        held = vars(lab).setdefault((program, *words), {})
        if name not in held:
            held.update(metrics(lab.run([lab.program(program), *words])))
        return held.pop(name)
    return run


def limit(part, name):
    return lambda lab: metric(lab.run([lab.program("bench_limits"), part]), name)


def ping_pong(protocol, path="lo"):
    def run(lab):
        near, far, _, there = hosts(lab, path)
        program = lab.program("bench_net_pp")
        options = ["--proto", protocol, "--wait", "busy", "--size", "8", "--iterations", "50000",
                   "--rcvbuf", str(RCVBUF)]
        server = [*far, program, "server", *options, "--cpu", FAR, *(["--bind", there] if there else [])]
        return metric(lab.pair(server, [*near, program, "client", *options, "--cpu", NEAR, "--name", "rtt"]), "rtt.p50")
    return run


def simulated(lab):
    """Million packets a second of the simulator, on one core, with all its oracles on."""
    program = lab.program("verbena")
    begin = time.monotonic()
    seeds = json.loads(lab.run([program, "sim", "--seeds", "1:300", "--json"]))
    return seeds["packets"] / (time.monotonic() - begin) / 1e6


def capacity(name, *words):
    return lambda lab: metric(lab.run([lab.program("bench_capacity"), *words]), name)


def ceiling(payload, frames=("copy", "gather"), path="lo"):
    """The better of copying into the frame and gathering by iovec: which one wins depends on the packet size."""
    def run(lab):
        near, far, _, there = hosts(lab, path)
        program, found = lab.program("bench_udp_ceiling"), []
        for frame in frames:
            options = ["--payload", str(payload), "--frame", frame, "--duration-ms", "300", "--rcvbuf", str(RCVBUF)]
            server = [*far, program, "server", *options, "--cpu", FAR, *(["--bind", there] if there else [])]
            found.append(metric(lab.pair(server, [*near, program, "client", *options, "--cpu", NEAR]), "ceiling"))
        return max(found)
    return run


def iperf3(clamped):
    """One TCP stream. Clamping takes the send buffer too (-w is for both), which costs it; hence both kinds."""
    def run(lab):
        program = lab.installed("iperf3")
        window = ["-w", str(RCVBUF)] if clamped else []
        port = free_port()
        server = [program, "-s", "-1", "-B", "127.0.0.1", "-p", port, "-A", FAR]
        client = [program, "-c", "127.0.0.1", "-p", port, "-A", NEAR, "-t", "1", "-f", "m", *window]
        text = lab.pair(server, client, delay_s=0.3)
        m = re.search(r"([\d.]+) Mbits/sec\s+receiver", text)
        if not m:
            raise Missing("iperf3 printed no receiver line")
        return float(m[1]) / 8e3
    return run


def ucx(test, size, iterations, tls="tcp", latency=None, path="lo"):
    """UCX: the round trip in us (ucx_perftest prints the half), bandwidth in GB/s (it prints MiB/s), of small messages
    the rate in M/s. `tls`: its transports. `latency`: rather than bandwidth; of small messages unless told."""
    latency = size == 8 and not test.endswith("_bw") if latency is None else latency

    def run(lab):
        program = lab.installed("ucx_perftest")
        env = {"UCX_TLS": tls, "UCX_LOG_LEVEL": "error", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        if tls == "tcp":
            env |= {"UCX_NET_DEVICES": "va,vb" if path == "veth" else "lo", "UCX_TCP_RCVBUF": str(RCVBUF)}
        # UCX looks for devices in /sys, which is that of the network where it was mounted.
        own_sys = ["unshare", "-m", "sh", "-c", 'mount -t sysfs sysfs /sys && exec "$@"', "sh"]
        near, far = [[*host, *own_sys] for host in lab.veth()] if path == "veth" else [lab.loopback_only()] * 2
        common = [program, "-f", "-p", "13337"]
        # A name with a short way to send is of UCT, the layer below.
        lower = ["-d", "memory", "-x", tls, "-D", "short"] if test in ("am_lat", "am_bw") else []
        client = [*near, *common, "-c", NEAR, VETH_FAR if path == "veth" else "127.0.0.1", "-t", test, *lower,
                  "-s", str(size), "-n", str(iterations), "-w", str(iterations // 10)]
        text = lab.pair([*far, *common, "-c", FAR], client, env=env, delay_s=0.3)
        for line in text.splitlines():
            fields = line.removeprefix("Final:").split()
            if len(fields) >= 8 and all(re.fullmatch(r"[\d.]+", f) for f in fields):
                if latency:
                    return float(fields[1]) * 2
                return float(fields[-1]) / 1e6 if size == 8 else float(fields[5]) * MIB / 1e9
        raise Missing("ucx_perftest printed no final line")
    return run


def libfabric(provider, iterations):
    """The round trip of 8 bytes in us (fi_pingpong prints the half). It listens on every address."""
    def run(lab):
        enter, port = lab.loopback_only(), free_port()
        command = [lab.installed("fi_pingpong"), "-p", provider, "-e", "rdm", "-I", str(iterations), "-S", "8"]
        text = lab.pair([*enter, "taskset", "-c", FAR, *command, "-B", port],
                        [*enter, "taskset", "-c", NEAR, *command, "-P", port, "127.0.0.1"], delay_s=0.3)
        for line in text.splitlines():
            fields = line.split()
            if len(fields) == 8 and fields[0] == "8":
                return float(fields[6]) * 2
        raise Missing("fi_pingpong printed no line of figures")
    return run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return str(s.getsockname()[1])


def epoll(cpus):
    return limit("wake", f"wake.process.epoll.{cpus}cpu.rtt.p50")


# Same host: sizes of bulk transfers, and how many of them.
BULK = {"4KiB": (4096, 400000), "64KiB": (65536, 100000), "1MiB": (MIB, 8000), "64MiB": (64 * MIB, 100)}


def _local():
    """What goes through the memory of one host, and what is measured beside it."""
    found = {"local-send-8B": verbs("send", "latency", 300000, "local"),
             "local-send-8B-single": verbs("send", "latency", 300000, "local", threads="single"),
             "local-send-8B-operations": verbena("send", "latency", 8, 300000, path="local"),
             "local-write-8B": verbena("write", "latency", 8, 300000, path="local"),
             "local-send-8B-rate": verbs("send", "rate", 5000000, "local"),
             "local-send-8B-operations-rate": rate(verbena("send", "bandwidth", 8, 5000000, depth=128, path="local"),
                                                   8),
             "local-send-8B-adaptive": verbena("send", "latency", 8, 300000, path="local", wait="adaptive"),
             "libfabric-shm": libfabric("shm", 20000),
             "ucx-posix-tag": ucx("tag_lat", 8, 300000, "posix"),
             "ucx-posix-am": ucx("ucp_am_lat", 8, 300000, "posix"),
             "uct-posix-am": ucx("am_lat", 8, 300000, "posix", latency=True),
             "ucx-posix-put": ucx("ucp_put_lat", 8, 300000, "posix"),
             "ucx-posix-tag-rate": ucx("tag_bw", 8, 2000000, "posix"),
             "ucx-posix-am-rate": ucx("ucp_am_bw", 8, 2000000, "posix"),
             "uct-posix-am-rate": ucx("am_bw", 8, 2000000, "posix", latency=False)}
    for size, (count, iterations) in BULK.items():
        found[f"memcpy-{size}"] = limit("memcpy", f"memcpy.{size}")
        found[f"ucx-posix-put-{size}"] = ucx("ucp_put_bw", count, iterations // 2, "posix")
        found[f"local-send-{size}"] = verbena("send", "bandwidth", count, iterations // 2, path="local")
        for op in ("write", "read"):
            # As what it is compared with: beside a peer of UCX's, which polls, or beside nobody.
            wait = "busy" if size == "4KiB" else "event"
            by = verbs(op, "bandwidth", iterations // 2, "local", count, wait) if count <= MIB else \
                verbena(op, "bandwidth", count, iterations // 2, path="local")
            found[f"local-{op}-{size}"] = by
            found[f"local-{op}-{size}-posted"] = verbena(op, "bandwidth", count, iterations // 2, path="local",
                                                         posted="yes")
    for size in ("64KiB", "1MiB"):
        count, iterations = BULK[size]
        for posted, also in (("no", ""), ("yes", "-posted")):
            read = verbena("read", "bandwidth", count, iterations // 4, path="local", wait="event", posted=posted,
                           memory="registered", name=EACH)
            found |= in_turns(read, {f"local-read-{size}-registered{also}": "figure",
                                     f"process-vm-readv-{size}{also}": "figure.process_vm_readv"})
    for size in ("4KiB", "64KiB", "1MiB"):
        count, iterations = BULK[size]
        found[f"local-send-{size}-latency"] = verbena("send", "latency", count, iterations // 10, path="local")
        for tls in ("posix", "posix,cma"):
            found[f"ucx-{tls}-tag-{size}"] = ucx("tag_bw", count, iterations // 2, tls)
            found[f"ucx-{tls}-tag-{size}-latency"] = ucx("tag_lat", count, iterations // 10, tls, latency=True)
    for number, cpus in (("1", (NEAR, NEAR)), ("2", (NEAR, FAR))):
        found[f"local-send-8B-event-{number}cpu"] = verbs("send", "latency", 20000, "local", wait="event", cpus=cpus)
        found[f"local-send-8B-event-{number}cpu-operations"] = verbena("send", "latency", 8, 20000, path="local",
                                                                       cpus=cpus, wait="event")
        found[f"epoll-{number}cpu"] = epoll(number)
    return found


# The protocol that is fastest for small messages.
FASTEST = "buffered-write/reversed"


def _messages():
    found = {"message-8B": message(FASTEST, "latency", 8, 300000),
             "message-8B-rate": message(FASTEST, "bandwidth", 8, 5000000, batch=16, name="figure.rate"),
             "message-direct-read-1MiB": message("direct-read", "bandwidth", MIB, 16000, depth=16),
             "zeromq-8B": zeromq("latency", 20000),
             "zeromq-8B-rate": zeromq("rate", 2000000)}
    found["message-udp-fastest-8B"] = message(FASTEST, "latency", 8, 50000, "lo")
    for protocol in ("send-receive", "buffered-write"):
        found[f"message-udp-{protocol}-8B"] = message(protocol, "latency", 8, 50000, "lo")
        # More buffers than keep the pipe full only fall out of the cache before they are sent.
        for memory in ("lent", "copied"):
            found[f"message-udp-{protocol}-1MiB-{memory}"] = message(protocol, "bandwidth", MIB, 2000, "lo", depth=4,
                                                                    memory=memory)
    for protocol in ("buffered-write", "shared-write", "shared-receive"):
        found[f"message-memory-{protocol}"] = message_memory(protocol, 64)
    return found


PLAIN = ("udp-send-8B", "udp-write-8B", "udp-send-8B-rate", "udp-send-1MiB", "udp-write-1MiB", "udp-read-1MiB")

FIGURES = {
    **_local(),
    **_messages(),
    "line": limit("line", "line.process.rtt.p50"),
    "udp-send-8B": verbs("send", "latency", 50000),
    "udp-send-8B-operations": verbena("send", "latency", 8, 50000),
    "udp-write-8B": verbs("write", "latency", 50000),
    "udp-write-8B-operations": verbena("write", "latency", 8, 50000),
    "udp-send-8B-rate": verbs("send", "rate", 3000000),
    "udp-send-8B-operations-rate": rate(verbena("send", "bandwidth", 8, 600000, depth=128), 8),
    "udp-send-1MiB": verbena("send", "bandwidth", MIB, 2000),
    "udp-write-1MiB": verbena("write", "bandwidth", MIB, 2000),
    "udp-write-1MiB-1KiB": verbena("write", "bandwidth", MIB, 1500, mtu=1024),
    "udp-write-1MiB-calls": verbena("write", "bandwidth", MIB, 500, name="figure.system_calls"),
    "udp-read-1MiB": verbena("read", "bandwidth", MIB, 2000),
    "udp-read-1MiB-1KiB": verbena("read", "bandwidth", MIB, 1500, mtu=1024),
    "veth-send-8B": verbs("send", "latency", 50000, "veth"),
    "veth-write-8B": verbs("write", "latency", 50000, "veth"),
    "veth-write-1MiB": verbena("write", "bandwidth", MIB, 2000, path="veth"),
    "veth-read-1MiB": verbena("read", "bandwidth", MIB, 2000, path="veth"),
    "veth-udp-pingpong": ping_pong("udp", "veth"),
    "veth-tcp-pingpong": ping_pong("tcp", "veth"),
    "veth-ceiling": ceiling(4096, path="veth"),
    "veth-ucx-tcp-tag": ucx("tag_lat", 8, 30000, path="veth"),
    "veth-ucx-tcp-put": ucx("ucp_put_lat", 8, 15000, path="veth"),
    "simulated": simulated,
    "connections": capacity("connections"),
    "local-connections": capacity("connections", "local"),
    "idle-cpu": capacity("idle_cpu"),
    "local-idle-cpu": capacity("idle_cpu", "local"),
    "local-idle-cpu-adaptive": capacity("idle_cpu_adaptive", "local"),
    "local-peer-death": capacity("peer_death", "local"),
    "shards-one": together("bench_shards", "one"),
    "shards-two": together("bench_shards", "two"),
    "shards-udp-one": together("bench_shards", "one", "roce"),
    "shards-udp-two": together("bench_shards", "two", "roce"),
    "bare-packet-rate": rate(ceiling(24, ("raw",)), 24),  # SEND of 8 bytes: 12 header, 8 payload, 4 CRC
    "form-polled": together("bench_forms", "polled"),
    "form-callback": together("bench_forms", "callback"),
    "form-awaited": together("bench_forms", "awaited"),
    "bare-udp-pingpong": ping_pong("udp"),
    "busy-tcp-pingpong": ping_pong("tcp"),
    "framed-ceiling-1KiB": ceiling(1024),
    "framed-ceiling-4KiB": ceiling(4096),
    "iperf3-tcp": iperf3(clamped=True),
    "iperf3-tcp-autotuned": iperf3(clamped=False),
    "ucx-tcp-tag": ucx("tag_lat", 8, 30000),
    "ucx-tcp-put": ucx("ucp_put_lat", 8, 15000),
    "ucx-tcp-tag-rate": ucx("tag_bw", 8, 300000),
    "ucx-tcp-tag-bw": ucx("tag_bw", MIB, 1500),
    "ucx-tcp-put-bw": ucx("ucp_put_bw", MIB, 1500),
    "ucx-tcp-get-bw": ucx("ucp_get", MIB, 800),
}
FIGURES |= {f"plain-{figure}": plain(FIGURES[figure]) for figure in PLAIN}

# What the machine allows, and the verbs under a message protocol: measured around what is compared with them.
BRACKETS = {
    "line", "memcpy-64KiB", "memcpy-1MiB", "memcpy-64MiB",
    "local-send-8B-operations", "local-read-1MiB-posted", "epoll-1cpu", "epoll-2cpu",
    "bare-udp-pingpong", "framed-ceiling-1KiB", "framed-ceiling-4KiB", "bare-packet-rate", "veth-udp-pingpong",
    "veth-ceiling", *PLAIN,
}


def _local_rows():
    yield Row("local.send.8B.latency", "us", "local-send-8B", "line", "<= against + 0.3")
    for peer in ("ucx-posix-tag", "ucx-posix-am", "uct-posix-am"):
        yield Row("local.send.8B.latency", "us", "local-send-8B", peer, "<= 1")
        yield Row("local.send.8B.single-threaded.latency", "us", "local-send-8B-single", peer, "<= 1")
    yield Row("local.send.8B.latency", "us", "local-send-8B", "libfabric-shm", "<= 1")
    yield Row("local.send.8B.operations.latency", "us", "local-send-8B-operations", "ucx-posix-tag", "<= 1")
    yield Row("local.send.8B.operations.adaptive.latency", "us", "local-send-8B-adaptive", "local-send-8B-operations",
              "<= 1.1")
    yield Row("local.send.8B.operations.rate", "M/s", "local-send-8B-operations-rate", "ucx-posix-am-rate", ">= 1")
    yield Row("local.write.8B.latency", "us", "local-write-8B", "line", "<= against + 0.06")
    yield Row("local.write.8B.latency", "us", "local-write-8B", "ucx-posix-put", "<= 1")
    yield Row("local.send.8B.rate", "M/s", "local-send-8B-rate", goal=">= 10")
    for peer in ("ucx-posix-am-rate", "uct-posix-am-rate"):
        yield Row("local.send.8B.rate", "M/s", "local-send-8B-rate", peer, ">= 1")
    for op in ("write", "read"):
        yield Row(f"local.{op}.4KiB.bandwidth", "GB/s", f"local-{op}-4KiB", "ucx-posix-put-4KiB", ">= 1")
        for size in ("64KiB", "1MiB", "64MiB"):
            yield Row(f"local.{op}.{size}.bandwidth", "GB/s", f"local-{op}-{size}", f"memcpy-{size}", ">= 0.95")
        if op == "read":
            for size in ("64KiB", "1MiB"):
                for posted, also in (("", ""), ("posted.", "-posted")):
                    yield Row(f"local.read.{size}.registered.{posted}bandwidth", "GB/s",
                              f"local-read-{size}-registered{also}", f"process-vm-readv-{size}{also}", ">= 0.95")
        for size in ("4KiB", "64KiB", "1MiB"):
            yield Row(f"local.{op}.{size}.posted.bandwidth", "GB/s", f"local-{op}-{size}-posted", f"memcpy-{size}")
    for size in ("4KiB", "64KiB", "1MiB"):
        for tls in ("posix", "posix,cma"):
            yield Row(f"local.send.{size}.bandwidth", "GB/s", f"local-send-{size}", f"ucx-{tls}-tag-{size}", ">= 1")
            yield Row(f"local.send.{size}.latency", "us", f"local-send-{size}-latency",
                      f"ucx-{tls}-tag-{size}-latency", "<= 1")
    for number in ("1", "2"):
        yield Row(f"local.send.8B.event.{number}cpu.latency", "us", f"local-send-8B-event-{number}cpu",
                  f"epoll-{number}cpu", "<= 1.2")
        yield Row(f"local.send.8B.operations.event.{number}cpu.latency", "us",
                  f"local-send-8B-event-{number}cpu-operations", f"epoll-{number}cpu")


def _shard_rows():
    yield Row("local.send.8B.two-threads.rate", "M/s", "shards-two", "shards-one", ">= 1.6")
    yield Row("udp.send.8B.two-threads.rate", "M/s", "shards-udp-two", "shards-udp-one", ">= 1.6")


def _message_rows():
    yield Row("message.local.8B.latency", "us", "message-8B", "line", "<= against + 0.15")
    for peer in ("ucx-posix-tag", "ucx-posix-am", "zeromq-8B"):
        yield Row("message.local.8B.latency", "us", "message-8B", peer, "<= 1")
    yield Row("message.local.8B.rate", "M/s", "message-8B-rate", goal=">= 10")
    for peer in ("ucx-posix-tag-rate", "ucx-posix-am-rate", "uct-posix-am-rate", "zeromq-8B-rate"):
        yield Row("message.local.8B.rate", "M/s", "message-8B-rate", peer, ">= 1")
    yield Row("message.local.direct-read.1MiB.bandwidth", "GB/s", "message-direct-read-1MiB", "local-read-1MiB-posted",
              ">= 0.9")
    for protocol, verb in (("send-receive", "send"), ("buffered-write", "write")):
        yield Row(f"message.udp.{protocol}.8B.latency", "us", f"message-udp-{protocol}-8B", f"udp-{verb}-8B", "<= 1.25")
        yield Row(f"message.udp.{protocol}.1MiB.lent.bandwidth", "GB/s", f"message-udp-{protocol}-1MiB-lent",
                  f"udp-{verb}-1MiB", ">= 0.8")
        yield Row(f"message.udp.{protocol}.1MiB.copied.bandwidth", "GB/s", f"message-udp-{protocol}-1MiB-copied",
                  f"udp-{verb}-1MiB")
    yield Row(f"message.udp.{FASTEST}.8B.latency", "us", "message-udp-fastest-8B", "udp-write-8B", "<= 1.25")
    for protocol in ("shared-write", "shared-receive"):
        yield Row(f"message.{protocol}.64-senders.memory", "KiB", f"message-memory-{protocol}",
                  "message-memory-buffered-write", "<= 0.125")


def _rows():
    yield from _local_rows()
    yield from _shard_rows()
    yield from _message_rows()
    for op, ucx_peer in (("send", "ucx-tcp-tag"), ("write", "ucx-tcp-put")):
        yield Row(f"udp.{op}.8B.latency", "us", f"udp-{op}-8B", "bare-udp-pingpong", "<= 1.3")
        for peer in ("busy-tcp-pingpong", ucx_peer):
            yield Row(f"udp.{op}.8B.latency", "us", f"udp-{op}-8B", peer, "<= 1")
        yield Row(f"udp.{op}.8B.operations.latency", "us", f"udp-{op}-8B-operations", ucx_peer, "<= 1")
    for op, goal in (("write", ">= 0.85"), ("read", ">= 0.80")):
        yield Row(f"udp.{op}.1MiB.bandwidth", "GB/s", f"udp-{op}-1MiB", "framed-ceiling-4KiB", goal)
        yield Row(f"udp.{op}.1MiB.mtu1024.bandwidth", "GB/s", f"udp-{op}-1MiB-1KiB", "framed-ceiling-1KiB", goal)
    for peer in ("iperf3-tcp", "ucx-tcp-put-bw"):
        yield Row("udp.write.1MiB.bandwidth", "GB/s", "udp-write-1MiB", peer, ">= 1")
    yield Row("udp.write.1MiB.bandwidth", "GB/s", "udp-write-1MiB", "iperf3-tcp-autotuned")
    for peer in ("iperf3-tcp", "iperf3-tcp-autotuned", "ucx-tcp-get-bw"):
        yield Row("udp.read.1MiB.bandwidth", "GB/s", "udp-read-1MiB", peer)
    yield Row("udp.send.1MiB.bandwidth", "GB/s", "udp-send-1MiB", "ucx-tcp-tag-bw", ">= 1")
    yield Row("udp.send.8B.rate", "M/s", "udp-send-8B-rate", "bare-packet-rate", ">= 0.8")
    yield Row("udp.send.8B.rate", "M/s", "udp-send-8B-rate", "ucx-tcp-tag-rate", ">= 1")
    yield Row("udp.send.8B.operations.rate", "M/s", "udp-send-8B-operations-rate", "ucx-tcp-tag-rate", ">= 1")
    for op, goal in (("write", ">= 0.85"), ("read", ">= 0.80")):
        yield Row(f"veth.{op}.1MiB.bandwidth", "GB/s", f"veth-{op}-1MiB", "veth-ceiling", goal)
    for op, ucx_peer in (("send", "veth-ucx-tcp-tag"), ("write", "veth-ucx-tcp-put")):
        yield Row(f"veth.{op}.8B.latency", "us", f"veth-{op}-8B", "veth-udp-pingpong", "<= 1.3")
        for peer in ("veth-tcp-pingpong", ucx_peer):
            yield Row(f"veth.{op}.8B.latency", "us", f"veth-{op}-8B", peer, "<= 1")
    for op in ("send", "write"):
        yield Row(f"plain.udp.{op}.8B.latency", "us", f"plain-udp-{op}-8B", f"udp-{op}-8B", "<= 1.05")
    yield Row("plain.udp.send.8B.rate", "M/s", "plain-udp-send-8B-rate", "udp-send-8B-rate", ">= 0.95")
    for op in ("send", "write", "read"):
        yield Row(f"plain.udp.{op}.1MiB.bandwidth", "GB/s", f"plain-udp-{op}-1MiB", f"udp-{op}-1MiB", ">= 0.95")
    yield Row("udp.write.1MiB.system-calls", "1/MiB", "udp-write-1MiB-calls")
    yield Row("library.connections.rate", "1/s", "connections", goal=">= 1000")
    yield Row("local.connections.rate", "1/s", "local-connections", goal=">= 1000")
    yield Row("library.idle.processor", "%", "idle-cpu", goal="<= 0.1")
    yield Row("local.idle.processor", "%", "local-idle-cpu", goal="<= 0.1")
    yield Row("local.idle.adaptive.processor", "%", "local-idle-cpu-adaptive", goal="<= 0.1")
    yield Row("local.peer-death.time", "ms", "local-peer-death", goal="<= 100")
    for name in ("callback", "awaited"):
        yield Row(f"form.{name}.write.8B", "ns", f"form-{name}", "form-polled", "<= against + 30")
    yield Row("form.awaited.write.8B", "ns", "form-awaited", "form-callback", "<= against + 30")
    for name in ("callback", "awaited"):
        yield Row("form.polled.write.8B", "ns", "form-polled", f"form-{name}", "<= against + 30")
    yield Row("sim.packets.rate", "M/s", "simulated", goal=">= 0.5")
    # What the machine allows and what others do on it, for the eye: no goal, nothing to compare with.
    yield Row("context.line.latency", "us", "line")
    yield Row("context.udp-pingpong.8B.latency", "us", "bare-udp-pingpong")
    yield Row("context.tcp-pingpong.8B.latency", "us", "busy-tcp-pingpong")
    yield Row("context.ucx-tcp-tag.8B.latency", "us", "ucx-tcp-tag")
    yield Row("context.ucx-tcp-put.8B.latency", "us", "ucx-tcp-put")
    yield Row("context.framed-ceiling.1KiB.bandwidth", "GB/s", "framed-ceiling-1KiB")
    yield Row("context.framed-ceiling.4KiB.bandwidth", "GB/s", "framed-ceiling-4KiB")
    yield Row("context.memcpy.64KiB.bandwidth", "GB/s", "memcpy-64KiB")
    yield Row("context.memcpy.1MiB.bandwidth", "GB/s", "memcpy-1MiB")
    yield Row("context.iperf3-tcp.bandwidth", "GB/s", "iperf3-tcp")
    yield Row("context.iperf3-tcp-autotuned.bandwidth", "GB/s", "iperf3-tcp-autotuned")
    yield Row("context.ucx-tcp-put.1MiB.bandwidth", "GB/s", "ucx-tcp-put-bw")
    yield Row("context.ucx-tcp-get.1MiB.bandwidth", "GB/s", "ucx-tcp-get-bw")


ROWS = list(_rows())
