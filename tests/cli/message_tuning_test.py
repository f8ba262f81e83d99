# SPDX-License-Identifier: Apache-2.0
"""verbena bench protocols and verbena tune: tables, JSON, the page, another end, what they refuse."""

import json
import os
import re
import signal
import subprocess
import xml.etree.ElementTree as xml
from pathlib import Path

from command import PATIENCE, Server, check, main, output_until, say

MARKUP = "{http://www.w3.org/1999/xhtml}"
DRAWING = "{http://www.w3.org/2000/svg}"
TESTS = 6 + 6 + 1 + 4 + 4 + 3  # of a kind over a path: by size two ways, a batch, by senders two ways, by threads
WISHES = {"lowest latency", "most small messages", "most bytes in large messages", "many senders, little memory"}

ALL = {"send-receive", "shared-receive", "direct-write", "buffered-write", "shared-write", "direct-read",
       "buffered-read"}


def load(file):
    with open(file, encoding="utf-8") as result:
        return json.load(result)


def protocols(setting, *words, kinds=("send-receive", "buffered-write/reversed/read"), status=0):
    """Output, JSON and page of a comparison."""
    file, page = setting.path("protocols.json"), setting.path("protocols.html")
    named = [word for kind in kinds for word in ("--protocol", kind)]
    output, errors = setting.run("bench", "protocols", *words, *named, "-n", "5", "-F", "--json", file,
                                 "--report", page, status=status)
    return output + errors, load(file), page


def a_comparison_measures_both_paths_and_says_what_to_take(setting):
    output, result, page = protocols(setting)
    check(result["ok"] and not result["failures"] and len(result["results"]) == 2 * 2 * TESTS, result["failures"])
    for path in ("roce", "local"):
        check({one["wish"] for one in result["choices"] if one["path"] == path} == WISHES, result["choices"])
        check(sum(one["path"] == path for one in result["models"]) == 2, result["models"])
    for model in result["models"]:
        parts = [model[part][name] for part in ("overhead", "latency", "gap") for name in ("us", "ns_per_byte")]
        check(min(parts) >= 0 and model["gap"]["us"] > 0, model)
    for choice in result["choices"]:
        check(choice["reason"].startswith(choice["protocol"] + ": ") and choice["reason"] in output, output)
        # It is not one run that decides, where there is a choice, and what the runs do not tell apart is named.
        alone = choice["wish"] == "many senders, little memory" and "next is" not in choice["reason"]
        check(choice["runs"] in ((1, 5) if alone else (5,)) and choice["spread"] >= 0, choice)
        check(bool(choice["within_noise"]) == ("within the noise of these runs" in choice["reason"]), choice)
        check(all(name in choice["reason"] for name in choice["within_noise"]), choice)
    again = [one for one in result["results"] if one["runs"] > 1]
    check(2 * 3 * 2 <= len(again) <= 2 * 4 * 2 and all(one["spread"] >= 0 for one in again), again)
    check(f"{4 * TESTS} tests, 0 failed" in output and page in output, output)
    numbers = {(one["test"]["senders"], one["test"]["threads"]) for one in result["results"]}
    check(numbers == {(1, 1), (4, 1), (16, 1), (64, 1), (1, 2), (1, 4)}, numbers)
    say(output.splitlines()[1])
    the_page_is_whole(page, {"send-receive", "buffered-write/reversed/read"})


def the_page_is_whole(page, kinds):
    with open(page, encoding="utf-8") as file:
        text = file.read()
    tree = xml.fromstring(text.split("\n", 1)[1])
    titles = [plot.findtext(DRAWING + "title") for plot in tree.iter(DRAWING + "svg")]
    check(len(titles) == 14 and len(set(titles)) == 10, titles)  # those by number do not name their path
    for plot in tree.iter(DRAWING + "svg"):
        lines = list(plot.iter(DRAWING + "polyline"))
        latency = plot.findtext(DRAWING + "title").startswith("Latency by size")  # and what is predicted of it
        check(len(lines) == len(kinds) * (1 + latency), plot)
        check(all(len(line.get("points").split()) > 1 for line in lines), plot)
    headings = [one.text for one in tree.iter(MARKUP + "h2")]
    check(headings == ["Which to take, by these numbers", "Over packets", "Over shared memory", "What each gives",
                       "A model of it", "Numbers"], headings)
    rows = [["".join(cell.itertext()) for cell in row] for row in tree.iter(MARKUP + "tr")]
    check(sum(len(row) == 13 for row in rows) == 4 * TESTS + 1, "a row for each test")
    properties = text.split(">What each gives<")[1].split("</table>")[0]
    check(properties.count("<tr>") == 14 and properties.count("<td") == 13 * 10, "the properties of thirteen kinds")
    check(not re.search(r"src=|href=|url\(|@import|<script", text), "the page needs something beside itself")


def all_of_bench_message_without_a_protocol_is_a_comparison(setting):
    file, page = setting.path("all.json"), setting.path("all.html")
    words = ("bench", "message", "--all", "-n", "2", "--path", "local", "-F", "--json", file, "--report", page)
    output, _ = setting.run(*words)
    result = load(file)
    check(result["ok"] and result["command"] == "bench message", result)
    kinds = {one["test"]["protocol"] for one in result["results"]}
    check({name.split("/")[0] for name in kinds} == ALL and len(result["results"]) == TESTS * len(kinds), kinds)
    check(page in output and os.path.getsize(page) > 0, output)
    # And with a server elsewhere, over both paths.
    server = Server(setting, "bench", "message", "-F")
    host, port = server.address.rsplit(":", 1)
    setting.run("bench", "message", "-a", host, "-p", port, "-n", "1", "-F", "--json", file, "--report", page)
    check({one["test"]["path"] for one in load(file)["results"]} == {"roce", "local"}, "a path was not measured")
    server.process.communicate(timeout=PATIENCE)
    check(server.process.returncode == 0, server.errors())
    say(output.splitlines()[-1])


def all_of_bench_message_with_a_protocol_is_of_that_one(setting):
    file, page = setting.path("one.json"), setting.path("one.html")
    rest = ("-n", "1", "--path", "local", "-F", "--json", file, "--report", page)
    setting.run("bench", "message", "--all", "shared-write/double-mapped", *rest)
    check({one["test"]["protocol"] for one in load(file)["results"]} == {"shared-write/double-mapped"}, "others")
    server = Server(setting, "bench", "message", "-F")
    setting.run("bench", "message", "direct-read", server.address, "--all", *rest)
    check({one["test"]["protocol"] for one in load(file)["results"]} == {"direct-read"}, "other protocols")
    server.process.communicate(timeout=PATIENCE)
    check(server.process.returncode == 0, server.errors())
    say(f"{len(load(file)['results'])} tests")


def one_path_and_one_protocol_are_enough(setting):
    _, result, _ = protocols(setting, "--path", "local", kinds=("shared-write",))
    kinds = ["shared-write/double-mapped", "direct-read/fenced"]
    check({(one["test"]["protocol"], one["test"]["path"]) for one in result["results"]} == {("shared-write", "local")},
          result)
    file = setting.path("kinds.json")
    setting.run("bench", "message", "-a", "--kinds", ",".join(kinds), "--path", "roce", "-n", "1", "-F", "--json", file,
                "--report", setting.path("kinds.html"))
    check(list(dict.fromkeys(one["test"]["protocol"] for one in load(file)["results"])) == kinds, "other kinds")
    say(f"{len(result['results'])} tests")


def a_server_elsewhere_serves_a_comparison_and_a_tuning(setting):
    server = Server(setting, "bench", "message", "-F")
    host, port = server.address.rsplit(":", 1)
    _, result, _ = protocols(setting, host, "-p", port, "--path", "roce", kinds=("direct-read",))
    check(result["ok"] and len(result["results"]) == TESTS, result)
    server.process.communicate(timeout=PATIENCE)
    check(server.process.returncode == 0, server.errors())
    server = Server(setting, "bench", "message", "-F", "-e")
    host, port = server.address.rsplit(":", 1)
    tuned(setting, host, "-p", port, "--sleeping", "-s", "100")
    server.process.communicate(timeout=PATIENCE)
    check(server.process.returncode == 0, server.errors())
    for words, flags, told in (((), ("--sleeping",), "the receiver there polls"),
                               (("send-receive", "lat"), (), "start the server without words")):
        server = Server(setting, "bench", "message", *words, "-F")
        host, port = server.address.rsplit(":", 1)
        file = setting.path("refused.json")
        _, errors = setting.run("tune", host, "-p", port, "-F", *flags, "--json", file, status=1)
        check(load(file)["ok"] is False, "nothing says that it failed")
        check(told in errors, errors)
        server.process.communicate(timeout=PATIENCE)
        check(server.process.returncode == 1, server.errors())
    # It goes in the middle, and what it had measured is kept.
    server = Server(setting, "bench", "message", "-F")
    host, port = server.address.rsplit(":", 1)
    file = setting.path("broken.json")
    client = setting.start("bench", "protocols", host, "-p", port, "-F", "--json", file, "--report",
                           setting.path("broken.html"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output_until(server.process, lambda told: told.count(b"\n") >= 5)
    server.process.kill()
    _, errors = client.communicate(timeout=PATIENCE)
    check(client.returncode == 1 and errors.startswith(b"verbena bench protocols: "), errors)
    result = load(file)
    check(not result["ok"] and result["error"]["code"] and len(result["results"]) >= 2, result)
    say(errors.decode().splitlines()[0])


def tuned(setting, *words):
    file = setting.path("tune.json")
    output, _ = setting.run("tune", *words, "-F", "--json", file)
    result = load(file)
    steps = [one for one in result["steps"] if "settled" in one]
    check(result["ok"] and steps, result)

    def merit(one):
        return 1 / one["time_us"]["typical"] if result["goal"] == "latency" else one["messages_per_s"]

    check(result["best"] in steps and result["usual"] in steps, "what was not measured is the best")
    # The three that did best and the one to keep ran again, each with the defaults of its kind. Of them nothing was
    # better by more than what counts as noise.
    again = [one for one in steps if one["runs"] > 1]
    check(3 <= len(again) <= 2 * 4 and all(one["runs"] == 3 for one in again) and result["best"] in again, again)
    the_table_tells_runs(output, steps)
    alike = result["within_noise"]
    check(output.count("within the noise of these runs: ") == len(alike), output)
    check(all(one in again and one != result["best"] for one in alike), alike)
    check(alike or merit(result["best"]) * 1.051 > max(map(merit, again)), result)
    unsteady = [line for line in output.splitlines() if line.startswith("unsteady: ")]
    check(len(unsteady) == sum(one["spread"] > 0.2 for one in again), output)
    best = next(line for line in output.splitlines() if line.startswith("best: ")).split(";")[0]
    check(("ring of" in best) == any(name in best for name in ("buffered", "shared-write")), best)
    check(result["options"] in output and "messaging::Options options{.kind = {.protocol = " in output, output)
    check(f".max_message_bytes = {result['size']}," in output, output)
    return output, result


def the_table_tells_runs(output, steps):
    table = re.findall(r"^  (\S+) +[^:\n]* +(\d+) runs?$", output, re.MULTILINE)
    check(len(table) == len({one["test"]["protocol"] for one in steps}), output)
    done = {(one["test"]["protocol"], one["runs"]) for one in steps}
    told = {(name, int(runs)) for name, runs in table}
    check(told <= done and any(runs == 1 for _, runs in told), output)
    check("of several runs the one in the middle; a single one may have been lucky" in output, output)


def a_tuning_recommends_what_it_measured(setting):
    output, result = tuned(setting, "--goal", "rate", "-s", "32", "--senders", "2", "--path", "local")
    members = ("window", "batch", "ring_bytes")
    tried = {member: len({one["test"][member] for one in result["steps"]}) for member in members}
    # Rings are tried where a protocol that has one is ahead.
    rings = ("buffered", "shared-write")
    if not all(one["test"]["protocol"].startswith(rings) for one in result["steps"] if one.get("runs", 0) > 1):
        tried.pop("ring_bytes")
    check(all(count > 1 for count in tried.values()), f"{tried}: {result['steps']}")
    check(len({one["test"]["protocol"] for one in result["steps"]}) >= 13, result["steps"])
    check({one["test"]["senders"] for one in result["steps"]} == {2}, result["steps"])
    check({one["test"]["path"] for one in result["steps"]} == {"local"}, result["steps"])
    say(next(line for line in output.splitlines() if line.startswith("best: ")))
    _, result = tuned(setting, "--senders", "3", "--path", "local")
    numbers = {(one["test"]["measure"], one["test"]["senders"]) for one in result["steps"]}
    check(numbers == {("lat", 3)}, numbers)
    _, result = tuned(setting, "--sleeping", "--path", "roce")
    asleep = {one["test"]["protocol"].split("/")[0] for one in result["steps"]}
    check("buffered-read" not in asleep and "send-receive" in asleep, asleep)
    check(not any("reversed" in one["test"]["protocol"] for one in result["steps"]), "one that wakes nobody")


def what_makes_no_sense_is_refused(setting):
    cases = [(("tune", "--senders", "257"), 2, "--senders"), (("tune", "--goal", "speed"), 2, "speed"),
             (("tune", "--goal", "rate", "-s", "0"), 2, "--size"), (("tune", "-s", "65M"), 2, "'65M'"),
             (("tune", "127.0.0.1", "-p", "1"), 1, "ConnectionRefused"), (("tune", "-p", "5"), 2, "requires HOST"),
             (("bench", "protocols", "--kinds", "send-receive", "127.0.0.1:1"), 1, "ConnectionRefused"),
             (("bench", "protocols", "--report", ""), 2, "an empty word"),
             (("bench", "message", "-a", "127.0.0.1:5", "-p", "6"), 2, "one of the two"),
             (("bench", "message", "-a", "127.0.0.1:99999"), 2, "no port"),
             (("bench", "protocols", "--protocol", "pigeons"), 2, "pigeons"),
             (("bench", "message", "-a", "--kinds", "direct-read,pigeons"), 2, "pigeons"),
             (("bench", "protocols", "-n", "0"), 2, "--iters"),
             (("bench", "protocols", "--report", "/nowhere/page.html"), 1, "/nowhere/page.html"),
             (("bench", "protocols", "127.0.0.1", "-p", "1"), 1, "ConnectionRefused"),
             (("bench", "protocols", "--device", "nonesuch"), 1, "nonesuch")]
    for words, status, told in cases:
        output, errors = setting.run(*words, status=status)
        check(told in errors and errors.startswith("verbena") and not output, f"{words}: {output!r} {errors!r}")
    file = setting.path("stale.json")
    for words in (("tune", "127.0.0.1:1"), ("bench", "protocols", "127.0.0.1:1"),
                  ("bench", "message", "-a", "127.0.0.1:1")):
        with open(file, "w", encoding="utf-8") as stale:
            stale.write('{"ok": true}')
        setting.run(*words, "--json", file, status=1)
        check(load(file)["ok"] is False, f"{words}: an old result stands")
    say(errors.splitlines()[0])


def an_interrupt_ends_both_and_keeps_what_there_is(setting):
    file = setting.path("interrupted.json")
    page = setting.path("interrupted.html")
    # Each measures for seconds.
    for words in (("bench", "protocols", "-n", "200000", "--report", page),
                  ("tune", "--goal", "bandwidth", "--size", "1048576")):
        client = setting.start(*words, "-F", "--json", file, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            client.wait(0.7)
        except subprocess.TimeoutExpired:
            client.send_signal(signal.SIGINT)
        _, errors = client.communicate(timeout=PATIENCE)
        check(client.returncode == 1 and b"Cancelled" in errors, f"{client.returncode} {errors}")
        result = load(file)
        check(result["error"]["code"] == "Cancelled", "the file tells of another end")
        if result.get("results"):  # one ended before
            check("Not all of what was planned" in Path(page).read_text(), "the page seems complete")
    say(errors.decode().splitlines()[0])


def an_interrupted_tuning_recommends_nothing_and_shows_what_it_measured(setting):
    server = Server(setting, "bench", "message", "-F")
    host, port = server.address.rsplit(":", 1)
    file = setting.path("interrupted.json")
    client = setting.start("tune", host, "-p", port, "--goal", "bandwidth", "--size", "1048576", "-F", "--json", file,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output_until(server.process, lambda told: told.count(b"\n") >= 4)  # of some hundred tests
    client.send_signal(signal.SIGINT)
    output, errors = client.communicate(timeout=PATIENCE)
    check(client.returncode == 1 and b"the best of each protocol" in output and b"best:" not in output, output)
    check(re.fullmatch("verbena tune: Cancelled: .*interrupted\n", errors.decode()), errors)
    result = load(file)
    check(not result["ok"] and result["error"]["code"] == "Cancelled" and "best" not in result, result)
    check(result["steps"] and all(step["messages_per_s"] > 0 for step in result["steps"]), result["steps"])
    server.process.communicate(timeout=PATIENCE)
    check(server.process.returncode == 1 and "interrupted" in server.errors(), server.errors())
    say(server.errors().splitlines()[0])


if __name__ == "__main__":
    main(a_comparison_measures_both_paths_and_says_what_to_take,
         all_of_bench_message_without_a_protocol_is_a_comparison,
         all_of_bench_message_with_a_protocol_is_of_that_one, one_path_and_one_protocol_are_enough,
         a_server_elsewhere_serves_a_comparison_and_a_tuning, a_tuning_recommends_what_it_measured,
         what_makes_no_sense_is_refused, an_interrupt_ends_both_and_keeps_what_there_is,
         an_interrupted_tuning_recommends_nothing_and_shows_what_it_measured)
