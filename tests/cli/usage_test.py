# SPDX-License-Identifier: Apache-2.0
"""What the command says when it is used wrongly, and when it is asked for help."""

import json
import os
import subprocess
import sys

from command import PATIENCE, Server, check, first_line, main, say, unshare, write_file

COMMANDS = ["devices", "ping", "pingpong", "rping", "bench", "tune", "serve", "get", "put", "broker", "sim",
            "counters", "capture", "config", "doctor", "completion", "manual"]
WITHOUT_DEVICE = ["sim", "counters", "capture", "config", "doctor", "completion", "manual"]


def every_command_explains_itself(setting):
    output, _ = setting.run("--help")
    listed = output[output.index("Subcommands:"):].strip().splitlines()[1:]
    check(sorted(line.split()[0] for line in listed) == sorted(COMMANDS), f"not a line for each command: {output}")
    for command in COMMANDS:
        check(command in output, f"--help does not name {command}")
        text, _ = setting.run(command, "--help")
        check("--help" in text and len(text.splitlines()) > 5, f"{command} --help says little")
        if command == "bench":
            text, _ = setting.run(command, "write", "bw", "--help")
        if command not in WITHOUT_DEVICE:
            check("--device" in text, f"{command} --help does not tell of --device")
        # A tuning opens its devices anew for each path, and a broker talks to nobody: nothing to look at.
        if command not in [*WITHOUT_DEVICE[1:], "tune", "broker"]:
            check("--pcap" in text, f"{command} --help does not tell of --pcap")
    output, _ = setting.run("--version")
    check(output.startswith("verbena "), output)
    say(f"help of {', '.join(COMMANDS)}")


def wrong_usage_is_told_and_gives_two(setting):
    wrong = [
        (), ("dance",), ("devices", "--sideways"), ("ping",), ("ping", "-s", "somewhere"),
        ("ping", "x", "--op", "jump"), ("ping", "x", "--op", "cas", "--size", "16"),
        ("ping", "x", "--size", "99999999"), ("ping", "x:port"), ("ping", "x", "-c", "many"), ("serve",),
        ("ping", "x", "--port", "7472"), ("ping", "x", "--once"), ("ping", "-s", "--op", "cas"),
        ("ping", "-s", "--json"), ("ping", "-s", "-W", "3"), ("devices", "--pcap", "x"),
        ("counters", "--interval", "5", "--", "true"), ("counters", "--interval", "5"),
        ("serve", ".", "--port", "99999"), ("get", "verbena://h/x"),
        ("get", "http://h/x", "y"), ("get", "verbena://h:0/x", "y"), ("get", "verbena://:1/x", "y"),
        ("get", "verbena://h/../x", "y"), ("get", "verbena://h//x", "y"), ("get", "verbena://h/a/./x", "y"),
        ("put", "x"), ("put", "x", "y"), ("put", "x", "verbena://h/../y"), ("sim", "--seeds", "5"),
        ("sim", "--seeds", "1:0"), ("sim", "--plant", "Nothing"), ("sim", "--seeds", "1:2", "--trace"),
        ("sim", "--seed", "1", "--seeds", "1:2"),
        ("get", "verbena://::1:7471/x", "y"), ("get", "verbena://fe80::1/x", "y"), ("ping", "::1"),
    ]
    for words in wrong:
        output, errors = setting.run(*words, status=2)
        check(errors.startswith("verbena"), f"{words}: {errors!r}")
        check("--help" in errors, f"{words} does not lead on: {errors!r}")
        check(not output, f"{words} wrote to standard output: {output!r}")
    check("in brackets, [address]:port" in errors, errors)
    if sum(one["usable"] for one in json.loads(setting.run("devices", "--json")[0])) > 1:
        _, errors = setting.run("devices", "-v", "--pcap", "x", status=2)
        check("name that with --device" in errors, errors)
    say(f"{len(wrong)} wrong command lines")


def numbers_are_read_strictly(setting):
    most = (1 << 64) - 1
    flags = [(("sim", "--seed"), f"0 to {most}", ("-1", str(most + 1), "0x10", "1.5")),
             (("ping", "x", "-c"), f"--count: |0 to {most}", ("-3", "many", "1e3")),
             (("ping", "x", "--size"), "0 to ", ("-1", "99999999999", "64kk")),
             (("ping", "x", "-i"), "--interval: |0 to 1000000", ("nan", "-1", "inf", "1000001", "-0.5")),
             (("ping", "x", "-W"), "--timeout: |0.001 to 1000000", ("nan", "0", "1s")),
             (("ping", "-s", "--port"), "0 to 65535", ("70000", "-1", "http", " 1", "+1", "")),
             (("rping", "-s", "-p"), "--port: |0 to 65535", ("70000", "-1")),
             (("rping", "-s", "-C"), "-C: |0 to ", ("-3", "1e3")),
             (("rping", "-s", "--timeout"), "0.001 to 1000000", ("nan",)),
             (("pingpong", "-n"), "--iters: |1 to 2147483648", ("0", "-1", "4294967297")),
             (("pingpong", "-s"), "--size: |0 to 1073741824", ("-1", "4294967297")),
             (("serve", ".", "--port"), "0 to 65535", ("65536", "65536e0")),
             (("sim", "--seeds"), "FIRST:COUNT", ("5", "-1:2", "1:0", "1:-1", f"{most}:2", f"1:{most + 1}", "a:b"))]
    for words, told, values in flags:
        for value in values:
            output, errors = setting.run(*words, value, status=2)
            wanted = [f"{words[-1]}: ", *told.split("|")] if words[-1].startswith("--") else told.split("|")
            check(all(word in errors for word in [*wanted, f"'{value}'"]), f"{words} {value}: {errors!r}")
            check(not output, f"{words} {value}: {output!r}")
    ten, _ = setting.run("sim", "--seed", "10")
    check(setting.run("sim", "--seed", "010")[0] == ten, "a leading zero changes the base")
    say(errors.splitlines()[0])


def words_nobody_knows_are_named(setting):
    url = "verbena://127.0.0.1/x"
    cases = [(("frobnicate",), "frobnicate"), (("--bogus",), "--bogus"), (("get", url, "--bogus"), "--bogus"),
             (("get", "--bogus"), "--bogus"), (("get", url, "to", "--bogus=3"), "--bogus"),
             (("get", url, "to", "more"), "more"),
             (("--bogus", "get", url, "to"), "--bogus"), (("frobnicate", "--bogus"), "frobnicate"),
             (("devices", "extra"), "extra"), (("sim", "--frobnicate"), "--frobnicate"), (("put", "-z"), "-z"),
             (("frob\x1bnicate",), "frob\\x1bnicate"),
             (("bench", "wrte", "bw"), "command 'wrte' (did you mean write?); there are send, write, read"),
             (("bench", "write", "bandwith"), "'bandwith'; there are lat, bw"), (("dotcor",), "did you mean doctor?"),
             (("ping", "x", "--jsn"), "did you mean --json?")]
    for words, wrong in cases:
        output, errors = setting.run(*words, status=2)
        check("there is no " in errors and wrong in errors.splitlines()[0], f"{words}: {errors!r}")
        check("--help" in errors and "\x1b" not in errors and not output, f"{words}: {errors!r}")
    say(f"{len(cases)} unknown words: {errors.splitlines()[0]}")
    # Those without which a command would be a server, as a variable of the shell that is not set.
    for words in (("bench", "send", "lat", ""), ("bench", "protocols", ""), ("tune", ""), ("pingpong", "")):
        output, errors = setting.run(*words, status=2)
        check("HOST: an empty word" in errors and not output, f"{words}: {errors!r}")
    for words in (("serve", ".", "--device", ""), ("broker", "--users", "0", "--device", ""), ("rping", "-s", "-a", ""),
                  ("devices", "--device", ""), ("bench", "write", "bw", "-d", ""), ("pingpong", "--ib-dev", ""),
                  ("bench", "message", "-d", ""), ("tune", "--device", "")):
        output, errors = setting.run(*words, status=2)
        check("an empty word" in errors and not output, f"{words}: {errors!r}")
    for words, told in (((), ", capture, "), (("bench",), "send, write, read, atomic"), (("bench", "read"), "lat, bw"),
                        (("capture", "--", "ls"), "--write is required")):
        _, errors = setting.run(*words, status=2)
        check(told in errors.splitlines()[0], f"{words}: {errors!r}")


def devices_are_listed_with_reasons(setting):
    output, _ = setting.run("devices")
    check("127.0.0.1" in output and "usable" in output, output)
    output, _ = setting.run("devices", "--json")
    devices = json.loads(output)
    check(devices and all(isinstance(d["reason"], str) and d["reason"] for d in devices), output)
    loopback = next(d for d in devices if d["interface"] == "lo")
    check(loopback["usable"] and loopback["state"] == "active" and loopback["interface_mtu"] > 0, output)
    output, _ = setting.run("devices", "-v", "--device", loopback["name"])
    check("opened" in output and "4791" in output, output)
    _, errors = setting.run("devices", "--device", "nonesuch", status=1)
    check("nonesuch" in errors and "NotFound" in errors, errors)
    say(f"{len(devices)} devices")


def any_bytes_can_be_told_as_json(setting):
    strange = b"caf\xe9\x1b[2J"
    for words in (("ping",), ("ping", "--pcap", strange), ("get",), ("put",)):
        url, path = b"verbena://" + strange + b"/\xff", b"/x\xff"
        rest = {"get": (url, path), "put": (path, url), "ping": (strange,)}[words[0]]
        output, errors = setting.run(*words, *rest, "--json", status=1)
        check(json.loads(output)["error"]["message"] and "caf\\xe9\\x1b[2J" in errors, output + errors)
        check("\x1b" not in output + errors, repr(output + errors))
    # The name a process gives itself stands where devices tell who is in the way.
    holder = subprocess.Popen([*unshare("-Urn"), sys.executable, "-B", "-c", HOLDER, setting.bin],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    setting.started.append(holder)
    output, errors = holder.communicate(timeout=PATIENCE)
    parts = output.split(b"--\n")
    check(len(parts) == 3 and b"\x1b" not in output and b"\xff" not in output, repr(output + errors))
    told = [part.decode() for part in parts]
    check(any("(x??" in device["reason"] for device in json.loads(told[0])), told[0])
    check("(x??" in told[1] and "(x??" in told[2], output)
    say(next(line for line in told[1].splitlines() if "(x??" in line))


# Holds the RoCE port of every address under a name that is no text, and runs `verbena devices` in its network.
HOLDER = r"""
import os, socket, subprocess, sys
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
with open("/proc/self/comm", "wb") as name:
    name.write(b"x\xff\xfe\x1b[2J")
holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
holder.bind(("0.0.0.0", 4791))
for words in (["--json"], [], ["-v"]):
    subprocess.run([os.path.join(sys.argv[1], "verbena"), "devices", *words], check=False)
    if words != ["-v"]:
        print("--", flush=True)
"""


def addresses_that_lead_nowhere_are_errors(setting):
    _, errors = setting.run("get", "verbena://127.77.66.55:7471/x", setting.path("x"), status=1)
    check("Unreachable" in errors and "127.77.66.55" in errors, errors)
    server = Server(setting, "serve", setting.folder)
    host = server.address.rsplit(":", 1)[0]
    _, errors = setting.run("get", f"verbena://{host}:9/x", setting.path("x"), status=1)
    check("ConnectionRefused" in errors and "verbena serve" in errors, errors)
    _, errors = setting.run("ping", server.address, status=1)
    check("Rejected" in errors and "file server" in errors, errors)
    _, errors = setting.run("ping", "no.such.host.invalid", status=1)
    check("NotFound" in errors, errors)
    _, errors = setting.run("get", server.url("x"), setting.path("x"), "--device", "203.0.113.9", status=1)
    check("203.0.113.9" in errors, errors)
    _, errors = setting.run("get", server.url("x"), setting.path("x"), "--pcap", setting.path("no", "dir"), status=1)
    check("dir" in errors, errors)
    output, _ = setting.run("get", server.url("x"), setting.path("x"), "--json", status=1)
    check(json.loads(output)["error"]["code"] == "NotFound", output)
    server.stop()
    for device in (d for d in json.loads(setting.run("devices", "--json")[0]) if d["interface"] != "lo"):
        _, errors = setting.run("ping", f"[{device['address']}]:1" if ":" in device["address"] else device["address"],
                                status=1)
        check("nobody listens" in errors, errors)  # its address is ours too: processes share it
    _, errors = setting.run("serve", setting.path("nowhere"), status=1)
    check("nowhere" in errors, errors)
    say("unreachable, refused, rejected, unknown host, foreign device, bad capture file, missing file")


def advice_fits_what_went_wrong(setting):
    write_file(setting.path("served", "a.bin"), 10)
    served, file = setting.path("served"), setting.path("served", "a.bin")
    server = Server(setting, "serve", served)
    pinged = Server(setting, "ping", "-s")
    missing = setting.path("no", "capture")
    cases = [
        (("get", server.url("none"), setting.path("x")), ["path in the URL"]),
        (("put", setting.path("none"), server.url("")), ["cannot read", "Check the spelling."]),
        (("put", file, server.url("up")), ["--writable", "how the server was started"]),
        (("get", server.url("a.bin"), setting.path("x", "y") + "/"), ["there is no directory", "x/y", "mkdir -p"]),
        (("serve", setting.path("none")), ["none", "directory to serve"]),
        (("serve", file), ["a.bin: it is not a directory", "directory around a file"]),
        (("ping", "no.such.host.invalid"), ["no.such.host.invalid", "spelling of the host"]),
        (("ping", server.address, "--device", "nonesuch"), ["nonesuch", "`verbena devices`"]),
        (("ping", "[::1]:1", "--device", "127.0.0.77"), ["other IP version", "in the device's IP version"]),
        (("get", server.url("a.bin"), setting.path("x"), "--pcap", missing), [missing, "for --pcap"]),
        (("serve", served, "--pcap", missing), [missing, "for --pcap"]),
        (("ping", "-s", "--pcap", missing), [missing, "for --pcap"]),
        (("sim", "--pcap", missing), [missing, "for --pcap"]),
        (("ping", server.address), ["file server", "verbena get"]),
        (("get", f"verbena://{pinged.address}/x", setting.path("x")), ["ping server", "verbena serve"]),
    ]
    for words, told in cases:
        _, errors = setting.run(*words, status=1)
        check(all(word in errors for word in told), f"{words}: {errors}")
        check(len(errors.splitlines()) >= 2, f"{words}, no advice: {errors}")
        check("`verbena devices`" in told or "devices` lists devices" not in errors, f"{words}: {errors}")
        check("IP version" in errors or "4791" not in errors, f"{words}: {errors}")
    server.stop()
    pinged.stop()
    say(f"{len(cases)} errors, each with its own advice")


def who_is_not_served_is_told_what_to_do(setting):
    busy = Server(setting, "rping", "-s")
    host, port = busy.address.rsplit(":", 1)
    guest = ("rping", "-c", "-a", host, "-p", port)
    first = setting.start(*guest, "-d", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    check(b"connected" in first.stderr.readline(), "the one client there is room for does not connect")
    for words in (("ping", busy.address), ("get", busy.url("x"), setting.path("x")), (*guest, "-C", "1")):
        _, errors = setting.run(*words, status=1)
        check("ResourceExhausted" in errors and errors.splitlines()[-1].endswith("ry again later."), errors)
    first.stderr.close()
    deaf = subprocess.Popen([os.path.join(setting.bin, "hostile_peer"), "deaf"], stdout=subprocess.PIPE)
    setting.started.append(deaf)
    address = first_line(deaf).split()[-1]
    host, port = address.rsplit(":", 1)
    for words in (("ping", address), ("get", f"verbena://{address}/x", setting.path("x")),
                  ("rping", "-c", "-a", host, "-p", port)):
        _, errors = setting.run(*words, status=1)
        check("TimedOut" in errors and "  Look at the program there: it is stopped, or too busy to answer.\n" in errors,
              errors)
    deaf.stdout.close()
    say("no room, and a program that does not answer")


def a_port_is_listened_on_once(setting):
    server = Server(setting, "ping", "-s")
    host, port = server.address.rsplit(":", 1)
    _, errors = setting.run("ping", "-s", "--device", host, "--port", port, status=1)
    check("AddressInUse" in errors, errors)
    server.stop()
    say(f"second server at {host}:{port} refused")


if __name__ == "__main__":
    main(every_command_explains_itself, wrong_usage_is_told_and_gives_two, numbers_are_read_strictly,
         words_nobody_knows_are_named, devices_are_listed_with_reasons, any_bytes_can_be_told_as_json,
         addresses_that_lead_nowhere_are_errors, advice_fits_what_went_wrong, who_is_not_served_is_told_what_to_do,
         a_port_is_listened_on_once)
