// SPDX-License-Identifier: Apache-2.0
// Results as one HTML page that needs nothing beside itself and is well-formed XML, in light and dark.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::tools {

// `body` is markup, the others are text.
std::string html_page(const std::string& title, const std::string& lead, const std::string& body);

std::string html_figure(const std::string& svg);
// A number that stands out, and what it is. Cards stand in a <div class="cards">.
std::string html_card(const std::string& value, const std::string& name);
// A row of "th" or "td"; the first `words` are set as words, the others as numbers.
std::string html_row(std::string_view cell, const std::vector<std::string>& texts, std::size_t words = 0);

}  // namespace verbena::tools
