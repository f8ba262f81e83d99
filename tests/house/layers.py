# SPDX-License-Identifier: Apache-2.0
"""Dependencies point one way: every #include is held to the table below."""

from fnmatch import fnmatch

from source_tree import Violation, is_test, main

# The public API, lowest first: each folder of include/verbena sees itself and what stands before it.
API = ["base", "device", "async", "connection", "messaging", "rpc", "testing"]
PUBLIC = ["api." + name for name in API]

# The soft device's rooms that do no input or output of their own.
SANS_IO = ["wire", "core", "roce", "cm", "local", "nic"]

# What the implementation of one part of the API sees besides.
BELOW_API = {"messaging": ["ring"], "testing": ["soft", "driver", "nic", "cm", "roce", "wire"]}


def api_up_to(name):
    return PUBLIC[:API.index(name) + 1]


def room_of_api(name):
    """The implementation behind include/verbena/NAME: lower implementations, the provider contract, its own API."""
    lower = API[1:API.index(name)] + BELOW_API.get(name, [])
    return (name, [f"src/{name}/*"], ["base", "provider", "registry"] + lower + api_up_to(name))


# (room, files, rooms it may include besides itself). The first room whose pattern fits a file is its room.
ROOMS = [
    ("api.all", ["include/verbena/*.h"], PUBLIC),
    *[("api." + name, [f"include/verbena/{name}/*"], api_up_to(name)) for name in API],
    ("base", ["src/base/*"], ["api.base"]),
    ("registry", ["src/provider/registry*"], ["base", "api.base", "provider", "soft", "verbs"]),
    ("provider", ["src/provider/*"], ["base", "api.base"]),
    ("wire", ["src/soft/wire/*"], ["base", "api.base"]),
    ("core", ["src/soft/core/*"], ["base", "api.base"]),
    ("roce", ["src/soft/roce/*"], ["core", "wire", "base", "api.base"]),
    ("cm", ["src/soft/cm/*"], ["core", "wire", "base", "api.base"]),
    ("local", ["src/soft/local/*"], ["core", "base", "api.base"]),
    ("driver", ["src/soft/driver/*"], ["nic", "local", "cm", "roce", "core", "wire", "base", "api.base"]),
    ("soft", ["src/soft/provider/*", "src/soft/*provider*", "src/soft/soft_*"],
     ["provider", "driver", "nic", "local", "cm", "roce", "core", "wire", "base", "api.base"]),
    ("nic", ["src/soft/*"], ["local", "cm", "roce", "core", "wire", "base", "api.base"]),
    # The algorithms of rings that peers write into; what carries them out is the rest of messaging.
    ("ring", ["src/messaging/ring/*"], ["base", "api.base"]),
    ("verbs", ["src/verbs/*"], ["provider", "base", "api.base"]),
    *[room_of_api(name) for name in API[1:]],
    ("sim", ["sim/*"], ["base", "api.base", "provider"] + SANS_IO),
    ("codegen", ["codegen/*"], ["api.all"] + PUBLIC),
    # The command that runs the simulator is the one tool that sees more than the public API.
    ("tools.sim", ["tools/*sim*"], ["tools", "sim", "wire", "api.all"] + PUBLIC),
    ("tools", ["tools/*"], ["tools.sim", "api.all"] + PUBLIC),
    ("examples", ["examples/*"], ["api.all"] + PUBLIC),
    ("free", ["tests/*", "fuzz/*", "bench/*"], ["*"]),
]

# Libraries that are not the project's, by the beginning of the include, and the rooms that may use them.
THIRD_PARTY = {
    "tl/": ["api.base", "base"],
    "isa-l": ["wire", "base"],
    "openssl/": ["base", "driver", "soft", "tools"],
    "infiniband/": ["verbs"],
    "rdma/": ["verbs"],
    "pcap": ["driver", "tools", "tools.sim", "sim"],
    "CLI/": ["tools", "tools.sim"],
    "fmt/": ["tools", "tools.sim", "examples"],
    "spdlog/": ["tools", "tools.sim", "examples"],
    "nlohmann/": ["tools", "tools.sim"],
    "asio": ["api.async", "examples"],
    "google/protobuf/": ["rpc", "codegen"],
    "benchmark/": [],
    "gtest/": [],
    "gmock/": [],
}
TEST_LIBRARIES = ("gtest/", "gmock/")
# A library that one public header alone may show: the one Result stands on; the one that header is an adapter for.
ONLY_HEADER = {"tl/": "include/verbena/base/result.h", "asio": "include/verbena/async/asio.h"}

# The system's own folders of headers.
SYSTEM = {"sys", "net", "netinet", "linux", "arpa", "asm", "bits", "experimental", "sanitizer", "fuzzer"}

# Rooms that take time, threads, bytes and randomness only as arguments; and such files, wherever they stand.
PURE_ROOMS = SANS_IO + ["ring", "sim"]
PURE_FILES = ["src/base/*ring*", "src/testing/faulty_network*"]
IMPURE = {
    "clock": ["chrono", "ctime", "time.h", "sys/time.h", "sys/timerfd.h"],
    "thread": ["thread", "mutex", "shared_mutex", "condition_variable", "future", "pthread.h", "semaphore",
               "barrier", "latch", "stop_token"],
    "random": ["random", "sys/random.h"],
    "socket": ["sys/*socket*.h", "netinet/*", "arpa/*", "net/*", "netdb.h", "sys/epoll.h", "sys/eventfd.h",
               "poll.h", "sys/poll.h", "sys/select.h", "unistd.h", "sys/un.h", "sys/uio.h", "fcntl.h"],
    "log": ["iostream", "ostream", "istream", "fstream", "cstdio", "stdio.h", "syslog.h", "spdlog/*", "fmt/*"],
}
# (file, header): why it may.
IMPURE_EXCEPTIONS = {}


def room_of(path):
    for name, patterns, uses in ROOMS:
        for pattern in patterns:
            # "*" stands for files of that very folder in src/soft and include/verbena, for any depth elsewhere.
            shallow = pattern.startswith(("src/soft/", "include/verbena/")) and pattern.count("/") == 2
            if fnmatch(path, pattern) and not (shallow and path.count("/") != 2):
                return name, uses
    return None, []


def third_party(name):
    return next((prefix for prefix in THIRD_PARTY if name.startswith(prefix)), None)


def check_foreign(path, room, include):
    """An include that is no file of the project: standard, system, or one of the libraries above."""
    if room == "free":
        return None
    prefix = third_party(include.name)
    if prefix:
        if is_test(path) and prefix in TEST_LIBRARIES:
            return None
        if room not in THIRD_PARTY[prefix]:
            return f"{room} may not use <{include.name}>"
        only = ONLY_HEADER.get(prefix)
        if only and room.startswith("api.") and path != only:
            return f"only {only} stands on <{include.name}>"
        return None
    if include.quoted:
        return f'"{include.name}" is no file of this project'
    folder = include.name.split("/")[0] if "/" in include.name else None
    if room.startswith("api.") and (folder or include.name.endswith(".h")):
        return f"a public header includes <{include.name}>, which is not the C++ standard library"
    if folder and folder not in SYSTEM:
        return f"<{include.name}> belongs to a library the table does not know"
    return None


def check_includes(tree, path):
    room, uses = room_of(path)
    if room is None:
        yield Violation(path, 0, "room", "the table has no room for this file")
        return
    for include in tree.includes(path):
        target = tree.resolve(path, include)
        if target is None:
            message = check_foreign(path, room, include)
            if message:
                yield Violation(path, include.line, "layers", message)
            continue
        target_room = room_of(target)[0]
        if target_room != room and target_room not in uses and "*" not in uses:
            yield Violation(path, include.line, "layers", f"{room} may not see {target_room} ({target})")
        elif is_test(target) and not is_test(path) and room != "free":
            yield Violation(path, include.line, "layers", f"{target} is for tests alone")


def impure_kind(name):
    for kind, patterns in IMPURE.items():
        if any(fnmatch(name, pattern) for pattern in patterns):
            return kind
    return None


def check_pure(tree, path):
    if is_test(path):
        return
    if room_of(path)[0] not in PURE_ROOMS and not any(fnmatch(path, p) for p in PURE_FILES):
        return
    for reached, includer in tree.closure(path).items():
        for include in tree.includes(reached):
            kind = impure_kind(include.name)
            if kind and (reached, include.name) not in IMPURE_EXCEPTIONS:
                through = "" if includer is None else f", by way of {reached}"
                line = include.line if includer is None else 0
                yield Violation(path, line, "pure", f"<{include.name}> is a {kind} header{through}")


def check(tree):
    found = []
    for path in tree.cpp("src/", "include/", "sim/", "tools/", "examples/", "fuzz/", "tests/", "bench/", "codegen/"):
        found.extend(check_includes(tree, path))
        found.extend(check_pure(tree, path))
    return found


if __name__ == "__main__":
    main("layers", check)
