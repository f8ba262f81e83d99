# SPDX-License-Identifier: Apache-2.0
"""verbena counters, capture, config and doctor: looking at programs and at the machine from outside."""

import json
import os
import signal
import struct
import subprocess

from command import PATIENCE, Server, Skip, check, first_line, main, say, unshare, wait_until


def run(setting, *words, status=0, **environment):
    done = subprocess.run(setting.command(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env={**os.environ, **environment}, timeout=PATIENCE, check=False)
    check(done.returncode == status, f"{words}: {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done.stdout.decode(), done.stderr.decode()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def is_capture(path):
    with open(path, "rb") as file:
        return struct.unpack("<I", file.read(4))[0] == 0x0a0d0d0a


def counters_of_a_command_are_shown_at_its_end(setting):
    server = Server(setting, "ping", "-s")
    ping = setting.command("ping", server.address, "-c", "20", "-i", "0", "--path", "roce")
    output, errors = run(setting, "counters", "--", *ping)
    check("20 done, 0 failed" in output and "rcvd_pkts" in errors, output + errors)
    check("(verbena), " in errors and ", closed\n" in errors, errors)
    check("rcvd_pkts" not in output, output)
    check(" 0\n" not in errors and " 0\n" in run(setting, "counters", "-z", "--", *ping)[1], errors)
    output, _ = run(setting, "counters", "--json", "--", *ping, "-q")
    one, = json.loads(output[output.index("[\n"):])
    check(one["counters"]["rcvd_pkts"] >= 20 and not one["open"] and one["address"].startswith("127."), one)
    server.stop()
    check(run(setting, "counters", "--", "sh", "-c", "exit 7", status=7)[1].count("opened no device") == 1, "no device")
    check(run(setting, "counters", "--", "true", status=1)[1].count("opened no device") == 1, "and none failed")
    _, errors = run(setting, "counters", "--watch", "--interval", "60", "--", *setting.command("devices", "-v"))
    closed = [line for line in errors.splitlines() if line.endswith(", closed")]
    check(0 < len(closed) == len(set(closed)), errors)
    run(setting, "counters", "--", "/no/such/program", status=1)
    _, errors = run(setting, "counters", "--", "true", status=1, TMPDIR="/no/such/folder")
    check("Set TMPDIR to a folder" in errors, errors)
    os.mkdir(setting.path("temporary"))
    relative = os.path.relpath(setting.path("temporary"))
    _, errors = run(setting, "counters", "-z", "--", "sh", "-c", " ".join(["cd /;", *setting.command("devices", "-v")]),
                    TMPDIR=relative)
    check("rcvd_pkts" in errors and not os.listdir(setting.path("temporary")), errors)
    say(f"{len(one['counters'])} counters, {one['counters']['rcvd_pkts']} packets")


def a_running_program_can_be_watched(setting):
    folder = setting.path("counters")
    server = Server(setting, "ping", "-s", prefix=["env", f"VERBENA_COUNTERS={folder}"])
    setting.run("ping", server.address, "-c", "50", "-i", "0", "-q", "--path", "roce")

    def present():
        return json.loads(run(setting, "counters", "--json", "--folder", folder)[0])

    wait_until(lambda: present()[0]["counters"]["rcvd_pkts"] >= 50, "the counters are there")
    one, = present()
    check(one["pid"] == server.process.pid and one["open"] and one["program"] == "verbena", one)
    check(present() == json.loads(run(setting, "counters", "--json", VERBENA_COUNTERS=folder)[0]), "the variable")
    check(os.stat(folder).st_mode & 0o777 == 0o700, "rights of the folder")
    check(all(os.stat(os.path.join(folder, name)).st_mode & 0o777 == 0o600 for name in os.listdir(folder)), "rights")
    watch = setting.start("counters", "--watch", "--interval", "0.1", "--folder", folder, stdout=subprocess.PIPE)
    seen = b""
    while b"/s\n" not in seen:
        seen += watch.stdout.readline()
    watch.terminate()
    watch.wait(PATIENCE)
    watch.stdout.close()
    # One that is killed says nothing more, and is known to be gone.
    server.process.kill()
    server.process.wait(PATIENCE)
    one, = present()
    check(not one["open"] and one["counters"]["rcvd_pkts"] >= 50 and one["program"] == "verbena", one)
    check("(verbena), " in (told := run(setting, "counters", "--folder", folder)[0]) and "ended without" in told, told)
    for name, text in (("device-1-1", b"\xff\x1b[2J nonsense\nx y\n"), ("device-x-1", b"a 1\n"), ("other", b"")):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(text)
    os.symlink("/etc/passwd", os.path.join(folder, "device-3-3"))
    output, _ = run(setting, "counters", "--folder", folder)
    check("\x1b" not in output and "root:" not in output, repr(output))
    _, errors = run(setting, "counters", "--folder", setting.path("none"), status=1)
    check("VERBENA_COUNTERS=" in errors, errors)
    for empty in ("none", "empty"):
        if empty == "empty":
            os.mkdir(setting.path(empty))
        watch = setting.start("counters", "--watch", "--folder", setting.path(empty), stderr=subprocess.PIPE)
        told = watch.stderr.readline().decode()
        check(f"waiting for programs with VERBENA_COUNTERS={setting.path(empty)}" in told, told)
        watch.terminate()
        watch.wait(PATIENCE)
        watch.stderr.close()
    run(setting, "counters", status=2, VERBENA_COUNTERS="")
    run(setting, "counters", "--folder", "x", "--", "true", status=2)
    say("live, with rates, after a kill, and with strange files beside it")


def what_cannot_be_read_is_told_and_not_made_up(setting):
    folder = setting.path("counters")
    os.mkdir(folder)
    file = os.path.join(folder, "device-1-1")

    # Root reads everything; in a user namespace of its own it is nobody.
    prefix = [] if os.geteuid() != 0 else unshare("-U")
    if subprocess.run([*prefix, *setting.command("--version")], stdout=subprocess.PIPE, check=False).returncode != 0:
        raise Skip("nobody may run what was built")

    def look(folder, *flags, status=1):
        done = subprocess.run([*prefix, *setting.command("counters", "--folder", folder, *flags)],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False)
        check(done.returncode == status, done)
        return done.stdout.decode(), done.stderr.decode()

    write_text(file, "")  # its device has made it, and not written it yet
    output, errors = look(folder)
    check(not output and "no program has left counters" in errors, output + errors)
    write_text(file, "program hello\ndevice soft-lo\naddress 127.0.0.1\nopen no\nrcvd_pkts 7\n")
    check("1 (hello), soft-lo at 127.0.0.1, closed\n" in look(folder, status=0)[0], "what may be read")
    for path, rights, taken in ((file, 0o600, 0), (folder, 0o700, 0), (folder, 0o700, 0o400)):
        for flags in ((), ("--watch",)):
            os.chmod(path, taken)
            output, errors = look(folder, *flags)
            os.chmod(path, rights)
            check(not output and "PermissionDenied: read the counters in " + folder in errors, output + errors)
    other = os.path.join(folder, "device-2-1")
    write_text(other, "")
    os.chmod(other, 0)
    output, errors = look(folder, status=0)
    check("1 (hello)" in output and f"some in {folder} cannot be read: Permission denied" in errors, output + errors)
    _, errors = look(file)
    check("Not a directory" in errors, errors)
    say(errors.splitlines()[0])


def a_program_is_captured_from_outside(setting):
    server = Server(setting, "ping", "-s")
    ping = setting.command("ping", server.address, "-c", "3", "-i", "0")
    file = setting.path("wire.pcapng")
    output, errors = run(setting, "capture", "-w", file, "--", *ping)
    check("3 done" in output and file in errors and is_capture(file), output + errors)
    size = os.path.getsize(file)
    # Two at once: neither writes over the other.
    both = " & ".join([" ".join(ping)] * 2) + " & wait"
    two = setting.path("two.pcapng")
    _, errors = run(setting, "capture", "-w", two, "--", "sh", "-c", both)
    names = sorted(name for name in os.listdir(setting.folder) if name.startswith("two-"))
    check(len(names) == 2 and all(is_capture(setting.path(name)) and name in errors for name in names), errors)
    # A file of its own goes before the variable.
    own = setting.path("own.pcapng")
    _, errors = run(setting, "capture", "-w", setting.path("x.pcapng"), "--", *ping, "--pcap", own, status=1)
    check(is_capture(own) and "nothing was captured" in errors, errors)
    check(os.path.getsize(file) == size, "a capture was written over")
    run(setting, "capture", "-w", file, "--", "sh", "-c", " ".join(ping) + "; exit 5", status=5)
    run(setting, "capture", "-w", file, "--", "sh", "-c", " ".join(ping) + "; kill -9 $$", status=137)
    run(setting, "capture", "-w", file, status=2)
    os.mkfifo(setting.path("fifo"))
    os.symlink("real", setting.path("link"))
    for name in ("fifo", "link"):
        _, errors = run(setting, "capture", "-w", setting.path(name), "--", *ping, status=1)
        check("is no plain file" in errors and not os.path.isfile(setting.path(name)), errors)
    run(setting, "capture", "--", "true", status=2)
    _, errors = run(setting, "capture", "-w", setting.path("no", "x"), "--", "true", status=1)
    check("-w" in errors, errors)
    run(setting, "ping", server.address, status=1, VERBENA_PCAP=setting.path("no", "x.pcapng"))
    run(setting, "ping", server.address, status=1, VERBENA_COUNTERS=setting.path("no", "folder"))
    # Behind a symbolic link ".." leads to the folder above the one it points to.
    os.makedirs(setting.path("one", "two"))
    os.symlink(setting.path("one", "two"), setting.path("there"))
    os.remove(file)
    run(setting, "capture", "-w", setting.path("there", "..", "wire.pcapng"), "--", *ping)
    check(is_capture(setting.path("one", "wire.pcapng")) and not os.path.exists(file), "another file")
    server.stop()
    say(f"{size} bytes; two at once: {', '.join(names)}")


def a_signal_reaches_the_program_and_all_is_finished(setting):
    """A program that is told to end by the command's own process id ends, and the command does what is left to it."""
    def signalled(number, *words):
        scratch = setting.path("scratch")
        os.makedirs(scratch, exist_ok=True)
        process = setting.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "TMPDIR": scratch})
        check(first_line(process).startswith("listening on "), "its first line")
        process.send_signal(number)
        output, errors = (text.decode() for text in process.communicate(timeout=PATIENCE))
        check(not os.listdir(scratch), f"{words[0]} leaves {os.listdir(scratch)}")
        return process.returncode, output, errors

    server = setting.command("ping", "-s", "--port", "0")
    for number, status in ((signal.SIGTERM, 0), (signal.SIGHUP, 128 + signal.SIGHUP)):
        file = setting.path(f"{number}.pcapng")
        told, _, errors = signalled(number, "capture", "-w", file, "--", *server)
        check(told == status and is_capture(file) and file in errors, f"{told}: {errors}")
        told, _, errors = signalled(number, "counters", "-z", "--", *server)
        check(told == status and "rcvd_pkts" in errors, f"{told}: {errors}")
        told, output, _ = signalled(number, "counters", "--json", "--", *server)
        check(told == status and json.loads(output[output.index("[\n"):])[0]["program"] == "verbena", output)
    # Who takes its time is waited for, and told each time.
    stubborn = "trap 'echo again' TERM; echo listening on nothing; while :; do sleep 0.05; done"
    process = setting.start("counters", "--", "sh", "-c", stubborn, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    first_line(process)
    for _ in range(2):
        process.send_signal(signal.SIGTERM)
        check(first_line(process) == "again", "the program was told")
    process.send_signal(signal.SIGHUP)
    check(process.wait(PATIENCE) == 128 + signal.SIGHUP, process.returncode)


def variables_are_told(setting):
    output, _ = run(setting, "config", "--json", VERBENA_PCAP="/tmp/x\x1b.pcapng", VERBENA_COUNTERS="")
    told = json.loads(output)
    by_name = {one["name"]: one for one in told["variables"]}
    known = ["VERBENA_ADDRESS_USERS", "VERBENA_COUNTERS", "VERBENA_LOCAL_COPY", "VERBENA_LOCAL_DIR",
             "VERBENA_LOCAL_USERS", "VERBENA_PATH", "VERBENA_PCAP"]
    check(sorted(by_name) == known and not told["unknown"], output)
    check(by_name["VERBENA_PCAP"]["from"] == "environment" and "\\x1b" in by_name["VERBENA_PCAP"]["value"], output)
    check(by_name["VERBENA_COUNTERS"]["from"] == "default" and by_name["VERBENA_COUNTERS"]["value"] is None, output)
    check(all(one["meaning"] and one["default"] for one in by_name.values()), output)
    output, _ = run(setting, "config", VERBENA_PCAP="here.pcapng")
    check("VERBENA_PCAP = here.pcapng" in output and "the environment" in output, output)
    output, errors = run(setting, "config", status=1, VERBENA_PCAPS="x")
    check("VERBENA_PCAPS" in errors, errors)
    for name, value, advice in (("VERBENA_PATH", "fast", "set it to auto, roce or local"),
                                ("VERBENA_LOCAL_COPY", "twice", "set it to auto or staged"),
                                ("VERBENA_LOCAL_USERS", "anna", "set it to numbers of users")):
        output, errors = run(setting, "config", status=1, **{name: value})
        check(f"{name} = {value}\n  wrong    not understood: {advice}" in output, output)
        check(f"{name} is '{value}'; {advice}" in errors and output.count("  wrong ") == 1, errors + output)
        _, errors = run(setting, "config", status=1, **{name: "\x1b" + value})
        check(f"{name} is '\\x1b{value}'; {advice}" in errors, errors)
        output, _ = run(setting, "config", "--json", status=1, **{name: value})
        wrong = {one["name"]: one["wrong"] for one in json.loads(output)["variables"] if one["wrong"]}
        check(list(wrong) == [name] and advice in wrong[name], output)
        _, errors = run(setting, "devices", status=1, **{name: value})
        check(f"{name} is '{value}'; {advice}" in errors, errors)
    run(setting, "devices", "--path", "roce", VERBENA_PATH="fast")
    say(f"{len(known)} variables, one that is misspelt, and three whose values nobody understands")


def the_machine_is_examined(setting):
    output, _ = run(setting, "doctor", "--json")
    told = json.loads(output)
    subjects = {one["subject"] for one in told["findings"]}
    check({"devices", "opening", "same host", "Soft-RoCE", "socket buffers", "GSO/GRO", "clock", "descriptors",
           "memlock", "huge pages", "environment"} <= subjects and told["ok"], output)

    def same_host(**environment):
        found = json.loads(run(setting, "doctor", "--json", **environment)[0])["findings"]
        return next(one["found"] for one in found if one["subject"] == "same host")

    check("shares memory with processes of this user" in same_host(), same_host())
    check("path=roce was asked for" in same_host(VERBENA_PATH="roce"), same_host(VERBENA_PATH="roce"))
    check(all((one["health"] == "good") != bool(one["what_to_do"]) for one in told["findings"]), output)
    text, _ = run(setting, "doctor")
    check(len(text.splitlines()) >= len(told["findings"]), text)
    output, _ = run(setting, "doctor", "--json", status=1, VERBENA_PCPA="x")
    check("VERBENA_PCPA" in output and not json.loads(output)["ok"], output)
    _, errors = run(setting, "doctor", "more", status=2)
    check("more" in errors, errors)
    # Without an address there is no device.
    done = subprocess.run([*unshare("-Urn"), *setting.command("doctor", "--json")], stdout=subprocess.PIPE, check=False,
                          timeout=PATIENCE)
    wrong = [one["subject"] for one in json.loads(done.stdout)["findings"] if one["health"] == "wrong"]
    check(done.returncode == 1 and "devices" in wrong, done.stdout)
    say(f"{len(told['findings'])} findings; in an empty network wrong: {', '.join(wrong)}")


if __name__ == "__main__":
    main(counters_of_a_command_are_shown_at_its_end, a_running_program_can_be_watched,
         what_cannot_be_read_is_told_and_not_made_up, a_program_is_captured_from_outside,
         a_signal_reaches_the_program_and_all_is_finished, variables_are_told, the_machine_is_examined)
