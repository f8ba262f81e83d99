// SPDX-License-Identifier: Apache-2.0
#include "tools/command_tree.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

namespace verbena::tools {

namespace {

std::string join(const std::vector<std::string>& words, std::string_view between) {
  return fmt::format("{}", fmt::join(words, between));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// CLI11 tells of choices as "{a,b,c}", within what else it says of the value.
std::vector<std::string> choices_of(const std::string& type) {
  const std::size_t open = type.find('{'), close = type.find('}');
  std::vector<std::string> choices;
  if (open == std::string::npos || close == std::string::npos || close < open) return choices;
  std::istringstream words(type.substr(open + 1, close - open - 1));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

FlagEntry entry_of(const CLI::Option& option) {
  FlagEntry entry;
  const bool takes_value = option.get_items_expected_max() != 0;
  for (const std::string& one : option.get_snames()) entry.names.push_back("-" + one);
  for (const std::string& one : option.get_lnames()) entry.names.push_back("--" + one);
  entry.description = option.get_description();
  if (!option.get_default_str().empty() && takes_value)
    entry.description += " [" + option.get_default_str() + "]";
  entry.group = option.get_group();
  entry.required = option.get_required();
  const std::string type = option.get_type_name();
  entry.choices = choices_of(type);
  if (option.get_positional()) entry.value = option.get_single_name();
  else if (takes_value) entry.value = entry.choices.empty() ? type.substr(0, type.find(' ')) : "";
  if (takes_value && entry.value.empty()) entry.value = entry.choices.empty() ? "VALUE" : "CHOICE";
  return entry;
}

void collect(const CLI::App& app, std::vector<std::string> words, std::vector<CommandEntry>& all) {
  CommandEntry entry;
  words.push_back(app.get_name());
  entry.words = words;
  entry.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) entry.flags.push_back(entry_of(*option));
  const auto below = app.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* one : below) {
    entry.commands.push_back(one->get_name());
    entry.meanings.push_back(first_line(one->get_description()));
  }
  all.push_back(std::move(entry));
  for (const CLI::App* one : below) collect(*one, words, all);
}

std::string quoted(const std::string& text) {
  std::string safe = "'";
  for (const char one : text) {
    if (one == '\'') safe += "'\\''";
    else safe += one;
  }
  return safe + "'";
}

// For roff: no backslash, and no dot or quote where a line begins.
std::string roff(const std::string& text) {
  std::string safe;
  bool begins = true;
  for (const char one : text) {
    if (one == '\\') safe += "\\e";
    else if (one == '-') safe += "\\-";
    else if ((one == '.' || one == '\'') && begins) safe += std::string("\\&") + one;
    else safe += one;
    begins = one == '\n';
  }
  return safe;
}

std::string flag_heading(const FlagEntry& flag) {
  if (flag.names.empty()) return "\\fI" + roff(flag.value) + "\\fR";
  std::vector<std::string> names;
  for (const std::string& one : flag.names) names.push_back("\\fB" + roff(one) + "\\fR");
  std::string heading = join(names, ", ");
  if (!flag.choices.empty()) heading += " " + roff(join(flag.choices, "|"));
  else if (!flag.value.empty()) heading += " \\fI" + roff(flag.value) + "\\fR";
  return heading;
}

// A description's first line is text; what follows with two blanks before it is shown as it stands.
std::string manual_description(const std::string& text) {
  std::istringstream lines(text);
  std::string page;
  bool literal = false;
  for (std::string line; std::getline(lines, line);) {
    const bool example = line.rfind("  ", 0) == 0;
    if (example != literal) page += example ? ".PP\n.RS 2\n.nf\n" : ".fi\n.RE\n.PP\n";
    literal = example;
    page += roff(example ? line.substr(2) : line) + "\n";
  }
  return page + (literal ? ".fi\n.RE\n" : "");
}

}  // namespace

std::vector<CommandEntry> command_tree(const CLI::App& program) {
  std::vector<CommandEntry> all;
  collect(program, {}, all);
  return all;
}

std::string page_name(const CommandEntry& command) { return join(command.words, "-"); }

std::string bash_completion(const std::vector<CommandEntry>& tree) {
  std::string script =
      "# bash completion for verbena\n"
      "_verbena() {\n"
      "  local path=verbena word previous=${COMP_WORDS[COMP_CWORD-1]} present=${COMP_WORDS[COMP_CWORD]} i\n"
      "  local commands flags values=\n"
      "  COMPREPLY=()\n"
      "  [[ $present == = ]] && present= || [[ $previous != = ]] || previous=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    word=${COMP_WORDS[i]}\n"
      "    if [[ $word == -- ]]; then\n"
      "      COMPREPLY=($(compgen -c -- \"$present\"))\n"
      "      compopt -o default\n"
      "      return\n"
      "    fi\n"
      "    case \"$path $word\" in\n";
  for (const CommandEntry& one : tree)
    if (one.words.size() > 1) script += fmt::format("      {}) path={} ;;\n", quoted(join(one.words, " ")),
                                                    quoted(join(one.words, " ")));
  script += "    esac\n  done\n  case $path in\n";
  for (const CommandEntry& one : tree) {
    std::vector<std::string> flags, words = one.commands;
    std::string values;
    for (const FlagEntry& flag : one.flags) {
      if (flag.names.empty()) words.insert(words.end(), flag.choices.begin(), flag.choices.end());
      if (flag.group == kRefusedGroup) continue;
      flags.insert(flags.end(), flag.names.begin(), flag.names.end());
      if (flag.value.empty() || flag.names.empty()) continue;
      const std::string answer = flag.choices.empty() ? "<file>" : join(flag.choices, " ");
      values += fmt::format("        {}) values={} ;;\n", join(flag.names, "|"), quoted(answer));
    }
    script += fmt::format("    {})\n      commands={}\n      flags={}\n", quoted(join(one.words, " ")),
                          quoted(join(words, " ")), quoted(join(flags, " ")));
    if (!values.empty()) script += "      case $previous in\n" + values + "      esac\n";
    script += "      ;;\n";
  }
  script +=
      "  esac\n"
      "  if [[ $values == '<file>' ]]; then\n"
      "    compopt -o default\n"
      "  elif [[ -n $values ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$values\" -- \"$present\"))\n"
      "  elif [[ $present == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$present\"))\n"
      "  elif [[ -n $commands ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$commands\" -- \"$present\"))\n"
      "  else\n"
      "    compopt -o default\n"
      "  fi\n"
      "}\n"
      "complete -F _verbena verbena\n";
  return script;
}

std::string manual_page(const CommandEntry& command, const std::string& version) {
  const std::string name = page_name(command);
  std::string page = fmt::format(".TH {} 1 \"\" \"verbena {}\" \"Verbena\"\n.SH NAME\n{} \\- {}\n", name, version,
                                 roff(name), roff(first_line(command.description)));
  page += ".SH SYNOPSIS\n\\fB" + roff(join(command.words, " ")) + "\\fR";
  if (!command.commands.empty()) page += " \\fICOMMAND\\fR";
  page += " [\\fIOPTION\\fR]...";
  for (const FlagEntry& flag : command.flags) {
    if (!flag.names.empty()) continue;
    const std::string word = "\\fI" + roff(flag.value) + "\\fR";
    page += flag.required ? " " + word : " [" + word + "]";
  }
  page += "\n.SH DESCRIPTION\n" + manual_description(command.description);
  std::vector<std::string> groups;
  for (const FlagEntry& flag : command.flags)
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
  for (const std::string& group : groups) {
    page += ".SH \"" + roff(group) + "\"\n";
    for (const FlagEntry& flag : command.flags)
      if (flag.group == group) page += ".TP\n" + flag_heading(flag) + "\n" + roff(flag.description) + "\n";
  }
  if (!command.commands.empty()) page += ".SH COMMANDS\n";
  for (std::size_t i = 0; i < command.commands.size(); ++i)
    page += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(command) + "-" + command.commands[i]),
                        roff(command.meanings[i]));
  if (command.words.size() > 1) {
    const std::vector<std::string> above(command.words.begin(), command.words.end() - 1);
    page += ".SH \"SEE ALSO\"\n\\fB" + roff(join(above, "-")) + "\\fR(1)\n";
  }
  return page;
}

}  // namespace verbena::tools
