// SPDX-License-Identifier: Apache-2.0
#include "tools/message_matrix.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/bench_common.h"
#include "tools/json_output.h"
#include "tools/message_choice.h"
#include "tools/message_model.h"
#include "tools/message_runs.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"

namespace verbena::tools {

namespace {

// What is wrong with the words; empty when nothing is.
std::string make_plan(const MatrixFlags& flags, MessagePlan& plan) {
  plan.iterations = flags.iterations;
  if (!flags.path.empty()) plan.paths = {parse_path_choice(flags.path).value_or(PathChoice::Auto)};
  auto kinds = kinds_named(flags.kinds);
  if (!kinds) return "--kinds: " + printable(kinds.error().context());
  plan.kinds = std::move(*kinds);
  return "";
}

nlohmann::json to_json(const LinearCost& cost) { return {{"us", cost.fixed}, {"ns_per_byte", cost.per_byte * 1e3}}; }

nlohmann::json kinds_of(const std::vector<MessageRow>& rows) {
  nlohmann::json names = nlohmann::json::array();
  for (const MessageRow& row : rows) names.push_back(messaging::to_string(row.kind));
  return names;
}

nlohmann::json json_of(std::string_view command, const MessageReport& report, const Result<void>& outcome) {
  nlohmann::json all{{"command", std::string(command)}, {"local", report.local}, {"remote", report.remote},
                     {"ok", outcome && report.failures.empty()}};
  if (!outcome) all["error"] = error_json(outcome.error());
  for (const char* name : {"results", "failures", "models", "choices"}) all[name] = nlohmann::json::array();
  for (const MessageRow& row : report.rows) all["results"].push_back(to_json(row));
  for (const auto& [test, why] : report.failures) all["failures"].push_back({{"test", to_json(test)}, {"why", why}});
  for (const MessageModel& model : fit_all_models(report.rows))
    all["models"].push_back({{"protocol", messaging::to_string(model.kind)},
                             {"path", std::string(to_string(model.path))},
                             {"overhead", to_json(model.overhead)},
                             {"latency", to_json(model.latency)},
                             {"gap", to_json(model.gap)},
                             {"typical_error", typical_error(predictions(model, report.rows))}});
  for (const PathChoice path : {PathChoice::Roce, PathChoice::Local, PathChoice::Auto})
    for (const MessageWish wish : kMessageWishes)
      if (const auto choice = recommend_measured(report.rows, wish, path))
        all["choices"].push_back({{"path", std::string(to_string(path))},
                                  {"wish", std::string(to_string(wish))},
                                  {"protocol", messaging::to_string(choice->row.kind)},
                                  {"runs", run_count(choice->row)},
                                  {"spread", spread_of(choice->row)},
                                  {"within_noise", kinds_of(choice->alike)},
                                  {"reason", choice->reason}});
  return all;
}

void print_choices(const MessageReport& report, const std::vector<PathChoice>& paths) {
  for (const PathChoice path : paths) {
    bool first = true;
    for (const MessageWish wish : kMessageWishes) {
      const auto choice = recommend_measured(report.rows, wish, path);
      if (!choice) continue;
      if (std::exchange(first, false)) say(stdout, "over {}\n", words_for_path(choice->row));
      say(stdout, "  {:<30} {}\n", to_string(wish), choice->reason);
    }
  }
  for (const auto& [test, why] : report.failures)
    say(stdout, "failed over {}: {}, {} senders, {} threads: {}\n", words_for(test.path), test.name(), test.senders,
        test.threads, why);
}

template <class Work>
Result<void> run_counted(MessageSession& session, std::size_t total, const Work& work) {
  TestCounter counter(total);
  return work({[&](const MessageTest& test) {
                 counter.begin(test);
                 return session.run(test);
               },
               [&] { return session.over(); }});
}

Result<void> write_results(std::string_view command, const MatrixFlags& flags, const MessageReport& report,
                           const Result<void>& outcome) {
  if (!flags.client.json.empty()) {
    const std::string text = json_text(json_of(command, report, outcome));
    if (auto written = write_file(flags.client.json, text); !written) return written;
  }
  if (report.rows.empty()) return {};
  auto written = write_file(flags.report, message_page(report));
  if (written)
    say(stdout, "{} tests, {} failed; plots, models and numbers are in {}\n",
        report.rows.size() + report.failures.size(), report.failures.size(), printable(flags.report));
  return written;
}

}  // namespace

void add_kinds_flag(CLI::App& command, const std::string& names, std::vector<std::string>& kinds) {
  command.add_option(names, kinds, "These alone: direct-read,buffered-write/reversed; all: every protocol with every "
                                   "choice")
      ->type_name("all|LIST")
      ->expected(1)
      ->allow_extra_args(false)
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

int run_matrix(std::string_view command, const MatrixFlags& flags) {
  MessagePlan plan;
  if (const std::string wrong = make_plan(flags, plan); !wrong.empty()) return report_usage(command, wrong);
  if (auto fits = check_results({flags.client.json, flags.report, flags.client.device.pcap}); !fits)
    return report_error(command, fits.error(), kWritableFiles);
  if (!flags.client.quiet_frequency) warn_of_frequency();
  const StopSignals signals;
  int status = kExitOk;
  const auto session =
      open_message_session(command, flags.client, false, [&] { return signals.requested(); }, status);
  if (!session) return status;
  MessageReport report{session->devices().address().to_string(), session->remote(), {}, {}, {}};
  auto outcome = run_counted(*session, count_tests(plan), [&](const MessageRunner& runner) {
    return run_plan(plan, runner, report);
  });
  if (outcome) {
    const MessageContests contests = contests_of(report);
    outcome = run_counted(*session, count_runs(contests), [&](const MessageRunner& runner) {
      return run_contests(contests, runner, report);
    });
  }
  session->end(outcome ? std::nullopt : std::optional<Error>(outcome.error()));
  if (!outcome) report.incomplete = printable(outcome.error().to_string());
  print_choices(report, plan.paths);
  const auto written = write_results(command, flags, report, outcome);
  std::fflush(stdout);
  if (!outcome) return report_error(command, outcome.error(), bench_advice(outcome.error()));
  if (!written) return report_error(command, written.error(), kWritableFiles);
  if (report.rows.empty()) return report_failure(command, "no test came to its end", "");
  if (report.failures.empty()) return kExitOk;
  const std::size_t failed = report.failures.size();
  return report_failure(command, fmt::format("{} of {} tests failed", failed, failed + report.rows.size()),
                        "The lines above, and the page, say which, and why.");
}

}  // namespace verbena::tools
