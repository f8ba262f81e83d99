# SPDX-License-Identifier: Apache-2.0
"""Makes the reference, which fails on any warning, and looks at what Doxygen understood.

doc_test.py DOXYGEN FOLDER: FOLDER has the Doxyfile, and gets the reference. Without such a program it skips itself."""

import pathlib
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

import comments

SKIP = 77

# Classes that are plain values or views. Every other one says who may use it from which thread, and how long it lives.
VALUES = {"Error", "LKey", "Psn", "Qpn", "RKey", "Result", "Result< void >", "Segments"}

FILTERED = [
    ("// SPDX-License-Identifier: Apache-2.0", "/// \\file"),
    ("// A thing.", "/// A thing."),
    ("  // ---- Verbs. Of Result<U>, ::ffff and 2%.", "  /// Verbs. Of Result\\<U\\>, \\::ffff and 2\\%."),
    ("//   auto x = Result<int>{1};", "///       auto x = Result<int>{1};"),
    ("  int a = 0;  // bytes", "  int a = 0;  ///< bytes"),
    ("enum class E : int {  // numbers of ibv", "/** numbers of ibv */ enum class E : int {"),
    ('  const char* scheme = "verbena://";', '  const char* scheme = "verbena://";'),
    ('  const char* scheme = "verbena://";  // of a URL', '  const char* scheme = "verbena://";  ///< of a URL'),
    ("  Result(Error error);  // NOLINT(google-explicit-constructor)",) * 2,
    ("}  // namespace verbena",) * 2,
]


def check(condition, text):
    if not condition:
        raise SystemExit(f"doc_test: {text}")


def words(element):
    return " ".join("".join(element.itertext()).split()) if element is not None else ""


def described(element):
    return words(element.find("briefdescription")) + " " + words(element.find("detaileddescription"))


def compounds(folder):
    """Every class and struct by its name without the namespace."""
    found = {}
    for path in sorted((folder / "xml").glob("*.xml")):
        for compound in xml.parse(path).getroot().iter("compounddef"):
            if compound.get("kind") in ("class", "struct"):
                found[words(compound.find("compoundname")).removeprefix("verbena::")] = compound
    return found


def is_machinery(name):
    """What only the language meets: the parts of coroutines."""
    return "detail::" in name or name.endswith(("::Awaiter", "::Awaiter< T >"))


def member(compound, name):
    return next(m for m in compound.iter("memberdef") if m.findtext("name") == name)


def the_filter_turns_comments_into_documentation():
    lines, wanted = zip(*FILTERED)
    for line, got, want in zip(lines, comments.documented(lines), wanted):
        check(got == want, f"{line!r} becomes {got!r}, not {want!r}")


def the_reference_has_what_the_headers_say(doxygen, folder):
    done = subprocess.run([doxygen, folder / "Doxyfile"], text=True, capture_output=True, check=False)
    check(done.returncode == 0 and not done.stderr, f"{done.stdout}{done.stderr}")
    check((folder / "html/index.html").exists(), "there is no main page")
    found = compounds(folder)
    device = found["Device"]
    check("Lifetime: outlives everything made on it" in described(device), described(device))
    check("Errors: NotFound" in described(member(device, "open")), "Device::open says no errors")
    check("payload bytes per packet" in described(member(found["DeviceInfo"], "active_mtu")), "no trailing comments")
    for name, compound in found.items():
        if compound.get("kind") != "class" or compound.get("prot") != "public" or name in VALUES or is_machinery(name):
            continue
        for word in ("Threads:", "Lifetime:"):
            check(word in described(compound), f"the comment of {name} has no sentence \"{word} ...\"")


def a_warning_is_a_failure(doxygen, folder):
    header = folder / "wrong.h"
    header.write_text("/// \\file\n/// Sees \\ref nothing_of_that_name.\n", encoding="utf-8")
    settings = (folder / "Doxyfile").read_text(encoding="utf-8")
    settings += f"INPUT = {header}\nOUTPUT_DIRECTORY = {folder}/wrong\n"
    settings += "FILTER_PATTERNS =\nUSE_MDFILE_AS_MAINPAGE =\n"
    done = subprocess.run([doxygen, "-"], input=settings, text=True, capture_output=True, check=False)
    check(done.returncode != 0 and "nothing_of_that_name" in done.stderr, f"it passes: {done.stderr}")


def main(doxygen, folder):
    the_filter_turns_comments_into_documentation()
    if shutil.which(doxygen) is None:
        print("skipped: doxygen is not installed (scripts/install-deps test)")
        sys.exit(SKIP)
    the_reference_has_what_the_headers_say(doxygen, folder)
    a_warning_is_a_failure(doxygen, folder)


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
