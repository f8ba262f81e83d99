// SPDX-License-Identifier: Apache-2.0
// verbena get, verbena put: files and trees from and to `verbena serve`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/digest.h"
#include "tools/file_client.h"
#include "tools/json_output.h"
#include "tools/progress.h"
#include "tools/report.h"
#include "tools/safe_path.h"
#include "tools/say.h"
#include "tools/signals.h"
#include "tools/tree_walk.h"

namespace verbena::tools {

namespace {

struct TransferOptions {
  bool is_get = true;
  std::string url, path;
  bool force = false, no_progress = false, verbose = false, json = false, quiet = false;
  DeviceFlags device;
  std::string_view name() const { return is_get ? "get" : "put"; }
};

constexpr std::string_view kCounters[] = {"rdma_reads",    "rdma_read_bytes",   "rdma_writes",  "rdma_write_bytes",
                                          "served_reads",  "served_read_bytes", "served_writes", "served_write_bytes",
                                          "sent_pkts",     "retransmitted_pkts"};

// Speaks on stderr of what goes wrong and how far it is.
class Console final : public TransferObserver {
 public:
  explicit Console(const TransferOptions& options)
      : options_(options), progress_(!options.no_progress && !options.quiet && Progress::possible()) {}

  bool shows_progress() const { return progress_.enabled(); }
  void set_total(std::uint64_t bytes) { progress_.set_total(bytes); }
  void finish() {
    progress_.clear();
    if (failures_.size() <= kMostShown || options_.verbose) return;
    say(stderr, "verbena {}: {} more failed; --verbose names them all\n", options_.name(),
        failures_.size() - kMostShown);
  }
  const nlohmann::json& failures() const { return failures_; }

  void file_begun(const std::string& path) override { name_ = printable(path); }
  void moved(std::uint64_t bytes) override {
    bytes_ += bytes;
    progress_.update(bytes_, files_, name_);
  }
  void file_done(const std::string& path, std::uint64_t, const DigestBytes& digest) override {
    ++files_;
    if (!options_.verbose) return;
    progress_.clear();
    say(stderr, "{}  {}\n", to_hex(digest), printable(shown(path)));
  }
  void failed(const std::string& path, const std::string& why) override {
    failures_.push_back({{"path", printable(shown(path))}, {"error", printable(why)}});
    if (failures_.size() > kMostShown && !options_.verbose) return;
    progress_.clear();
    say(stderr, "verbena {}: {}: {}\n", options_.name(), printable(shown(path)), printable(why));
  }
  void skipped(const std::string& path, const std::string& why) override {
    if (options_.quiet) return;
    progress_.clear();
    say(stderr, "verbena {}: skipped {}: {}\n", options_.name(), printable(shown(path)), printable(why));
  }

 private:
  static constexpr std::size_t kMostShown = 10;  // of failures, which mostly are of one kind

  // The sender's paths begin below the root.
  std::string shown(const std::string& path) const {
    if (options_.is_get) return path;
    return path.empty() ? options_.path : options_.path + "/" + path;
  }
  const TransferOptions& options_;
  Progress progress_;
  std::string name_;
  std::uint64_t bytes_ = 0, files_ = 0;
  nlohmann::json failures_ = nlohmann::json::array();
};

struct Outcome {
  TransferTotals totals;
  double seconds = 0;
};

void print_summary(const TransferOptions& options, const Outcome& outcome, const Device& device) {
  const TransferTotals& totals = outcome.totals;
  const double rate = outcome.seconds > 0 ? static_cast<double>(totals.bytes) / outcome.seconds : 0;
  std::string line = fmt::format("{}, {}, {} in {:.3f} s, {}/s", format_count(totals.files, "file", "files"),
                                 format_count(totals.directories, "directory", "directories"),
                                 format_count(totals.bytes, "byte", "bytes"), outcome.seconds, format_bytes(rate));
  if (totals.files != 0) line += ", sha256 verified";
  if (totals.skipped != 0) line += fmt::format(", {} skipped", totals.skipped);
  if (totals.failures != 0) line += fmt::format(", {} failed", totals.failures);
  say(stdout, "{}\n", line);
  if (!options.verbose) return;
  for (const std::string_view name : kCounters) say(stdout, "  {:18} {}\n", name, counter(device, name));
}

void print_json(const TransferOptions& options, const Outcome& outcome, const Device* device, const Error* error,
                const nlohmann::json& failures) {
  const TransferTotals& totals = outcome.totals;
  nlohmann::json all{{"command", options.name()},
                     {"url", printable(options.url)},
                     {"path", printable(options.path)},
                     {"ok", error == nullptr && totals.failures == 0},
                     {"files", totals.files},
                     {"directories", totals.directories},
                     {"bytes", totals.bytes},
                     {"failed", totals.failures},
                     {"skipped", totals.skipped},
                     {"seconds", outcome.seconds},
                     {"bytes_per_second",
                      outcome.seconds > 0 ? static_cast<double>(totals.bytes) / outcome.seconds : 0},
                     {"sha256", totals.files != 0 ? "verified" : "none"},
                     {"failures", failures}};
  if (error != nullptr) all["error"] = error_json(*error);
  if (device != nullptr)
    for (const std::string_view name : kCounters) all["counters"][std::string(name)] = counter(*device, name);
  say_json(all);
}

// The path of a URL as the protocol has it: without the first slash, and without a last one.
struct RemotePath {
  std::string path;
  bool into = false;  // it was written with a slash at the end
};
Result<RemotePath> remote_path(const Url& url) {
  RemotePath remote;
  remote.path = url.path.substr(std::min<std::size_t>(1, url.path.size()));
  if (!remote.path.empty() && remote.path.back() == '/') {
    remote.path.pop_back();
    remote.into = true;
  }
  if (remote.path.size() > kMaxPathBytes) return Error(ErrorCode::InvalidArgument, "the path of the URL is too long");
  if (auto parts = split_path(remote.path); !parts) return std::move(parts).error();
  return remote;
}

// What is to be brought. Counted, if anybody will see it, before there is a server whose patience would run.
Result<OpenedEntry> open_root(const TransferOptions& options, Console& console) {
  auto root = open_as_named(options.path);
  if (root && console.shows_progress()) console.set_total(measure(*root, kMeasuredEntries).bytes);
  return root;
}

// An error may come with `what_to_do` about it, where more is known than its code tells, and with an `outcome`.
Result<void> transfer(const TransferOptions& options, const Url& url, const RemotePath& remote, Device& device,
                      Console& console, Outcome& outcome, std::string& what_to_do) {
  Result<OpenedEntry> root = OpenedEntry{};
  if (!options.is_get) root = open_root(options, console);
  if (!root) return std::move(root).error();
  auto engine = ProgressEngine::create(device);
  if (!engine) return std::move(engine).error();
  FileClient client(*engine, device, console);
  if (auto connected = client.connect(url.endpoint); !connected) {
    what_to_do = connect_advice(connected.error(), device, url.endpoint);
    return std::move(connected).error();
  }
  const StopSignals signals(*engine);
  client.interrupted = [&signals] { return signals.requested(); };
  client.on_total = [&console](std::uint64_t bytes) { console.set_total(bytes); };
  const double begun_at = monotonic_seconds();
  auto moved = options.is_get ? client.get(remote.path, options.path, options.force)
                              : client.put(std::move(*root), options.path, remote.path, remote.into, options.force);
  what_to_do = client.advice();
  outcome = {client.totals(), monotonic_seconds() - begun_at};
  if (moved) client.close();
  return moved;
}

// What arrived before stays there.
int fail(const TransferOptions& options, const Outcome& outcome, const Console& console, const Error& error,
         std::string_view what_to_do) {
  if (options.json) print_json(options, outcome, nullptr, &error, console.failures());
  else if (!options.quiet && outcome.totals.files != 0)
    say(stderr, "verbena {}: {} arrived, {}\n", options.name(), format_count(outcome.totals.files, "file", "files"),
        format_bytes(static_cast<double>(outcome.totals.bytes)));
  return report_error(options.name(), error, what_to_do);
}

int transfer_on(Device& device, const TransferOptions& options, const Url& url, const RemotePath& remote) {
  Console console(options);
  std::string what_to_do;
  Outcome outcome;
  const auto moved = transfer(options, url, remote, device, console, outcome, what_to_do);
  console.finish();
  if (!moved)
    return fail(options, outcome, console, moved.error(),
                what_to_do.empty() ? advice(moved.error()) : std::string_view(what_to_do));
  if (options.json) print_json(options, outcome, &device, nullptr, console.failures());
  else if (!options.quiet) print_summary(options, outcome, device);
  if (outcome.totals.failures == 0) return kExitOk;
  say(stderr, "verbena {}: {} failed; see above.\n", options.name(),
      format_count(outcome.totals.failures, "file", "files"));
  return kExitFailure;
}

int run_transfer(const TransferOptions& options) {
  auto url = parse_url(options.url);
  if (!url) return report_usage(options.name(), url.error().context());
  auto remote = remote_path(*url);
  if (!remote) return report_usage(options.name(), remote.error().context());
  if (options.path.empty()) return report_usage(options.name(), "PATH is empty");
  auto device = open_device_towards(options.device, url->endpoint);
  if (!device) {
    const auto what_to_do = open_advice(device.error(), options.device, &url->endpoint);
    return fail(options, {}, Console(options), device.error(), what_to_do);
  }
  return finish_capture(options.name(), *device, transfer_on(*device, options, *url, *remote));
}

void add_common(CLI::App& command, TransferOptions& options) {
  command.add_flag("-f,--force", options.force, "Replace files that exist");
  command.add_flag("--no-progress", options.no_progress, "No moving line, on a terminal either");
  command.add_flag("-v,--verbose", options.verbose,
                   "Digest of every file, every failure, and the device's counters at the end");
  command.add_flag("-q,--quiet", options.quiet, "Say nothing but errors");
  command.add_flag("--json", options.json, "The result as JSON, on standard output");
  add_device_flags(command, options.device);
}

}  // namespace

void add_get_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "get", "Fetch a file or a tree from `verbena serve`, by RDMA READ.\n"
             "A file becomes PATH, or goes into it when PATH is a directory or ends with '/'. A directory becomes\n"
             "PATH, or merges with it. Permissions are kept, symbolic links are left out, SHA-256 is checked end to\n"
             "end. A file that could not be completed is not there at all.");
  auto options = std::make_shared<TransferOptions>();
  command->add_option("URL", options->url, "verbena://host:port/path; the port is 7471 when left out")->required();
  command->add_option("PATH", options->path, "Where to put it")->required();
  add_common(*command, *options);
  command->callback([options, &status] { status = run_transfer(*options); });
}

void add_put_command(CLI::App& program, int& status) {
  CLI::App* command = program.add_subcommand(
      "put", "Bring a file or a tree to `verbena serve --writable`, by RDMA WRITE.\n"
             "A file becomes the URL's path, or goes into it when that is a directory or ends with '/'. A directory\n"
             "becomes the URL's path, or merges with it. PATH itself may be a symbolic link, which is followed; those\n"
             "below it are left out. Otherwise as `verbena get`.");
  auto options = std::make_shared<TransferOptions>();
  options->is_get = false;
  command->add_option("PATH", options->path, "File or directory to bring")->required();
  command->add_option("URL", options->url, "verbena://host:port/path; the port is 7471 when left out")->required();
  add_common(*command, *options);
  command->callback([options, &status] { status = run_transfer(*options); });
}

}  // namespace verbena::tools
