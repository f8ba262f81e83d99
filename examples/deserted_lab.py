# SPDX-License-Identifier: Apache-2.0
"""The lab when the other end goes before it has sent anything: deserted_lab.py PROGRAM."""

import socket
import subprocess
import sys

SECONDS = 120


def main(program):
    with subprocess.Popen([program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            host, port = server.stdout.readline().split()[-1].split(":")
            with socket.create_connection((host, int(port)), timeout=SECONDS) as tcp:
                for _ in range(3):  # its queue pair, its memory, and that it has posted its receives: to itself
                    tcp.sendall(tcp.recv(4096))
            _, errors = server.communicate(timeout=SECONDS)
        finally:
            server.kill()
    if server.returncode != 1 or errors != "completion: the peer has gone\n":
        sys.exit(f"status {server.returncode}, {errors!r}")


if __name__ == "__main__":
    main(sys.argv[1])
