// SPDX-License-Identifier: Apache-2.0
#include "verbena/base/device_info.h"

namespace verbena {

std::optional<PathChoice> parse_path_choice(std::string_view text) {
  if (text == "auto") return PathChoice::Auto;
  if (text == "roce") return PathChoice::Roce;
  if (text == "local") return PathChoice::Local;
  return std::nullopt;
}

}  // namespace verbena
