# SPDX-License-Identifier: Apache-2.0
"""verbena ping: every operation, several clients, servers that come and go."""

import json
import re
import signal
import subprocess
import time

from command import PATIENCE, Server, check, end, main, say

OPERATIONS = ["send", "write", "read", "cas", "fadd"]


def summary(setting, *words):
    output, _ = setting.run("ping", *words, "--json")
    return json.loads(output)


def every_operation_works(setting):
    server = Server(setting, "ping", "-s")
    for operation in OPERATIONS:
        result = summary(setting, server.address, "--op", operation, "-c", "200", "-i", "0")
        check(result["ok"] and result["done"] == 200 and result["failed"] == 0, result)
        time = result["time_us"]
        order = [time[name] for name in ("min", "p50", "p99", "p99.9", "max")]
        check(order == sorted(order) and order[0] > 0, f"{operation}: {time}")
        check(time["min"] <= time["avg"] <= time["max"], f"{operation}: {time}")
        check(result["bytes"] == (8 if operation in ("cas", "fadd") else 64), result)
        say(f"{operation}: 200 done, p50 {time['p50']:.1f} us")
    server.stop()


def every_size_works(setting):
    server = Server(setting, "ping", "-s")
    for size in (0, 1, 7, 4096, 4097, 1000000):
        for operation in ("send", "write", "read"):
            result = summary(setting, server.address, "--op", operation, "--size", str(size), "-c", "5", "-i", "0")
            check(result["done"] == 5 and result["bytes"] == size, result)
    result = summary(setting, server.address, "--size", "4k", "-c", "1")
    check(result["bytes"] == 4096, result)
    server.stop()
    say("0 to 1,000,000 bytes by send, write, read")


def lines_look_like_those_of_ping(setting):
    server = Server(setting, "ping", "-s")
    output, _ = setting.run("ping", server.address, "-c", "3", "-i", "0.01")
    lines = output.splitlines()
    for sequence in (1, 2, 3):
        check(any(re.match(rf"64 bytes, send: seq={sequence} time=[0-9.]+ us$", line) for line in lines), output)
    check("3 done, 0 failed" in lines and lines[-1].startswith("min/avg/p50/p99/p99.9/max = "), output)
    output, _ = setting.run("ping", server.address, "-c", "3", "-i", "0", "-q", "--poll")
    check("seq=" not in output and "3 done" in output, output)
    server.stop()
    say("three lines and a summary; -q the summary alone")


def many_clients_at_once(setting):
    server = Server(setting, "ping", "-s")
    clients = [setting.start("ping", server.address, "--op", op, "-c", "300", "-i", "0.001", "--json",
                             stdout=subprocess.PIPE) for op in OPERATIONS + ["send"]]
    for client in clients:
        output, _ = client.communicate(timeout=PATIENCE)
        check(client.returncode == 0 and json.loads(output)["done"] == 300, output)
    server.stop()
    say(f"{len(clients)} clients of 300 operations each")


def once_ends_after_the_first_client(setting):
    server = Server(setting, "ping", "-s", "--once")
    setting.run("ping", server.address, "-c", "1")
    check(server.process.wait(PATIENCE) == 0, "--once")
    say("the server ended by itself")


def interrupt_ends_a_client_with_its_summary(setting):
    server = Server(setting, "ping", "-s")
    client = setting.start("ping", server.address, "-c", "0", "-i", "0.01", stdout=subprocess.PIPE)
    time.sleep(1)
    client.send_signal(signal.SIGINT)
    output, _ = client.communicate(timeout=PATIENCE)
    check(client.returncode == 0 and b" 0 failed" in output, output)
    server.stop()
    say("SIGINT: summary and status 0")


def a_killed_server_ends_the_client(setting):
    # Of a process that is only stopped, memory goes on being read and written where nobody there has a part in it, as
    # behind a NIC; packets need it.
    for how, path in ((signal.SIGKILL, "auto"), (signal.SIGSTOP, "roce")):
        for operation in ("send", "read"):
            server = Server(setting, "ping", "-s", "--path", path)
            client = setting.start("ping", server.address, "--path", path, "--op", operation, "-c", "0", "-i", "0.01",
                                   "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(0.5)
            server.process.send_signal(how)
            output, errors = client.communicate(timeout=PATIENCE)
            result = json.loads(output)
            check(client.returncode == 1 and not result["ok"] and result["done"] > 0, output + errors)
            say(f"{how.name} during {operation}: {result['error']['message']}")


def a_killed_client_is_missed_by_its_server(setting):
    for operation in OPERATIONS:
        server = Server(setting, "ping", "-s", "--once")
        client = setting.start("ping", server.address, "--op", operation, "-c", "0", "-i", "0.01",
                               stdout=subprocess.PIPE)
        client.stdout.readline()
        end(client)
        client.stdout.close()
        check(server.process.wait(PATIENCE) == 0, operation)
        told = server.process.stdout.read().decode().splitlines()[-1]
        check("the peer stopped answering" in told, f"{operation}: {told}")
        say(f"{operation}: {told}")


def a_connection_is_waited_for_as_long_as_asked(setting):
    for limit in ("0.3", "0.7"):
        output, errors = setting.run("ping", "127.99.98.97", "-W", limit, "--json", status=1)
        told = json.loads(output)["error"]
        check(told["code"] == "Unreachable" and f"no answer within {limit[2]}00 ms" in errors, output + errors)
    say(errors.splitlines()[0])


if __name__ == "__main__":
    main(every_operation_works, every_size_works, lines_look_like_those_of_ping, many_clients_at_once,
         once_ends_after_the_first_client, interrupt_ends_a_client_with_its_summary, a_killed_server_ends_the_client,
         a_killed_client_is_missed_by_its_server, a_connection_is_waited_for_as_long_as_asked)
