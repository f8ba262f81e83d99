// SPDX-License-Identifier: Apache-2.0
#include "tools/path_taken.h"

namespace verbena::tools {

namespace {

constexpr Duration kChoosing = Duration::seconds(2), kBetweenLooks = Duration::milliseconds(2);
// How lines of Device::explain() begin.
constexpr std::string_view kOfOne = "queue pair ", kOfAll = "same host: all connections go by ";

}  // namespace

std::string_view PathTaken::name() const {
  if (!is_known()) return "undecided";
  return is_local() ? "local" : "roce";
}

PathTaken path_taken(const Device& device, std::optional<Qpn> queue_pair) {
  std::string start(kOfOne);
  if (queue_pair) start += std::to_string(queue_pair->value()) + " to ";
  for (const std::string& line : device.explain()) {
    if (line.starts_with(kOfAll)) return {line.substr(kOfAll.size())};
    if (!line.starts_with(start)) continue;
    const std::string reason = line.substr(line.find(": ") + 2);
    return {reason.substr(0, reason.find(';'))};
  }
  return {"RoCE"};
}

PathTaken wait_path(ProgressEngine& engine, const Device& device, std::optional<Qpn> queue_pair) {
  PathTaken path;
  const auto is_known = [&] {
    path = path_taken(device, queue_pair);
    return path.is_known();
  };
  // What decides it need not wake who sleeps here.
  const Instant latest = engine.now() + kChoosing;
  while (!engine.run_until(is_known, engine.now() + kBetweenLooks) && engine.now() < latest) continue;
  return path;
}

}  // namespace verbena::tools
