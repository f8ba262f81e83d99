// SPDX-License-Identifier: Apache-2.0
// verbena broker: an address kept for the processes of several users, which come and go.
#include <fmt/format.h>
#include <pwd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "tools/command.h"
#include "tools/json_output.h"
#include "tools/number_flags.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"
#include "verbena/async/progress_engine.h"

namespace verbena::tools {

namespace {

constexpr std::uint64_t kMostUser = 0xffff'fffe;  // the number above it is nobody's

struct BrokerOptions {
  std::vector<std::string> users;
  DeviceFlags device;
  bool json = false;
};

struct Passwd {
  std::array<char, 16'384> buffer{};
  passwd entry{};
  passwd* found = nullptr;
};

// By name or number.
Result<std::uint32_t> find_user(const std::string& text) {
  if (text.find_first_not_of("0123456789") == std::string::npos) {
    auto number = parse_whole(text, 0, kMostUser);
    if (!number) return std::move(number).error();
    return static_cast<std::uint32_t>(*number);
  }
  Passwd all;
  if (::getpwnam_r(text.c_str(), &all.entry, all.buffer.data(), all.buffer.size(), &all.found) == 0 && all.found)
    return all.found->pw_uid;
  return Error(ErrorCode::NotFound, "there is no user '" + text + "'");
}

std::string with_name(std::uint32_t user) {
  Passwd all;
  if (::getpwuid_r(user, &all.entry, all.buffer.data(), all.buffer.size(), &all.found) != 0 || !all.found)
    return std::to_string(user);
  return fmt::format("{} ({})", user, printable(all.found->pw_name));
}

void tell(const Device& device, const std::vector<std::uint32_t>& users, bool json) {
  const std::string variable = fmt::format("VERBENA_ADDRESS_USERS={}", fmt::join(users, ","));
  if (json) {
    say_json({{"address", device.address().to_string()}, {"users", users}, {"variable", variable}});
  } else {
    std::string names;
    for (const std::uint32_t user : users) names += (names.empty() ? "" : ", ") + with_name(user);
    say(stdout, "holding {} for users {}\n", device.address().to_string(), names);
    say(stdout, "ready: their programs name that device, and have {}\n", variable);
  }
  std::fflush(stdout);
}

int run_broker(const BrokerOptions& options) {
  std::vector<std::uint32_t> users{::geteuid()};
  for (const std::string& text : options.users) {
    const auto user = find_user(text);
    if (!user) return report_usage("broker", "--users: " + user.error().context());
    users.push_back(*user);
  }
  std::ranges::sort(users);
  users.erase(std::unique(users.begin(), users.end()), users.end());
  OpenOptions open_options;
  open_options.device = options.device.device;
  open_options.path = PathChoice::Roce;  // it talks to nobody
  open_options.address_users = users;
  auto device = Device::open(open_options);
  if (!device) return report_error("broker", device.error(), open_advice(device.error(), options.device, nullptr));
  auto engine = ProgressEngine::create(*device);
  if (!engine) return report_error("broker", engine.error());
  const StopSignals signals(*engine);
  tell(*device, users, options.json);
  engine->run_until([&signals] { return signals.requested(); });
  return kExitOk;
}

}  // namespace

void add_broker_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "broker", "Keep an address for the programs of several users, which come and go.\n"
                "It holds the address until SIGINT or SIGTERM; whoever is there then goes on without it. Its own user\n"
                "is one of them. Their programs name the same users by VERBENA_ADDRESS_USERS, as it prints it. They\n"
                "can read, forge and hold up each other's packets there: name those alone who trust each other.");
  auto options = std::make_shared<BrokerOptions>();
  command->add_option("--users", options->users, "The users, by name or number, commas between")
      ->delimiter(',')
      ->required()
      ->envname("VERBENA_ADDRESS_USERS")
      ->type_name("USERS");
  add_device(*command, options->device.device);
  command->add_flag("--json", options->json, "What it holds, as JSON");
  command->callback([options, &status] { status = run_broker(*options); });
}

}  // namespace verbena::tools
