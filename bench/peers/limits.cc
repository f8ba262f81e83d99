// SPDX-License-Identifier: Apache-2.0
// Physical limits of this machine.
//   bench_limits [memcpy|line|ring|vm|crc|wake|syscall]...   all when none is named
//   bench_limits awake CPU   keeps that CPU from halting, at idle priority, until killed: takes the cost of
//   leaving a
//                            halted virtual CPU out of a blocking measurement
#include "limits.h"

#include <sched.h>

#include <cstdlib>
#include <span>
#include <string_view>

#include "peer.h"

namespace {

struct Part {
  std::string_view name;
  void (*run)();
};
constexpr Part kParts[] = {{"memcpy", peer::measure_memcpy},  {"line", peer::measure_line},
                           {"ring", peer::measure_ring},      {"vm", peer::measure_vm},
                           {"crc", peer::measure_crc},        {"wake", peer::measure_wake},
                           {"syscall", peer::measure_syscall}};

[[noreturn]] void stay_awake(int cpu) {
  peer::settle_on(cpu);
  const sched_param none{};
  if (sched_setscheduler(0, SCHED_IDLE, &none) != 0) peer::die("SCHED_IDLE");
  for (;;) peer::relax();
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> arguments = std::span<char*>(argv, static_cast<std::size_t>(argc)).subspan(1);
  if (arguments.size() == 2 && std::string_view(arguments[0]) == "awake") stay_awake(std::atoi(arguments[1]));
  for (const char* argument : arguments) {
    bool known = false;
    for (const Part& part : kParts) known = known || part.name == argument;
    if (!known) peer::usage("bench_limits [memcpy|line|ring|vm|crc|wake|syscall]... | awake CPU");
  }
  for (const Part& part : kParts) {
    bool wanted = arguments.empty();
    for (const char* argument : arguments) wanted = wanted || part.name == argument;
    if (!wanted) continue;
    peer::settle_on(peer::kNearCpu);
    part.run();
  }
}
