// SPDX-License-Identifier: Apache-2.0
#include "tools/message_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/message_kinds.h"
#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr std::string_view kBenchName = "message";

MessageRow row_of(const MessageTest& test, const std::vector<std::unique_ptr<SendingEnd>>& ends) {
  MessageRow row;
  row.test = test;
  row.kind = ends.front()->kind();
  row.path = ends.front()->path();
  Instant begun = ends.front()->begun(), ended = ends.front()->ended();
  Histogram times;
  double timed_ns = 0;
  std::uint64_t timed = 0;
  for (const auto& one : ends) {
    row.messages += one->messages();
    begun = std::min(begun, one->begun());
    ended = std::max(ended, one->ended());
    timed_ns += one->timed_ns();
    timed += one->timed();
    times.add(one->times());
    row.sender_bytes += one->memory_bytes();
  }
  row.elapsed = ended - begun;
  row.overhead = timed == 0 ? 0 : timed_ns / static_cast<double>(timed) * 1e-3;
  const auto half = [](double ns) { return ns * 1e-3 / 2; };
  const auto part = [&](double of) { return half(static_cast<double>(times.percentile(of))); };
  row.minimum = half(static_cast<double>(times.min()));
  row.typical = part(0.5);
  row.average = half(times.average());
  row.deviation = half(times.standard_deviation());
  row.p99 = part(0.99);
  row.p999 = part(0.999);
  row.maximum = half(static_cast<double>(times.max()));
  return row;
}

}  // namespace

std::optional<std::string> message_difference(const nlohmann::json& here, const nlohmann::json& there) {
  for (const auto& [flag, value] : here.items()) {
    const auto other = there.find(flag);
    if (other == there.end() || *other == value) continue;
    const std::string told = other->is_string() ? other->get<std::string>() : other->dump();
    return fmt::format("{} is {} here and {} there", flag, value.get<std::string>(), printable(told.substr(0, 60)));
  }
  return std::nullopt;
}

nlohmann::json message_hello(const nlohmann::json& flags, const Gid& address, bool events) {
  return {{"bench", std::string(kBenchName)}, {"flags", flags}, {"address", address.to_string()}, {"events", events}};
}

Result<std::string> remote_of_hello(const nlohmann::json& hello, const nlohmann::json& flags) {
  if (auto same = check_same_bench(hello, kBenchName); !same) return std::move(same).error();
  const auto bench = text_of(hello, "bench"), address = text_of(hello, "address");
  const auto theirs = hello.find("flags");
  if (!bench || !address || theirs == hello.end() || !theirs->is_object())
    return Error(ErrorCode::ProtocolError, "the other side measures no message protocols");
  if (const auto differs = message_difference(flags, *theirs))
    return Error(ErrorCode::InvalidArgument, "the two ends differ: " + *differs);
  return printable(*address);
}

bool may_come_from_peer(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument:
    case ErrorCode::NotSupported:
    case ErrorCode::ResourceExhausted:
    case ErrorCode::Cancelled: return false;
    default: return true;
  }
}

Result<void> check_events(const MessageTest& test, const MessageEndOptions& options) {
  if (!options.events || messaging::traits_of(test.kind).interrupts) return {};
  return Error(ErrorCode::InvalidArgument,
               test.name() + ": -e, and no message of this protocol wakes who sleeps; leave -e out");
}

// The default is cut to what the device takes.
Result<void> check_inline(const MessageTest& test, const DeviceInfo& device) {
  if (!goes_inline(test.kind) || test.inline_bytes <= std::max(device.max_inline_bytes, MessageTest{}.inline_bytes))
    return {};
  return Error(ErrorCode::InvalidArgument,
               fmt::format("{}: -I is {}, and the device at {} takes {} at most", test.name(), test.inline_bytes,
                           device.address.to_string(), device.max_inline_bytes));
}

Result<std::unique_ptr<MessageSession>> MessageSession::connect(const Endpoint& server,
                                                                const MessageSessionOptions& options) {
  auto devices = MessageDevices::open(options.device, &server);
  if (!devices) return std::move(devices).error();
  std::unique_ptr<MessageSession> session(new MessageSession(std::move(*devices), options));
  if (auto met = session->meet(server); !met) {
    session->end(met.error());
    return std::move(met).error();
  }
  return session;
}

Result<std::unique_ptr<MessageSession>> MessageSession::start_here(const MessageSessionOptions& options) {
  std::vector<std::string> words{"bench", "message", "-F", "-p", "0", "--timeout",
                                 fmt::format("{}", static_cast<double>(options.end.patience.ns) * 1e-9)};
  if (options.end.events) words.emplace_back("-e");
  if (!options.device.device.empty()) words.insert(words.end(), {"--device", options.device.device});
  auto child = MessageChild::start(words, options.end.patience, options.stopped);
  if (!child) return std::move(child).error();
  auto session = connect(child->address(), options);
  if (session) (*session)->child_.emplace(std::move(*child));
  return session;
}

MessageSession::~MessageSession() { end(over_); }

void MessageSession::end(const std::optional<Error>& reason) {
  if (std::exchange(ended_, true) || !control_) return;
  // It knows of its own.
  if (!reason || reason->code() == ErrorCode::Rejected) static_cast<void>(control_->send({{"end", true}}));
  else control_->send_error(*reason);
  control_.reset();
}

Result<void> MessageSession::meet(const Endpoint& server) {
  auto link = TcpLink::connect(server, options_.end.patience, options_.stopped);
  if (!link) return std::move(link).error();
  control_.emplace(std::move(*link), options_.stopped, options_.end.patience);
  const nlohmann::json ours = message_hello(options_.flags, devices_.address(), options_.end.events);
  if (auto sent = control_->send(ours); !sent) return sent;
  auto hello = control_->receive();
  if (!hello) return std::move(hello).error();
  auto remote = remote_of_hello(*hello, options_.flags);
  if (!remote) return std::move(remote).error();
  remote_ = std::move(*remote);
  sleeps_there_ = hello->value("events", nlohmann::json()) == true;
  return {};
}

// Whatever goes wrong with the link is the end of the session.
Result<nlohmann::json> MessageSession::hear() {
  auto message = control_->receive();
  if (!message) {
    over_ = message.error();
    return message;
  }
  if (!message->contains("failed")) return message;
  failed_there_ = true;
  const auto told = text_of(*message, "failed");
  return Error(ErrorCode::Rejected, "the other side: " + (told ? printable(*told) : "it failed"));
}

Result<std::vector<MessageAddresses>> MessageSession::propose(const MessageTest& test) {
  if (auto sent = control_->send({{"test", to_json(test)}}); !sent) {
    over_ = sent.error();
    return std::move(sent).error();
  }
  auto message = hear();
  if (!message) return std::move(message).error();
  std::vector<MessageAddresses> ends;
  const auto listed = message->find("ends");
  if (listed != message->end() && listed->is_array())
    for (const nlohmann::json& one : *listed) {
      const auto receiver = text_of(one, "receiver"), answers = text_of(one, "answers");
      if (receiver && answers) ends.push_back({*receiver, *answers});
    }
  if (ends.size() != test.threads) {
    over_ = Error(ErrorCode::ProtocolError, "the other side does not say where it receives");
    return *over_;
  }
  return ends;
}

Result<void> MessageSession::measure(MessageCrew& crew, const Ends& ends, const MessageBegin& begin,
                                     const MessageProgress& progress) {
  const auto glance = [&]() -> Result<void> {
    if (options_.stopped()) {
      over_ = Error(ErrorCode::Cancelled, "interrupted");
      return *over_;
    }
    if (control_->ready()) {
      auto told = hear();
      if (!told) return std::move(told).error();
      over_ = Error(ErrorCode::ProtocolError, "the other side speaks when it should not");
      return *over_;
    }
    std::uint64_t sum = 0;
    for (const auto& one : ends) sum += one->messages();
    if (progress) progress(sum);
    return {};
  };
  crew.start();
  if (auto ready = crew.wait_ready(glance); !ready) return ready;
  if (begin) begin(ends.front()->path());
  crew.proceed();
  return crew.wait_done(glance);
}

Error MessageSession::reason_of(const Error& error) {
  if (over_ || failed_there_ || !may_come_from_peer(error.code()) || !control_->ready(kTimeToExplain)) return error;
  auto told = hear();
  return told ? error : told.error();
}

// Both ends are done with the test when it returns.
Result<nlohmann::json> MessageSession::finish(bool well) {
  if (over_) return *over_;
  if (failed_there_) return Error(ErrorCode::Rejected, "the other side has ended the test");
  if (auto sent = control_->send({{"finish", well}}); !sent) {
    over_ = sent.error();
    return std::move(sent).error();
  }
  return hear();
}

Result<MessageRow> MessageSession::run(const MessageTest& test, const MessageBegin& begin,
                                       const MessageProgress& progress) {
  if (over_) return *over_;
  if (auto sound = check_message_test(test); !sound) return std::move(sound).error();
  if (auto sound = check_events(test, options_.end); !sound) return std::move(sound).error();
  if (auto ready = devices_.prepare(test.path, test.threads); !ready) return std::move(ready).error();
  if (auto fits = check_inline(test, devices_.at(0).info()); !fits) return std::move(fits).error();
  failed_there_ = false;
  auto addresses = propose(test);
  if (!addresses) return std::move(addresses).error();
  Ends ends;
  MessageCrew crew(test.threads, [&](std::uint32_t number) { return ends[number]->run(); });
  for (std::uint32_t i = 0; i < test.threads; ++i)
    ends.push_back(std::make_unique<SendingEnd>(crew, test, options_.end, devices_.at(i), (*addresses)[i]));
  auto measured = measure(crew, ends, begin, progress);
  crew.stop();
  crew.join();
  if (!measured) {
    Error error = reason_of(measured.error());
    static_cast<void>(finish(false));
    return error;
  }
  auto done = finish(true);
  if (!done) return std::move(done).error();
  auto memory = number_of(*done, "receiver_bytes");
  if (!memory) {
    over_ = memory.error();
    return std::move(memory).error();
  }
  MessageRow row = row_of(test, ends);
  row.receiver_bytes = *memory;
  return row;
}

}  // namespace verbena::tools
