# SPDX-License-Identifier: Apache-2.0
"""Completion and manual pages: every command and flag that --help names is in both, and both are sound."""

import os
import re
import shutil
import subprocess

from command import PATIENCE, check, main, say


def help_of(setting, words):
    output, _ = setting.run(*words, "--help")
    return output


def every_command(setting):
    """Words of every command, as --help lists them."""
    found, waiting = [], [()]
    while waiting:
        words = waiting.pop()
        found.append(words)
        text = help_of(setting, words)
        if "\nSubcommands:" in text:
            below = text[text.index("\nSubcommands:"):]
            waiting += [(*words, name) for name in re.findall(r"^  ([a-z]+) ", below, re.MULTILINE)]
    return sorted(found)


def flags_of(text):
    """Every flag at the beginning of a line of --help."""
    flags = []
    for line in text.splitlines():
        if re.match(r"  -[A-Za-z-]", line):
            flags += re.findall(r"(?:^|,)(--?[A-Za-z][A-Za-z0-9_-]*)", line.split()[0])
    return flags


def complete(setting, *words):
    """What bash offers at the end of the words: for FILES by itself."""
    script = setting.path("completion.bash")
    with open(script, "w", encoding="utf-8") as file:
        file.write(setting.run("completion", "bash")[0])
    done = subprocess.run(
        ["bash", "-c", 'compopt() { [[ "$*" == "-o default" ]] && files=FILES; }; '
                       'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _verbena; '
                       'printf "%s\\n" "${COMPREPLY[@]:-$files}"', "bash", script, "verbena", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE, check=False, cwd=setting.folder)
    check(done.returncode == 0 and not done.stderr, f"{words}: {done.stderr}")
    return done.stdout.decode().split()


def every_flag_is_completed(setting):
    commands = every_command(setting)
    check(("bench", "write", "bw") in commands and len(commands) > 25, commands)
    count = 0
    for words in commands:
        flags = flags_of(help_of(setting, words))
        check("--help" in flags, f"{words}: {flags}")
        offered = complete(setting, *words, "-")
        taken = set(flags_of(help_of(setting, words).split("that are refused, each with its reason")[0]))
        check(taken <= set(offered), f"{words}: {taken - set(offered)} not offered")
        check(not (set(flags) - taken) & set(offered), f"{words}: {(set(flags) - taken) & set(offered)} are refused")
        count += len(flags)
        names = [other[-1] for other in commands if other[:-1] == words and other]
        check(set(names) <= set(complete(setting, *words, "")) if names else True, f"{words}: {names}")
    check(complete(setting, "bench", "wr") == ["write"], "a command of a command")
    check(complete(setting, "bench", "write", "bw", "-m", "1") == ["1024"], "values where they are few")
    check(complete(setting, "ping", "x", "--op", "") == ["send", "write", "read", "cas", "fadd"], "values")
    check(complete(setting, "bench", "send", "bw", "--path", "=", "r") == ["roce"], "values behind =")
    check(complete(setting, "bench", "send", "bw", "--path", "=") == ["auto", "roce", "local"], "values behind =")
    check(complete(setting, "ping", "--pcap", "a") == ["FILES"], "files")
    check(complete(setting, "ping", "--pcap", "=") == ["FILES"], "files behind =")
    check(complete(setting, "put", "a") == ["FILES"], "files without a flag")
    os.mkdir(setting.path("bench"))
    check(complete(setting, "ben") == ["bench"], "a command, though a folder is named so")
    check(complete(setting, "capture", "-w", "x", "--", "no_such_program") == ["FILES"], "files after --")
    check("true" in complete(setting, "capture", "-w", "x", "--", "tru"), "programs after --")
    say(f"{len(commands)} commands, {count} flags")


def every_flag_is_in_its_manual_page(setting):
    folder = setting.path("new", "man1")
    setting.run("manual", folder)
    commands = every_command(setting)
    wanted = {"-".join(("verbena", *words)) + ".1" for words in commands}
    check(set(os.listdir(folder)) == wanted, wanted ^ set(os.listdir(folder)))
    judges = [words for words in (["groff", "-man", "-ww", "-Tutf8", "-z"], ["mandoc", "-T", "lint", "-W", "warning"])
              if shutil.which(words[0])]
    for words in commands:
        path = os.path.join(folder, "-".join(("verbena", *words)) + ".1")
        with open(path, encoding="utf-8") as file:
            page = file.read()
        usage = re.search(r"Usage: .*\[OPTIONS\]([^\n]*)", help_of(setting, words))
        synopsis = re.sub(r"\\f[IR]", "", page[page.index("[\\fIOPTION\\fR]..."):].splitlines()[0])
        if usage and "SUBCOMMAND" not in usage[1]:
            check(usage[1].replace("...", "") == synopsis[len("[OPTION]..."):], f"{path} wants {synopsis}")
        for flag in flags_of(help_of(setting, words)):
            check("\\fB" + flag.replace("-", "\\-") + "\\fR" in page, f"{flag} is not in {path}")
        for judge in judges:
            done = subprocess.run([*judge, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
                                  check=False)
            # An undated page is meant: the same sources give the same bytes.
            told = [line for line in done.stdout.decode().splitlines() if "missing date" not in line]
            check(not told, f"{judge[0]}: {told}")
    say(f"{len(commands)} pages, judged by {', '.join(judge[0] for judge in judges) or 'nobody'}")


def wrong_words_are_refused(setting):
    setting.run("completion", "fish", status=2)
    setting.run("completion", status=2)
    setting.run("manual", status=2)
    _, errors = setting.run("manual", "/proc/nowhere/man", status=1)
    check("/proc/nowhere/man" in errors, errors)
    say(errors.splitlines()[0])


if __name__ == "__main__":
    main(every_flag_is_completed, every_flag_is_in_its_manual_page, wrong_words_are_refused)
