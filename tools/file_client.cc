// SPDX-License-Identifier: Apache-2.0
#include "tools/file_client.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "tools/command.h"
#include "tools/progress.h"
#include "tools/safe_path.h"
#include "tools/stream_receiver.h"
#include "tools/stream_sender.h"

namespace verbena::tools {

namespace {

constexpr Duration kPatience = Duration::milliseconds(200);

Result<UniqueFd> open_parent(const std::string& path) {
  auto entry = open_as_named(path);
  if (!entry && entry.error().code() == ErrorCode::NotFound)
    return Error(ErrorCode::NotFound, "there is no directory " + path + " to put it in");
  if (!entry) return std::move(entry).error();
  if (entry->status.kind != EntryKind::Directory)
    return Error(ErrorCode::NotFound, path + " is not a directory");
  return std::move(entry->fd);
}

// Links on the way that the user named are followed: it is the user's own tree.
Result<TransferTarget> local_target(RootKind kind, const std::string& path, const std::string& remote_name) {
  TransferTarget target;
  target.kind = kind;
  struct stat info {};
  const bool is_directory = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  const bool into = is_directory || path.back() == '/';
  if (into && (kind == RootKind::File || is_directory)) {
    auto parent = open_parent(path);
    if (!parent) return std::move(parent).error();
    target.parent = std::move(*parent);
    target.shown = path;
    if (kind == RootKind::Directory) return target;
    target.name = remote_name;
    target.shown += path.back() == '/' ? remote_name : "/" + remote_name;
    return target;
  }
  std::string whole = path;
  while (whole.size() > 1 && whole.back() == '/') whole.pop_back();
  const std::size_t slash = whole.rfind('/');
  auto parent = open_parent(slash == std::string::npos ? "." : slash == 0 ? "/" : whole.substr(0, slash));
  if (!parent) return std::move(parent).error();
  target.parent = std::move(*parent);
  target.name = slash == std::string::npos ? whole : whole.substr(slash + 1);
  target.shown = whole;
  if (!is_safe_name(target.name))
    return Error(ErrorCode::InvalidArgument, "'" + path + "' names no place for a file");
  return target;
}

// About what the server refuses, which is there and not here.
std::string server_advice(ErrorCode code) {
  switch (code) {
    case ErrorCode::NotFound: return "Check the path in the URL; it begins in the directory that is served.";
    case ErrorCode::PermissionDenied:
      return "Ask for another path, or see to the rights there and to how the server was started.";
    case ErrorCode::ResourceExhausted: return "Free some space or memory on the server's machine, and try again.";
    default: return {};
  }
}

}  // namespace

Result<void> FileClient::connect(const Endpoint& server) {
  auto channel = MessageChannel::create(engine_, device_);
  if (!channel) return std::move(channel).error();
  channel_ = std::move(*channel);
  return channel_->connect(server.to_string());
}

Result<void> FileClient::get(const std::string& remote, const std::string& local, bool force) {
  if (auto sent = channel_->send(message::Get{remote}); !sent) return std::move(sent).error();
  auto begin = await_begin();
  if (!begin) return std::move(begin).error();
  auto memory = RemoteMemory::from_bytes(begin->memory);
  if (!memory) return std::move(memory).error();
  auto staging = Staging::allocate(device_, begin->slots, begin->slot_bytes, Access::LocalWrite);
  if (!staging) return std::move(staging).error();
  staging_ = std::move(*staging);
  auto target = local_target(begin->kind, local, last_component(remote));
  if (!target) {
    if (target.error().code() == ErrorCode::NotFound)
      advice_ = "Make the directory first (`mkdir -p`), or choose another place.";
    return std::move(target).error();
  }
  target->force = force;
  on_total(begin->total_bytes);
  StreamReceiver receiver(*channel_, staging_, *memory, std::move(*target), observer_);
  return run(receiver);
}

Result<void> FileClient::put(OpenedEntry root, const std::string& local, const std::string& remote, bool into,
                             bool force) {
  message::Put put;
  put.force = force;
  put.into = into;
  put.kind = root.status.kind == EntryKind::Directory ? RootKind::Directory : RootKind::File;
  put.path = remote;
  if (put.kind == RootKind::File) put.name = last_component(local);
  if (auto sent = channel_->send(put); !sent) return std::move(sent).error();
  auto begin = await_begin();
  if (!begin) return std::move(begin).error();
  auto memory = RemoteMemory::from_bytes(begin->memory);
  if (!memory) return std::move(memory).error();
  auto staging = Staging::allocate(device_, begin->slots, begin->slot_bytes, Access::LocalWrite);
  if (!staging) return std::move(staging).error();
  staging_ = std::move(*staging);
  StreamSender sender(*channel_, staging_, *memory, std::move(root), observer_);
  return run(sender);
}

void FileClient::close() {
  if (channel_ && !channel_->connection().closed()) (void)channel_->connection().close();
}

void FileClient::wait() {
  if (!engine_.run_once()) engine_.wait(engine_.now() + kPatience);
}

// Whether it makes sense to go on, when nothing came.
Result<void> FileClient::check(double active_at) {
  if (interrupted()) return Error(ErrorCode::Cancelled, "interrupted");
  if (channel_->exhausted()) {
    const auto status = channel_->connection().status();
    return status ? Error(ErrorCode::Disconnected, "the server closed the connection in the middle") : status.error();
  }
  if (monotonic_seconds() - active_at > kIdleSeconds)
    return Error(ErrorCode::TimedOut, "nothing came from the server for half a minute");
  return {};
}

Result<message::Begin> FileClient::await_begin() {
  const double asked_at = monotonic_seconds();
  for (;;) {
    auto message = channel_->receive();
    if (!message) return std::move(message).error();
    if (!*message) {
      if (auto sense = check(asked_at); !sense) return std::move(sense).error();
      wait();
      continue;
    }
    if (const auto* failed = std::get_if<message::Failed>(&**message)) {
      advice_ = server_advice(failed->code);
      return Error(failed->code, "the server says: " + failed->text);
    }
    const auto* begin = std::get_if<message::Begin>(&**message);
    if (begin == nullptr)
      return Error(ErrorCode::ProtocolError, "file protocol: " + std::string(name_of(**message)) + " before Begin");
    if (std::uint64_t{begin->slots} * begin->slot_bytes > std::uint64_t{kMaxSlots} * kStagingSlotBytes)
      return Error(ErrorCode::ProtocolError, "file protocol: the server wants too much memory");
    return *begin;
  }
}

template <class Party>
Result<void> FileClient::run(Party& party) {
  const auto moved = move(party);
  totals_ = party.totals();
  if (!moved) return first_error(moved.error(), channel_->connection().status());
  return {};
}

template <class Party>
Result<void> FileClient::move(Party& party) {
  double active_at = monotonic_seconds();
  while (!party.finished() || !channel_->flushed()) {
    bool further = engine_.run_once();
    bool came = false;
    for (;;) {
      auto message = channel_->receive();
      if (!message) return std::move(message).error();
      if (!*message) break;
      came = true;
      if (auto done = party.handle(std::move(**message)); !done) return std::move(done).error();
    }
    auto pumped = party.pump();
    if (!pumped) return std::move(pumped).error();
    if (came || *pumped) active_at = monotonic_seconds();
    further = further || came || *pumped;
    if (party.finished() && channel_->connection().closed()) break;
    if (auto sense = check(active_at); !sense) return std::move(sense).error();
    if (!further) engine_.wait(engine_.now() + kPatience);
  }
  return {};
}

}  // namespace verbena::tools
