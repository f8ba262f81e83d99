# SPDX-License-Identifier: Apache-2.0
"""Peers that lie: a client and a server that break the file protocol in every way, before an honest other side."""

import os
import subprocess

from command import PATIENCE, Server, check, digest, end, first_line, leftovers, main, say, tree, write_file

# Cases in which the file arrives after all, or fails alone: what the hostile client must read.
TOLERATED = {"wrong-digest": "got Refused: SHA-256", "put-no-name": "got Failed", "get-parent": "closed",
             "vanish": "", "too-deep": "got Ack", "refused-twice": "", "ack-backwards": "closed", "flood": ""}
# Cases that bring a whole file first.
COMPLETE = {"second-root"}
REMOTE_REFUSAL = ["write-outside", "write-before", "read-of-put", "write-of-get", "read-outside"]


def cases(setting, side):
    program = os.path.join(setting.bin, "hostile_peer")
    done = subprocess.run([program, "list", side], stdout=subprocess.PIPE, check=True)
    return program, done.stdout.decode().split()


def hostile_clients_get_nowhere(setting):
    write_file(setting.path("secret"), 10)
    write_file(setting.path("served", "file"), 3_000_000)
    before = tree(setting.path("served"))
    server = Server(setting, "serve", setting.path("served"), "--writable")
    program, names = cases(setting, "client")
    for name in names:
        done = subprocess.run([program, "client", name, server.address], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PATIENCE, check=False)
        output = done.stdout.decode()
        check(done.returncode == 0, f"{name}: {done.returncode} {output}")
        if name in REMOTE_REFUSAL:
            check("RemoteAccessError" in output, f"{name}: {output}")
        elif name in TOLERATED:
            check(TOLERATED[name] in output, f"{name}: {output}")
        else:
            check("closed: " in output, f"{name}: {output}")
        check(server.alive(), f"{name}: the server ended\n{server.errors()}")
        setting.run("get", server.url("file"), setting.path("got"), "--force", "-q")
        check(digest(setting.path("got")) == before[b"file"][2], f"{name}: the next client got something else")
        up = setting.path("served", "up")
        check(not os.path.isfile(up) or name in COMPLETE, f"{name}: a file stands")
        if os.path.exists(up):
            subprocess.run(["rm", "-r", up], check=True)
        check(tree(setting.path("served")) == before, f"{name}: the tree has changed")
        check(not os.path.exists(setting.path("evil")), f"{name}: wrote outside")
        say(f"{name}: {output.splitlines()[-1] if output else 'gone'}")
    check(not leftovers(setting.folder), "unfinished files are left")
    server.stop()
    say(f"{len(names)} hostile clients; an honest one was served after each")


def hostile_servers_get_nowhere(setting):
    program, names = cases(setting, "server")
    write_file(setting.path("file"), 200_000)
    for command in ("get", "put"):
        for name in names:
            process = subprocess.Popen([program, "server", name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            setting.started.append(process)
            url = f"verbena://{first_line(process).split()[-1]}/x"
            target = setting.path("in", "target")
            os.makedirs(os.path.dirname(target), exist_ok=True)
            good = command == "get" and name == "honest"
            words = ("get", url, target) if command == "get" else ("put", setting.path("file"), url)
            _, errors = setting.run(*words, status=0 if good else 1)
            check("\x1b" not in errors and "\x07" not in errors, f"{name}: control characters: {errors!r}")
            check(good or errors.startswith(f"verbena {command}: "), f"{name}: {errors!r}")
            if name == "lose-file" and command == "put":
                check("a Done of other files" in errors and "arrived" not in errors, errors)
            check(os.path.isfile(target) == good, f"{name}: {target}")
            check(not os.path.exists(setting.path("evil")) and not leftovers(setting.folder), name)
            process.wait(PATIENCE)
            process.stdout.close()
            end(process)
            subprocess.run(["rm", "-r", setting.path("in")], check=True)
            say(f"{command}, {name}: {errors.splitlines()[0] if errors else 'ok'}")
    say(f"{len(names)} hostile servers, before get and put")


def silent_clients_do_not_stop_others(setting):
    write_file(setting.path("served", "file"), 1000)
    server = Server(setting, "serve", setting.path("served"))
    # They connect, ask for nothing the server can give, and then stay.
    program, _ = cases(setting, "client")
    idle = [subprocess.Popen([program, "client", "get-parent", server.address], stdout=subprocess.DEVNULL)
            for _ in range(5)]
    setting.started += idle
    setting.run("get", server.url("file"), setting.path("got"))
    for process in idle:
        check(process.wait(PATIENCE) == 0, "an idle client failed")
    server.stop()
    say("an honest client between five others")


if __name__ == "__main__":
    main(hostile_clients_get_nowhere, hostile_servers_get_nowhere, silent_clients_do_not_stop_others)
