// SPDX-License-Identifier: Apache-2.0
// What Device::open() takes from the environment.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "provider/provider.h"

namespace verbena {

// The value of one of environment(); none when it is not set, empty, or this process has more rights than its user.
std::optional<std::string> environment_value(const char* name);

// "0,1001"; nothing for what is no such list.
std::optional<std::vector<std::uint32_t>> parse_users(std::string_view text);

// With the process id and a number that no other device of this process gets before the extension:
// "wire.pcapng" -> "wire-4711-1.pcapng". The file is there afterwards, made anew and empty, for this user alone.
Result<std::string> file_of_own(const std::string& name);

// Writes what a device counted to a file of its own in a folder, whenever it has changed and a last time at the end:
//
//     device soft-lo
//     address 127.0.0.1
//     open yes
//     rcvd_pkts 17
//
// The file is replaced as a whole. What cannot be written is left out: the device does not suffer.
class CounterFile {
 public:
  // Makes the folder when it is missing, for this user alone; a relative one is of the folder the program is in now.
  // `context` outlives the file. Errors: those of mkdir() and of writing; ResourceExhausted (no thread).
  static Result<std::unique_ptr<CounterFile>> create(const std::string& folder, provider::Context& context);
  CounterFile(const CounterFile&) = delete;
  CounterFile& operator=(const CounterFile&) = delete;
  ~CounterFile();

 private:
  class Writer;
  explicit CounterFile(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer_;
};

}  // namespace verbena
