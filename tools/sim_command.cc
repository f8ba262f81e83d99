// SPDX-License-Identifier: Apache-2.0
// verbena sim: the whole device in a simulated world, from a seed.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "sim/run.h"
#include "soft/wire/ip.h"
#include "soft/wire/pcapng.h"
#include "tools/command.h"
#include "tools/json_output.h"
#include "tools/number_flags.h"
#include "tools/report.h"
#include "tools/say.h"

namespace verbena::tools {

namespace {

struct SimOptions {
  std::uint64_t seed = 1;
  std::string seeds;  // FIRST:COUNT
  bool trace = false, json = false, list_bugs = false;
  std::string pcap, plant;
};

// Takes the packets of one run into a capture file.
class CaptureFile {
 public:
  static Result<std::unique_ptr<CaptureFile>> create(const std::string& name) {
    std::FILE* file = std::fopen(name.c_str(), "wb");
    if (file == nullptr) return Error::from_errno(errno, "create " + name);
    return std::unique_ptr<CaptureFile>(new CaptureFile(file, name));
  }
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;
  ~CaptureFile() {
    if (file_ != nullptr) static_cast<void>(std::fclose(file_));
  }

  void add(const sim::PacketRecord& record, Instant start) {
    bytes_.clear();
    ip_.clear();
    wire::append_ip(record.path, record.identification, record.datagram, true, ip_);
    writer_.packet(static_cast<std::uint64_t>((record.sent - start).ns), ip_,
                   wire::PcapngWriter::Direction::Unknown, bytes_, to_string(record.fate));
    write();
  }
  // An error when the file lacks packets.
  Result<void> close() {
    if (std::fclose(std::exchange(file_, nullptr)) != 0 && failure_ == 0) failure_ = errno;
    if (failure_ == 0) return {};
    return Error::from_errno(failure_, "the capture " + name_ + " is incomplete");
  }

 private:
  CaptureFile(std::FILE* file, std::string name) : file_(file), name_(std::move(name)) {
    writer_.begin(bytes_);
    write();
  }
  void write() {
    if (std::fwrite(bytes_.data(), 1, bytes_.size(), file_) != bytes_.size() && failure_ == 0) failure_ = errno;
  }

  std::FILE* file_;
  std::string name_;
  int failure_ = 0;  // errno of the first
  wire::PcapngWriter writer_{"sim", wire::PcapngWriter::Link::RawIp};
  std::vector<std::byte> bytes_, ip_;
};

std::vector<std::string> bug_names() {
  std::vector<std::string> names;
  for (std::size_t i = 1; i < static_cast<std::size_t>(core::PlantedBug::Count); ++i)
    names.emplace_back(sim::to_string(static_cast<core::PlantedBug>(i)));
  return names;
}

Result<core::PlantedBug> parse_bug(const std::string& name) {
  if (name.empty()) return core::PlantedBug::None;
  const auto names = bug_names();
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<core::PlantedBug>(i + 1);
  return Error(ErrorCode::InvalidArgument, "there is no bug '" + name + "'; --list-bugs names them");
}

constexpr std::uint64_t kLastSeed = std::numeric_limits<std::uint64_t>::max();

struct SeedRange {
  std::uint64_t first = 1, count = 1;
};
Result<SeedRange> parse_range(const SimOptions& options) {
  if (options.seeds.empty()) return SeedRange{options.seed, 1};
  const auto wrong = [&](const std::string& why) {
    return Error(ErrorCode::InvalidArgument,
                 "--seeds: '" + options.seeds + "' is not FIRST:COUNT, for instance 1:1000" + why);
  };
  const std::size_t colon = options.seeds.find(':');
  if (colon == std::string::npos) return wrong("");
  const auto first = parse_whole(options.seeds.substr(0, colon), 0, kLastSeed);
  if (!first) return wrong(": " + first.error().context());
  const auto count = parse_whole(options.seeds.substr(colon + 1), 1, std::max<std::uint64_t>(1, kLastSeed - *first));
  if (!count) return wrong(": " + count.error().context());
  return SeedRange{*first, *count};
}

struct Totals {
  std::uint64_t seeds = 0, packets = 0, retransmitted = 0, completions = 0, connections = 0;
  double virtual_seconds = 0;
  nlohmann::json failures = nlohmann::json::array();
};

std::string replay_line(std::uint64_t seed, const std::string& plant) {
  return fmt::format("verbena sim --seed {}{} --trace", seed, plant.empty() ? "" : " --plant " + plant);
}

nlohmann::json to_json(std::uint64_t seed, const sim::RunResult& result) {
  return {{"seed", seed},
          {"ok", result.ok()},
          {"oracle", result.failed_oracle},
          {"detail", result.detail},
          {"packets", result.packets},
          {"retransmitted", result.retransmitted},
          {"completions", result.completions},
          {"connections", result.connections},
          {"virtual_ns", result.virtual_time.ns},
          {"hash", fmt::format("{:016x}", result.hash)}};
}

sim::RunResult run_one(std::uint64_t seed, core::PlantedBug bug, const SimOptions& options, CaptureFile* capture) {
  sim::Options world = sim::options_for_seed(seed);
  world.bug = bug;
  sim::TraceSink sink;
  if (options.trace || capture != nullptr)
    sink = [&](const sim::PacketRecord& record) {
      if (options.trace) say(options.json ? stderr : stdout, "{}\n", describe(record, world.start));
      if (capture != nullptr) capture->add(record, world.start);
    };
  return sim::run(world, sink);
}

void print_one(std::uint64_t seed, const sim::RunResult& result, const SimOptions& options) {
  if (!result.ok()) {
    say(stdout, "seed {} FAILED: {}: {}\n{}", seed, result.failed_oracle, result.detail,
               to_string(sim::options_for_seed(seed)));
    say(stdout, "again: {}\n", replay_line(seed, options.plant));
    std::fflush(stdout);  // whoever interrupts the seeds that follow has it
  } else if (options.seeds.empty()) {
    say(stdout, "seed {} ok: {} packets, {} sent again, {} completions, {} connections, {:.6f} s of virtual time, "
               "hash {:016x}\n",
               seed, result.packets, result.retransmitted, result.completions, result.connections,
               static_cast<double>(result.virtual_time.ns) * 1e-9, result.hash);
  }
}

int run_seeds(const SimOptions& options, SeedRange range, core::PlantedBug bug, CaptureFile* capture) {
  Totals totals;
  std::uint64_t failed = 0;
  nlohmann::json last;
  for (std::uint64_t i = 0; i < range.count; ++i) {
    const std::uint64_t seed = range.first + i;
    const sim::RunResult result = run_one(seed, bug, options, capture);
    ++totals.seeds;
    totals.packets += result.packets;
    totals.retransmitted += result.retransmitted;
    totals.completions += result.completions;
    totals.connections += result.connections;
    totals.virtual_seconds += static_cast<double>(result.virtual_time.ns) * 1e-9;
    if (!result.ok()) {
      ++failed;
      totals.failures.push_back(to_json(seed, result));
    }
    if (options.json) last = to_json(seed, result);
    else print_one(seed, result, options);
  }
  if (options.json && options.seeds.empty()) {
    say_json(last);
  } else if (options.json) {
    const nlohmann::json all{{"seeds", totals.seeds},           {"failed", failed},
                             {"packets", totals.packets},       {"retransmitted", totals.retransmitted},
                             {"completions", totals.completions}, {"connections", totals.connections},
                             {"virtual_seconds", totals.virtual_seconds}, {"failures", totals.failures}};
    say_json(all);
  } else if (!options.seeds.empty()) {
    say(stdout, "{} seeds, {} failed: {} packets, {} sent again, {} completions, {} connections, {:.3f} s of virtual "
               "time\n",
               totals.seeds, failed, totals.packets, totals.retransmitted, totals.completions, totals.connections,
               totals.virtual_seconds);
  }
  return failed == 0 ? kExitOk : kExitFailure;
}

// The device with bugs to plant is a program of its own beside this one; here none has an effect.
#ifdef VERBENA_PLANTED_BUGS
constexpr bool kHasBugs = true;
#else
constexpr bool kHasBugs = false;
#endif

// Runs that program in place of this one; returns only when it cannot.
Error run_planted(const SimOptions& options) {
  std::error_code unreadable;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  const std::string program = (self.parent_path() / "verbena-sim-planted").string();
  std::vector<std::string> words{program, "sim", "--plant", options.plant};
  if (options.seeds.empty()) words.insert(words.end(), {"--seed", std::to_string(options.seed)});
  else words.insert(words.end(), {"--seeds", options.seeds});
  if (options.trace) words.emplace_back("--trace");
  if (options.json) words.emplace_back("--json");
  if (!options.pcap.empty()) words.insert(words.end(), {"--pcap", options.pcap});
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  return Error::from_errno(errno, "run " + program);
}

int run_sim(const SimOptions& options) {
  if (options.list_bugs) {
    if (options.json) say_json(bug_names());
    else
      for (const std::string& name : bug_names()) say(stdout, "{}\n", name);
    return kExitOk;
  }
  const auto bug = parse_bug(options.plant);
  if (!bug) return report_usage("sim", bug.error().context());
  const auto range = parse_range(options);
  if (!range) return report_usage("sim", range.error().context());
  if (range->count != 1 && (options.trace || !options.pcap.empty()))
    return report_usage("sim", "--trace and --pcap are for one seed");
  if (*bug != core::PlantedBug::None && !kHasBugs) {
    std::fflush(stdout);
    return report_error("sim", run_planted(options),
                        "Bugs are planted by a program beside this one: build it by scripts/build release --target "
                        "verbena_sim_planted.");
  }
  std::unique_ptr<CaptureFile> capture;
  if (!options.pcap.empty()) {
    auto created = CaptureFile::create(options.pcap);
    if (!created)
      return report_error("sim", created.error(), "Name a file for --pcap in a folder that is there and writable.");
    capture = std::move(*created);
  }
  const int status = run_seeds(options, *range, *bug, capture.get());
  if (capture)
    if (auto written = capture->close(); !written)
      return report_failure("sim", written.error().context() + ": " + std::strerror(written.error().native()),
                            advice(written.error()));
  return status;
}

}  // namespace

void add_sim_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "sim", "Run the device in a simulated world of loss, delay, damage and pauses, with every promise watched.\n"
             "A seed decides everything: the same seed gives the same run, to the last byte.");
  auto options = std::make_shared<SimOptions>();
  auto* seed = command->add_option("--seed", options->seed, "The seed to run")->capture_default_str();
  require_whole(seed, 0, kLastSeed);
  auto* seeds = command->add_option("--seeds", options->seeds, "Run COUNT seeds from FIRST on");
  require_word(seeds->type_name("FIRST:COUNT")->excludes(seed));
  command->add_flag("--trace", options->trace, "A line per packet, and what became of it");
  auto* pcap = command->add_option("--pcap", options->pcap, "Write the packets to this file, for Wireshark");
  require_word(pcap->type_name("FILE"));
  auto* plant = command->add_option("--plant", options->plant,
                                    "Put this bug into the device, to see it found; where tests are built");
  require_word(plant->type_name("BUG"));
  command->add_flag("--list-bugs", options->list_bugs, "Names for --plant");
  command->add_flag("--json", options->json, "The result as JSON");
  command->callback([options, &status] { status = run_sim(*options); });
}

}  // namespace verbena::tools
