// SPDX-License-Identifier: Apache-2.0
#include "tools/rping_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tools/say.h"

namespace verbena::tools {

Result<std::unique_ptr<RpingVisit>> RpingVisit::create(ProgressEngine& engine, Device& device,
                                                       const RpingSettings& settings, ConnectionRequest& from) {
  std::unique_ptr<RpingVisit> visit(new RpingVisit(settings, from.peer().to_string()));
  if (auto accepted = visit->accept(engine, device, from); !accepted) return std::move(accepted).error();
  return visit;
}

Result<void> RpingVisit::accept(ProgressEngine& engine, Device& device, ConnectionRequest& from) {
  auto data = device.allocate_memory(settings_.bytes, Access::LocalWrite);
  if (!data) return std::move(data).error();
  data_ = std::move(*data);
  auto messages = device.allocate_memory(2 * RpingAdvertisement::kWireBytes, Access::LocalWrite);
  if (!messages) return std::move(messages).error();
  messages_ = std::move(*messages);
  auto connection = Connection::prepare(engine, rping_connection_options());
  if (!connection) return std::move(connection).error();
  receive_.on_done([this](Operation& receive) {
    if (receive.result()) handle_message();
  });
  move_.on_done([this](Operation& move) {
    if (auto outcome = move.result(); !outcome) return fail(std::move(outcome).error());
    if (step_ == Step::Reading) return handle_data();
    tell("written");
    ++pings_;
    answer(Step::AwaitSource);
  });
  connection->receive(receive_, inbox());
  auto accepted = from.accept(std::move(*connection));
  if (!accepted) return std::move(accepted).error();
  connection_.emplace(std::move(*accepted));
  tell("accepted");
  return {};
}

// What its connection ends, or still finds done, is nobody's to answer.
RpingVisit::~RpingVisit() {
  receive_.on_done([](Operation&) {});
  move_.on_done([](Operation&) {});
}

Result<void> RpingVisit::status() const {
  if (error_) return *error_;
  auto ended = connection_->status();
  if (!ended && ended.error().code() != ErrorCode::Disconnected) return ended;
  if (step_ != Step::AwaitSource)
    return Error(ErrorCode::Disconnected, fmt::format("{} left in the middle of ping {}", peer_, pings_));
  if (settings_.count != 0 && pings_ != settings_.count)
    return Error(ErrorCode::Disconnected,
                 fmt::format("{} left after {} pings of {}", peer_, pings_, settings_.count));
  return {};
}

void RpingVisit::fail(Error error) {
  // The connection knows better when it has ended.
  if (!error_ && !connection_->closed()) error_ = std::move(error);
}

void RpingVisit::handle_message() {
  const auto advertisement = RpingAdvertisement::from_bytes(messages_.bytes().first(receive_.result()->bytes));
  if (!advertisement) return fail(Error(advertisement.error().code(), peer_ + ": " + advertisement.error().context()));
  // Before the answer, so that the client's next message finds it.
  connection_->receive(receive_, inbox());
  if (step_ == Step::AwaitSource) return read_source(*advertisement);
  if (step_ == Step::AwaitSink) return write_sink(*advertisement);
  fail(Error(ErrorCode::ProtocolError, peer_ + ": a message out of turn"));
}

void RpingVisit::read_source(const RpingAdvertisement& source) {
  tell("the source: " + source.to_string());
  if (settings_.count != 0 && pings_ == settings_.count)
    return fail(Error(ErrorCode::ProtocolError, fmt::format("{}: more than {} pings", peer_, settings_.count)));
  if (source.size == 0 || source.size > data_.size())
    return fail(Error(ErrorCode::ProtocolError,
                      fmt::format("{}: a ping of {} bytes, at most {}", peer_, source.size, data_.size())));
  length_ = source.size;
  step_ = Step::Reading;
  connection_->read(move_, data_.local(0, length_), source.memory());
}

void RpingVisit::handle_data() {
  tell("read");
  if (settings_.verbose) {
    say(stdout, "server ping data: {}\n", rping_text(data()));
    std::fflush(stdout);
  }
  if (settings_.validate)
    if (auto right = check_rping_payload(data(), pings_); !right)
      return fail(Error(right.error().code(), peer_ + ": " + right.error().context()));
  answer(Step::AwaitSink);
}

void RpingVisit::write_sink(const RpingAdvertisement& sink) {
  tell("the sink: " + sink.to_string());
  if (sink.size < length_)
    return fail(Error(ErrorCode::ProtocolError,
                      fmt::format("{}: {} bytes do not fit its sink of {}", peer_, length_, sink.size)));
  step_ = Step::Writing;
  connection_->write(move_, data_.local(0, length_), sink.memory());
}

// When it fails, so does the connection.
void RpingVisit::answer(Step next) {
  step_ = next;
  connection_->send(send_, outbox());
}

Result<std::unique_ptr<RpingServer>> RpingServer::create(ProgressEngine& engine, Device& device, std::uint16_t port,
                                                         bool persistent, const RpingSettings& settings) {
  std::unique_ptr<RpingServer> server(new RpingServer(engine, device, persistent, settings));
  ListenOptions options;
  options.port = port;
  auto listener = Listener::create(engine, options);
  if (!listener) return std::move(listener).error();
  server->listener_.emplace(std::move(*listener));
  return server;
}

bool RpingServer::pump(const std::function<void(const RpingVisit&)>& on_over) {
  bool further = false;
  while (auto request = listener_->poll_request()) {
    welcome(std::move(*request));
    further = true;
  }
  for (auto& visit : visits_) {
    if (!visit->over()) continue;
    on_over(*visit);
    visit.reset();
    further = true;
  }
  visits_.erase(std::remove(visits_.begin(), visits_.end(), nullptr), visits_.end());
  return further;
}

void RpingServer::welcome(ConnectionRequest request) {
  if (visits_.size() >= max_visits_)
    return (void)request.reject_for_now(max_visits_ == 1 ? "this rping server takes one client; with -P it takes many"
                                                         : "the rping server is busy");
  auto visit = RpingVisit::create(engine_, device_, settings_, request);
  if (!visit)
    return (void)request.reject_for_now("the rping server cannot take another client: " + visit.error().context());
  visits_.push_back(std::move(*visit));
}

}  // namespace verbena::tools
