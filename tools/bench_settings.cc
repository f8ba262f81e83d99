// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_settings.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/safe_path.h"

namespace verbena::tools {

std::vector<std::uint32_t> BenchSettings::sizes() const {
  if (verb == BenchVerb::Atomic) return {8};
  if (!all_sizes) return {size};
  std::vector<std::uint32_t> all;
  for (std::uint32_t bytes = 2; bytes <= kMaxBenchBytes; bytes *= 2) all.push_back(bytes);
  return all;
}

std::string BenchSettings::name() const { return fmt::format("{} {}", to_string(verb), to_string(measure)); }

nlohmann::json bench_agreement(const BenchSettings& settings) {
  nlohmann::json flags = nlohmann::json::array();
  const auto add = [&](std::string_view flag, std::string value) { flags.push_back({std::string(flag), value}); };
  const auto yes_or_no = [](bool given) { return given ? "given" : "not given"; };
  add("-R", yes_or_no(settings.managed));
  add("-b", yes_or_no(settings.bidirectional));
  add("-a", yes_or_no(settings.all_sizes));
  if (!settings.all_sizes) add("-s", std::to_string(settings.sizes().front()));
  add("-q", std::to_string(settings.pairs));
  add("-D", settings.duration == 0 ? "not given" : std::to_string(settings.duration));
  if (settings.duration == 0) add("-n", std::to_string(settings.iterations));
  if (settings.verb == BenchVerb::Atomic) add("-A", settings.compare_and_swap ? "CMP_AND_SWAP" : "FETCH_AND_ADD");
  return flags;
}

std::optional<std::string> bench_difference(const nlohmann::json& here, const nlohmann::json& there) {
  const std::string other_program = "the other side is another version of verbena bench";
  if (!there.is_array()) return other_program;
  for (std::size_t i = 0; i < here.size(); ++i) {
    if (i >= there.size() || !there[i].is_array() || there[i].size() != 2 || there[i][0] != here[i][0] ||
        !there[i][1].is_string())
      return other_program;
    if (here[i][1] == there[i][1]) continue;
    return fmt::format("{} is {} here and {} there", here[i][0].get<std::string>(), here[i][1].get<std::string>(),
                       printable(there[i][1].get<std::string>().substr(0, 40)));
  }
  if (there.size() != here.size()) return other_program;
  return std::nullopt;
}

}  // namespace verbena::tools
