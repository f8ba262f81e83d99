# SPDX-License-Identifier: Apache-2.0
"""verbena rping: both ends over loopback, one client and many, and what goes wrong."""

import re
import signal
import subprocess
import time

from command import PATIENCE, Server, check, main, say

LINE_0 = "rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr"
LINE_1 = "rdma-ping-1: BCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrs"


def words_of(server):
    host, port = server.address.rsplit(":", 1)
    return ["rping", "-c", "-a", host.strip("[]"), "-p", port]


def server_output(server):
    output, _ = server.process.communicate(timeout=PATIENCE)
    return output.decode(), server.process.returncode


def both_ends_show_the_data_of_rping(setting):
    server = Server(setting, "rping", "-s", "-v", "-V")
    output, _ = setting.run(*words_of(server), "-C", "2", "-v", "-V")
    check(output.splitlines() == [f"ping data: {LINE_0}", f"ping data: {LINE_1}",
                                  f"{server.address}: 2 pings of 64 bytes"], output)
    output, status = server_output(server)
    lines = output.splitlines()
    check(status == 0 and lines[:2] == [f"server ping data: {LINE_0}", f"server ping data: {LINE_1}"], output)
    check(re.fullmatch(r"127\.[0-9.]+:\d+: 2 pings", lines[2]), output)
    say("two pings, shown and checked at both ends, and the server ended by itself")


def every_size_comes_back(setting):
    server = Server(setting, "rping", "-s", "-V", "-P")
    for size in (23, 64, 1500, 10000, 65535):
        output, _ = setting.run(*words_of(server), "-C", "20", "-V", "-S", str(size))
        check(f"20 pings of {size} bytes" in output, output)
    server.stop()
    check(server.errors() == "", server.errors())
    say("23 to 65535 bytes")


def a_persistent_server_takes_many_at_once(setting):
    server = Server(setting, "rping", "-s", "-P", "-V")
    clients = [setting.start(*words_of(server), "-C", "200", "-V", stdout=subprocess.PIPE) for _ in range(6)]
    for client in clients:
        output, _ = client.communicate(timeout=PATIENCE)
        check(client.returncode == 0 and b"200 pings" in output, output)
    server.stop()
    say("6 clients of 200 pings each")


def ipv6_works(setting):
    server = Server(setting, "rping", "-s", "-a", "::1")
    check(server.address.startswith("[::1]:"), server.address)
    _, errors = setting.run(*words_of(server), "-C", "1", "-I", "127.70.0.1", status=1)
    check("IP version" in errors, errors)
    server.stop()
    say("listens on ::1, and a client of the other version is told so")


def the_addresses_have_their_letters(setting):
    server = Server(setting, "rping", "-s", "-a", "127.70.1.1")
    check(server.address.startswith("127.70.1.1:"), server.address)
    _, errors = setting.run(*words_of(server), "-C", "1", "-I", "127.70.1.2", "-d")
    check("connected to 127.70.1.1" in errors and "sent the source: 64 bytes at 0x" in errors, errors)
    check(server_output(server)[0].startswith("127.70.1.2:"), "the client came from another address than -I")
    say("-a, -I, -p, -d")


def a_server_counts_when_told_to(setting):
    for pings, status, text in (("3", 0, ""), ("2", 1, "left after 2 pings of 3"), ("4", 1, "more than 3 pings")):
        server = Server(setting, "rping", "-s", "-C", "3")
        client = setting.start(*words_of(server), "-C", pings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        client.communicate(timeout=PATIENCE)
        _, ended = server_output(server)
        check(ended == status and text in server.errors(), f"-C {pings}: {ended} {server.errors()}")
        check(client.returncode == (1 if pings == "4" else 0), f"the client of {pings} pings")
    say("as many, fewer, more")


def a_ping_too_long_for_the_server_is_an_error_at_both_ends(setting):
    server = Server(setting, "rping", "-s", "-S", "100")
    _, errors = setting.run(*words_of(server), "-C", "1", "-S", "101", status=1)
    check("-S" in errors or "other side" in errors, errors)
    _, status = server_output(server)
    check(status == 1 and "101 bytes, at most 100" in server.errors(), server.errors())
    say(server.errors().strip())


def nobody_there_is_told(setting):
    _, errors = setting.run("rping", "-c", "-a", "127.77.66.55", "-C", "1", status=1)
    check("Unreachable" in errors and "127.77.66.55" in errors, errors)
    server = Server(setting, "ping", "-s")
    host = server.address.rsplit(":", 1)[0]
    _, errors = setting.run("rping", "-c", "-a", host, "-p", "9", "-C", "1", status=1)
    check("ConnectionRefused" in errors and "rping -s" in errors, errors)
    server.stop()
    _, errors = setting.run("rping", "-c", "-a", "no.such.host.invalid", "-C", "1", status=1)
    check("NotFound" in errors, errors)
    _, errors = setting.run("rping", "-s", "-a", "203.0.113.9", status=1)
    check("203.0.113.9" in errors, errors)
    say("unreachable, refused, unknown host, foreign address")


def a_second_client_is_sent_away_without_P(setting):
    server = Server(setting, "rping", "-s")
    first = setting.start(*words_of(server), "-d", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    check(b"connected" in first.stderr.readline(), "the first client does not connect")
    _, errors = setting.run(*words_of(server), "-C", "1", status=1)
    check("takes one client" in errors and "-P" in errors, errors)
    first.kill()
    say(errors.splitlines()[0])


def a_killed_end_ends_the_other(setting):
    for how in (signal.SIGKILL, signal.SIGSTOP):
        server = Server(setting, "rping", "-s")
        client = setting.start(*words_of(server), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.5)
        server.process.send_signal(how)
        _, errors = client.communicate(timeout=PATIENCE)
        check(client.returncode == 1 and b"verbena rping: " in errors, errors)
        say(f"{how.name} of the server: {errors.decode().splitlines()[0]}")
        server = Server(setting, "rping", "-s", "-V")
        client = setting.start(*words_of(server), stdout=subprocess.PIPE)
        time.sleep(0.5)
        client.send_signal(how)
        _, status = server_output(server)
        check(status == 1 and "verbena rping: " in server.errors(), server.errors())
        say(f"{how.name} of the client: {server.errors().splitlines()[0]}")


def interrupt_ends_a_client_well(setting):
    server = Server(setting, "rping", "-s", "-V")
    client = setting.start(*words_of(server), "-V", stdout=subprocess.PIPE)
    time.sleep(0.5)
    client.send_signal(signal.SIGINT)
    output, _ = client.communicate(timeout=PATIENCE)
    check(client.returncode == 0 and b" pings of 64 bytes" in output, output)
    check(server_output(server)[1] == 0, server.errors())
    say(output.decode().strip())


def wrong_words_give_two(setting):
    wrong = [
        (), ("-s", "-c"), ("-c",), ("-c", "-a", "x", "-P"), ("-s", "-I", "127.0.0.1"), ("-s", "-q"),
        ("-c", "-a", "x", "-S", "22"), ("-c", "-a", "x", "-S", "65536"), ("-c", "-a", "x", "-C", "-1"),
        ("-c", "-a", "x", "-C", "many"), ("-c", "-a", "x", "-p", "65536"), ("-c", "-a", "x", "-p", "0"),
        ("-s", "-a", "127.0.0.1", "--device", "127.0.0.1"),
        ("-c", "-a", "x", "-I", "127.0.0.1", "--device", "127.0.0.1"), ("-s", "-x"), ("-c", "-a"),
    ]
    for words in wrong:
        output, errors = setting.run("rping", *words, status=2)
        check(errors.startswith("verbena rping: ") and "--help" in errors and not output, f"{words}: {errors!r}")
    say(f"{len(wrong)} wrong command lines")


if __name__ == "__main__":
    main(both_ends_show_the_data_of_rping, every_size_comes_back, a_persistent_server_takes_many_at_once, ipv6_works,
         the_addresses_have_their_letters, a_server_counts_when_told_to,
         a_ping_too_long_for_the_server_is_an_error_at_both_ends, nobody_there_is_told,
         a_second_client_is_sent_away_without_P, a_killed_end_ends_the_other, interrupt_ends_a_client_well,
         wrong_words_give_two)
