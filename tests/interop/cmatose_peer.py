# SPDX-License-Identifier: Apache-2.0
"""The peer of ucmatose meets itself, so that it is known to work when it meets rdma-core's."""

import os
import subprocess
import sys

import lab

# Connections, messages on each, bytes of each.
RUNS = ((1, 10, 100), (5, 10, 100), (5, 1, 100000), (3, 200, 1), (4, 0, 100), (2, 5, 0))


def main():
    program = os.path.join(os.path.dirname(sys.argv[1]), "cmatose_peer")
    for connections, messages, size in RUNS:
        words = ["-c", connections, "-C", messages, "-S", size]
        with lab.Process([program, "-p", 0, *words], stdout=subprocess.PIPE) as server:
            host, port = server.first_line().split()[-1].rsplit(":", 1)
            told = lab.run(program, "-s", host, "-p", port, *words).strip()
            assert told == (f"client: {connections} connections, {messages} messages of {size} bytes each way on each, "
                            "disconnected"), told
            rest, _ = server.child.communicate(timeout=60)
            assert server.child.returncode == 0 and rest.startswith("server: "), rest
        print(told)


if __name__ == "__main__":
    main()
