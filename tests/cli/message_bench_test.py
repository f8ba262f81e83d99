# SPDX-License-Identifier: Apache-2.0
"""verbena bench message: every protocol over both paths, many senders, many threads, ends that disagree or go."""

import json
import signal
import socket
import subprocess
import time

from command import PATIENCE, Server, check, main, say, wait_until

PROTOCOLS = ("send-receive", "shared-receive", "direct-write", "buffered-write", "buffered-write/offset/read",
             "buffered-write/reversed/read/double-mapped", "shared-write", "direct-read", "direct-read/fenced",
             "buffered-read", "buffered-read/double-mapped")
MEASURES = ("lat", "bw", "rate")
LATENCY = (" #bytes   #iterations  t_min[usec]  t_typical[usec]  t_avg[usec]  t_stdev[usec]  99%[usec]  99.9%[usec]  "
           "t_max[usec]")
RATE = " #bytes   #messages    BW[GB/sec]   MsgRate[Mmsg/sec]  o[usec]   sender[KiB]   receiver[KiB]"


def rows(output, header):
    lines = output.splitlines()
    check(header in lines, f"no line {header!r} in {output}")
    rest = lines[lines.index(header) + 1:]
    return [line.split() for line in rest[:next(i for i, line in enumerate(rest) if line.startswith("---"))]]


def here(setting, *words):
    """Runs a client with a server of its own; what it prints and its JSON."""
    file = setting.path("result.json")
    output, _ = setting.run("bench", "message", *words, "--here", "-F", "--json", file)
    with open(file, encoding="utf-8") as result:
        return output, json.load(result)


def words_to(server):
    host, port = server.address.rsplit(":", 1)
    return [host, "-p", port, "-F"]


def client(setting, server, *words):
    return setting.start("bench", "message", *words, *words_to(server), stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE)


def ended(server):
    server.process.communicate(timeout=PATIENCE)
    return server.process.returncode


def every_protocol_is_measured_over_both_paths(setting):
    for path in ("roce", "local"):
        for protocol in PROTOCOLS:
            for measure in MEASURES:
                _, result = here(setting, protocol, measure, "-n", "40", "-s", "200", "--path", path)
                check(result["ok"] and len(result["results"]) == 1, result)
                one = result["results"][0]
                test = one["test"]
                check(test["measure"] == measure and test["path"] == path and test["size"] == 200, test)
                check(one["settled"].startswith(protocol.split("/", maxsplit=1)[0]), one)
                check(one["messages"] == 40 and one["seconds"] > 0 and one["receiver_bytes"] > 0, one)
                check(one["bytes_per_s"] > 0 and one["overhead_us"] > 0, one)
                check(("time_us" in one) == (measure == "lat"), one)
                if measure == "lat":
                    times = [one["time_us"][key] for key in ("min", "typical", "p99", "p99.9", "max")]
                    check(times == sorted(times) and times[0] > 0, one)
    say(f"{2 * len(MEASURES) * len(PROTOCOLS)} tests")


def the_path_taken_is_told_and_why(setting):
    memory, packets = "shared memory with", "RoCE, because path=roce was asked for"
    for words, path, reason in (((), "local", memory), (("--path", "local"), "local", memory),
                                (("--path", "roce"), "roce", packets)):
        for measure in ("lat", "rate"):
            output, result = here(setting, "send-receive", measure, "-n", "20", "-a", *words)
            check(f" Path          : {reason}" in output, output)
            for one in result["results"]:
                check(one["path"] == path and one["path_reason"].startswith(reason), one)
                check(one["test"]["path"] == (words[1] if words else "auto"), one)
    # The other end has a say.
    server = Server(setting, "bench", "message", "-F", "--pcap", setting.path("there.pcapng"))
    file = setting.path("packets.json")
    output, _ = setting.run("bench", "message", "send-receive", "lat", *words_to(server), "-n", "20", "--json", file)
    with open(file, encoding="utf-8") as result:
        one = json.load(result)["results"][0]
    check(ended(server) == 0 and one["test"]["path"] == "auto" and one["path"] == "roce", one)
    check(f" Path          : {one['path_reason']}" in output, output)
    say("what was asked for, and what came of it")


def the_table_says_what_the_json_says(setting):
    for measure, header in (("lat", LATENCY), ("bw", RATE), ("rate", RATE)):
        output, result = here(setting, "buffered-write", measure, "-n", "30", "-s", "64")
        row, one = rows(output, header)[0], result["results"][0]
        check(len(row) == len(header.split()) and row[:2] == ["64", "30"], output)
        if measure != "lat":
            check(int(row[6]) == (one["receiver_bytes"] + 1023) // 1024, f"{row} {one}")
        say(" ".join(row))


def many_senders_and_many_threads_are_all_counted(setting):
    for path in ("roce", "local"):
        for protocol in PROTOCOLS:
            _, result = here(setting, protocol, "rate", "-n", "50", "--senders", "3", "--threads", "2", "--path", path,
                             "--batch", "7")
            one = result["results"][0]
            check(one["messages"] == 300 and one["test"]["batch"] == 7, one)
            _, result = here(setting, protocol, "lat", "-n", "20", "--senders", "3", "--threads", "2", "--path", path)
            one = result["results"][0]
            check(one["messages"] == 120 and 0 < one["time_us"]["min"] <= one["time_us"]["p99"], one)
    separate = here(setting, "send-receive", "rate", "-n", "10", "--senders", "16")[1]["results"][0]
    shared = here(setting, "shared-receive", "rate", "-n", "10", "--senders", "16")[1]["results"][0]
    check(shared["receiver_bytes"] * 4 < separate["receiver_bytes"], f"{shared} {separate}")
    say("3 senders to each of 2 threads")


def other_flags_reach_the_tests(setting):
    # A window and a ring are seen in what memory they take.
    small = here(setting, "send-receive", "bw", "-n", "20", "--window", "8")[1]["results"][0]
    large = here(setting, "send-receive", "bw", "-n", "20", "--window", "128")[1]["results"][0]
    check(large["receiver_bytes"] > 8 * small["receiver_bytes"], f"{small} {large}")
    ring = here(setting, "buffered-write", "rate", "-n", "20", "--ring", "8192")[1]["results"][0]
    check(ring["receiver_bytes"] < 65536, ring)
    for asked, rounded in ((10, 4096), (5000, 8192), (8192, 8192)):
        file = setting.path("ring.json")
        words = ("bench", "message", "buffered-write", "rate", "-n", "20", "--here", "-F", "--json", file, "--ring")
        output, errors = setting.run(*words, str(asked))
        with open(file, encoding="utf-8") as result:
            one = json.load(result)["results"][0]
        check(one["test"]["ring_bytes"] == rounded and f" Ring        : {rounded}[B]" in output, f"{one} {output}")
        check((f"--ring {asked} makes a ring of {rounded} bytes" in errors) == (asked != rounded), errors)
        # As the library has it.
        check(one["receiver_bytes"] == ring["receiver_bytes"] - 8192 + rounded, f"{one} {ring}")
    for protocol in ("send-receive", "direct-read", "shared-write"):
        for measure in MEASURES:
            here(setting, protocol, measure, "-n", "20", "-e")
    timed = here(setting, "send-receive", "rate", "-D", "1", "--senders", "2")[1]["results"][0]
    check(timed["seconds"] >= 1 and timed["messages"] > 2, timed)
    timed = here(setting, "direct-write", "lat", "-D", "1")[1]["results"][0]
    check(timed["seconds"] >= 1 and timed["messages"] > 1, timed)
    say("--window --ring -e -D")


def all_sizes_are_measured(setting):
    for words, first in ((("buffered-read", "lat"), [0]), (("direct-read", "bw"), []), (("shared-write", "rate"), [])):
        output, result = here(setting, *words, "-a", "-n", "3")
        wanted = first + [2 ** n for n in range(21)]
        check([one["test"]["size"] for one in result["results"]] == wanted, result)
        check([int(row[0]) for row in rows(output, LATENCY if words[1] == "lat" else RATE)] == wanted, output)
    say("from 0 or 1 to 1048576")


def a_server_without_words_serves_any_client_and_says_what(setting):
    server = Server(setting, "bench", "message", "-F")
    setting.run("bench", "message", "direct-read", "lat", *words_to(server), "-n", "5", "-a")
    output, _ = server.process.communicate(timeout=PATIENCE)
    check(server.process.returncode == 0, server.errors())
    told = output.decode().splitlines()
    check(told[0].startswith(f" waits for `verbena bench message PROTOCOL lat|bw|rate {server.address}`"), told)
    check(told[1] == " direct-read lat, 0 bytes: the client has the numbers" and len(told) == 23, told)
    server = Server(setting, "bench", "message", "buffered-write", "bw", "-s", "100", "-F", "--path", "local")
    setting.run("bench", "message", "buffered-write", "bw", *words_to(server), "-n", "5", "-s", "100", "--path",
                "local")
    check(ended(server) == 0, server.errors())
    say(told[-1])


def ends_that_disagree_say_in_what(setting):
    cases = [(("send-receive", "lat"), (), ("direct-read", "lat"), "PROTOCOL is direct-read here and send-receive"),
             (("send-receive", "lat"), (), ("send-receive", "bw"), "MEASURE is bw here and lat there"),
             (("shared-write",), (), ("shared-write/double-mapped", "bw"), "PROTOCOL is shared-write/double-mapped"),
             ((), ("-s", "100"), ("send-receive", "lat"), "-s is 8 here and 100 there"),
             (("send-receive", "lat"), ("-a",), ("send-receive", "lat"), "-s is 8 here and all of -a there"),
             ((), ("--path", "roce"), ("send-receive", "lat", "--path", "local"), "--path is local here"),
             ((), ("-D", "3"), ("send-receive", "lat"), "-D is not given here and 3 there"),
             ((), ("--senders", "2"), ("send-receive", "bw"), "--senders is 1 here and 2 there")]
    for words, flags, theirs, told in cases:
        server = Server(setting, "bench", "message", *words, *flags, "-F")
        _, errors = setting.run("bench", "message", *theirs, *words_to(server), status=1)
        check(told in errors, errors)
        check(ended(server) == 1 and "the two ends differ" in server.errors(), server.errors())
    # The other benchmark at the one end or the other.
    server = Server(setting, "bench", "message", "-F")
    _, errors = setting.run("bench", "send", "lat", *words_to(server), status=1)
    here_and_there = "different tests: `verbena bench {}` here, and `verbena bench {}` there"
    check(here_and_there.format("send lat", "message") in errors and "the same test" in errors, errors)
    check(ended(server) == 1 and here_and_there.format("message", "send lat") in server.errors(), server.errors())
    for words in (("bench", "message", "send-receive", "lat"), ("bench", "protocols"), ("tune",)):
        server = Server(setting, "bench", "write", "bw", "-F")
        _, errors = setting.run(*words, *words_to(server), status=1)
        check(here_and_there.format("message", "write bw") in errors and "the same test" in errors, errors)
        check(ended(server) == 1 and here_and_there.format("write bw", "message") in server.errors(), server.errors())
    say(errors.splitlines()[0])


def a_test_that_an_end_cannot_run_is_told_to_both(setting):
    server = Server(setting, "bench", "message", "-F")
    words = ("buffered-write", "rate", "-s", "1000000", "--ring", "4096")
    _, errors = setting.run("bench", "message", *words, *words_to(server), status=1)
    check("Rejected: the other side: InvalidArgument" in errors and "holds messages of at most" in errors, errors)
    check(ended(server) == 1 and "holds messages of at most" in server.errors(), server.errors())
    server = Server(setting, "bench", "message", "-F", "-e")
    _, errors = setting.run("bench", "message", "buffered-read", "lat", *words_to(server), status=1)
    check("leave -e out" in errors, errors)
    check(ended(server) == 1 and "leave -e out" in server.errors(), server.errors())
    _, errors = setting.run("bench", "message", "buffered-write", "bw", "--here", "-F", "-s", "1000000", "--ring",
                            "4096", status=1)
    check("holds messages of at most" in errors, errors)
    server = Server(setting, "bench", "message", "-F", "--device", "127.0.0.77")
    _, errors = setting.run("bench", "message", "send-receive", "bw", "--threads", "2", *words_to(server), status=1)
    check("--threads" in errors and "127.0.0.77" in errors, errors)
    check(ended(server) == 1, server.errors())
    say(errors.splitlines()[0])


def flags_that_mean_nothing_are_refused(setting):
    cases = [(("carrier-pigeon", "lat", "--here"), "protocols are send-receive"),
             (("send-receive", "--here"), "give a PROTOCOL"), (("--here",), "give a PROTOCOL"),
             (("send-receive", "lat", "host", "--here"), "one of the two"),
             (("send-receive", "lat", "--here", "-p", "1"), "free port"),
             (("send-receive", "lat", "host", "-p", "0"), "-p 0"),
             (("send-receive", "lat", "--json", "x"), "the client has the numbers"),
             (("send-receive", "lat", "--here", "-a", "-s", "8"), "one of the two"),
             (("send-receive", "lat", "--here", "-n", "5", "-D", "1"), "one of the two"),
             (("send-receive", "lat", "--here", "--batch", "2"), "no batch"),
             (("send-receive", "bw", "--here", "-s", "0"), "no bytes"),
             (("send-receive", "bw", "--here", "--threads", "2", "--pcap", "x"), "--pcap"),
             (("buffered-write", "lat", "--here", "-I", "0"), "do not go in the request"),
             (("buffered-write/offset", "lat", "--here", "-e"), "wakes who sleeps"),
             (("send-receive", "lat", "--here", "--ring", "8192"), "--ring: send-receive has none"),
             (("shared-receive", "rate", "--here", "--senders", "65"), "give --window 65 or more"),
             (("-a", "-s", "8"), "one test"), (("-a", "host", "--senders", "2"), "one test"),
             (("-a", "-p", "1"), "free port"), (("-a", "-n", "2000000"), "at most 1000000"),
             (("-a", "send-receive", "-p", "1"), "free port"), (("-a", "send-receive", "-e"), "one test"),
             (("-a", "send-receive", "host", "--here"), "one of the two"),
             (("-a", "send-receive", "--kinds", "all"), "give one"),
             (("carrier/pigeon", "-a"), "protocols are send-receive"),
             (("send-receive", "lat", "-a", "--report", "x"), "all tests"),
             (("send-receive", "lat", "--here", "--kinds", "all"), "all tests")]
    for words, told in cases:
        output, errors = setting.run("bench", "message", *words, status=2)
        check(told in errors.splitlines()[0] and "--help" in errors and not output, f"{words}: {errors}")
        check(errors.startswith("verbena bench message: "), errors)
    numbers = [("-n", "0"), ("-s", "-1"), ("-s", "x"), ("-s", "64kB"), ("-s", "64kk"), ("-s", "1G"),
               ("-D", "0"), ("--senders", "0"), ("--threads", "65"),
               ("--batch", "0"), ("--window", "70000"), ("--ring", "0"), ("-p", "70000"), ("--timeout", "nan")]
    for flag, value in numbers:
        output, errors = setting.run("bench", "message", "send-receive", "bw", flag, value, status=2)
        check(value in errors and not output, f"{flag} {value}: {errors}")
    for protocol, flag in (("send-receive", "1025"), ("direct-write", "100000")):
        _, errors = setting.run("bench", "message", protocol, "lat", "--here", "-F", "-n", "5", "-I", flag, status=1)
        check(f"-I is {flag}, and the device at " in errors and "takes 1024 at most" in errors, errors)
    _, errors = setting.run("bench", "message", "send-receive", "lat", "--here", "-F", "--json",
                            setting.path("no", "result"), status=1)
    check("Name files" in errors, errors)
    say(f"{len(cases)} flags, {len(numbers)} numbers")


def words_nobody_knows_lead_to_those_there_are(setting):
    protocols = "protocols are send-receive, shared-receive, direct-write, buffered-write, shared-write, direct-read"
    cases = [(("send-recieve", "lat"), ["did you mean send-receive?", protocols]),
             (("buffered-write/reversd", "lat", "host"),
              ["did you mean reversed?", "its choices are ", "offset", "double-mapped"]),
             (("buffered-write/immediate/offset", "lat"), ['"immediate" and "offset" exclude each other; its choice']),
             (("send-receive/fenced", "lat"), ["it has none"]), (("pigeons", "lat", "--here"), [protocols]),
             (("lat", "host"), ["'lat' is a test: give a PROTOCOL before it", "send-receive"]),
             (("send-receive", "latency"), ["no test 'latency'", "did you mean lat?", "tests are lat, bw, rate"]),
             (("send-receive", "127.0.0.1"), ["'127.0.0.1' is no test", "give one of lat, bw, rate before it"]),
             (("send-receive", "bandwidth", "host"), ["no test 'bandwidth'", "did you mean bw?"]),
             (("127.0.0.1",), ["'127.0.0.1' is no protocol", "PROTOCOL and MEASURE before it"]),
             (("latency",), ["'latency' is no protocol (did you mean lat?); one comes before the test: send-receive"]),
             (("send-receive", "lat", "bw"), ["'bw' is a test"]),
             # Those that would otherwise wait for a client, or take them for hosts.
             (("-a", "send-recieve"), ["did you mean send-receive?"]), (("-a", "lat"), ["'lat' is a test"]),
             (("-a", "send-receive", "lat", ""), ["HOST: an empty word"]), (("",), ["PROTOCOL: an empty word"]),
             (("send-receive", ""), ["MEASURE: an empty word"]), (("send-receive", "lat", ""), ["HOST: an empty word"])]
    for words, told in cases:
        output, errors = setting.run("bench", "message", *words, status=2)
        line = errors.splitlines()[0]
        check(all(word in line for word in told) and "--help" in errors and not output, f"{words}: {errors}")
    for words in (("--kinds", "direct-raed", "-a"), ):
        _, errors = setting.run("bench", "message", *words, status=2)
        check("did you mean direct-read?" in errors and protocols in errors, errors)
    say(f"{len(cases)} words: {line}")


LONG = (("send-receive", "rate"), ("buffered-write/reversed", "lat"), ("direct-read", "bw", "--threads", "2"))


def an_end_that_goes_ends_the_other(setting):
    for words in LONG:
        for victim in ("server", "client"):
            server = Server(setting, "bench", "message", "-F")
            other = client(setting, server, *words, "-D", "600")
            time.sleep(0.5)
            (server.process if victim == "server" else other).kill()
            _, errors = other.communicate(timeout=PATIENCE)
            status = ended(server)
            told = errors.decode() if victim == "server" else server.errors()
            check((other.returncode if victim == "server" else status) == 1, f"{words}, {victim} killed: {told}")
            check("ConnectionLost" in told, told)
    say(told.splitlines()[0])


def an_interrupt_ends_both(setting):
    for words in LONG:
        for victim in ("server", "client"):
            server = Server(setting, "bench", "message", "-F")
            other = client(setting, server, *words, "-D", "600")
            time.sleep(0.5)
            (server.process if victim == "server" else other).send_signal(signal.SIGINT)
            _, errors = other.communicate(timeout=PATIENCE)
            status = ended(server)
            first, second = errors.decode(), server.errors()
            if victim == "server":
                first, second = second, first
            check(other.returncode == 1 and status == 1, f"{words} {victim}: {first} {second}")
            check("Cancelled: " in first and "interrupted" in first, first)  # wherever they were
            check("Rejected: the other side" in second and "interrupted" in second, second)
    say(second.splitlines()[0])


def the_server_of_a_client_goes_with_it(setting):
    for how in (signal.SIGINT, signal.SIGKILL):
        process = setting.start("bench", "message", "send-receive", "lat", "-D", "600", "--here", "-F",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        children = f"/proc/{process.pid}/task/{process.pid}/children"
        found = []

        def has_child(path=children, to=found):
            with open(path, encoding="ascii") as file:
                to[:] = file.read().split()
            return bool(to)

        wait_until(has_child, "the server is there")
        time.sleep(0.5)
        process.send_signal(how)
        process.communicate(timeout=PATIENCE)
        wait_until(lambda: not is_running(found[0]), "the server has gone")
    say("interrupted and killed")


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def framed(text):
    return len(text).to_bytes(4, "little") + text


HELLO = framed(b'{"bench":"message","flags":{},"address":"x"}')


def strangers_are_told_apart(setting):
    for words in (b"0000:000011:000001:00000000000000000000ffff7f090909\0", framed(b"{}"), framed(b"[1]"), b"",
                  framed(b'{"bench":"message","flags":[],"address":"x"}'), b"\xff\xff\xff\xff", HELLO,
                  HELLO + framed(b'{"test":7}'), HELLO + framed(b'{"test":{"protocol":"send-receive"}}'),
                  HELLO + framed(b'{"tests":{}}'), HELLO + framed(b'{"end'), HELLO + framed(b"[" * 20)):
        server = Server(setting, "bench", "message", "-F", "--timeout", "3")
        host, port = server.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as link:
            try:
                link.sendall(words)
                link.shutdown(socket.SHUT_WR)
                while link.recv(4096):
                    pass
            except OSError:
                pass  # it is through with us already
        check(ended(server) == 1 and server.errors().count("\n") >= 1, f"{words!r}: {server.errors()}")
    say(server.errors().splitlines()[0])


if __name__ == "__main__":
    main(every_protocol_is_measured_over_both_paths, the_path_taken_is_told_and_why, the_table_says_what_the_json_says,
         many_senders_and_many_threads_are_all_counted, other_flags_reach_the_tests, all_sizes_are_measured,
         a_server_without_words_serves_any_client_and_says_what, ends_that_disagree_say_in_what,
         a_test_that_an_end_cannot_run_is_told_to_both, flags_that_mean_nothing_are_refused,
         words_nobody_knows_lead_to_those_there_are,
         an_end_that_goes_ends_the_other, an_interrupt_ends_both, the_server_of_a_client_goes_with_it,
         strangers_are_told_apart)
