# SPDX-License-Identifier: Apache-2.0
"""Standard output and error that nobody reads, or that a full device does not take."""

import os
import signal
import subprocess

from command import PATIENCE, Server, check, digest, main, say, write_file


def status_of(setting, *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
    done = subprocess.run(setting.command(*words), stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                          timeout=PATIENCE, check=False)
    return done.returncode


def closed_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "wb")


def a_reader_that_has_seen_enough_ends_nothing_badly(setting):
    for words in (("sim", "--seed", "42", "--trace"), ("sim", "--seed", "42"), ("devices", "--json"), ("--help",)):
        with open("/dev/full", "wb") as full:
            check(status_of(setting, *words, stdout=full) == 1, f"{words} to {full.name}")
        with closed_pipe() as gone:
            done = subprocess.run(setting.command(*words), stdout=gone, stderr=subprocess.PIPE, timeout=PATIENCE,
                                  check=False)
            check(done.returncode == -signal.SIGPIPE and not done.stderr, f"{words}: {done.returncode} {done.stderr}")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(setting.command("sim"), stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE,
                              check=False)
    check(done.returncode == 1 and b"output" in done.stderr, done.stderr)
    with subprocess.Popen(setting.command("sim", "--seed", "42", "--trace"), stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as traced:
        check(traced.stdout.readline(), "no trace")
        traced.stdout.close()
        check(traced.wait(PATIENCE) == -signal.SIGPIPE, "the trace's reader left")
    say("a full device: status 1 and a word about it; a reader that left: as SIGPIPE ends a program")


def errors_nobody_takes_leave_the_status(setting):
    server = Server(setting, "serve", setting.folder)
    for words, status in ((("get", server.url("none"), setting.path("x")), 1), (("get", "nonsense", "x"), 2)):
        with closed_pipe() as gone, open("/dev/full", "wb") as full:
            for where in (gone, full):
                check(status_of(setting, *words, stderr=where) == status, f"{words} to {where.name}")
    server.stop()
    say("1 and 2 as ever")


def a_server_outlives_the_reader_of_its_words(setting):
    write_file(setting.path("served", "file"), 300_000)
    for where in (closed_pipe(), open("/dev/full", "wb")):
        with where:
            server = Server(setting, "serve", setting.path("served"), "--writable", "-v", stderr=where)
        server.process.stdout.close()
        for number in range(3):
            setting.run("get", server.url("none"), setting.path("none"), status=1)
            setting.run("get", server.url("file"), setting.path("got"), "--force")
            setting.run("put", setting.path("got"), server.url(f"up{number}"), "--force")
            check(digest(setting.path("served", f"up{number}")) == digest(setting.path("served", "file")), "content")
        server.stop()
    server = Server(setting, "ping", "-s")
    server.process.stdout.close()
    for _ in range(3):
        setting.run("ping", server.address, "-c", "1")
    check(server.alive(), "the ping server ended")
    server.stop(expected=-signal.SIGPIPE)
    say("served on, with standard error closed and full, and with standard output closed")


if __name__ == "__main__":
    main(a_reader_that_has_seen_enough_ends_nothing_badly, errors_nobody_takes_leave_the_status,
         a_server_outlives_the_reader_of_its_words)
