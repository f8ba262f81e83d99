# SPDX-License-Identifier: Apache-2.0
"""Runs an example as a user would: run_pair.py [--impatient] PROGRAM CLIENTS EXPECTED...

Starts PROGRAM as server, then CLIENTS more that connect to the address it prints; every EXPECTED text must appear
in what they say together, and all must succeed. With 0 clients PROGRAM runs alone. It also knows --help, and refuses
what it does not know. --impatient: one more comes before them, and is gone before the server can answer."""

import signal
import subprocess
import sys
import time

SECONDS = 120


def explains_itself(program):
    for words, status in ((["--help"], 0), (["--nonsense"], 2), (["127.0.0.1:1", "more"], 2)):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=SECONDS, check=False)
        told, silent = (done.stdout, done.stderr) if status == 0 else (done.stderr, done.stdout)
        if done.returncode != status or not told.startswith(f"usage: {program} [") or silent:
            sys.exit(f"{words}: status {done.returncode}, {done.stdout!r}, {done.stderr!r}")


def come_and_give_up(server, program, address):
    server.send_signal(signal.SIGSTOP)
    with subprocess.Popen([program, address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
        time.sleep(0.5)  # it asks meanwhile
        client.kill()
    server.send_signal(signal.SIGCONT)


def main(program, clients, expected, impatient):
    explains_itself(program)
    server = subprocess.Popen([program], stdout=subprocess.PIPE, text=True)
    address = server.stdout.readline().split()[-1] if clients else None
    if impatient:
        come_and_give_up(server, program, address)
    others = [subprocess.Popen([program, address], stdout=subprocess.PIPE, text=True) for _ in range(clients)]
    try:
        said = "".join(process.communicate(timeout=SECONDS)[0] for process in others + [server])
    finally:
        for process in others + [server]:
            if process.poll() is None:
                process.kill()
    print(said)
    codes = [process.returncode for process in others + [server]]
    missing = [text for text in expected if text not in said]
    if any(codes) or missing:
        sys.exit(f"exit codes {codes}, missing {missing}")


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--impatient"]
    main(given[0], int(given[1]), given[2:], "--impatient" in sys.argv)
