// SPDX-License-Identifier: Apache-2.0
#include "tools/message_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/message_devices.h"
#include "tools/message_kinds.h"
#include "tools/nearest_word.h"
#include "tools/number_flags.h"
#include "verbena/device/environment.h"

namespace verbena::tools {

namespace {

std::string protocols() {
  std::vector<std::string> names;
  for (const messaging::Protocol one : messaging::all_protocols()) names.emplace_back(messaging::to_string(one));
  return list_words(names);
}

std::vector<std::string> measures() { return {kMessageMeasureNames, std::end(kMessageMeasureNames)}; }

bool is_measure(const std::string& word) { return parse_message_measure(word).has_value(); }

// An address, or a name with a domain or a port.
bool looks_like_host(const std::string& word) { return word.find_first_of(".:") != std::string::npos; }

// What a measure is called elsewhere leads to it.
std::string measure_called(const std::string& word) {
  if (word == "bandwidth" || word == "throughput") return " (did you mean bw?)";
  return word == "latency" ? " (did you mean lat?)" : "";
}
std::string measure_meant(const std::string& word) {
  const std::string called = measure_called(word);
  return called.empty() ? did_you_mean(word, measures()) : called;
}

// Words that are none of the protocols, nor are meant to be.
bool may_be_host(const std::string& word) {
  if (is_measure(word) || word.find('/') != std::string::npos || messaging::parse_kind(word)) return false;
  if (looks_like_host(word)) return true;
  std::vector<std::string> names;
  for (const messaging::Protocol one : messaging::all_protocols()) names.emplace_back(messaging::to_string(one));
  return nearest_word(word, names).empty();
}

std::string wrong_with_measure(const MessageFlags& flags) {
  if (flags.measure.empty() || is_measure(flags.measure)) return "";
  const std::string tests = list_words(measures());
  if (looks_like_host(flags.measure))
    return fmt::format("'{}' is no test: give one of {} before it, if it is the HOST", flags.measure, tests);
  return fmt::format("there is no test '{}'{}; tests are {}, and HOST comes behind", flags.measure,
                     measure_meant(flags.measure), tests);
}

std::string wrong_with_protocol(const MessageFlags& flags) {
  if (flags.protocol.empty()) return "";
  const auto kind = kind_named(flags.protocol);
  if (kind) return "";
  if (is_measure(flags.protocol))
    return fmt::format("'{}' is a test: give a PROTOCOL before it, one of {}", flags.protocol, protocols());
  if (looks_like_host(flags.protocol))
    return fmt::format("'{}' is no protocol: give PROTOCOL and MEASURE before it, if it is the HOST, or -a alone: {}",
                       flags.protocol, protocols());
  if (const std::string meant = measure_called(flags.protocol); !meant.empty())
    return fmt::format("'{}' is no protocol{}; one comes before the test: {}", flags.protocol, meant, protocols());
  return kind.error().context();
}

// What --path says, or VERBENA_PATH: the client decides for both ends.
PathChoice path_of(const MessageFlags& flags) {
  std::string name = flags.device.path;
  if (name.empty())
    for (const EnvironmentVariable& one : environment())
      if (one.name == "VERBENA_PATH") name = one.value.value_or("");
  return parse_path_choice(name).value_or(PathChoice::Auto);
}

MessageMeasure measure_of(const MessageFlags& flags) {
  return parse_message_measure(flags.measure).value_or(MessageMeasure::Latency);
}

MessageTest test_of(const MessageFlags& flags, std::uint32_t size) {
  MessageTest test;
  if (const auto kind = messaging::parse_kind(flags.protocol)) test.kind = *kind;
  test.path = path_of(flags);
  test.measure = measure_of(flags);
  test.size = size;
  test.senders = flags.senders.value_or(1);
  test.threads = flags.threads.value_or(1);
  test.batch = flags.batch.value_or(test.measure == MessageMeasure::Rate ? 16 : 1);
  test.window = flags.window.value_or(64);
  test.ring_bytes = flags.ring ? ring_in_force(*flags.ring) : std::max(kUsualRing, least_ring(size));
  test.inline_bytes = flags.inline_size.value_or(test.inline_bytes);
  test.duration = flags.duration.value_or(0);
  constexpr std::uint64_t kUsual[] = {1000, 5000, 100'000};
  test.iterations = flags.iterations.value_or(kUsual[static_cast<std::size_t>(test.measure)]);
  return test;
}

std::string shown_size(const MessageFlags& flags, std::uint32_t size) {
  return flags.all_sizes ? "all of -a" : std::to_string(size);
}

// What is wrong with flags that ask for all tests of protocols.
std::string check_matrix(const MessageFlags& flags) {
  const std::pair<std::string_view, bool> of_one[] = {
      {"-s", flags.size.has_value()},        {"-D", flags.duration.has_value()},
      {"--senders", flags.senders.has_value()}, {"--threads", flags.threads.has_value()},
      {"--batch", flags.batch.has_value()},  {"--window", flags.window.has_value()},
      {"--ring", flags.ring.has_value()},    {"-I", flags.inline_size.has_value()},
      {"-e", flags.events},                  {"--pcap", !flags.device.pcap.empty()}};
  for (const auto& [name, given] : of_one)
    if (given) return fmt::format("{} is of one test, and -a without lat, bw or rate runs many", name);
  if (flags.host.empty() && flags.port_given) return "-p: the server that -a starts here takes a free port";
  if (flags.port == 0) return "-p 0 is for the server, which then takes a free port";
  if (flags.iterations.value_or(0) > kMaxMatrixIterations)
    return fmt::format("-n: of all tests at most {}", kMaxMatrixIterations);
  if (!flags.protocol.empty() && !flags.kinds.empty()) return "--kinds names protocols, as PROTOCOL does: give one";
  return "";
}

}  // namespace

void add_message_flags(CLI::App& command, MessageFlags& flags) {
  require_word(command.add_option("PROTOCOL", flags.protocol,
                                  "One of " + protocols() + "; choices follow: direct-read/fenced"));
  require_word(command.add_option("MEASURE", flags.measure,
                                  "lat, bw (bytes) or rate (messages). With -a neither need be there before HOST"));
  add_host(command, flags.host, flags.port, "The server, HOST or HOST:PORT as it prints it; without it, be the server");
  command.add_flag("--here", flags.here, "Start the server here, too, as a process of its own");
  add_device_flags(command, flags.device);
  add_device(command, flags.device.device, "-d,--ib-dev", "As --device");
  auto* port = command.add_option("-p,--port", flags.port, "TCP port of the server; a server takes a free one with 0");
  require_whole(port->capture_default_str(), 0, 65535);
  port->each([&flags](const std::string&) { flags.port_given = true; });
  const auto number = [&](const char* names, auto& to, const char* what, std::uint64_t min, std::uint64_t max) {
    require_whole(command.add_option(names, to, what), min, max);
  };
  require_bytes(command.add_option("-s,--size", flags.size, "Bytes per message, as 4096, 64k or 1M (8; for bw 65536)"),
                0, kMaxMessageSize);
  command.add_flag("-a,--all", flags.all_sizes,
                   "All sizes from 1 to 2^20, for lat 0 too; without a MEASURE all tests of all protocols, or of one, "
                   "by size, over each path, from many senders and threads, as `verbena bench protocols`");
  number("-n,--iters", flags.iterations, "Messages of each sender (1000; for bw 5000, for rate 100000)", 1,
         kMaxMessageIterations);
  number("-D,--duration", flags.duration, "Measure each size this many seconds", 1, kMaxMessageDuration);
  number("--senders", flags.senders, "Senders to each receiver, in one thread (1)", 1, kMaxMessageSenders);
  number("--threads", flags.threads, "Threads that send, each to a thread of its own that receives (1)", 1,
         kMaxMessageThreads);
  number("--batch", flags.batch, "Messages handed over at once (1; for rate 16)", 1, kMaxMessageBatch);
  number("--window", flags.window, "Messages in flight (64)", 1, kMaxMessageWindow);
  require_bytes(command.add_option("--ring", flags.ring,
                                   "Bytes of a ring, as 64k or 1M, rounded up to a power of two (2^20, and what four "
                                   "messages take)"),
                1, kMaxMessageRing);
  number("-I,--inline_size", flags.inline_size,
         "Messages up to that long go in the request (192, and what the device takes; of send-receive, "
         "shared-receive and direct-write)",
         0, kMaxMessageSize);
  command.add_flag("-e,--events", flags.events, "This end sleeps until something comes (otherwise it polls)");
  command.add_flag("-F,--CPU-freq", flags.quiet_frequency, "No warning when the processor changes its frequency");
  auto* patience = command.add_option("--timeout", flags.timeout, "Seconds to wait for the other end");
  require_seconds(patience->capture_default_str(), 0.1, 1e6);
  add_file(command, "--json", flags.json, "Write the results there, as JSON");
  add_file(command, "--report", flags.report, "Of all protocols: write a page with plots there "
                                              "[verbena-messages.html]");
  add_kinds_flag(command, "--kinds", flags.kinds);
}

std::string place_words(MessageFlags& flags) {
  if (!flags.all_sizes || !flags.host.empty()) return "";
  std::string& word = flags.measure.empty() ? flags.protocol : flags.measure;
  if (word.empty() || !may_be_host(word)) return "";
  std::uint16_t named = 0;
  if (auto ok = read_host(std::exchange(word, ""), flags.host, named); !ok) return ok.error().context();
  if (named == 0) return "";
  if (flags.port_given && flags.port != named) return "HOST names a port, and -p another: give one of the two";
  flags.port = named;
  return "";
}

std::string check_message_flags(const MessageFlags& flags) {
  for (const auto& wrong : {wrong_with_protocol(flags), wrong_with_measure(flags)})
    if (!wrong.empty()) return wrong;
  if (is_measure(flags.host)) return fmt::format("'{}' is a test, and one is named: give HOST there", flags.host);
  if (flags.here && !flags.host.empty()) return "--here starts a server, and HOST is one: give one of the two";
  if (flags.matrix()) return check_matrix(flags);
  if (!flags.report.empty()) return "--report is of all tests: give -a and no MEASURE";
  if (!flags.kinds.empty()) return "--kinds is of all tests: give -a and no MEASURE";
  if (flags.here && flags.port_given) return "-p: the server of --here takes a free port";
  if (flags.client() && flags.measure.empty()) return "--here: give a PROTOCOL and what to measure of it";
  if (flags.client() && flags.port == 0) return "-p 0 is for the server, which then takes a free port";
  if (!flags.client() && !flags.json.empty()) return "--json: the client has the numbers; give it there";
  if (flags.all_sizes && flags.size) return "-a measures all sizes, and -s one: give one of the two";
  if (flags.duration && flags.iterations) return "-D measures for a time, and -n a number: give one of the two";
  if (!flags.device.pcap.empty() && flags.threads.value_or(1) != 1)
    return "--pcap captures one device, and each of --threads has its own";
  if (!flags.client()) return "";
  for (const MessageTest& test : message_tests(flags)) {
    if (auto sound = check_message_test(test); !sound) return sound.error().context();
    if (flags.inline_size && !goes_inline(test.kind))
      return "-I: messages of " + messaging::to_string(test.kind) + " do not go in the request";
    if (flags.ring && !has_ring(test.kind)) return "--ring: " + messaging::to_string(test.kind) + " has none";
    if (test.kind.protocol == messaging::Protocol::SharedReceive && test.window < test.senders)
      return fmt::format("--window {}: shared-receive needs one message in flight for each of {} senders at least; "
                         "give --window {} or more", test.window, test.senders, test.senders);
    if (flags.events && !messaging::traits_of(test.kind).interrupts)
      return "-e: no message of " + messaging::to_string(test.kind) + " wakes who sleeps";
  }
  return "";
}

MatrixFlags matrix_flags(const MessageFlags& flags) {
  MatrixFlags all;
  all.client = {flags.host, flags.device, flags.port, flags.timeout, flags.quiet_frequency, flags.json};
  all.kinds = flags.protocol.empty() ? flags.kinds : std::vector{flags.protocol};
  all.path = flags.device.path;
  all.iterations = flags.iterations.value_or(all.iterations);
  if (!flags.report.empty()) all.report = flags.report;
  return all;
}

std::vector<MessageTest> message_tests(const MessageFlags& flags) {
  const MessageMeasure measure = measure_of(flags);
  if (!flags.all_sizes)
    return {test_of(flags, flags.size.value_or(measure == MessageMeasure::Bandwidth ? 65536 : 8))};
  std::vector<MessageTest> tests;
  if (measure == MessageMeasure::Latency) tests.push_back(test_of(flags, 0));
  for (std::uint32_t size = 1; size <= kMaxSizeOfAll; size *= 2) tests.push_back(test_of(flags, size));
  return tests;
}

nlohmann::json message_agreement(const MessageFlags& flags) {
  const MessageTest test = message_tests(flags).front();
  nlohmann::json all = nlohmann::json::object();
  const auto add = [&](const char* name, bool given, std::string value) {
    if (given || flags.client()) all[name] = std::move(value);
  };
  const bool timed = test.duration != 0;
  add("PROTOCOL", !flags.protocol.empty(), messaging::to_string(test.kind));
  add("MEASURE", !flags.measure.empty(), std::string(to_string(test.measure)));
  add("--path", !flags.device.path.empty(), std::string(to_string(test.path)));
  add("-s", flags.size || flags.all_sizes, shown_size(flags, test.size));
  add("-n", flags.iterations.has_value(), timed ? "not given" : std::to_string(test.iterations));
  add("-D", flags.duration.has_value(), timed ? std::to_string(test.duration) : "not given");
  add("--senders", flags.senders.has_value(), std::to_string(test.senders));
  add("--threads", flags.threads.has_value(), std::to_string(test.threads));
  add("--batch", flags.batch.has_value(), std::to_string(test.batch));
  add("--window", flags.window.has_value(), std::to_string(test.window));
  add("--ring", flags.ring.has_value(), std::to_string(test.ring_bytes));
  add("-I", flags.inline_size.has_value(), std::to_string(test.inline_bytes));
  return all;
}

}  // namespace verbena::tools
