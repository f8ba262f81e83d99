// SPDX-License-Identifier: Apache-2.0
// verbena doctor: is this machine fit, and what to change.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/command.h"
#include "tools/doctor_checks.h"
#include "tools/json_output.h"
#include "tools/report.h"

namespace verbena::tools {

namespace {

int run_doctor(bool json) {
  const auto findings = examine();
  const bool wrong = std::ranges::any_of(findings, [](const Finding& one) { return one.health == Health::Wrong; });
  if (json) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& one : findings)
      list.push_back({{"subject", one.subject},
                      {"health", std::string(to_string(one.health))},
                      {"found", one.found},
                      {"what_to_do", one.what_to_do}});
    say_json({{"ok", !wrong}, {"findings", list}});
  } else {
    for (const Finding& one : findings) {
      say(stdout, "{:7} {:15} {}\n", to_string(one.health), one.subject, one.found);
      if (!one.what_to_do.empty()) say(stdout, "{:23} {}\n", "", one.what_to_do);
    }
  }
  return wrong ? kExitFailure : kExitOk;
}

}  // namespace

void add_doctor_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "doctor", "Look at what of this machine matters to devices, and tell what to change and how.\n"
                "The exit status is 1 when something is wrong; advice alone leaves it 0.");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As JSON");
  command->callback([json, &status] { status = run_doctor(*json); });
}

}  // namespace verbena::tools
