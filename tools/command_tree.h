// SPDX-License-Identifier: Apache-2.0
// Every command and flag of the program, read from what parses them: what --help, completion and manual pages share.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace verbena::tools {

// The heading of flags that are known to be refused: help and manual give the reasons, completion leaves them out.
inline constexpr const char* kRefusedGroup = "Flags of perftest that are refused, each with its reason";

struct FlagEntry {
  std::vector<std::string> names;  // "-s", "--size"; empty for a positional word
  std::string value;               // what follows it, "FILE"; empty: nothing does
  std::string description;
  std::string group;               // heading in --help
  std::vector<std::string> choices;  // the only values it takes, if they are few
  bool required = false;
};

struct CommandEntry {
  std::vector<std::string> words;  // "verbena", "bench", "write", "bw"
  std::string description;
  std::vector<FlagEntry> flags;
  std::vector<std::string> commands;  // names of the commands below
  std::vector<std::string> meanings;  // the first line of what each of them says of itself
};

// `program` first, then all below it, depth first.
std::vector<CommandEntry> command_tree(const CLI::App& program);

// A script for bash that completes commands, flags, values where they are few, and files.
std::string bash_completion(const std::vector<CommandEntry>& tree);

// The manual page of one command, in man(7)'s macros; see page_name().
std::string manual_page(const CommandEntry& command, const std::string& version);
// "verbena-bench-write-bw"
std::string page_name(const CommandEntry& command);

}  // namespace verbena::tools
