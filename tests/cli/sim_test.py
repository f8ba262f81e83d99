# SPDX-License-Identifier: Apache-2.0
"""verbena sim: a seed is the whole run."""

import json
import os
import signal
import subprocess

from command import PATIENCE, Skip, check, first_line, main, say


def a_seed_gives_the_same_run_again(setting):
    for words in (("--seed", "1"), ("--seed", "1", "--trace"), ("--seed", "7", "--json")):
        first, _ = setting.run("sim", *words)
        second, _ = setting.run("sim", *words)
        check(first == second and first, words)
    other, _ = setting.run("sim", "--seed", "2", "--trace")
    one, _ = setting.run("sim", "--seed", "1", "--trace")
    check(other != one, "two seeds, one run")
    setting.run("sim", "--seed", "1", "--pcap", setting.path("a"))
    setting.run("sim", "--seed", "1", "--pcap", setting.path("b"))
    with open(setting.path("a"), "rb") as first, open(setting.path("b"), "rb") as second:
        check(first.read() == second.read(), "captures differ")
    say(f"{len(one.splitlines())} lines of trace, twice the same")


def many_seeds_keep_every_promise(setting):
    output, _ = setting.run("sim", "--seeds", "100:40", "--json")
    result = json.loads(output)
    check(result["seeds"] == 40 and result["failed"] == 0 and result["packets"] > 10_000, output)
    output, _ = setting.run("sim", "--seeds", "1:3")
    check("3 seeds, 0 failed" in output, output)
    say(f"40 seeds, {result['packets']} packets")


def a_planted_bug_is_found(setting):
    names, _ = setting.run("sim", "--list-bugs")
    bugs = names.split()
    check("AcceptGap" in bugs and len(bugs) == len(set(bugs)), names)
    check(json.loads(setting.run("sim", "--list-bugs", "--json")[0]) == bugs, "as JSON")
    if not os.path.exists(os.path.join(setting.bin, "verbena-sim-planted")):
        raise Skip("verbena-sim-planted was not built")
    output, _ = setting.run("sim", "--plant", "AcceptGap", "--seeds", "1:20", status=1)
    line = next(line for line in output.splitlines() if line.startswith("again: "))
    check("--plant AcceptGap" in line, output)
    words = line[len("again: verbena "):].split()
    output, _ = setting.run(*words, status=1)
    check("FAILED" in output, output[-500:])
    say(f"{len(bugs)} bugs to plant; found again by: {line[7:]}")


def a_failure_is_told_before_the_seeds_behind_it(setting):
    if not os.path.exists(os.path.join(setting.bin, "verbena-sim-planted")):
        raise Skip("verbena-sim-planted was not built")
    # Few seeds fail, and what is told of one is shorter than the buffer of a stream.
    process = setting.start("sim", "--plant", "RetransmitFromWrongPsn", "--seeds", "1:1000000000",
                            stdout=subprocess.PIPE)
    told = [first_line(process)]
    process.send_signal(signal.SIGTERM)
    told += process.communicate(timeout=PATIENCE)[0].decode().splitlines(keepends=True)
    check("FAILED" in told[0] and told[-1].startswith("again: ") and told[-1].endswith("\n"), told)
    say(f"interrupted after: {told[0]}")


def an_empty_word_is_no_choice(setting):
    """As of a variable of the shell that is not set: seed 1 would have run, and all would have been well."""
    for flag in ("--seeds", "--plant", "--pcap"):
        output, errors = setting.run("sim", flag, "", status=2)
        check(f"{flag}: an empty word" in errors and not output, output + errors)


if __name__ == "__main__":
    main(a_seed_gives_the_same_run_again, many_seeds_keep_every_promise, a_planted_bug_is_found,
         a_failure_is_told_before_the_seeds_behind_it, an_empty_word_is_no_choice)
