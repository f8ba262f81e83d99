// SPDX-License-Identifier: Apache-2.0
#include "tools/message_server.h"

#include <nlohmann/json.hpp>

#include "tools/message_session.h"

namespace verbena::tools {

namespace {

constexpr Duration kIdleGlance = Duration::milliseconds(50);

}  // namespace

MessageServer::MessageServer(TcpLink link, MessageDevices& devices, const MessageServerOptions& options)
    : control_(std::move(link), options.stopped, options.end.patience), devices_(devices), options_(options) {}

Result<void> MessageServer::serve() {
  auto outcome = greet();
  if (outcome) outcome = serve_all();
  if (!outcome) {
    if (outcome.error().code() != ErrorCode::Rejected) control_.send_error(outcome.error());
    return outcome;
  }
  return first_ ? Result<void>(*first_) : Result<void>();
}

Result<void> MessageServer::greet() {
  const nlohmann::json ours = message_hello(options_.flags, devices_.address(), options_.end.events);
  if (auto sent = control_.send(ours); !sent) return sent;
  auto hello = control_.receive();
  if (!hello) return std::move(hello).error();
  auto remote = remote_of_hello(*hello, options_.flags);
  if (!remote) return std::move(remote).error();
  if (!options_.flags.empty() && hello->at("flags").empty())
    return Error(ErrorCode::InvalidArgument,
                 "the server was given words, and takes no others; the client measures many protocols: start the "
                 "server without words");
  return {};
}

Result<void> MessageServer::serve_all() {
  for (;;) {
    auto message = wait_told(nullptr);
    if (!message) return std::move(message).error();
    if (message->contains("end")) return {};
    // Of a test that failed here before the client knew.
    if (message->contains("finish")) continue;
    const auto wanted = message->find("test");
    if (wanted == message->end())
      return Error(ErrorCode::ProtocolError, "the client wants neither a test nor the end");
    auto test = message_test_of(*wanted);
    if (!test) return std::move(test).error();
    if (auto served = run(*test); !served) return served;
  }
}

// The next that the client says, which may take long; or the error of a thread.
Result<nlohmann::json> MessageServer::wait_told(const MessageCrew* crew) {
  while (!control_.ready(crew == nullptr ? kIdleGlance : MessageCrew::kGlance)) {
    if (options_.stopped()) {
      link_error_ = Error(ErrorCode::Cancelled, "interrupted");
      return *link_error_;
    }
    const auto error = crew == nullptr ? std::nullopt : crew->error();
    if (!error) continue;
    if (!may_come_from_peer(error->code()) || !control_.ready(kTimeToExplain)) return *error;
  }
  auto message = control_.receive();
  if (!message) link_error_ = message.error();
  return message;
}

Result<void> MessageServer::glance() {
  if (!control_.ready() && !options_.stopped()) return {};
  // The client has nothing to say now, so that it is an end.
  auto told = wait_told(nullptr);
  if (told) link_error_ = Error(ErrorCode::ProtocolError, "the client speaks when it should not");
  return *link_error_;
}

// What the client is to know of a test that it ended.
Result<nlohmann::json> MessageServer::attend(MessageCrew& crew, const Ends& ends) {
  nlohmann::json listed = nlohmann::json::array();
  for (const auto& one : ends)
    listed.push_back({{"receiver", one->addresses().receiver}, {"answers", one->addresses().answers}});
  if (auto sent = control_.send({{"ends", listed}}); !sent) {
    link_error_ = sent.error();
    return std::move(sent).error();
  }
  auto message = wait_told(&crew);
  if (!message) return message;
  const auto finish = message->find("finish");
  if (finish == message->end() || !finish->is_boolean()) {
    link_error_ = Error(ErrorCode::ProtocolError, "the client does not say how the test ended");
    return *link_error_;
  }
  // It has told its user what went wrong.
  if (!finish->get<bool>()) return nlohmann::json{{"done", false}};
  crew.proceed();
  if (auto done = crew.wait_done([this] { return glance(); }); !done) return std::move(done).error();
  std::uint64_t bytes = 0;
  for (const auto& one : ends) bytes += one->memory_bytes();
  return nlohmann::json{{"done", true}, {"receiver_bytes", bytes}};
}

// Errors are those of the session; a test may fail all the same.
Result<void> MessageServer::run(const MessageTest& test) {
  if (auto sound = check_message_test(test); !sound) return fail(test, sound.error());
  if (auto sound = check_events(test, options_.end); !sound) return fail(test, sound.error());
  if (auto ready = devices_.prepare(test.path, test.threads); !ready) return fail(test, ready.error());
  if (test.is_latency())
    if (auto fits = check_inline(test, devices_.at(0).info()); !fits) return fail(test, fits.error());
  Ends ends;
  MessageCrew crew(test.threads, [&](std::uint32_t number) { return ends[number]->run(); });
  for (std::uint32_t i = 0; i < test.threads; ++i)
    ends.push_back(std::make_unique<ReceivingEnd>(crew, test, options_.end, devices_.at(i)));
  crew.start();
  const auto ready = crew.wait_ready([this] { return glance(); });
  auto answer = ready ? attend(crew, ends) : Result<nlohmann::json>(ready.error());
  crew.stop();
  crew.join();
  if (link_error_) return *link_error_;
  if (!answer) return fail(test, answer.error());
  if (auto sent = control_.send(*answer); !sent) return sent;
  if (options_.on_served && (*answer)["done"].get<bool>()) options_.on_served(test, {});
  return {};
}

Result<void> MessageServer::fail(const MessageTest& test, const Error& error) {
  if (!first_) first_ = error;
  if (options_.on_served) options_.on_served(test, error);
  return control_.send({{"failed", error.to_string()}});
}

}  // namespace verbena::tools
