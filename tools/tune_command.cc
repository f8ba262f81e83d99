// SPDX-License-Identifier: Apache-2.0
// verbena tune: which message protocol and settings do best here what a program wants, and the options to write down.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/bench_common.h"
#include "tools/json_output.h"
#include "tools/message_choice.h"
#include "tools/message_client.h"
#include "tools/message_tuning.h"
#include "tools/number_flags.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

constexpr std::string_view kTuneCommand = "tune";
constexpr std::uint32_t kMaxTuneSenders = 256;
constexpr Duration kEnoughToTune = Duration::milliseconds(300);

struct TuneFlags {
  MessageClientFlags client;
  TuneSettings settings;
  std::string goal = "latency", path;
};

MessageMeasure goal_of(const std::string& word) {
  if (word == "rate") return MessageMeasure::Rate;
  return word == "bandwidth" ? MessageMeasure::Bandwidth : MessageMeasure::Latency;
}

std::string wrong_with_size(const TuneFlags& flags) {
  const bool empty = flags.settings.size == 0 && flags.settings.goal != MessageMeasure::Latency;
  return empty ? "--size: messages of no bytes have a latency alone" : "";
}

// A short look first: protocols differ by hundreds.
Result<MessageRow> run_a_while(MessageSession& session, MessageTest test) {
  MessageTest look = test;
  look.iterations = std::max<std::uint64_t>(test.iterations / 50, 16);
  auto row = session.run(look);
  if (!row || row->elapsed.ns <= 0) return row;
  const auto fitting = static_cast<double>(look.iterations) * static_cast<double>(kEnoughToTune.ns) /
                       static_cast<double>(row->elapsed.ns);
  if (fitting < static_cast<double>(test.iterations)) test.iterations = static_cast<std::uint64_t>(fitting);
  if (test.iterations <= look.iterations) return row;
  return session.run(test);
}

std::string runs_text(const MessageRow& row) {
  return run_count(row) == 1 ? "1 run" : fmt::format("{} runs", run_count(row));
}

// Each kind with the best that it did, the best first.
std::vector<const TuneStep*> best_of_each(const TuneOutcome& outcome) {
  std::vector<const TuneStep*> steps;
  for (const TuneStep& step : outcome.steps)
    if (step.row) steps.push_back(&step);
  std::ranges::stable_sort(steps, std::ranges::greater{}, [](const TuneStep* step) { return merit_of(*step->row); });
  std::set<std::string> seen;
  std::erase_if(steps, [&](const TuneStep* step) { return !seen.insert(to_string(step->test.kind)).second; });
  return steps;
}

void print_steps(const TuneSettings& settings, const TuneOutcome& outcome) {
  const auto best = best_of_each(outcome);
  if (!best.empty())
    say(stdout, "{} tests with messages of {} bytes, {} sender{}, over {}{}; the best of each protocol:\n",
        outcome.steps.size(), settings.size, settings.senders, settings.senders == 1 ? "" : "s",
        words_for_path(*best.front()->row), settings.sleeping ? ", the receiver asleep" : "");
  for (const TuneStep* step : best)
    say(stdout, "  {:<42} {:<24} {}\n", to_string(step->test.kind), result_text(*step->row), runs_text(*step->row));
  for (const TuneStep& step : outcome.steps)
    if (!step.row) say(stdout, "  {:<42} failed: {}\n", to_string(step.test.kind), step.why);
}

void print_best(const TuneOutcome& outcome) {
  say(stdout, "of several runs the one in the middle; a single one may have been lucky\n");
  const MessageTest &best = outcome.best.test, &usual = outcome.usual.test;
  say(stdout, "best: {}, {}: {}", to_string(best.kind), settings_text(best), result_text(outcome.best));
  if (settings_text(usual) != settings_text(best) || usual.kind != best.kind)
    say(stdout, "; the usual: {}, {}: {} ({})", to_string(usual.kind), settings_text(usual), result_text(outcome.usual),
        runs_text(outcome.usual));
  say(stdout, "\n");
  if (!outcome.alike.empty())
    say(stdout, "of those that are alike what recommend() names, or the plainest, is taken\n");
  for (const MessageRow& row : outcome.alike)
    say(stdout, "within the noise of these runs: {}, {}: {}\n", to_string(row.test.kind), settings_text(row.test),
        result_text(row));
  for (const TuneStep& step : outcome.steps)
    if (step.row && is_unsteady(*step.row))
      say(stdout, "unsteady: {}, {}: {}; another tuning may choose otherwise\n", to_string(step.test.kind),
          settings_text(step.test), spread_text(*step.row));
  if (const TuneStep* const better = doubt_about(outcome))
    say(stdout, "doubtful: {} had {} in {}, before the machine became slower; tune again when nothing else runs here\n",
        to_string(better->test.kind), result_text(*better->row), runs_text(*better->row));
  say(stdout, "\nAt both ends:\n\n{}", options_code(best));
}

nlohmann::json step_json(const TuneStep& step) {
  if (!step.row) return {{"test", to_json(step.test)}, {"why", step.why}};
  return to_json(*step.row);
}

Result<void> write_json(const TuneFlags& flags, MessageSession& session, const TuneOutcome& outcome) {
  if (flags.client.json.empty()) return {};
  nlohmann::json all{{"command", std::string(kTuneCommand)},
                     {"local", session.devices().address().to_string()},
                     {"remote", session.remote()},
                     {"ok", !outcome.error},
                     {"goal", flags.goal},
                     {"size", flags.settings.size},
                     {"senders", flags.settings.senders},
                     {"sleeping", flags.settings.sleeping}};
  if (outcome.error) {
    all["error"] = error_json(*outcome.error);
  } else {
    all["best"] = to_json(outcome.best);
    all["usual"] = to_json(outcome.usual);
    all["options"] = options_code(outcome.best.test);
    all["doubtful"] = doubt_about(outcome) != nullptr;
    all["within_noise"] = nlohmann::json::array();
    for (const MessageRow& row : outcome.alike) all["within_noise"].push_back(to_json(row));
  }
  all["steps"] = nlohmann::json::array();
  for (const TuneStep& step : outcome.steps) all["steps"].push_back(step_json(step));
  return write_file(flags.client.json, json_text(all));
}

int run_tune(TuneFlags& flags) {
  flags.settings.goal = goal_of(flags.goal);
  flags.settings.path = parse_path_choice(flags.path).value_or(PathChoice::Auto);
  if (const std::string wrong = wrong_with_size(flags); !wrong.empty()) return report_usage(kTuneCommand, wrong);
  if (auto fits = check_writable(flags.client.json); !fits)
    return report_error(kTuneCommand, fits.error(), kWritableFiles);
  if (!flags.client.quiet_frequency) warn_of_frequency();
  const StopSignals signals;
  int status = kExitOk;
  const auto session = open_message_session(kTuneCommand, flags.client, flags.settings.sleeping,
                                            [&] { return signals.requested(); }, status);
  if (!session) return status;
  if (flags.settings.sleeping && !session->sleeps_there()) {
    const Error polls(ErrorCode::InvalidArgument, "--sleeping: the receiver there polls");
    session->end(polls);
    static_cast<void>(write_json(flags, *session, {.error = polls}));
    return report_error(kTuneCommand, polls, "Start `verbena bench message -e` there.");
  }
  if (session->devices().count() != 0)
    flags.settings.most_inline = session->devices().at(0).info().max_inline_bytes;
  const TuneOutcome outcome = [&] {
    TestCounter counter(0);
    const TuneRun run = [&](const MessageTest& test) {
      counter.begin(test);
      return run_a_while(*session, test);
    };
    return tune(flags.settings, run, [&] { return session->over(); });
  }();
  session->end(outcome.error);
  print_steps(flags.settings, outcome);
  if (!outcome.error) print_best(outcome);
  std::fflush(stdout);
  const auto written = write_json(flags, *session, outcome);
  if (outcome.error) return report_error(kTuneCommand, *outcome.error, bench_advice(*outcome.error));
  return written ? kExitOk : report_error(kTuneCommand, written.error(), kWritableFiles);
}

}  // namespace

void add_tune_command(CLI::App& program, int& status) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* command = program.add_subcommand(
      "tune",
      "Measure which message protocol, window, batch and ring do best, and print the options to write down\n"
      "  verbena tune --goal rate             between two processes on this machine\n"
      "  verbena tune HOST --size 65536       with a `verbena bench message` there");
  add_message_client_flags(*command, flags->client);
  require_bytes(command->add_option("-s,--size", flags->settings.size, "Bytes per message, as 4096, 64k or 1M")
                    ->capture_default_str(),
                0, kMaxMessageSize);
  command->add_option("--goal", flags->goal, "What to have much of, or of latency little: latency, rate or bandwidth")
      ->check(CLI::IsMember({"latency", "rate", "bandwidth"}))
      ->capture_default_str();
  require_whole(command->add_option("--senders", flags->settings.senders, "Senders to the receiver")
                    ->capture_default_str(),
                1, kMaxTuneSenders);
  command->add_flag("--sleeping", flags->settings.sleeping,
                    "The receiver sleeps until a message comes; where HOST is given, start it with -e");
  command->add_option("--path", flags->path, "By shared memory (local), packets (roce), or what comes by itself (auto, "
                                             "the default)")
      ->type_name("PATH")
      ->check(CLI::IsMember({"auto", "roce", "local"}));
  command->callback([flags, &status] { status = run_tune(*flags); });
}

}  // namespace verbena::tools
