# SPDX-License-Identifier: Apache-2.0
"""Full disks: a small file system in a namespace of its own."""

import json
import os
import subprocess
import sys

from command import Server, check, leftovers, main, say, unshare, write_file

MIB = 1 << 20


def again_with_a_small_disk(setting, test):
    """Runs this script once more where a tmpfs of 4 MiB stands at the end of the arguments."""
    os.makedirs(setting.path("disk"))
    words = unshare("-Urm")
    script = f'mount -t tmpfs -o size=4m none "$0" && exec "$@"'
    done = subprocess.run([*words, "sh", "-c", script, setting.path("disk"), sys.executable, "-B", __file__,
                           setting.bin, "--inside", test, setting.folder], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    output = done.stdout.decode()
    check(done.returncode == 0 and "FAILED" not in output, output)
    say(output.strip().splitlines()[0])


def outside_files(setting):
    write_file(setting.path("big", "1-small"), MIB)
    write_file(setting.path("big", "2-large"), 20 * MIB)
    write_file(setting.path("big", "3-small"), MIB)


def get_to_a_full_disk(setting):
    outside_files(setting)
    again_with_a_small_disk(setting, "get")


def put_to_a_full_disk(setting):
    outside_files(setting)
    again_with_a_small_disk(setting, "put")


def inside(folder, command):
    """In the namespace: one file of three does not fit; the others arrive, nothing is left of it."""
    def test(setting):
        disk = os.path.join(folder, "disk")
        big = os.path.join(folder, "big")
        server = Server(setting, "serve", big if command == "get" else disk, "--writable")
        words = ("get", server.url(""), os.path.join(disk, "t")) if command == "get" else ("put", big, server.url("t"))
        output, errors = setting.run(*words, "--json", status=1)
        result = json.loads(output)
        check(result["failed"] == 1 and result["files"] == 2, output + errors)
        check("No space left on device" in errors and "2-large" in errors, errors)
        there = sorted(os.listdir(os.path.join(disk, "t")))
        check(there == ["1-small", "3-small"], there)
        check(not leftovers(disk), leftovers(disk))
        free = os.statvfs(disk)
        check(free.f_bavail * free.f_bsize >= MIB, "the space did not come back")
        server.stop()
        say(f"{command}: {errors.splitlines()[0]}")
    test.__name__ = command
    return test


if __name__ == "__main__":
    if "--inside" in sys.argv:
        main(inside(sys.argv[-1], sys.argv[-2]))
    else:
        main(get_to_a_full_disk, put_to_a_full_disk)
