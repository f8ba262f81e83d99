// SPDX-License-Identifier: Apache-2.0
// verbena config: the variables of the environment that programs with Verbena look at.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/command.h"
#include "tools/environment.h"
#include "tools/json_output.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "verbena/device/environment.h"

namespace verbena::tools {

namespace {

int run_config(bool json) {
  const auto variables = environment();
  const auto unknown = unknown_variables();
  if (json) {
    nlohmann::json all = nlohmann::json::array();
    for (const EnvironmentVariable& one : variables)
      all.push_back({{"name", one.name},
                     {"value", one.value ? nlohmann::json(printable(*one.value)) : nlohmann::json()},
                     {"from", one.value ? "environment" : "default"},
                     {"default", one.default_text},
                     {"wrong", wrong_with(one).empty() ? nlohmann::json() : nlohmann::json(wrong_with(one))},
                     {"meaning", one.meaning}});
    say_json({{"variables", all}, {"unknown", unknown}});
  } else {
    for (const EnvironmentVariable& one : variables) {
      const std::string wrong = wrong_with(one);
      say(stdout, "{} = {}\n{}  from     {}\n  default  {}\n  meaning  {}\n", one.name,
          one.value ? printable(*one.value) : one.default_text,
          wrong.empty() ? "" : "  wrong    not understood: " + wrong + "\n",
          one.value ? "the environment" : "the default", one.default_text, one.meaning);
    }
  }
  if (!unknown.empty())
    return report_failure("config", unknown.front() + " is set, and nothing looks at it",
                          "Check its spelling; the names above are all there are.");
  for (const EnvironmentVariable& one : variables)
    if (const std::string wrong = wrong_with(one); !wrong.empty())
      return report_failure("config", one.name + " is '" + *one.value + "'; " + wrong,
                            "No device is opened with it.");
  return kExitOk;
}

}  // namespace

void add_config_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "config", "Show every VERBENA_ variable: its value, where that comes from, its default and meaning");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As JSON");
  command->callback([json, &status] { status = run_config(*json); });
}

}  // namespace verbena::tools
