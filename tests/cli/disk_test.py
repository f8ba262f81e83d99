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


INCOMPLETE = "is incomplete: No space left on device"


def a_capture_that_cannot_be_written_fails_the_command(setting):
    write_file(setting.path("served", "file"), 1000)
    full = ("--pcap", "/dev/full")
    plain = Server(setting, "serve", setting.path("served"), "--writable")
    pinged = Server(setting, "ping", "-s")
    for words in (("get", plain.url("file"), setting.path("got")), ("put", setting.path("got"), plain.url("up")),
                  ("ping", pinged.address, "-c", "1"), ("sim", "--seed", "1"),
                  ("devices", "-v", "--device", "soft-lo")):
        _, errors = setting.run(*words, *full, status=1)
        check(errors.startswith(f"verbena {words[0]}: the capture /dev/full {INCOMPLETE}\n"), errors)
        check("Free some space" in errors, errors)
    check(os.path.getsize(setting.path("served", "up")) == 1000, "the transfer itself")
    plain.stop()
    pinged.stop()
    pinged = Server(setting, "rping", "-s")
    host, port = pinged.address.rsplit(":", 1)
    _, errors = setting.run("rping", "-c", "-a", host, "-p", port, "-C", "1", *full, status=1)
    check(errors.startswith(f"verbena rping: the capture /dev/full {INCOMPLETE}\n"), errors)
    for words in (("serve", setting.path("served")), ("ping", "-s"), ("pingpong",)):
        server = Server(setting, *words, *full)
        if words[0] == "serve":
            setting.run("get", server.url("file"), setting.path("got"), "--force")
        server.stop(expected=1)  # pingpong has nobody to play with, too
        check(INCOMPLETE in server.errors(), server.errors())
    say(errors.splitlines()[0])


def a_capture_that_fills_the_disk_fails_the_command(setting):
    write_file(setting.path("big", "file"), 20 * MIB)
    again_with_a_small_disk(setting, "capture")


def inside_capture(folder):
    """In the namespace: the file arrives outside the disk, its packets do not fit on it."""
    def capture(setting):
        pcap = os.path.join(folder, "disk", "pcap")
        server = Server(setting, "serve", os.path.join(folder, "big"))
        _, errors = setting.run("get", server.url("file"), setting.path("got"), "--pcap", pcap, status=1)
        check(f"the capture {pcap} {INCOMPLETE}" in errors, errors)
        check(os.path.getsize(setting.path("got")) == 20 * MIB and os.path.getsize(pcap) > MIB, "sizes")
        os.remove(pcap)
        # A program that says nothing of it.
        quiet = " ".join(setting.command("get", server.url("file"), setting.path("again"))) + " 2>/dev/null; true"
        _, told = setting.run("capture", "-w", pcap, "--", "sh", "-c", quiet, status=1)
        check(f"verbena capture: {pcap} is incomplete: it ends within a packet\n" in told, told)
        server.stop()
        say(errors.splitlines()[0])
    return capture


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
        folder, command = sys.argv[-1], sys.argv[-2]
        main(inside_capture(folder) if command == "capture" else inside(folder, command))
    else:
        main(get_to_a_full_disk, put_to_a_full_disk, a_capture_that_cannot_be_written_fails_the_command,
             a_capture_that_fills_the_disk_fails_the_command)
