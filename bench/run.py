#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Verbena beside what one would use instead, and beside what the machine allows.

Every round measures everything, one after the other; a ratio is taken within a round, and a row shows medians
over the rounds. Odd rounds run in the order of the table, even ones backwards. What the machine allows is measured
before and after each figure that is compared with it: its speed changes within seconds. Both processes of a
measurement are pinned, to CPU 0 and CPU 1, and their receive buffers are clamped to 212,992 bytes, ours and the peer's
alike.

The contract of bench_verbena, the program that measures the library
--------------------------------------------------------------------
  bench_verbena server OPTIONS
  bench_verbena client --connect TOKEN --name METRIC OPTIONS

OPTIONS are the same on both sides, each "--key value"; an unknown key is an error (exit 2):
  --transport udp|local  between the two processes: packets, or memory of one host; never another than asked for
  --op send|write|read   the operation measured
  --test latency|bandwidth
  --size BYTES           bytes per message
  --iterations N         round trips (latency) or messages (bandwidth); the first tenth, of messages DEPTH at least, is
                         warm-up and left out
  --depth N              messages outstanding at a time (bandwidth)
  --memory allocated|registered  by Verbena, which a peer of this host reaches; or the program's own, which the kernel
                         copies to and from its process. READs within the host of the program's own are taken in turns
                         with the bare process_vm_readv, NAME.process_vm_readv, of the same pages; all of them count
  --posted yes|no        WRITE and READ within the host are requests even where they need not be; no unless told
                         otherwise
  --mtu BYTES            payload of a full packet: 1024 or 4096
  --rcvbuf BYTES         to be handed to SO_RCVBUF of every receiving socket; Linux doubles it (106496 -> 212,992)
  --device ADDRESS       the address to use, where it is not to be a free one of loopback
  --wait busy|event|adaptive  how both sides wait; busy unless told otherwise
  --cpu N                the CPU to be pinned to; every thread that works during the measurement stays on it

The server prints "ready<TAB>TOKEN<TAB>address" when a client may come, and flushes. TOKEN has no white space; what
is in it is between the two programs (verbena://127.0.0.1:7471/, say). It binds loopback addresses unless told
otherwise, serves one client, and exits 0 when that has left. Both sides busy-poll, the passive one too, unless told
otherwise.

The client prints on standard output, and nothing else there ("<TAB>" is one tab, NAME is the value of --name):
  latency     NAME.p50<TAB>VALUE<TAB>us   and NAME.p99; VALUE is the whole round trip, not the half
  bandwidth   NAME<TAB>VALUE<TAB>GB/s     payload bytes that arrived / time, 1 GB = 1e9 bytes
              NAME.system_calls           sends, and receives that found something, per MiB; or, of READ of memory that
                                          is registered, within the host:
              NAME.process_vm_readv       the bare call, of the same bytes, in turns with them
and exits 0; anything else counts as no result, and standard error says why.

What a round trip is. SEND: the client posts SIZE bytes; the server sees the receive completion and posts SIZE bytes
back; the client sees its receive completion. WRITE: the client writes SIZE bytes with a new last byte; the server
sees that byte in its memory and writes SIZE bytes back; the client sees the byte in its own memory. Each round trip
is timed by itself with CLOCK_MONOTONIC.

What bandwidth is. DEPTH messages are kept outstanding, each posted from (READ: to) a registered buffer of the client,
short ones inline, and written to (READ: read from) one of the server; the time runs from the completion of the
warm-up's last to that of the last of all. A WRITE or READ that needs no request is done one after the other instead.
"""
import argparse
import fnmatch
import json
import os
import signal
import statistics
import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent))

ROOT = Path(__file__).resolve().parent.parent

import figures  # noqa: E402
from lab import Lab, Missing  # noqa: E402


def wanted(row, pattern):
    if not pattern:
        return True
    return fnmatch.fnmatch(row.name, pattern) if any(c in pattern for c in "*?[") else pattern in row.name


def measure(lab, rows, runs):
    """A list of {figure: value} with one entry per round; a figure without a result is not in it. (figure, against) is
    what one of figures.BRACKETS gave around that figure."""
    order = list(dict.fromkeys(f for row in rows for f in (row.figure, row.against) if f))
    brackets = {row.figure: row.against for row in rows if row.against in figures.BRACKETS}
    told, rounds = set(), []

    def take(number, figure):
        print(f"round {number}/{runs}  {figure:<40}", end="\r" if sys.stderr.isatty() else "\n", file=sys.stderr)
        try:
            return lab.quietly(figures.FIGURES[figure])
        except Missing as why:
            if (figure, str(why)) not in told:
                told.add((figure, str(why)))
                print(f"no result for {figure}: {why}", file=sys.stderr)
        return None

    for number in range(1, runs + 1):
        values, last = {}, (None, None)  # the last that was measured, and what it gave
        for figure in order if number % 2 else reversed(order):
            bracket = brackets.get(figure)
            around = []
            if bracket:
                around.append(last[1] if last[0] == bracket else take(number, bracket))
            values[figure] = value = take(number, figure)
            last = (figure, value)
            if bracket:
                last = (bracket, take(number, bracket))
                around = [sample for sample in (*around, last[1]) if sample is not None]
                values[figure, bracket] = statistics.mean(around) if around else None
        rounds.append({key: value for key, value in values.items() if value is not None})
    return rounds


def evaluate(row, rounds):
    """The row as it goes into the JSON file."""
    ours = [r[row.figure] for r in rounds if row.figure in r]
    against = [r.get((row.figure, row.against), r.get(row.against)) for r in rounds]
    pairs = [(r[row.figure], other) for r, other in zip(rounds, against) if row.figure in r and other is not None]
    theirs = [other for other in against if other is not None]
    out = {"name": row.name, "value": rounded(statistics.median(ours)) if ours else None, "unit": row.unit,
           "against": row.against}
    if theirs:
        out["against_value"] = rounded(statistics.median(theirs))
    if pairs:
        out["ratio"] = rounded(statistics.median(a / b for a, b in pairs))
    out["goal"] = row.goal
    if row.goal and not ours:
        out["met"] = False  # a figure that could not be taken has not met anything
    elif row.goal and not row.against:
        out["met"] = figures.goal_met(row.goal, [(value, 1) for value in ours])
    elif row.goal and pairs:
        out["met"] = figures.goal_met(row.goal, pairs)
    out["spread"] = [rounded(min(ours)), rounded(max(ours))] if ours else None
    out["runs"] = len(ours)
    return out


def rounded(value):
    return float(f"{value:.4g}")


def table(results):
    def number(value):
        return "-" if value is None else f"{value:.4g}"

    head = ["figure", "value", "unit", "spread", "against", "value", "ratio", "goal", "met"]
    lines = []
    for r in results:
        spread = f"{number(r['spread'][0])} .. {number(r['spread'][1])}" if r["spread"] else "-"
        met = {True: "yes", False: "NO"}.get(r.get("met"), "-")
        lines.append([r["name"], number(r["value"]), r["unit"], spread, r["against"] or "-",
                      number(r.get("against_value")), number(r.get("ratio")), r["goal"] or "-", met])
    width = [max(len(line[i]) for line in [head] + lines) for i in range(len(head))]
    right = {1, 5, 6}
    for line in [head, ["-" * w for w in width]] + lines:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(line, width))]
        print("  ".join(cells).rstrip())


def main():
    p = argparse.ArgumentParser(prog="scripts/bench", description=__doc__.split("\n\n")[0],
                                epilog="Exits 1 when a goal is missed.")
    p.add_argument("--only", metavar="PATTERN",
                   help="rows whose name contains PATTERN, or matches it when it has * or ?")
    p.add_argument("--json", metavar="FILE", help="also write the rows as a JSON array")
    p.add_argument("--runs", metavar="N", type=int, default=5, help="rounds (default 5)")
    p.add_argument("--list", action="store_true", help="name the rows and leave")
    p.add_argument("--bin", default=ROOT / "build/release/bin", type=Path, help=argparse.SUPPRESS)
    p.add_argument("--plain-bin", default=ROOT / "build/plain/bin", type=Path, help=argparse.SUPPRESS)
    a = p.parse_args()
    rows = [r for r in figures.ROWS if wanted(r, a.only)]
    if not rows:
        p.error(f"no row is called like {a.only!r}")
    if a.runs < 1:
        p.error("--runs must be at least 1")
    if a.json and not Path(a.json).absolute().parent.is_dir():
        p.error(f"{a.json} is in no folder that exists")
    if a.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # whoever reads may have enough
        for r in rows:
            print(f"{r.name}\t{r.against or '-'}\t{r.goal or '-'}")
        return 0
    if len(os.sched_getaffinity(0)) < 2:
        print("fewer than two CPUs: two polling processes share one, and the figures mean little", file=sys.stderr)
    with Lab(a.bin, a.plain_bin) as lab:
        rounds = measure(lab, rows, a.runs)
    results = [evaluate(r, rounds) for r in rows]
    table(results)
    if lab.disturbed:
        print(f"\n{lab.disturbed} measurements were taken while other processes used the CPUs; compare with care.")
    if a.json:
        Path(a.json).write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(r.get("met") is False for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
