# SPDX-License-Identifier: Apache-2.0
"""Verbena against the Linux kernel's RDMA stack in a guest. scripts/interop starts it, in namespaces of its own."""

import argparse
import os
import shutil
import signal
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import cm_cases  # noqa: E402
import goodput  # noqa: E402
import matrix_cases  # noqa: E402
import tool_cases  # noqa: E402
from guest import Guest, GuestError, prepare_rxe  # noqa: E402
from wire import Wire  # noqa: E402
from world import World  # noqa: E402


def run_case(world, name, case, again):
    """With `again`, a case that failed has a second try, and the first is shown."""
    return run_once(world, name, case) or (again and run_once(world, name + ", second try", case))


def run_once(world, name, case):
    started = time.monotonic()
    try:
        detail, ok = case(world) or "", True
    except GuestError as error:
        detail, ok = str(error), False
    except Exception:  # pylint: disable=broad-except
        detail, ok = traceback.format_exc(), False
    seconds = time.monotonic() - started
    print(f"{'ok    ' if ok else 'FAILED'} {seconds:6.1f} s  {name}", flush=True)
    if detail:
        print("  " + detail.rstrip().replace("\n", "\n  "), flush=True)
    return ok


def together():
    """Cases that do not disturb each other."""
    return [*matrix_cases.cases(), *tool_cases.cases(), *cm_cases.cases()]


def alone(wire):
    """Cases that change the link or the guest for everybody, in this order."""
    yield "wire: ICRC and dissection of every packet so far", wire.judge if wire else None
    yield "goodput under loss beside rxe", goodput.case


def interrupted(*_):
    """This is the first process of its namespaces: all others end with it, and the tap too."""
    print("interop: interrupted", flush=True)
    os._exit(130)


def main():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    try:
        return run(parse())
    except GuestError as error:  # what keeps it from running at all, in one line
        print(f"interop: {error}")
        return 1


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="names of the cases")
    parser.add_argument("--programs", type=Path)
    parser.add_argument("--image", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--again", action="store_true", help="a second try for a case that failed")
    parser.add_argument("--jobs", type=int, default=6)
    return parser.parse_args()


def run(options):
    at_once = [named for named in together() if options.only in named[0]]
    if options.list:
        print("\n".join(name for name, _ in together() + list(alone(None))))
        return 0
    if not at_once and not any(options.only in name for name, _ in alone(None)):
        raise GuestError(f"no case has {options.only!r} in its name; --list shows them")
    shutil.rmtree(options.folder, ignore_errors=True)
    started = time.monotonic()
    with Guest(options.image, options.folder) as guest:
        world = World(guest, options.programs, options.folder, prepare_rxe(guest))
        kernel = guest.run("uname -r").strip()
        print(f"the guest runs {kernel}, up after {time.monotonic() - started:.1f} s", flush=True)
        wire = Wire(options.folder)
        one_by_one = [named for named in alone(wire) if options.only in named[0]]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(lambda named: run_case(world, *named, options.again), at_once))
        results += [run_case(world, *named, options.again) for named in one_by_one]
    failed = results.count(False)
    print(f"{time.monotonic() - started:.1f} s")
    if failed or not results:
        print(f"interop: FAILED, {failed} of {len(results)} cases; what the programs said: {options.folder}")
        return 1
    print(f"interop: ok, {len(results)} cases")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("LC_ALL", "C.UTF-8")
    sys.exit(main())
