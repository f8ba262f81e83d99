# SPDX-License-Identifier: Apache-2.0
"""A check that cannot fail is worthless: each rule is shown a small tree that breaks it, and must say so."""

import json
import os
import sys
import tempfile
import unittest

import layers
import text
import tidy
from source_tree import SourceTree

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"
FOLDERS = ("/ho" "me/", "/ro" "ot/", "/wo" "rk/")


def write(root, files):
    for path, content in files.items():
        target = os.path.join(root, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w", encoding="utf-8") as file:
            file.write(content)


def found(check, files):
    """{(path, line, rule)} that check reports on a tree of these files."""
    with tempfile.TemporaryDirectory() as root:
        write(root, files)
        return {(v.path, v.line, v.rule) for v in check(SourceTree(root))}


class Layers(unittest.TestCase):
    # Every room of the software device and of the API has a file here; includes that are right.
    RIGHT = {
        "include/verbena/base/result.h": HEADER + "#include <tl/expected.hpp>\n",
        "include/verbena/device/device.h": HEADER + '#include "verbena/base/result.h"\n#include <span>\n',
        "include/verbena/async/operation.h": HEADER + '#include "verbena/device/device.h"\n',
        "include/verbena/verbena.h": HEADER + '#include "verbena/async/operation.h"\n',
        "src/base/ids.h": HEADER + '#include "verbena/base/result.h"\n',
        "src/base/clock.h": HEADER + "#include <chrono>\n",
        "src/provider/provider.h": HEADER + '#include "base/ids.h"\n',
        "src/provider/registry.cc": SPDX + '#include "soft/soft_provider.h"\n',
        "src/soft/wire/bth.h": HEADER + '#include "base/ids.h"\n#include <isa-l/crc.h>\n',
        "src/soft/wire/bth_test.cc": SPDX + '#include "bth.h"\n#include <gtest/gtest.h>\n#include <chrono>\n',
        "src/soft/core/mr.h": HEADER + '#include "base/ids.h"\n',
        "src/soft/core/test_mr.h": HEADER + "#include <gmock/gmock.h>\n",
        "src/soft/core/mr_test.cc": SPDX + '#include "soft/core/test_mr.h"\n',
        "src/soft/roce/requester.h": HEADER + '#include "soft/core/mr.h"\n#include "soft/wire/bth.h"\n',
        "src/soft/cm/cm.h": HEADER + '#include "soft/wire/bth.h"\n',
        "src/soft/local/ring.h": HEADER + '#include "soft/core/mr.h"\n#include <sys/mman.h>\n',
        "src/soft/nic.h": HEADER + '#include "soft/roce/requester.h"\n',
        "src/soft/driver/udp/udp.h": HEADER + '#include "soft/nic.h"\n',
        "src/soft/driver/udp/udp.cc": SPDX + '#include "soft/driver/udp/udp.h"\n#include <sys/socket.h>\n',
        "src/soft/soft_provider.h": HEADER + '#include "soft/driver/udp/udp.h"\n#include "provider/provider.h"\n',
        "src/device/device.cc": SPDX + '#include "provider/provider.h"\n#include "verbena/device/device.h"\n',
        "src/messaging/ring/reader.h": HEADER + '#include "base/ids.h"\n',
        "src/messaging/sender.cc": SPDX + '#include "messaging/ring/reader.h"\n#include <mutex>\n',
        "src/testing/faulty_network.h": HEADER + '#include "soft/wire/bth.h"\n',
        "src/testing/network_state.cc": SPDX + '#include "soft/nic.h"\n#include "testing/faulty_network.h"\n',
        "sim/world.h": HEADER + '#include "soft/nic.h"\n',
        "tools/sim_command.cc": SPDX + '#include "sim/world.h"\n#include <CLI/CLI.hpp>\n',
        "tools/ping.cc": SPDX + "#include <verbena/verbena.h>\n#include <fmt/core.h>\n",
        "tests/scenario/loss_test.cc": SPDX + '#include "soft/driver/udp/udp.h"\n#include <asio.hpp>\n',
    }
    # (file, what it must not include, rule)
    WRONG = [
        ("include/verbena/base/a.h", '"verbena/device/device.h"', "layers"),
        ("include/verbena/device/a.h", '"verbena/async/operation.h"', "layers"),
        ("include/verbena/device/a.h", '"base/ids.h"', "layers"),
        ("include/verbena/device/a.h", "<tl/expected.hpp>", "layers"),
        ("include/verbena/base/a.h", "<tl/expected.hpp>", "layers"),
        ("include/verbena/base/a.h", "<sys/mman.h>", "layers"),
        ("include/verbena/base/a.h", "<errno.h>", "layers"),
        ("src/base/a.h", '"soft/wire/bth.h"', "layers"),
        ("src/soft/wire/a.h", '"soft/core/mr.h"', "layers"),
        ("src/soft/wire/a.h", '"soft/nosuch.h"', "layers"),
        ("src/soft/wire/a.h", "<openssl/rand.h>", "layers"),
        ("src/soft/wire/a.h", "<boost/crc.hpp>", "layers"),
        ("src/soft/core/a.h", '"soft/wire/bth.h"', "layers"),
        ("src/soft/core/a.h", '"soft/core/test_mr.h"', "layers"),
        ("src/soft/core/a.h", "<gtest/gtest.h>", "layers"),
        ("src/soft/roce/a.h", '"soft/cm/cm.h"', "layers"),
        ("src/soft/cm/a.h", '"soft/roce/requester.h"', "layers"),
        ("src/soft/local/a.h", '"soft/wire/bth.h"', "layers"),
        ("src/soft/a.h", '"soft/driver/udp/udp.h"', "layers"),
        ("src/soft/a.h", '"provider/provider.h"', "layers"),
        ("src/soft/driver/a.h", '"soft/soft_provider.h"', "layers"),
        ("src/provider/a.h", '"soft/soft_provider.h"', "layers"),
        ("src/provider/registry_b.cc", '"soft/nic.h"', "layers"),
        ("src/soft/soft_a.h", "<infiniband/verbs.h>", "layers"),
        ("src/verbs/a.h", '"soft/soft_provider.h"', "layers"),
        ("src/device/a.h", '"verbena/async/operation.h"', "layers"),
        ("src/device/a.h", '"soft/nic.h"', "layers"),
        ("src/messaging/ring/a.h", '"verbena/device/device.h"', "layers"),
        ("src/connection/a.h", '"messaging/ring/reader.h"', "layers"),
        ("sim/a.h", '"soft/driver/udp/udp.h"', "layers"),
        ("tools/a.cc", '"sim/world.h"', "layers"),
        ("tools/a.cc", '"base/ids.h"', "layers"),
        ("examples/a.cc", '"provider/provider.h"', "layers"),
        ("examples/a.cc", "<CLI/CLI.hpp>", "layers"),
        ("src/soft/wire/a.cc", "<chrono>", "pure"),
        ("src/soft/core/a.cc", "<mutex>", "pure"),
        ("src/soft/roce/a.cc", "<random>", "pure"),
        ("src/soft/cm/a.cc", "<netinet/in.h>", "pure"),
        ("src/soft/a.cc", "<unistd.h>", "pure"),
        ("src/messaging/ring/a.cc", "<mutex>", "pure"),
        ("src/testing/faulty_network.cc", "<chrono>", "pure"),
        ("src/messaging/a.cc", '"soft/driver/udp/udp.h"', "layers"),
        ("sim/a.cc", "<iostream>", "pure"),
        ("sim/a.cc", "<cstdio>", "pure"),
        ("src/base/spsc_ring.h", "<thread>", "pure"),
    ]

    def test_a_tree_that_keeps_the_rules_is_clean(self):
        self.assertEqual(found(layers.check, self.RIGHT), set())

    def test_each_wrong_include_is_reported_and_nothing_else(self):
        for path, name, rule in self.WRONG:
            with self.subTest(path=path, name=name):
                files = {**self.RIGHT, path: f"{SPDX}\n#include {name}\n"}
                self.assertEqual(found(layers.check, files), {(path, 3, rule)})

    def test_an_impure_header_reached_through_another_file_is_reported(self):
        files = {**self.RIGHT, "src/soft/core/a.cc": SPDX + '#include "base/clock.h"\n'}
        self.assertEqual(found(layers.check, files), {("src/soft/core/a.cc", 0, "pure")})

    def test_a_file_outside_every_room_is_reported(self):
        files = {"src/attic/a.cc": SPDX, "src/stray.cc": SPDX}
        self.assertEqual(found(layers.check, files), {("src/attic/a.cc", 0, "room"), ("src/stray.cc", 0, "room")})

    def test_an_include_in_a_comment_does_not_count(self):
        files = {"src/soft/core/a.cc": SPDX + "// #include <mutex>\n"}
        self.assertEqual(found(layers.check, files), set())


def function(lines, head="int f(int a) {"):
    return head + "\n" + "  a += 1;\n" * (lines - 2) + "}\n"


class Text(unittest.TestCase):
    def expect(self, path, content, rule, line, others=None):
        self.assertEqual(found(text.check, {path: content, **(others or {})}), {(path, line, rule)})

    def expect_clean(self, path, content):
        self.assertEqual(found(text.check, {path: content}), set())

    def test_a_file_without_licence_line_is_reported(self):
        for path, content in (("src/a.cc", "int a;\n"), ("tests/a.py", "a = 1\n"), ("src/CMakeLists.txt", "\n"),
                              ("scripts/a", "#!/bin/sh\n")):
            self.expect(path, content, "spdx", 1)

    def test_a_header_without_guard_is_reported(self):
        self.expect("src/a.h", SPDX, "pragma_once", 1)

    def test_a_file_name_in_another_case_is_reported(self):
        for name in ("src/QueuePair.h", "src/queue-pair.h"):
            self.expect(name, HEADER, "file_name", 0)

    def test_a_long_file_is_reported_and_tests_may_be_longer(self):
        long = SPDX + "\n" * 600
        self.expect("src/a.cc", long, "file_length", 0)
        self.expect_clean("src/a_test.cc", long)
        self.expect("src/a_test.cc", long + "\n" * 300, "file_length", 0)

    def test_a_long_line_is_reported(self):
        self.expect("src/a.cc", SPDX + "//" + "x" * 119 + "\n", "line_length", 2)
        self.expect_clean("src/a.cc", SPDX + "//" + "x" * 118 + "\n")

    def test_a_long_function_is_reported_at_its_first_line(self):
        heads = ["int f(int a) {", "A::A(int a) : b_{1}, c_(2) {", "auto A::f(int a) const -> Result<int> {",
                 "TEST(Suite, does_it) {", "template <class T>  requires(sizeof(T) > 1)  void f(T a) noexcept {"]
        for head in heads:
            with self.subTest(head=head):
                self.expect("src/a.cc", SPDX + function(71, head), "function_length", 2)
                self.expect_clean("src/a.cc", SPDX + function(70, head))

    def test_a_long_function_inside_scopes_is_reported(self):
        inside = "namespace a {\nclass B : public C<int> {\n public:\n" + function(71) + "};\n}\n"
        self.expect("src/a.cc", SPDX + inside, "function_length", 5)

    def test_a_long_table_or_class_is_no_function(self):
        rows = "  Row{1, f(2)},\n" * 80
        self.expect_clean("src/a.cc", SPDX + "constexpr Row kRows[] = {\n" + rows + "};\n")
        self.expect_clean("src/a.cc", SPDX + "struct A {\n" + "  int f(int a);\n" * 80 + "};\n")

    def test_a_long_python_function_is_reported(self):
        body = "# " + SPDX[3:] + "def f():\n" + "    a = 1\n" * 70
        self.expect("tests/a.py", body, "function_length", 2)

    def test_code_a_compiler_lacks_is_reported(self):
        for code in ("std::expected<int, int> a;", "auto a = std::format(b);", "auto a = b | std::views::reverse;",
                     "std::source_location a;", "std::move_only_function<void()> a;"):
            self.expect("src/a.cc", SPDX + code + "\n", "banned_code", 2)

    def test_the_library_does_not_throw(self):
        self.expect("src/a.cc", SPDX + "void f() { throw 1; }\n", "banned_code", 2)
        self.expect_clean("src/a.cc", SPDX + '// throw\nconst char* a = "throw";\n')

    def test_a_header_does_not_open_a_namespace_for_others(self):
        self.expect("src/a.h", HEADER + "using namespace std;\n", "banned_code", 3)

    def test_tl_stays_inside_result(self):
        result = "include/verbena/base/result.h"
        self.expect("include/verbena/device/a.h", HEADER + "tl::expected<int, int> a();\n", "tl", 3)
        private = HEADER + "class A {\n  A(int e) : inner_(tl::unexpect, e) {}\n" \
            " private:\n  tl::expected<int, int> b_;\n};\n"
        self.expect_clean(result, private)
        self.expect(result, private + "class B {\n  tl::expected<int, int> get();\n};\n", "tl", 9)

    def test_macros_are_named_and_few(self):
        self.expect("src/a.h", HEADER + "#define A 1\n", "macro", 3)
        five = {f"include/verbena/base/m{i}.h": f"{HEADER}#define VERBENA_{i} 1\n" for i in range(5)}
        self.assertEqual(found(text.check, five), set())
        self.expect("src/z.h", HEADER + "#define VERBENA_Z 1\n", "macro_count", 3, five)

    def test_marks_of_unfinished_work_are_reported(self):
        for mark in ("TO" "DO", "FIX" "ME", "XX" "X", "HA" "CK"):
            self.expect("src/a.cc", f"{SPDX}// {mark}: later\n", "unfinished", 2)

    def test_paths_of_a_machine_are_reported(self):
        for folder in FOLDERS:
            self.expect("doc/a.md", f"Look in {folder}somebody.\n", "machine_path", 1)
        self.expect_clean("doc/a.md", "Framework/work/flow and $HOME/work/ and a/root/b\n")

    def test_words_of_other_places_are_reported(self):
        for words in ("tick" "et 7", "iss" "ue #12", "this ses" "sion", "a lang" "uage model"):
            self.expect("doc/a.md", f"See {words}.\n", "words", 1)

    def test_a_document_that_is_not_there_is_reported(self):
        self.expect("doc/a.md", "See [b](b.md).\n", "document", 1)
        self.expect("doc/a.md", "See ../../elsewhere/b.md.\n", "document", 1)
        self.expect_clean("doc/a.md", "See [itself](a.md) and https://example.org/b.md\n")

    def test_a_long_document_is_reported(self):
        self.expect("CONTRIBUTING.md", "line\n" * 81, "document_length", 0)

    def test_a_test_name_that_is_no_sentence_is_reported(self):
        for name in ("RetransmitsLoss", "retransmits", "Retransmits_loss"):
            self.expect("src/a_test.cc", f"{SPDX}TEST(Requester, {name}) {{}}\n", "test_name", 2)
        for name in ("retransmits_loss", "R_021_drops_a_packet", "R021b_drops_a_packet", "a_lost_REQ_is_sent_again",
                     "O4_path_MTUs"):
            self.expect_clean("src/a_test.cc", f"{SPDX}TEST(Requester, {name}) {{}}\n")


class Tidy(unittest.TestCase):
    CODE = SPDX + "namespace a {\nclass QueuePair {\n public:\n  int %s() const { return %s; }\n\n" \
        " private:\n  int %s = 0;\n};\ninline constexpr int %s = 1;\n}\n" \
        "int main() { return a::QueuePair{}.%s() + a::%s; }\n"

    def run_tidy(self, method, member, constant):
        with tempfile.TemporaryDirectory() as root:
            build = os.path.join(root, "build")
            code = self.CODE % (method, member, member, constant, method, constant)
            write(root, {"src/a.cc": code, "build/compile_commands.json": tidy.one_command(root, "src/a.cc")})
            with open(os.path.join(tidy.HERE, "..", "..", ".clang-tidy"), encoding="utf-8") as config:
                write(root, {".clang-tidy": config.read()})
            first = tidy.check(root, build, jobs=1)
            again = tidy.check(root, build, jobs=1)
            self.assertEqual(first.violations, again.violations)
            self.assertEqual((first.cached, again.cached), (0, 0 if first.violations else 1))
            return first.violations

    def test_names_of_the_house_are_clean_and_remembered(self):
        self.assertEqual(self.run_tidy("post_send", "depth_", "kLimit"), 0)

    def look_at(self, files, commands):
        with tempfile.TemporaryDirectory() as root:
            write(root, {**files, "build/compile_commands.json": commands(root)})
            with open(os.path.join(tidy.HERE, "..", "..", ".clang-tidy"), encoding="utf-8") as config:
                write(root, {".clang-tidy": config.read()})
            return tidy.check(root, os.path.join(root, "build"), jobs=1)

    def test_sources_of_a_folder_are_read_as_one_and_each_is_remembered(self):
        files = {"src/a.cc": SPDX + "namespace {\nint one() { return 1; }\n}\nint a() { return one(); }\n",
                 "src/b.cc": SPDX + "namespace {\nint two() { return 2; }\n}\nint b() { return two(); }\n"}

        def all_files(root):
            return json.dumps([json.loads(tidy.one_command(root, path))[0] for path in files])

        def joined(root):
            together = "build/lib.dir/Unity/unity_0_cxx.cxx"
            write(root, {together: "".join(f'#include "{root}/{path}"\n' for path in files)})
            return tidy.one_command(root, together)

        self.assertEqual(self.look_at(files, all_files), (2, 0, 0))
        self.assertEqual(self.look_at(files, joined), (2, 0, 0))
        files["src/b.cc"] = files["src/b.cc"].replace("two", "one")  # a name that the other file has
        self.assertGreater(self.look_at(files, all_files).violations, 0)
        files["src/b.cc"] = files["src/b.cc"].replace("one", "Two")
        self.assertGreater(self.look_at(files, joined).violations, 0)

    def test_other_names_are_reported(self):
        self.assertGreater(self.run_tidy("postSend", "depth_", "kLimit"), 0)
        self.assertGreater(self.run_tidy("post_send", "depth", "kLimit"), 0)
        self.assertGreater(self.run_tidy("post_send", "depth_", "LIMIT"), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-q"] + sys.argv[1:])
