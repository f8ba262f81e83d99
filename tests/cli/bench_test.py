# SPDX-License-Identifier: Apache-2.0
"""verbena bench: every test and flag at both ends, what each end prints, JSON, the page, ends that disagree."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import xml.etree.ElementTree as xml

from command import PATIENCE, Server, Skip, check, main, output_until, say

LATENCY = (" #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   "
           "99% percentile[usec]   99.9% percentile[usec] ")
SHORT_LATENCY = " #bytes        #iterations       t_avg[usec]    tps average"
BANDWIDTH = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
TESTS = [(verb, measure) for verb in ("send", "write", "read", "atomic") for measure in ("lat", "bw")]


def words_to(server, test):
    host, port = server.address.rsplit(":", 1)
    return ["bench", *test, host, "-p", port, "-F"]


def ended(server):
    output, _ = server.process.communicate(timeout=PATIENCE)
    return output.decode(), server.process.returncode


def load(file):
    with open(file, encoding="utf-8") as result:
        return json.load(result)


def both(setting, test, *flags, client=(), server=()):
    """Runs a test; the output of client and server and the client's JSON."""
    other = Server(setting, "bench", *test, "-F", *flags, *server)
    file = setting.path("result.json")
    ours, _ = setting.run(*words_to(other, test), *flags, *client, "--json", file)
    theirs, status = ended(other)
    check(status == 0, f"{test} {flags}: {other.errors()}")
    return ours, theirs, load(file)


def table(output, header):
    """The lines of numbers below the header, as lists."""
    lines = output.splitlines()
    check(header in lines, f"no line {header!r} in {output}")
    rest = lines[lines.index(header) + 1:]
    return [line.split() for line in rest[:next(i for i, line in enumerate(rest) if line.startswith("---"))]]


def the_path_is_told(setting):
    for test in TESTS:
        ours, theirs, result = both(setting, test, "-n", "20")
        check(result["path"] == "local" and result["path_reason"].startswith("shared memory with"), result)
        check("shared memory with" in ours and "shared memory with" in theirs, f"{ours} {theirs}")
        ours, _, result = both(setting, test, "-n", "20", "--path", "roce", "-m", "1024")
        check(result["path"] == "roce" and "path=roce was asked for" in result["path_reason"], result)
        check(" Path          : RoCE, because path=roce" in ours, ours)
    other = Server(setting, "bench", "write", "lat", "-F", "-n", "20", "-m", "1024")
    _, errors = setting.run(*words_to(other, ("write", "lat")), "-n", "20", "-m", "1024")
    ended(other)
    check("the ends share memory" in errors, errors)
    say("shared memory and packets, and flags of packets where there are none")


def every_test_runs_at_both_ends(setting):
    for test in TESTS:
        ours, theirs, result = both(setting, test, "-n", "200")
        check(result["ok"] and result["test"] == test[0] and result["measure"] == test[1], result)
        one = result["results"][0]
        header = LATENCY if test[1] == "lat" else BANDWIDTH
        row = table(ours, header)[0]
        size = 8 if test[0] == "atomic" else 2 if test[1] == "lat" else 65536
        check(len(row) == (9 if test[1] == "lat" else 5), row)
        check(row[:2] == [str(size), "200"] and one["bytes"] == size and one["iterations"] == 200, f"{row} {one}")
        if test[1] == "bw":
            check(table(theirs, BANDWIDTH) == table(ours, BANDWIDTH), ours + theirs)
            check(one["peak_bytes_per_s"] >= one["bytes_per_s"] * 0.999 > 0, one)
        elif test[0] in ("send", "write"):
            check(table(theirs, LATENCY)[0][1] == "199", theirs)
        else:
            check("the client has the numbers" in theirs, theirs)
        if test[1] == "lat":
            times = [one["time_us"][key] for key in ("min", "typical", "p90", "p99", "p99.9", "p99.99", "max")]
            check(times == sorted(times) and times[0] > 0, one)
            check(sum(bucket["count"] for bucket in one["histogram"]) == 200, one)
            check([b["up_to_us"] for b in one["histogram"]] == sorted(b["up_to_us"] for b in one["histogram"]), one)
        say(f"{' '.join(test)}: {' '.join(row)}")


def headers_are_perftests(setting):
    del setting
    for program, header in (("ib_write_bw", BANDWIDTH), ("ib_send_bw", BANDWIDTH), ("ib_write_lat", LATENCY),
                            ("ib_read_lat", SHORT_LATENCY), ("ib_atomic_lat", LATENCY)):
        path = shutil.which(program)
        if not path:
            raise Skip(f"there is no {program}")
        with open(path, "rb") as file:
            check(header.encode() in file.read(), f"{program} has no {header!r}")
    say("the columns are in perftest's programs")


def every_way_of_bandwidth_works(setting):
    ways = [("-q", "3"), ("-b",), ("-R",), ("-R", "-q", "4", "-b"), ("-t", "1"), ("-t", "16", "-Q", "16"),
            ("-l", "8", "-Q", "4"), ("-t", "7", "-Q", "3", "-l", "5"), ("-N",), ("-m", "1024"), ("-m", "256", "-R"),
            ("-s", "1"), ("-s", "1000001"), ("-u", "18"), ("-c", "RC", "-i", "1", "-x", "0"), ("-n", "5"),
            ("--report_gbits",)]
    for verb in ("send", "write", "read"):
        for way in ways:
            count = () if "-n" in way else ("-n", "60")
            _, _, result = both(setting, (verb, "bw"), *way, *count)
            one = result["results"][0]
            pairs = int(way[way.index("-q") + 1]) if "-q" in way else 1
            check(one["iterations"] == pairs * (60 if count else 5), f"{verb} {way}: {one}")
            check(result["connection_manager"] == ("-R" in way) and result["bidirectional"] == ("-b" in way), result)
            check((one["peak_bytes_per_s"] is None) == ("-N" in way), one)
            if "-m" in way:
                check(result["mtu"] == int(way[way.index("-m") + 1]), result)
    for words in (("send", "-r", "1"), ("send", "-e"), ("send", "-r", "3", "-b", "-q", "2"), ("read", "-o", "1"),
                  ("send", "--use-srq"), ("send", "--use-srq", "-q", "3", "-r", "2"),
                  ("send", "--use-srq", "-b", "-q", "2", "-e"),
                  ("read", "-e"), ("write", "-I", "64", "-s", "64"), ("send", "-I", "100", "-s", "101"),
                  ("atomic", "-A", "CMP_AND_SWAP"), ("atomic", "-b", "-q", "2", "-R", "-o", "2"), ("atomic", "-e")):
        both(setting, (words[0], "bw"), *words[1:], "-n", "60")
    say(f"{len(ways)} combinations, three operations each, and 13 of one operation's own")


def so_many_operations_complete_as_of_perftest(setting):
    ways = [(("write", "bw"), (), 1), (("write", "bw"), ("-s", "8193"), 1), (("write", "bw"), ("-s", "8192"), 100),
            (("send", "bw"), ("-s", "2", "-t", "16"), 16), (("send", "bw"), ("-e",), 100),
            (("read", "bw"), ("-a",), 100), (("atomic", "bw"), (), 100),
            (("write", "bw"), ("-s", "2", "-l", "8"), 8),
            (("write", "bw"), ("-s", "2", "-l", "8", "-Q", "4"), 4), (("send", "bw"), ("-Q", "7"), 7),
            (("write", "bw"), ("-s", "2", "-l", "64", "-Q", "100"), 100),
            (("send", "bw"), ("-t", "9", "-l", "7", "-Q", "5"), 5), (("read", "bw"), ("-l", "100", "-Q", "64"), 64)]
    for test, way, wanted in ways:
        ours, _, result = both(setting, test, "-n", "250", *way)
        check(result["cq_mod"] == wanted and f" CQ mod.     : {wanted}\n" in ours, f"{test} {way}: {result}")
        check(all(one["iterations"] == 250 for one in result["results"]), result)
    _, _, result = both(setting, ("write", "lat"), "-n", "20")
    check(result["cq_mod"] == 1, result)
    # The time is up at a completion.
    for test in (("send", "bw"), ("atomic", "bw")):
        _, _, result = both(setting, test, "-D", "1", *(("-s", "8") if test[0] == "send" else ()))
        check(result["results"][0]["iterations"] % 100 == 0, result)
    say(f"{len(ways)} ways")


def every_way_of_latency_works(setting):
    for words in (("send", "-R"), ("send", "-e"), ("send", "--use-srq"), ("send", "-s", "5000", "-m", "512"),
                  ("send", "-I", "64"),
                  ("write", "-R", "-s", "1"), ("write", "-s", "100000"), ("write", "-I", "16", "-s", "16"),
                  ("read", "-R", "-e"), ("read", "-o", "1"), ("atomic", "-A", "CMP_AND_SWAP", "-R"), ("atomic", "-e")):
        _, _, result = both(setting, (words[0], "lat"), *words[1:], "-n", "300")
        check(result["results"][0]["iterations"] == 300, result)
    say("-R -e -s -m -I -o -A --use-srq")


def huge_pages_are_taken_or_missed(setting):
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        free = re.search(r"^HugePages_Free: +(\d+)$", meminfo.read(), re.MULTILINE)
    if free and int(free[1]) >= 1:
        # Each end for itself.
        both(setting, ("write", "bw"), "-n", "60", client=("--use_hugepages",))
        return say("an end in huge pages")
    server = Server(setting, "bench", "write", "bw", "-F")
    _, errors = setting.run(*words_to(server, ("write", "bw")), "--use_hugepages", status=1)
    check("--use_hugepages: 2 MiB" in errors and "vm.nr_hugepages" in errors, errors)
    ended(server)
    return say(errors.splitlines()[0])


def duration_ends_by_the_clock(setting):
    for test in TESTS:
        flags = ("-D", "1", "-Q", "7", "-l", "3") if test[1] == "bw" else ("-D", "1")
        begun = time.monotonic()
        ours, _, result = both(setting, test, *flags)
        check(time.monotonic() - begun >= 1 and result["duration_s"] == 1, result)
        row = table(ours, SHORT_LATENCY if test[1] == "lat" else BANDWIDTH)[0]
        one = result["results"][0]
        check(one["seconds"] >= 0.9 and one["iterations"] == int(row[1]) > 0, f"{row} {one}")
        check(test[1] == "lat" or one["iterations"] % 7 == 0, one)
        check(len(row) == (4 if test[1] == "lat" else 5), row)
        if test[1] == "lat":
            check(abs(float(row[3]) * one["seconds"] / one["iterations"] - 1) < 0.01, f"tps of {row}, {one}")
    both(setting, ("write", "bw"), "-D", "1", "-b", "-q", "2", "-R")
    say("-D 1 of eight tests")


def all_sizes_from_2_to_8388608(setting):
    wanted = [2 ** n for n in range(1, 24)]
    for test, header in ((("write", "bw"), BANDWIDTH), (("send", "lat"), LATENCY)):
        page, file = setting.path("page.html"), setting.path("server.json")
        ours, _, result = both(setting, test, "-a", "-n", "5", client=("--report", page), server=("--json", file))
        check([int(row[0]) for row in table(ours, header)] == wanted, ours)
        check([one["bytes"] for one in result["results"]] == wanted, result)
        check([one["bytes"] for one in load(file)["results"]] == wanted, "the server's JSON")
        svgs = whole_page(page)
        check(svgs == 2, f"{svgs} plots")
    say("23 sizes, at both ends, by size in the page")


def whole_page(path):
    """Parses the page strictly and looks for anything it would load; the number of plots."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    root = xml.fromstring(text.replace("<!DOCTYPE html>", "", 1))
    check(root.tag.endswith("html"), root.tag)
    for element in root.iter():
        name = element.tag.rsplit("}", 1)[-1]
        check(name not in ("script", "link", "img", "iframe", "object"), f"<{name}> in the page")
        check(not any(key in ("href", "src") for key in element.attrib), f"{element.attrib}")
    check("url(" not in text and "@import" not in text and text.count("http") == text.count("http://www.w3.org/"),
          "the page refers to something outside")
    for number in re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|width|height)="([^"]*)"', text):
        check(re.fullmatch(r"-?[0-9.]+", number), f"a coordinate {number!r}")
    return text.count("<svg")


def the_page_of_one_size_is_whole(setting):
    page = setting.path("page.html")
    for test in TESTS:
        both(setting, test, "-n", "100", client=("--report", page))
        check(whole_page(page) == (1 if test[1] == "lat" else 2), f"{test}: plots")
    both(setting, ("read", "lat"), "-n", "10", server=("--report", page))
    check(whole_page(page) == 0, "a page without numbers has plots")
    say("eight pages, and one of an end without numbers")


def every_time_is_printed_on_request(setting):
    for flag, ordered in (("-H", True), ("-U", False)):
        ours, _, _ = both(setting, ("read", "lat"), flag, "-n", "500")
        lines = ours.splitlines()
        start = lines.index("#, usec") + 1
        times = [line.split(", ") for line in lines[start:start + 500]]
        check([int(number) for number, _ in times] == list(range(1, 501)), ours)
        check(not ordered or sorted(float(time) for _, time in times) == [float(time) for _, time in times], ours)
    say("500 times, sorted and as they came")


def packets_carry_the_traffic_class(setting):
    capture = setting.path("marked.pcapng")
    for common, flags, marked in ((("-R",), ("-T", "40"), True), (("-R",), (), False),
                                  ((), ("-T", "40"), True), ((), (), False)):
        both(setting, ("write", "bw"), *common, "-s", "8", "-n", "20", client=(*flags, "--pcap", capture))
        with open(capture, "rb") as file:
            # Version and length, TOS; then not to be fragmented, hop limit, UDP.
            header = re.search(rb"\x45\x28.{4}\x40\x00\x40\x11", file.read(), re.DOTALL)
            check((header is not None) == marked, f"{common} {flags}: an IPv4 header with TOS 0x28")
    say("-T 40: TOS 0x28")


def ends_that_disagree_say_in_what(setting):
    cases = [(("write", "bw"), ("-s", "100"), ("-s", "200"), "-s is 100 here and 200 there"),
             (("write", "bw"), ("-q", "2"), (), "-q is 2 here and 1 there"),
             (("write", "bw"), ("-b",), (), "-b is given here and not given there"),
             (("write", "bw"), (), ("-R",), "-R is not given here and given there"),
             (("write", "bw"), ("-a",), ("-s", "2"), "-a is given here"),
             (("send", "lat"), ("-n", "10"), ("-n", "11"), "-n is 10 here and 11 there"),
             (("send", "lat"), ("-D", "1"), (), "-D is 1 here and not given there"),
             (("atomic", "bw"), ("-A", "CMP_AND_SWAP"), (), "-A is CMP_AND_SWAP here")]
    for test, ours, theirs, told in cases:
        server = Server(setting, "bench", *test, "-F", *theirs)
        _, errors = setting.run(*words_to(server, test), *ours, status=1)
        check(told in errors, errors)
        _, status = ended(server)
        check(status == 1 and "the two ends differ" in server.errors(), server.errors())
    server = Server(setting, "bench", "write", "bw", "-F")
    _, errors = setting.run(*words_to(server, ("send", "lat")), status=1)
    check("`verbena bench send lat` here, and `verbena bench write bw` there" in errors, errors)
    ended(server)
    check("`verbena bench write bw` here, and `verbena bench send lat` there" in server.errors(), server.errors())
    say(errors.splitlines()[0])


def flags_that_mean_nothing_are_refused(setting):
    cases = [(("write", "lat", "-q", "2"), "one operation at a time"), (("write", "bw", "-H"), "lat"),
             (("atomic", "bw", "-s", "16"), "8 bytes"), (("atomic", "lat", "-a"), "8 bytes"),
             (("read", "bw", "-I", "8"), "carries no data"), (("write", "bw", "-e"), "no event"),
             (("write", "bw", "-c", "UC"), "-c UC"), (("write", "bw", "-x", "3"), "one GID"),
             (("write", "bw", "-i", "2"), "one port"), (("write", "bw", "-S", "1"), "UDP socket"),
             (("write", "bw", "--run_infinitely"), "-D"), (("write", "bw", "-z"), "TCP"),
             (("write", "bw", "--out_json"), "--json"), (("write", "bw", "-a", "-s", "4"), "one of the two"),
             (("write", "bw", "-D", "1", "-n", "50"), "one of the two"), (("write", "bw", "-Q", "200"), "-Q 200"),
             (("write", "bw", "-l", "200"), "-l 200"), (("read", "lat", "-H", "-D", "1"), "-n"),
             (("read", "lat", "-U", "-n", "2000000"), "1048576"), (("write", "bw", "host", "-p", "0"), "-p 0"),
             (("send", "lat", "-C"), "microseconds"),
             (("write", "bw", "--use-srq"), "nothing is received"),
             (("read", "lat", "-r", "8"), "nothing is received"),
             (("send", "bw", "--use-srq", "-R"), "without -R"), (("write", "bw", "--json", ""), "an empty word"),
             (("send", "bw", "127.0.0.1:5", "-p", "6"), "one of the two"),
             (("send", "lat", "127.0.0.1:99999"), "no port"),
             (("send", "bw", "-m", "1k"), "1k not in")]
    for words, told in cases:
        output, errors = setting.run("bench", *words, status=2)
        check(told in errors.splitlines()[0] and "--help" in errors and not output, f"{words}: {errors}")
        check(errors.startswith(f"verbena bench {words[0]} {words[1]}: "), errors)
    valued = [("-w", "5"), ("-S", "1"), ("-y", "3"), ("-L", "5"), ("--tclass", "3"), ("--burst_size", "3"),
              ("--rate_limit=5",), ("-X2",), ("-w", "5", "-w", "6")]
    for words in valued:
        for line in ((*words, "127.0.0.1"), ("127.0.0.1", *words), (*words, "127.0.0.1", "-a")):
            output, errors = setting.run("bench", "write", "bw", *line, status=2)
            check(" is refused for write bw: " in errors.splitlines()[0] and not output, f"{line}: {errors}")
    numbers = [("-n", "4"), ("-n", "0x10"), ("-s", "0"), ("-s", "-1"), ("-q", "0"), ("-q", "257"), ("-D", "0"),
               ("-t", "0"), ("-Q", "0"), ("-l", "0"), ("-m", "1000"), ("-p", "70000"), ("-u", "32"), ("-I", "x"),
               ("--timeout", "nan")]
    for flag, value in numbers:
        output, errors = setting.run("bench", "write", "bw", flag, value, status=2)
        check(value in errors and not output, f"{flag} {value}: {errors}")
    for words in ((), ("write",), ("write", "sideways"), ("jump", "bw")):
        setting.run("bench", *words, status=2)
    # Told before anything is waited for, the other end among it.
    for flag, name in (("--json", setting.path("no", "result")), ("--report", setting.path())):
        _, errors = setting.run("bench", "write", "bw", "-F", flag, name, status=1)
        check(f"write {name}" in errors and "Name files" in errors, errors)
    _, errors = setting.run("bench", "write", "bw", "-F", "--json", setting.path("same"), "--report",
                            setting.path(".", "same"), status=1)
    check("the same file" in errors, errors)
    setting.run("bench", "write", "bw", "-F", "--device", "nonesuch", "--json", setting.path("failed"), status=1)
    with open(setting.path("failed"), encoding="utf-8") as result:
        check(json.load(result)["ok"] is False, "nothing says that it failed")
    # Receives take room in the completion queue where there are any, and once where all pairs share them.
    limits = [("write", ("-t", "40000"), "-t is 40000"), ("write", ("-I", "2000"), "-I is 2000"),
              ("write", ("-q", "256", "-t", "30000"), "-q times -t is 7680000"),
              ("send", ("-r", "40000"), "-r is 40000"), ("send", ("--use-srq", "-r", "40000"), "-r is 40000"),
              ("send", ("-q", "256", "-r", "30000"), "-q times (-t plus -r) is 7712768"),
              ("send", ("--use-srq", "-q", "256", "-t", "30000"), "-q times -t, plus -r is 7680512")]
    for verb, words, told in limits:
        _, errors = setting.run("bench", verb, "bw", "-F", *words, status=1)
        check("at most" in errors and told in errors, errors)
    say(f"{len(cases)} flags, {len(numbers)} numbers, {len(limits)} limits of the device")


def an_end_that_goes_ends_the_other(setting):
    for test in (("write", "bw"), ("send", "lat"), ("read", "lat"), ("send", "bw")):
        for victim in ("server", "client"):
            server = Server(setting, "bench", *test, "-F", "-D", "600", "--timeout", "3")
            client = setting.start(*words_to(server, test), "-D", "600", "--timeout", "3", stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
            time.sleep(0.7)
            (server.process if victim == "server" else client).kill()
            _, errors = client.communicate(timeout=PATIENCE)
            _, status = ended(server)
            told = errors.decode() if victim == "server" else server.errors()
            check((client.returncode if victim == "server" else status) == 1, f"{test}, {victim} killed: {told}")
            check("ConnectionLost" in told or "RetryExceeded" in told or "TimedOut" in told, told)
    say(told.splitlines()[0])


def an_interrupt_ends_both(setting):
    server = Server(setting, "bench", "write", "bw", "-F", "-D", "600")
    client = setting.start(*words_to(server, ("write", "bw")), "-D", "600", stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    time.sleep(0.7)
    client.send_signal(signal.SIGINT)
    _, errors = client.communicate(timeout=PATIENCE)
    _, status = ended(server)
    check(client.returncode == 1 and b"interrupted" in errors, errors)
    check(status == 1 and "the other side" in server.errors() and "interrupted" in server.errors(), server.errors())
    say(server.errors().splitlines()[0])


def an_interrupt_keeps_what_was_measured(setting):
    sizes = [2 ** n for n in range(1, 24)]
    # Each takes minutes.
    for test, header, count in ((("write", "bw"), BANDWIDTH, "50000"), (("send", "lat"), LATENCY, "1000000")):
        flags = ("-a", "-n", count, "--json")
        ours, theirs, page = setting.path("ours.json"), setting.path("theirs.json"), setting.path("page.html")
        server = Server(setting, "bench", *test, "-F", *flags, theirs)
        client = setting.start(*words_to(server, test), *flags, ours, "--report", page, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        two = re.compile(re.escape(header.encode()) + b".*\n.*\n.*\n")
        output = output_until(client, two.search).decode()
        client.send_signal(signal.SIGINT)
        rest, errors = client.communicate(timeout=PATIENCE)
        rows = [int(line.split()[0]) for line in (output + rest.decode()).split(header)[1].splitlines()[1:]]
        told = errors.decode().splitlines()[-1]
        check(client.returncode == 1 and told.startswith(f"verbena bench {' '.join(test)}: Cancelled: "), errors)
        check(rows == sizes[:len(rows)] and 2 <= len(rows) < len(sizes), rows)
        result = load(ours)
        check(not result["ok"] and result["error"]["code"] == "Cancelled", result)
        check([one["bytes"] for one in result["results"]] == rows, f"{rows} {result}")
        check(whole_page(page) == 2, "the page has not its plots")
        check(f"plots and numbers are in {page}" in errors.decode(), errors)
        check(ended(server)[1] == 1, server.errors())
        result = load(theirs)
        there = [one["bytes"] for one in result["results"]]
        check(not result["ok"] and there and there == sizes[:len(there)], result)
    say(f"{len(rows)} of {len(sizes)} sizes, in the file and the page")


def an_interrupt_before_anything_was_measured_leaves_no_page(setting):
    file, page = setting.path("result.json"), setting.path("page.html")
    server = Server(setting, "bench", "write", "bw", "-F", "-a", "--json", file, "--report", page)
    server.process.send_signal(signal.SIGINT)
    check(ended(server)[1] == 1 and "Cancelled" in server.errors(), server.errors())
    result = load(file)
    check(not result["ok"] and result["error"]["code"] == "Cancelled" and not result["results"], result)
    check(not os.path.exists(page), "a page without numbers")
    say(server.errors().strip())


def strangers_are_told_apart(setting):
    for words in (b"0000:000011:000001:00000000000000000000ffff7f090909\0", b"\x02\0\0\0{}", b"\x03\0\0\0[1]", b"",
                  b'\x0d\0\0\0{"flags":"x"}', b'\x20\0\0\0{"flags":[[1,2]],"address":"x"} ',
                  b"\xff\xff\xff\xff", b"\x14\0\0\0" + b"[" * 20):
        server = Server(setting, "bench", "write", "bw", "-F", "--timeout", "3")
        host, port = server.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as link:
            try:
                link.sendall(words)
                link.shutdown(socket.SHUT_WR)
                while link.recv(4096):
                    pass
            except OSError:
                pass  # it is through with us already
        _, status = ended(server)
        check(status == 1 and server.errors().count("\n") >= 1, f"{words!r}: {status} {server.errors()}")
    say(server.errors().splitlines()[0])


if __name__ == "__main__":
    main(the_path_is_told, every_test_runs_at_both_ends, headers_are_perftests, every_way_of_bandwidth_works,
         so_many_operations_complete_as_of_perftest,
         every_way_of_latency_works, huge_pages_are_taken_or_missed,
         duration_ends_by_the_clock, all_sizes_from_2_to_8388608, the_page_of_one_size_is_whole,
         every_time_is_printed_on_request, packets_carry_the_traffic_class, ends_that_disagree_say_in_what,
         flags_that_mean_nothing_are_refused, an_end_that_goes_ends_the_other, an_interrupt_ends_both,
         an_interrupt_keeps_what_was_measured, an_interrupt_before_anything_was_measured_leaves_no_page,
         strangers_are_told_apart)
