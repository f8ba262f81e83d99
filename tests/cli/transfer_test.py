# SPDX-License-Identifier: Apache-2.0
"""verbena serve, get, put: trees there and back, and what is refused on the way."""

import ctypes
import json
import os
import re
import signal
import subprocess
import time

from command import (PATIENCE, Server, check, digest, end, leftovers, main, say, tree, unshare, wait_until,
                     write_file)

CHUNK = 1 << 20
SLOTS = 8


def odd_tree(root):
    """Names, sizes and permissions a careless program stumbles over."""
    write_file(os.path.join(root, "with space"), 10)
    write_file(os.path.join(root, "two\nlines"), 11)
    write_file(os.path.join(root, "größe ∞ 🌿"), 12)
    write_file(os.path.join(root, "-dash"), 13)
    write_file(os.path.join(root, ".hidden", "..twodots"), 14)
    write_file(os.path.join(root, "quote'\"\\`$"), 15)
    write_file(os.path.join(root, "x" * 255), 16)
    with open(os.path.join(os.fsencode(root), b"not utf-8 \xff\xfe"), "wb") as file:
        file.write(b"bytes")
    os.makedirs(os.path.join(root, "empty", "in", "empty"))
    write_file(os.path.join(root, "/".join("deep" for _ in range(30)), "bottom"), 17)
    for size in (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, SLOTS * CHUNK, SLOTS * CHUNK + 1, 3 * SLOTS * CHUNK - 1):
        write_file(os.path.join(root, "sizes", str(size)), size, size)
    for number in range(200):
        write_file(os.path.join(root, "many", f"{number:03}"), number, number)
    for mode in (0o600, 0o644, 0o755, 0o400, 0o444, 0o777, 0o640, 0o711):
        path = os.path.join(root, "modes", f"{mode:o}")
        write_file(path, 5, mode)
        os.chmod(path, mode)
    os.makedirs(os.path.join(root, "closed"))
    write_file(os.path.join(root, "closed", "file"), 3)
    os.chmod(os.path.join(root, "closed"), 0o555)
    os.chmod(os.path.join(root, "empty"), 0o700)


def trees_go_there_and_back(setting):
    served, there = setting.path("served"), setting.path("tree")
    os.makedirs(served)
    odd_tree(there)
    server = Server(setting, "serve", served, "--writable", "-v")
    output, _ = setting.run("put", there, server.url("tree"), "--json")
    sent = json.loads(output)
    output, _ = setting.run("get", server.url("tree"), setting.path("back"), "--json")
    got = json.loads(output)
    expected = tree(there)
    check(tree(os.path.join(served, "tree")) == expected, "what was put differs")
    check(tree(setting.path("back")) == expected, "what was got differs")
    files = [entry for entry in expected.values() if entry[0] == "file"]
    for result in (sent, got):
        check(result["files"] == len(files) and result["ok"] and result["sha256"] == "verified", result)
        check(result["directories"] == len(expected) - len(files) + 1, result)
    check(sent["counters"]["rdma_write_bytes"] == sent["bytes"] and sent["counters"]["rdma_reads"] == 0, sent)
    check(got["counters"]["rdma_read_bytes"] == got["bytes"] and got["counters"]["rdma_writes"] == 0, got)
    server.stop()
    counts = dict(re.findall(r"(served_\w+) (\d+)", server.errors().splitlines()[-1]))
    # What goes straight into the server's memory the server does not count.
    for name in ("served_write_bytes", "served_read_bytes"):
        check(int(counts[name]) <= sent["bytes"], server.errors())
    check(not leftovers(setting.folder), "unfinished files are left")
    say(f"{len(files)} files, {len(expected) - len(files)} folders, {sent['bytes']} bytes by WRITE and by READ")


def a_large_file_goes_there_and_back(setting):
    size = 200_000_000 if setting.large else 30_000_000
    write_file(setting.path("served", "large"), size)
    server = Server(setting, "serve", setting.path("served"), "--writable")
    output, errors = setting.run("get", server.url("large"), setting.path("large"), "-v")
    expected = digest(setting.path("large"))
    check(expected == digest(setting.path("served", "large")) and expected in errors, "get")
    check("1 file, 0 directories, " in output and "sha256 verified" in output, output)
    setting.run("put", setting.path("large"), server.url("again"))
    check(digest(setting.path("served", "again")) == expected, "put")
    server.stop()
    say(f"{size} bytes both ways: {output.splitlines()[0]}")


def places_are_found_as_with_cp(setting):
    write_file(setting.path("served", "dir", "file"), 5)
    write_file(setting.path("mine"), 6)
    os.makedirs(setting.path("here"))
    server = Server(setting, "serve", setting.path("served"), "--writable")
    setting.run("get", server.url("dir/file"), setting.path("here"))
    setting.run("get", server.url("dir/file"), "plain", cwd=setting.path("here"))
    setting.run("get", server.url("dir"), ".", cwd=setting.path("here"), status=1)
    setting.run("get", server.url("dir/"), setting.path("here", "whole/"))
    setting.run("get", server.url(""), setting.path("here", "all"))
    for name in ("file", "plain", "whole/file", "all/dir/file"):
        check(os.path.getsize(setting.path("here", name)) == 5, name)
    setting.run("put", setting.path("mine"), server.url("dir"))
    setting.run("put", setting.path("mine"), server.url("dir/renamed"))
    setting.run("put", "mine", server.url(""), cwd=setting.folder)
    setting.run("put", ".", server.url(""), cwd=setting.path("here", "whole"))
    for name in ("dir/mine", "dir/renamed", "mine", "file"):
        check(os.path.exists(setting.path("served", name)), name)
    for url in ("none/mine", "mine/below", "none/"):
        _, errors = setting.run("put", setting.path("mine"), server.url(url), status=1)
        check(errors.startswith("verbena put: NotFound: "), errors)
    for path in ("none/x", "mine/x", "none/"):
        _, errors = setting.run("get", server.url("mine"), setting.path(path), status=1)
        check(errors.startswith("verbena get: NotFound: "), errors)
    missing = [("get", server.url(path), "x") for path in ("none", "none/x", "mine/x")]
    missing += [("put", setting.path(*path), server.url("x")) for path in (("none", "x"), ("mine", "x"))]
    for words in missing:
        _, errors = setting.run(*words, status=1)
        check(errors.startswith(f"verbena {words[0]}: NotFound: "), errors)
    server.stop()
    say("into directories, under new names, beside missing parents")


def existing_files_stay_unless_forced(setting):
    write_file(setting.path("served", "t", "a"), 10, 1)
    write_file(setting.path("served", "t", "b"), 10, 2)
    write_file(setting.path("out", "a"), 10, 3)
    old = digest(setting.path("out", "a"))
    server = Server(setting, "serve", setting.path("served"), "--writable")
    output, errors = setting.run("get", server.url("t"), setting.path("out"), "--json", status=1)
    result = json.loads(output)
    check(result["failed"] == 1 and result["files"] == 1 and "--force" in errors, output + errors)
    check(digest(setting.path("out", "a")) == old, "a was replaced")
    check(os.path.exists(setting.path("out", "b")), "b did not come")
    setting.run("get", server.url("t"), setting.path("out"), "--force")
    check(tree(setting.path("out")) == tree(setting.path("served", "t")), "--force")
    write_file(setting.path("out", "a"), 10, 4)
    new = digest(setting.path("out", "a"))
    _, errors = setting.run("put", setting.path("out", "a"), server.url("t/a"), status=1)
    check("exists" in errors and digest(setting.path("served", "t", "a")) != new, errors)
    setting.run("put", setting.path("out", "a"), server.url("t/a"), "-f")
    check(digest(setting.path("served", "t", "a")) == new, "put --force")
    os.makedirs(setting.path("out", "b2", "x"))
    _, errors = setting.run("get", server.url("t/b"), setting.path("out", "b2", "x", "..", "..", "b2"), "-f")
    check(os.path.exists(setting.path("out", "b2", "b")), errors)
    os.remove(setting.path("out", "b"))
    os.makedirs(setting.path("out", "b"))
    _, errors = setting.run("get", server.url("t"), setting.path("out"), "-f", status=1)
    check("is a directory" in errors, errors)
    server.stop()
    say("get and put, with and without --force, file against directory")


def of_many_failures_the_first_are_named_and_all_counted(setting):
    for number in range(15):
        write_file(setting.path("served", "t", f"f{number}"), 10)
    server = Server(setting, "serve", setting.path("served"))
    setting.run("get", server.url("t"), setting.path("out"))
    _, errors = setting.run("get", server.url("t"), setting.path("out"), status=1)
    lines = errors.splitlines()
    check(sum("exists" in line for line in lines) == 10, errors)
    check(lines[10:] == ["verbena get: 5 more failed; --verbose names them all",
                         "verbena get: 15 files failed; see above."], errors)
    _, errors = setting.run("get", server.url("t"), setting.path("out"), "--verbose", status=1)
    check(sum("exists" in line for line in errors.splitlines()) == 15 and "more failed" not in errors, errors)
    output, _ = setting.run("get", server.url("t"), setting.path("out"), "--json", status=1)
    check(len(json.loads(output)["failures"]) == 15, output)
    server.stop()
    say("10 of 15, and how many more")


def a_file_where_a_directory_should_be_fails_alone(setting):
    write_file(setting.path("served", "t", "d", "one"), 10)
    write_file(setting.path("served", "t", "d", "deeper", "two"), 10)
    for number in range(60):
        write_file(setting.path("served", "t", "d", f"more{number}"), 10)
    write_file(setting.path("served", "t", "e"), 10)
    for folder in ("out", "served/up"):
        write_file(setting.path(folder, "d"), 3)
    server = Server(setting, "serve", setting.path("served"), "--writable")
    for words in (("get", server.url("t"), setting.path("out")),
                  ("put", setting.path("served", "t"), server.url("up"))):
        output, errors = setting.run(*words, "--json", status=1)
        result = json.loads(output)
        check(result["failed"] == 1 and result["files"] == 1 and result["directories"] == 1, output + errors)
        check("Not a directory" in errors, errors)
    check(os.path.getsize(setting.path("out", "d")) == 3 and os.path.exists(setting.path("out", "e")), "get")
    check(os.path.getsize(setting.path("served", "up", "d")) == 3, "put")
    check(os.path.exists(setting.path("served", "up", "e")), "put")
    server.stop()
    say("the directory's content was left out, the rest came")


def a_tree_deeper_than_the_descriptors_fails_in_part(setting):
    write_file(setting.path("mine", "a", "/".join("d" for _ in range(30)), "bottom"), 10)
    for name in ("a/before", "z"):
        write_file(setting.path("mine", name), 20)
    os.makedirs(setting.path("served"))
    server = Server(setting, "serve", setting.path("served"), "--writable",
                    prefix=("sh", "-c", 'ulimit -n 36; exec "$@"', "sh"))
    output, errors = setting.run("put", setting.path("mine"), server.url("up"), "--json", status=1)
    result = json.loads(output)
    check(result["failed"] == 1 and result["files"] == 2 and "error" not in result, output + errors)
    check("Too many open files" in errors, errors)
    for name in ("a/before", "z"):
        check(digest(setting.path("served", "up", name)) == digest(setting.path("mine", name)), name)
    server.stop()
    say(errors.splitlines()[0])


def links_and_special_files_are_left_out(setting):
    write_file(setting.path("secret"), 10)
    write_file(setting.path("served", "t", "file"), 10)
    os.symlink(setting.path("secret"), setting.path("served", "t", "leak"))
    os.symlink(setting.folder, setting.path("served", "t", "out"))
    os.symlink("t", setting.path("served", "inside"))
    os.mkfifo(setting.path("served", "t", "fifo"))
    server = Server(setting, "serve", setting.path("served"), "--writable")
    output, errors = setting.run("get", server.url("t"), setting.path("got"), "--json")
    check(json.loads(output)["skipped"] == 3 and "leak: a symbolic link" in errors, output + errors)
    check(os.listdir(setting.path("got")) == ["file"], os.listdir(setting.path("got")))
    output, _ = setting.run("put", setting.path("served", "t"), server.url("up"), "--json")
    check(json.loads(output)["skipped"] == 3, output)
    for path in ("t/leak", "t/out/secret", "t/out", "inside/file", "t/fifo"):
        _, errors = setting.run("get", server.url(path), setting.path("x"), status=1)
        check("symbolic link" in errors or "neither a file" in errors, errors)
        check(not os.path.exists(setting.path("x")), path)
    for path in ("t/out/new", "inside/new", "t/leak"):
        _, errors = setting.run("put", setting.path("secret"), server.url(path), status=1)
        check("verbena put: " in errors, errors)
    check(not os.path.exists(setting.path("new")) and not os.path.exists(setting.path("served", "t", "new")), "written")
    # What the user names is meant, as with cp.
    os.symlink(setting.path("served", "t"), setting.path("tree-link"))
    os.symlink(setting.path("secret"), setting.path("file-link"))
    output, _ = setting.run("put", setting.path("tree-link"), server.url("by-link"), "--json")
    check(json.loads(output)["files"] == 1 and json.loads(output)["skipped"] == 3, output)
    setting.run("put", setting.path("file-link"), server.url("secret"))
    check(digest(setting.path("served", "secret")) == digest(setting.path("secret")), "the file behind a link")
    check("link, which is followed" in setting.run("put", "--help")[0], "put --help")
    # Into a tree of the client's that has a link where the server has a directory.
    write_file(setting.path("served", "s", "dir", "file"), 10)
    os.makedirs(setting.path("mine"))
    os.symlink(setting.path("got"), setting.path("mine", "dir"))
    write_file(setting.path("got", "file"), 7)
    _, errors = setting.run("get", server.url("s"), setting.path("mine"), "-f", status=1)
    check("symbolic link" in errors and os.path.getsize(setting.path("got", "file")) == 7, errors)
    setting.run("put", setting.path("secret"), server.url("t/leak"), "--force")
    check(not os.path.islink(setting.path("served", "t", "leak")), "the link stands still")
    _, errors = setting.run("put", setting.path("secret"), server.url("t/fifo"), "--force", status=1)
    check("neither a file" in errors and not os.path.isfile(setting.path("served", "t", "fifo")), errors)
    server.stop()
    say("links, FIFOs: skipped in trees, refused by name, never followed")


def a_read_only_server_takes_nothing(setting):
    write_file(setting.path("file"), 10)
    os.makedirs(setting.path("served"))
    server = Server(setting, "serve", setting.path("served"))
    _, errors = setting.run("put", setting.path("file"), server.url("x"), status=1)
    check("PermissionDenied" in errors and "--writable" in errors, errors)
    check(not os.listdir(setting.path("served")), "something was written")
    server.stop()
    say("refused, with the reason")


def unreadable_files_fail_alone(setting):
    write_file(setting.path("served", "t", "closed"), 10)
    write_file(setting.path("served", "t", "good"), 10)
    write_file(setting.path("served", "t", "shut", "inside"), 10)
    os.chmod(setting.path("served", "t", "closed"), 0)
    os.chmod(setting.path("served", "t", "shut"), 0)
    os.chmod(setting.folder, 0o755)
    # Root reads everything; in a user namespace of its own it is nobody.
    prefix = [] if os.geteuid() != 0 else unshare("-U")
    server = Server(setting, "serve", setting.path("served"), prefix=prefix)
    output, errors = setting.run("get", server.url("t"), setting.path("got"), "--json", status=1)
    result = json.loads(output)
    check(result["failed"] == 2 and result["files"] == 1 and "closed: cannot read" in errors, output + errors)
    _, errors = setting.run("get", server.url("t/closed"), setting.path("x"), status=1)
    check("PermissionDenied" in errors and not os.path.exists(setting.path("x")), errors)
    server.stop()
    say(f"two of three failed, the third came: {result['failures']}")


def a_file_that_does_not_say_its_size_fails(setting):
    os.makedirs(setting.path("served"))
    server = Server(setting, "serve", setting.path("served"), "--writable")
    _, errors = setting.run("put", "/proc/cpuinfo", server.url("info"), status=1)
    check("its size is not known" in errors and not os.path.exists(setting.path("served", "info")), errors)
    server.stop()
    server = Server(setting, "serve", "/proc/sys/kernel")
    _, errors = setting.run("get", server.url("ostype"), setting.path("got"), status=1)
    check("its size is not known" in errors and not os.path.exists(setting.path("got")), errors)
    server.stop()
    say("of /proc, there and back")


def a_limit_of_file_size_fails_alone(setting):
    write_file(setting.path("large"), 3_000_000)
    write_file(setting.path("small"), 10)
    os.makedirs(setting.path("served"))
    limited = ["sh", "-c", 'ulimit -f 1000; exec "$@"', "sh"]
    server = Server(setting, "serve", setting.path("served"), "--writable", prefix=limited)
    _, errors = setting.run("put", setting.path("large"), server.url("large"), status=1)
    check("File too large" in errors and not os.path.exists(setting.path("served", "large")), errors)
    setting.run("put", setting.path("small"), server.url("small"))
    server.stop()
    say(errors.splitlines()[0])


def what_arrived_before_an_end_is_told_and_has_its_rights(setting):
    os.makedirs(setting.path("served", "t", "inner"))
    for number in range(20):
        write_file(setting.path("served", "t", "inner", f"a{number:02}"), 1000)
    size = 500_000_000 if setting.large else 200_000_000
    with open(setting.path("served", "t", "inner", "z"), "wb") as file:
        file.truncate(size)
    for name in ("t", "t/inner"):
        os.chmod(setting.path("served", name), 0o755)
    server = Server(setting, "serve", setting.path("served"))
    client = setting.start("get", server.url("t"), setting.path("got"), "--json", stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, prefix=["sh", "-c", 'umask 022; exec "$@"', "sh"])
    wait_until(lambda: os.path.exists(setting.path("got", "inner", "a19")), "the small ones arrived")
    client.send_signal(signal.SIGINT)
    output, _ = client.communicate(timeout=PATIENCE)
    result = json.loads(output)
    arrived = (20, 20_000), (21, 20_000 + size)
    check((result["files"], result["bytes"]) in arrived and result["seconds"] > 0, result)
    for name in ("got", "got/inner"):
        check(os.stat(setting.path(name)).st_mode & 0o777 == 0o755, name)
    server.stop()
    say("quicker than the interrupt" if result["ok"] else f"{result['files']} files before the end")


def is_opened(path, action):
    """Whether a directory is opened while action() runs."""
    libc = ctypes.CDLL(None, use_errno=True)
    watcher = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    check(watcher >= 0 and libc.inotify_add_watch(watcher, os.fsencode(path), 0x20) >= 0, "no inotify")  # IN_OPEN
    action()
    try:
        return bool(os.read(watcher, 1 << 16))
    except BlockingIOError:
        return False
    finally:
        os.close(watcher)


def a_tree_is_counted_before_the_server_waits_and_only_for_a_watcher(setting):
    write_file(setting.path("mine", "d", "file"), 10)
    os.makedirs(setting.path("served"))
    server = Server(setting, "serve", setting.path("served"))  # refuses before anything is sent

    def put(stderr):
        process = setting.start("put", setting.path("mine"), server.url("up"), stderr=stderr)
        check(process.wait(PATIENCE) == 1, "a read-only server took it")

    master, slave = os.openpty()
    check(is_opened(setting.path("mine", "d"), lambda: put(slave)), "nothing was counted before the server refused")
    check(not is_opened(setting.path("mine", "d"), lambda: put(subprocess.DEVNULL)), "counted, and nobody watches")
    os.close(master)
    os.close(slave)
    server.stop()
    _, errors = setting.run("put", setting.path("none"), "verbena://127.77.66.55/x", status=1)
    check("none" in errors and "NotFound" in errors, errors)
    say(errors.splitlines()[0])


def many_clients_at_once(setting):
    for number in range(4):
        write_file(setting.path("served", f"t{number}", "file"), 5_000_000, number)
    server = Server(setting, "serve", setting.path("served"), "--writable")
    clients = []
    for number in range(4):
        clients.append(setting.start("get", server.url(f"t{number}"), setting.path(f"got{number}"),
                                     stdout=subprocess.DEVNULL))
        clients.append(setting.start("put", setting.path("served", f"t{number}"), server.url(f"up{number}"),
                                     stdout=subprocess.DEVNULL))
    for client in clients:
        check(client.wait(PATIENCE) == 0, "a client failed")
    for number in range(4):
        expected = tree(setting.path("served", f"t{number}"))
        check(tree(setting.path(f"got{number}")) == expected == tree(setting.path("served", f"up{number}")), number)
    server.stop()
    say(f"{len(clients)} clients, get and put")


def once_ends_with_the_clients_outcome(setting):
    write_file(setting.path("served", "file"), 10)
    server = Server(setting, "serve", setting.path("served"), "--once")
    setting.run("get", server.url("file"), setting.path("a"))
    check(server.process.wait(PATIENCE) == 0, "--once after success")
    server = Server(setting, "serve", setting.path("served"), "--once")
    setting.run("get", server.url("none"), setting.path("b"), status=1)
    check(server.process.wait(PATIENCE) == 1, "--once after failure")
    say("0 after success, 1 after failure")


def once_is_a_failure_where_a_signal_ends_a_visit(setting):
    server = Server(setting, "serve", setting.folder, "--once")
    server.stop()
    check(not server.errors(), server.errors())  # nobody came
    for words, status in ((["--once"], 1), ([], 0)):
        server = Server(setting, "serve", setting.folder, "-v", *words)
        # It stays, and asks for nothing.
        visitor = subprocess.Popen([os.path.join(setting.bin, "hostile_peer"), "mute", server.address])
        setting.started.append(visitor)
        wait_until(lambda there=server: ": connected\n" in there.errors(), "somebody came")
        server.stop(status)
        check(server.errors().endswith("ended while a client was served\n"), server.errors())
        end(visitor)
    say("0 before anybody came, 1 in the middle of a visit; 0 without --once")


def interrupt_leaves_nothing(setting):
    write_file(setting.path("served", "file"), 400_000_000 if setting.large else 100_000_000)
    server = Server(setting, "serve", setting.path("served"), "--writable")
    for words in (("get", server.url("file"), setting.path("got")),
                  ("put", setting.path("served", "file"), server.url("up"))):
        client = setting.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        time.sleep(0.3)
        client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=PATIENCE)
        target = setting.path("got") if words[0] == "get" else setting.path("served", "up")
        if client.returncode == 0:
            say(f"{words[0]} was quicker than the interrupt")
            continue
        check(client.returncode == 1 and b"interrupted" in errors, f"{client.returncode} {errors}")
        wait_until(lambda: "Disconnected" in server.errors() or words[0] == "get", "the server noticed")
        check(not os.path.exists(target) and not leftovers(setting.folder), "something is left")
        say(f"{words[0]}: {errors.decode().splitlines()[0]}")
    server.stop()


if __name__ == "__main__":
    main(trees_go_there_and_back, a_large_file_goes_there_and_back, places_are_found_as_with_cp,
         existing_files_stay_unless_forced, of_many_failures_the_first_are_named_and_all_counted,
         a_file_where_a_directory_should_be_fails_alone,
         a_tree_deeper_than_the_descriptors_fails_in_part, links_and_special_files_are_left_out,
         a_read_only_server_takes_nothing, unreadable_files_fail_alone, a_file_that_does_not_say_its_size_fails,
         a_limit_of_file_size_fails_alone, what_arrived_before_an_end_is_told_and_has_its_rights,
         a_tree_is_counted_before_the_server_waits_and_only_for_a_watcher, many_clients_at_once,
         once_ends_with_the_clients_outcome, once_is_a_failure_where_a_signal_ends_a_visit, interrupt_leaves_nothing)
