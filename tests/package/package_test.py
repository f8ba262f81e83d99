# SPDX-License-Identifier: Apache-2.0
"""Installs Verbena into an empty prefix and unpacks its Debian packages into another; builds a user's program against
each of them through CMake and pkg-config, shared and static, and runs it. Everything stays in BUILD/package-test."""

import argparse
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
# Types of the public API, and its functions outside of types; never a layer's names.
PUBLIC_SYMBOL = re.compile(r"verbena::([A-Z]|detail::|(abort_on_bad_result_access|connect_with_retry|environment"
                           r"|parse_path_choice|to_errno|to_error_code|to_string)\("
                           r"|messaging::((Freeing|Message|Receiver|Receiving|Reservation|Sender|Sending)::"
                           r"|(all_protocols|parse_kind|recommend|to_string(\[abi:cxx11\])?|traits_of)\()"
                           r"|testing::(VirtualHost|VirtualNetwork)::)")
# Lines of a public header that begin a namespace, and that declare a function outside of types and define none.
NAMESPACE = re.compile(r"^namespace ([\w:]+) \{$")
FUNCTION = re.compile(r"^(?!inline|template|using)[\w\[][^()=]*?(\w+)\([^{]*$")


def check(condition, text):
    if not condition:
        raise SystemExit(f"package_test: {text}")


def run(*words, fails=False, **more):
    words = [str(word) for word in words]
    done = subprocess.run(words, text=True, capture_output=True, check=False, **more)
    said = done.stdout + done.stderr
    check((done.returncode != 0) == fails, f"{' '.join(words)}: exit code {done.returncode}\n{said}")
    return done.stdout if not fails else said


class Consumer:
    """A user's program against what is installed under `prefix`."""

    def __init__(self, prefix, work, cxx):
        self.prefix, self.work, self.cxx = prefix, work, cxx
        self.work.mkdir()
        shutil.copytree(HERE / "consumer", self.work / "source")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("CMAKE_", "PKG_CONFIG"))}
        self.environment = {**kept, "LD_LIBRARY_PATH": str(prefix / "lib"),
                            "PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}

    def run(self, *words, **more):
        return run(*words, env=self.environment, **more)

    def configure(self, name, fails=False, **variables):
        given = [f"-D{key}={value}" for key, value in variables.items()]
        return self.run("cmake", "-S", self.work / "source", "-B", self.work / name, "-G", "Ninja",
                        f"-DCMAKE_CXX_COMPILER={self.cxx}", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                        "-DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF", *given, fails=fails)

    def runs(self, program, shared):
        """It works, and takes the library from the prefix, or needs none."""
        check(self.run(program) == "written by RDMA\n", f"{program} does not write")
        needed = re.findall(r"libverbena\S* => (\S+)", self.run("ldd", program))
        wanted = [str(self.prefix / "lib")] if shared else []
        check([os.path.dirname(path) for path in needed] == wanted, f"{program} takes its library from {needed}")

    def through_cmake(self):
        for name, variables, shared in (("shared", {}, True), ("static", {"KIND": "static"}, False)):
            self.configure(name, **variables)
            self.run("cmake", "--build", self.work / name)
            self.runs(self.work / name / "consumer", shared)
            with_asio = self.work / name / "asio_consumer"
            if with_asio.exists():
                self.runs(with_asio, shared)
            else:
                print("asio is not installed: nobody includes verbena/async/asio.h")

    def through_pkg_config(self):
        """As the file itself says."""
        pkg_config = lambda *words: self.run("pkg-config", *words, "verbena").split()
        compiled = self.work / "consumer.o"
        self.run(self.cxx, "-std=c++20", *pkg_config("--cflags"), "-o", compiled,
                 "-c", self.work / "source/consumer.cc")
        static = ["-l:libverbena.a" if word == "-lverbena" else word for word in pkg_config("--static", "--libs")]
        for name, libraries, shared in (("linked", pkg_config("--libs"), True), ("linked_static", static, False)):
            self.run(self.cxx, compiled, *libraries, "-o", self.work / name)
            self.runs(self.work / name, shared)

    def says_what_is_wrong(self):
        said = self.configure("odd", fails=True, KIND="soft")
        check("no component soft" in " ".join(said.split()), said)
        self.configure("optional", KIND="OPTIONAL_COMPONENTS;soft")
        said = self.configure("newer", fails=True, WANTED="9.9")
        check("9.9" in said, said)


    def as_a_part(self):
        """Verbena's sources inside of the user's project: no more than the library, and its headers are found."""
        wishes = {"CMAKE_CXX_VISIBILITY_PRESET": "hidden", "CMAKE_VISIBILITY_INLINES_HIDDEN": "ON", "CCACHE": "ON"}
        for name, variables, library in (("part", wishes, "libverbena.so"),
                                         ("sanitized_part", {"VERBENA_SANITIZE": "address"}, "libverbena.so"),
                                         ("static_part", {"BUILD_SHARED_LIBS": "OFF"}, "libverbena.a")):
            build = self.work / name
            self.configure(name, SOURCES=HERE.parent.parent, **variables)
            made = self.run("ninja", "-C", build, "-t", "targets", "all")
            odd = re.findall(r"^\S*(?:_test|bin/\S*|/verbena_(?:tools|sim|command)\S*): \S+$", made, re.MULTILINE)
            check(not odd, f"a part of another project builds more than the library: {odd}")
            needed = self.run("ninja", "-C", build, "-t", "query", "consumer")
            check(f"verbena/lib/{library}" in needed, f"{name}: the program is made of {needed}")
            compiled = self.run("ninja", "-C", build, "-t", "commands", f"verbena/lib/{library}")
            check("/verbena_device.dir/" in compiled and not re.search("-fvisibility\\S*hidden", compiled),
                  f"{name}: the library shows nothing")
            check(not re.search("CCACHE_\\S+ ON ", compiled), f"{name}: an option of the project is a program")
            check("--no-undefined" not in compiled, f"{name}: clang cannot link the library where others sanitize")
            self.run("cmake", "--install", build, "--prefix", build / "prefix")
            check(not list((build / "prefix").rglob("*.h")), "a part of another project is installed with it")
        # The library itself takes minutes.
        self.run("ninja", "-C", self.work / "part", "CMakeFiles/consumer.dir/consumer.cc.o")


def declared_functions(include):
    """What the public headers declare outside of types, and leave to the library."""
    for path in sorted(include.rglob("*.h")):
        inside, depth = [], 0
        for line in re.sub(r" *//.*", "", path.read_text()).splitlines():
            if begun := NAMESPACE.match(line):
                inside.append(begun[1])
            elif declared := FUNCTION.match(line):
                yield "::".join([*inside, declared[1]])
            depth += line.count("{") - line.count("}")
            del inside[depth:]



def check_symbols(library, include):
    lines = run("nm", "-DC", "--defined-only", library).splitlines()
    names = [line.split(maxsplit=2)[-1] for line in lines if " A " not in line]
    check(any(name.startswith("verbena::Device::open(") for name in names), "Device::open is hidden")
    shown = {re.split(r"[\[(]", name)[0] for name in names}
    hidden = sorted(set(declared_functions(include)) - shown)
    check(not hidden, "the library hides of its API: " + ", ".join(hidden))
    foreign = [name for name in names if not PUBLIC_SYMBOL.match(name)]
    check(not foreign, "the library shows more than its API: " + ", ".join(foreign))


def check_prefix(prefix, version):
    """What is there is what users need, and is of this version."""
    abi = ".".join(version.split(".")[:2 if version.startswith("0.") else 1])
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", prefix / "lib/libverbena.so"))[1]
    check(soname == f"libverbena.so.{abi}", f"the soname is {soname}")
    check_symbols(prefix / "lib/libverbena.so", prefix / "include")
    odd = [path for path in (prefix / "include").rglob("*") if path.is_file() and path.suffix != ".h"]
    check(not odd, f"no headers: {odd}")
    said = run("pkg-config", "--modversion", prefix / "lib/pkgconfig/verbena.pc").strip()
    check(said == version, f"verbena.pc is of version {said}")
    check(run(prefix / "bin/verbena", "--version").split()[-1] == version, "the tool is of another version")


def check_absolute_folders(work, cxx):
    """verbena.pc names them as they are."""
    wanted = {"libdir": "/opt/lib/here", "includedir": "/opt/include/here"}
    parts = [f"-DVERBENA_BUILD_{part}=OFF" for part in ("TESTS", "TOOLS", "EXAMPLES", "BENCH")]
    folders = [f"-DCMAKE_INSTALL_{name.upper()}={path}" for name, path in wanted.items()]
    run("cmake", "-S", HERE.parent.parent, "-B", work, "-G", "Ninja", f"-DCMAKE_CXX_COMPILER={cxx}", *parts, *folders)
    for name, path in wanted.items():
        said = run("pkg-config", f"--variable={name}", work / "package/verbena.pc").strip()
        check(said == path, f"verbena.pc has {said} for {path}")


def check_depends(debs, version):
    """The packages ask for what they need."""
    depends = {}
    for deb in debs:
        name, needs = (run("dpkg-deb", "-f", deb, field).strip() for field in ("Package", "Depends"))
        depends[re.sub(r"[\d.]+$", "", name)] = needs
    check(sorted(depends) == ["libverbena", "libverbena-dev", "verbena-utils"], f"there are {sorted(depends)}")
    for name, wanted in (("libverbena", ["libc6", "libstdc++6", "libisal2"]),
                         ("libverbena-dev", [f"(= {version})", "libexpected-dev", "libisal-dev"]),
                         ("verbena-utils", ["libc6", "libssl3", "libisal2"])):
        for word in wanted:
            check(word in depends[name], f"{name} does not depend on {word}: {depends[name]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cxx", required=True)
    parser.add_argument("--version", required=True)
    options = parser.parse_args()
    build = options.build.resolve()
    work = build / "package-test"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()

    run("cmake", "--install", build, "--prefix", work / "prefix")
    check_prefix(work / "prefix", options.version)
    installed = Consumer(work / "prefix", work / "installed", options.cxx)
    installed.through_cmake()
    installed.through_pkg_config()
    installed.says_what_is_wrong()
    installed.as_a_part()
    check_absolute_folders(work / "absolute", options.cxx)

    run("cpack", "--config", build / "CPackConfig.cmake", "-G", "DEB", "-B", work / "debs")
    debs = sorted((work / "debs").glob("*.deb"))
    check_depends(debs, options.version)
    for deb in debs:
        run("dpkg-deb", "-x", deb, work / "root")
    check_prefix(work / "root/usr", options.version)
    packed = Consumer(work / "root/usr", work / "packed", options.cxx)
    packed.through_cmake()
    packed.through_pkg_config()


if __name__ == "__main__":
    main()
