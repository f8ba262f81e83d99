// SPDX-License-Identifier: Apache-2.0
#include "tools/file_server.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "tools/command.h"
#include "tools/progress.h"
#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr double kLeavingSeconds = 5;  // from our last word to the client's closing

}  // namespace

Visit::Visit(Device& device, const UniqueFd& root, const FileServerOptions& options,
             std::unique_ptr<MessageChannel> channel, std::string peer)
    : device_(device), root_(root), options_(options), channel_(std::move(channel)),
      begun_at_(monotonic_seconds()), active_at_(begun_at_) {
  report_.peer = std::move(peer);
}

// The connection ends while what its operations name is still there.
Visit::~Visit() { channel_.reset(); }

bool Visit::pump() {
  if (over()) return false;
  auto further = step();
  if (!further) {
    end(first_error(further.error(), channel_->connection().status()));
    return true;
  }
  const double now = monotonic_seconds();
  if (*further) active_at_ = now;
  else if (phase_ == Phase::Leaving && now - active_at_ > kLeavingSeconds) end(std::nullopt);
  else if (now - active_at_ > kIdleSeconds) end(Error(ErrorCode::TimedOut, "nothing happened for half a minute"));
  return *further;
}

Result<bool> Visit::step() {
  bool further = false;
  for (;;) {
    auto message = channel_->receive();
    if (!message) return std::move(message).error();
    if (!*message) break;
    further = true;
    if (auto done = handle(std::move(**message)); !done) return std::move(done).error();
  }
  if (phase_ == Phase::Sending || phase_ == Phase::Receiving) {
    auto pumped = phase_ == Phase::Sending ? sender_->pump() : receiver_->pump();
    if (!pumped) return pumped;
    further = further || *pumped;
    if (phase_ == Phase::Sending ? sender_->finished() : receiver_->finished()) leave(std::nullopt);
  }
  if (channel_->exhausted()) {
    if (phase_ == Phase::Leaving) {
      end(std::nullopt);
    } else {
      const auto status = channel_->connection().status();
      end(status ? Error(ErrorCode::Disconnected, "the client left") : status.error());
    }
    further = true;
  }
  return further;
}

Result<void> Visit::handle(Message message) {
  switch (phase_) {
    case Phase::Asking: {
      Result<void> begun;
      if (const auto* get = std::get_if<message::Get>(&message)) begun = begin_get(*get);
      else if (const auto* put = std::get_if<message::Put>(&message)) begun = begin_put(*put);
      else return Error(ErrorCode::ProtocolError, "file protocol: " + std::string(name_of(message)) + " first of all");
      if (!begun) refuse(begun.error());
      return {};
    }
    case Phase::Sending: return sender_->handle(message);
    case Phase::Receiving: return receiver_->handle(std::move(message));
    case Phase::Leaving:
    case Phase::Over: break;
  }
  return Error(ErrorCode::ProtocolError, "file protocol: " + std::string(name_of(message)) + " after the end");
}

Result<void> Visit::begin_get(const message::Get& m) {
  report_.request = "get " + m.path;
  auto components = split_path(m.path);
  if (!components) return std::move(components).error();
  auto root = open_below(root_.get(), *components);
  if (!root) return std::move(root).error();
  const RootKind kind = root->status.kind == EntryKind::Directory ? RootKind::Directory : RootKind::File;
  if (auto told = send_begin(kind, measure(*root, kMeasuredEntries), Access::RemoteRead); !told) return told;
  sender_.emplace(*channel_, staging_, std::nullopt, std::move(*root), observer());
  phase_ = Phase::Sending;
  return {};
}

Result<void> Visit::begin_put(const message::Put& m) {
  report_.request = "put " + m.path;
  if (!options_.writable)
    return Error(ErrorCode::PermissionDenied, "the server takes no files; it was started without --writable");
  auto target = target_of(m);
  if (!target) return std::move(target).error();
  const Access access = Access::LocalWrite | Access::RemoteWrite;
  if (auto told = send_begin(m.kind, {}, access); !told) return told;
  receiver_.emplace(*channel_, staging_, std::nullopt, std::move(*target), observer());
  phase_ = Phase::Receiving;
  return {};
}

// A directory merges with the one that has its name. A file goes into a directory that has the name asked for.
Result<TransferTarget> Visit::target_of(const message::Put& m) {
  auto components = split_path(m.path);
  if (!components) return std::move(components).error();
  TransferTarget target;
  target.kind = m.kind;
  target.force = m.force;
  target.shown = m.path.empty() ? m.name : m.path;
  const bool is_file = m.kind == RootKind::File;
  if (is_file && !is_safe_name(m.name)) return Error(ErrorCode::ProtocolError, "file protocol: a Put without a name");
  if (!components->empty()) {
    auto parent = open_directory_below(root_.get(), std::span(*components).first(components->size() - 1));
    if (!parent) return std::move(parent).error();
    auto status = status_at(parent->get(), components->back());
    if (!status) return std::move(status).error();
    if (!is_file || (status->kind != EntryKind::Directory && !m.into)) {
      target.parent = std::move(*parent);
      target.name = components->back();
      return target;
    }
  }
  auto directory = open_directory_below(root_.get(), *components);
  if (!directory) return std::move(directory).error();
  target.parent = std::move(*directory);
  if (is_file) {
    target.name = m.name;
    target.shown = m.path.empty() ? m.name : m.path + "/" + m.name;
  }
  return target;
}

Result<void> Visit::send_begin(RootKind kind, const TreeSize& size, Access access) {
  auto staging = Staging::allocate(device_, kStagingSlots, kStagingSlotBytes, access);
  if (!staging)
    return Error(ErrorCode::ResourceExhausted, "the server has no memory for a transfer: " + staging.error().context());
  staging_ = std::move(*staging);
  message::Begin begin;
  begin.kind = kind;
  begin.slots = staging_.slots;
  begin.slot_bytes = staging_.slot_bytes;
  begin.memory = staging_.region.remote().to_bytes();
  begin.total_files = size.files;
  begin.total_bytes = size.bytes;
  return channel_->send(begin);
}

void Visit::refuse(const Error& error) {
  auto sent = channel_->send(message::Failed{error.code(), explain(error)});
  leave(sent ? error : sent.error());
}

// Our last word is sent; the client closes.
void Visit::leave(std::optional<Error> error) {
  report_.error = std::move(error);
  phase_ = Phase::Leaving;
}

void Visit::end(std::optional<Error> error) {
  if (error) report_.error = std::move(error);
  if (sender_) report_.totals = sender_->totals();
  if (receiver_) report_.totals = receiver_->totals();
  report_.seconds = monotonic_seconds() - begun_at_;
  phase_ = Phase::Over;
}

void Visit::failed(const std::string& path, const std::string& why) {
  if (!options_.tell_failure) return;
  const std::string shown = path.empty() ? report_.request : report_.request + ": " + path;
  options_.tell_failure(report_.peer, printable(shown) + ": " + printable(why));
}

Result<std::unique_ptr<FileServer>> FileServer::create(ProgressEngine& engine, Device& device,
                                                       const std::string& directory, std::uint16_t port,
                                                       FileServerOptions options) {
  std::unique_ptr<FileServer> server(new FileServer(engine, device, std::move(options)));
  auto root = open_as_named(directory);
  if (!root) return std::move(root).error();
  if (root->status.kind != EntryKind::Directory)
    return Error(ErrorCode::InvalidArgument, "cannot serve " + directory + ": it is not a directory");
  server->root_ = std::move(root->fd);
  ListenOptions listen;
  listen.port = port;
  auto listener = Listener::create(engine, listen);
  if (!listener) return std::move(listener).error();
  server->listener_.emplace(std::move(*listener));
  return server;
}

bool FileServer::pump(const std::function<void(const VisitReport&)>& on_over) {
  bool further = false;
  while (auto request = listener_->poll_request()) {
    welcome(std::move(*request));
    further = true;
  }
  for (auto& visit : visits_) {
    further = visit->pump() || further;
    if (!visit->over()) continue;
    on_over(visit->report());
    visit.reset();
  }
  visits_.erase(std::remove(visits_.begin(), visits_.end(), nullptr), visits_.end());
  return further;
}

// Whoever cannot be welcomed is told why, in words.
void FileServer::welcome(ConnectionRequest request) {
  if (auto greeting = check_file_greeting(request.private_data()); !greeting) {
    (void)request.reject_in_words("this is the file server verbena serve, for verbena get and put; " +
                                  greeting.error().context());
    return;
  }
  if (visits_.size() >= kMaxVisits) {
    (void)request.reject_for_now("the server is busy with " + std::to_string(kMaxVisits) + " clients");
    return;
  }
  auto channel = MessageChannel::create(engine_, device_);
  if (!channel) {
    (void)request.reject_for_now("the server cannot take another client: " + channel.error().context());
    return;
  }
  std::string peer = request.peer().to_string();
  if (!(*channel)->accept(request)) return;  // the peer gave up
  if (options_.tell_arrival) options_.tell_arrival(peer);
  visits_.push_back(std::make_unique<Visit>(device_, root_, options_, std::move(*channel), std::move(peer)));
}

}  // namespace verbena::tools
