// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace verbena::tools {

// Below `bench`.
void add_message_command(CLI::App& bench, int& status);
void add_protocols_command(CLI::App& bench, int& status);

}  // namespace verbena::tools
