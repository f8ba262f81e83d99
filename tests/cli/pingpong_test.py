# SPDX-License-Identifier: Apache-2.0
"""verbena pingpong: both ends over loopback, and peers that say the wrong thing over TCP."""

import re
import signal
import socket
import subprocess
import threading
import time

from command import PATIENCE, Server, check, main, say

ADDRESS = r"LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:127\.[0-9.]+"
GOOD = b"0000:000011:000001:00000000000000000000ffff7f090909\0"
NO_GID = b"0000:000011:000001:00000000000000000000000000000000\0"
IPV6 = b"0000:000011:000001:fd770000000000000000000000000011\0"


def words_of(server):
    host, port = server.address.rsplit(":", 1)
    return ["pingpong", host, "-p", port]


def ended(server):
    output, _ = server.process.communicate(timeout=PATIENCE)
    return output.decode(), server.process.returncode


def both_ends_print_what_ibv_rc_pingpong_prints(setting):
    server = Server(setting, "pingpong", "-n", "50")
    ours, _ = setting.run(*words_of(server), "-n", "50")
    theirs, status = ended(server)
    check(status == 0, server.errors())
    for output in (ours, theirs):
        lines = output.splitlines()
        check(re.fullmatch(f"  local address:  {ADDRESS}", lines[0]), output)
        check(re.fullmatch(f"  remote address: {ADDRESS}", lines[1]), output)
        check(re.fullmatch(r"409600 bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec", lines[2]), output)
        check(re.fullmatch(r"50 iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter", lines[3]), output)
    check(ours.splitlines()[0].split(":", 1)[1].strip() == theirs.splitlines()[1].split(":", 1)[1].strip(), ours)
    say("four lines at each end")


def every_way_works(setting):
    ways = [("-s", "0"), ("-s", "1"), ("-s", "64"), ("-s", "65536"), ("-s", "1000000"), ("-m", "256"), ("-m", "4096"),
            ("-e",), ("-e", "-s", "65536", "-m", "512"), ("-r", "1"), ("-r", "1", "-e"), ("-r", "16384"), ("-n", "1"),
            ("-i", "1", "-g", "0")]
    for way in ways:
        words = ["-n", "100", *way, "-c"] if "-n" not in way else [*way, "-c"]
        server = Server(setting, "pingpong", *words)
        setting.run(*words_of(server), *words)
        check(ended(server)[1] == 0, f"{way}: {server.errors()}")
    say(f"{len(ways)} combinations of -s -m -e -r -n, with -c")


def different_sizes_are_an_error_at_both_ends(setting):
    server = Server(setting, "pingpong", "-s", "100")
    _, errors = setting.run(*words_of(server), "-s", "200", status=1)
    _, status = ended(server)
    check(status == 1 and "-s" in server.errors() and "-s" in errors, errors + server.errors())
    say(errors.splitlines()[0])
    server = Server(setting, "pingpong", "-s", "200")
    client = setting.start(*words_of(server), "-s", "100", "--timeout", "2", stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE)
    _, errors = client.communicate(timeout=PATIENCE)
    check(client.returncode == 1 and ended(server)[1] == 1 and "has 100 bytes" in server.errors(), server.errors())
    say(server.errors().splitlines()[0])


def a_killed_end_ends_the_other(setting):
    for victim in ("server", "client"):
        server = Server(setting, "pingpong", "-n", "2000000000", "--timeout", "3")
        client = setting.start(*words_of(server), "-n", "2000000000", "--timeout", "3", stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        time.sleep(0.5)
        (server.process if victim == "server" else client).kill()
        if victim == "server":
            _, errors = client.communicate(timeout=PATIENCE)
            check(client.returncode == 1, errors)
            text = errors.decode()
        else:
            _, status = ended(server)
            check(status == 1, server.errors())
            text = server.errors()
        check("RetryExceeded" in text or "TimedOut" in text, text)
        say(f"the {victim} is killed: {text.splitlines()[0]}")


def interrupt_ends_a_waiting_server(setting):
    server = Server(setting, "pingpong")
    server.process.send_signal(signal.SIGTERM)
    output, status = ended(server)
    check(status == 1 and "interrupted" in server.errors(), output + server.errors())
    say("SIGTERM while waiting")


class FalseServer:
    """Takes one TCP connection, reads the client's address, answers with the given bytes, closes."""

    def __init__(self, answer):
        self.heard = b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.thread = threading.Thread(target=self.serve, args=(answer,))
        self.thread.start()

    def serve(self, answer):
        peer, _ = self.listener.accept()
        with peer:
            peer.settimeout(PATIENCE)
            while len(self.heard) < 52:
                self.heard += peer.recv(52 - len(self.heard))
            if answer:
                peer.sendall(answer)
                try:
                    self.heard += peer.recv(5)
                except ConnectionResetError:
                    pass
        self.listener.close()


def a_client_says_what_is_wrong_with_the_server(setting):
    wrong = [(b"", "closed after 0 of 52"), (b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 40, "no address"),
             (GOOD[:-1] + b"!", "no address"), (NO_GID, "no GID"), (IPV6, "another IP version")]
    for answer, text in wrong:
        server = FalseServer(answer)
        _, errors = setting.run("pingpong", "127.0.0.1", "-p", str(server.port), "--timeout", "5", status=1)
        server.thread.join()
        check(text in errors and "\0" not in errors, f"{answer!r}: {errors}")
    server = FalseServer(GOOD)
    _, errors = setting.run("pingpong", "127.0.0.1", "-p", str(server.port), status=1)
    server.thread.join()
    check(re.fullmatch(rb"0000:[0-9a-f]{6}:[0-9a-f]{6}:0{20}ffff7f[0-9a-f]{6}\0done\0", server.heard), server.heard)
    check("RetryExceeded" in errors, errors)
    say("closed, not an address, no NUL, no GID, other IP version, no device behind it")


def a_server_says_what_is_wrong_with_the_client(setting):
    wrong = [(b"", "closed after 0 of 52"), (b"GET / HTTP/1.1\r\n\r\n", "closed after 18 of 52"),
             (b"\xff" * 52, "no address"), (NO_GID, "no GID"), (IPV6, "another IP version"),
             (GOOD, "closed after 0 of 5"),
             (GOOD + b"gone\0", "last word")]
    for said, text in wrong:
        server = Server(setting, "pingpong", "--timeout", "5")
        host, port = server.address.rsplit(":", 1)
        with socket.create_connection((host, int(port))) as client:
            client.sendall(said)
            client.shutdown(socket.SHUT_WR)
            _, status = ended(server)
        check(status == 1 and text in server.errors(), f"{said!r}: {server.errors()}")
    server = Server(setting, "pingpong", "--timeout", "0.2")
    host, port = server.address.rsplit(":", 1)
    with socket.create_connection((host, int(port))):
        check(ended(server)[1] == 1 and "TimedOut" in server.errors(), server.errors())
    say(f"{len(wrong)} false clients and a silent one")


def nobody_there_is_told(setting):
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    _, errors = setting.run("pingpong", "127.0.0.1", "-p", str(port), status=1)
    check("ConnectionRefused" in errors and "ibv_rc_pingpong" in errors, errors)
    _, errors = setting.run("pingpong", "no.such.host.invalid", status=1)
    check("NotFound" in errors, errors)
    _, errors = setting.run("pingpong", "-d", "203.0.113.9", status=1)
    check("203.0.113.9" in errors, errors)
    server = Server(setting, "pingpong")
    host, port = server.address.rsplit(":", 1)
    check("127." in host, server.address)
    server.process.kill()
    say("refused, unknown host, foreign device")


def wrong_words_give_two(setting):
    wrong = [("-o",), ("-O",), ("-P",), ("-t",), ("-j",), ("-N",), ("--odp",), ("-l", "0"), ("-i", "2"), ("-g", "1"),
             ("-m", "1000"), ("-m", "0"), ("-r", "0"), ("-n", "0"), ("-n", "-1"), ("-s", "-1"), ("-s", "big"),
             ("-p", "65536"), ("somewhere", "-p", "0"), ("-x",), ("a", "b")]
    for words in wrong:
        output, errors = setting.run("pingpong", *words, status=2)
        check(errors.startswith("verbena pingpong: ") and "--help" in errors and not output, f"{words}: {errors!r}")
    for flag in ("-o", "-O", "-P", "-t", "-j", "-N"):
        _, errors = setting.run("pingpong", flag, status=2)
        check("means nothing here: " in errors, errors)
    say(f"{len(wrong)} wrong command lines")


if __name__ == "__main__":
    main(both_ends_print_what_ibv_rc_pingpong_prints, every_way_works, different_sizes_are_an_error_at_both_ends,
         a_killed_end_ends_the_other, interrupt_ends_a_waiting_server, a_client_says_what_is_wrong_with_the_server,
         a_server_says_what_is_wrong_with_the_client, nobody_there_is_told, wrong_words_give_two)
