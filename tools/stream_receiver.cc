// SPDX-License-Identifier: Apache-2.0
#include "tools/stream_receiver.h"

#include <sys/stat.h>

#include <cerrno>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr int kChunksPerPump = 4;

Error sender_sent(const std::string& what) {
  return Error(ErrorCode::ProtocolError, "file protocol: the sender sent " + what);
}

Error cancelled() { return Error(ErrorCode::Cancelled, "the directory around it was refused"); }

}  // namespace

StreamReceiver::StreamReceiver(MessageChannel& channel, Staging& staging, std::optional<RemoteMemory> remote,
                               TransferTarget target, TransferObserver& observer)
    : channel_(channel), staging_(staging), remote_(remote), target_(std::move(target)), observer_(observer) {}

Result<void> StreamReceiver::handle(Message message) {
  if (!is_stream(message) || finished_) return sender_sent(std::string(name_of(message)) + " out of turn");
  if (queue_.size() >= kStreamWindow) return sender_sent("more than the window allows");
  if (const auto* chunk = std::get_if<message::Chunk>(&message)) {
    if (chunk->slot >= staging_.slots || chunk->length > staging_.slot_bytes) return sender_sent("a Chunk of no slot");
    for (const Message& other : queue_)
      if (const auto* same = std::get_if<message::Chunk>(&other); same != nullptr && same->slot == chunk->slot)
        return sender_sent("two Chunks in one slot");
    if (remote_) {
      auto there = remote_->sub_range(std::uint64_t{chunk->slot} * staging_.slot_bytes, chunk->length);
      if (!there) return sender_sent("a Chunk outside the memory it lends");
      channel_.connection().read(reads_[chunk->slot], staging_.local(chunk->slot, chunk->length), *there);
    }
  }
  queue_.push_back(std::move(message));
  return {};
}

Result<bool> StreamReceiver::pump() {
  bool further = false;
  for (int chunks = 0; !queue_.empty() && chunks < kChunksPerPump;) {
    if (const auto* chunk = std::get_if<message::Chunk>(&queue_.front())) {
      if (remote_) {
        Operation& read = reads_[chunk->slot];
        if (!read.done()) break;
        if (auto outcome = read.result(); !outcome) return std::move(outcome).error();
      }
      ++chunks;
    }
    if (auto done = process(queue_.front()); !done) return std::move(done).error();
    const bool was_chunk = std::holds_alternative<message::Chunk>(queue_.front());
    queue_.pop_front();
    ++processed_;
    further = true;
    if (was_chunk)
      if (auto done = acknowledge(); !done) return std::move(done).error();
  }
  if (auto done = acknowledge(); !done) return std::move(done).error();
  if (finished_ && further)
    if (auto done = channel_.send(message::Done{totals_.files, totals_.bytes, totals_.failures}); !done)
      return std::move(done).error();
  return further;
}

Result<void> StreamReceiver::acknowledge() {
  if (acknowledged_ == processed_) return {};
  acknowledged_ = processed_;
  return channel_.send(message::Ack{processed_});
}

Result<void> StreamReceiver::process(const Message& message) {
  if (finished_) return sender_sent("more after the end");
  if (const auto* chunk = std::get_if<message::Chunk>(&message)) return take_chunk(*chunk);
  if (const auto* file_end = std::get_if<message::FileEnd>(&message)) return end_file(*file_end);
  if (const auto* abort = std::get_if<message::FileAbort>(&message)) return abort_file(*abort);
  if (current_) return sender_sent(std::string(name_of(message)) + " inside a file");
  if (const auto* file = std::get_if<message::File>(&message)) return begin_file(*file);
  if (const auto* directory = std::get_if<message::Directory>(&message)) return begin_directory(*directory);
  if (std::holds_alternative<message::DirectoryEnd>(message)) return end_directory();
  if (const auto* skipped = std::get_if<message::Skipped>(&message)) return skip(*skipped);
  return end();
}

Result<void> StreamReceiver::check_entry(RootKind kind, const std::string& name) {
  if (++entries_ > kMaxEntries) return sender_sent("too many entries");
  if (root_seen_) {
    if (levels_.empty()) return sender_sent("an entry after the root");
    if (!is_safe_name(name)) return sender_sent("an entry without a name");
    return {};
  }
  if (!name.empty()) return sender_sent("a root with a name");
  if (kind != target_.kind)
    return sender_sent(kind == RootKind::File ? "a file instead of a directory" : "a directory instead of a file");
  root_seen_ = true;
  return {};
}

std::string StreamReceiver::path_of(const std::string& name) const {
  if (levels_.empty()) return target_.shown;
  return name.empty() ? levels_.back().path : levels_.back().path + "/" + name;
}

Result<void> StreamReceiver::begin_directory(const message::Directory& m) {
  if (auto fits = check_entry(RootKind::Directory, m.name); !fits) return fits;
  if (levels_.size() == kMaxDepth) return sender_sent("a tree too deep");
  Level level;
  level.id = m.id;
  level.mode = m.mode;
  level.path = path_of(m.name);
  Result<UniqueFd> directory = cancelled();
  if (levels_.empty())
    directory = target_.name.empty() ? target_.parent.duplicate()
                                     : make_directory(target_.parent.get(), target_.name, m.mode, level.created);
  else if (levels_.back().directory.is_open())
    directory = make_directory(levels_.back().directory.get(), m.name, m.mode, level.created);
  Result<void> told;
  if (directory) {
    level.directory = std::move(*directory);
    ++totals_.directories;
  } else {
    told = refuse(m.id, level.path, directory.error());
  }
  levels_.push_back(std::move(level));
  return told;
}

Result<void> StreamReceiver::end_directory() {
  if (levels_.empty()) return sender_sent("the end of no directory");
  const Level level = std::move(levels_.back());
  levels_.pop_back();
  if (!level.directory.is_open()) return {};  // refused already
  // Last, because a directory may forbid writing to its owner too.
  if (!level.created || ::fchmod(level.directory.get(), level.mode) == 0) return {};
  return refuse(level.id, level.path, Error::from_errno(errno, "cannot set its permissions"));
}

Result<void> StreamReceiver::begin_file(const message::File& m) {
  if (auto fits = check_entry(RootKind::File, m.name); !fits) return fits;
  current_.emplace(CurrentFile{});
  current_->id = m.id;
  current_->mode = m.mode;
  current_->size = m.size;
  current_->path = path_of(m.name);
  const bool is_root = levels_.empty();
  const UniqueFd& directory = is_root ? target_.parent : levels_.back().directory;
  if (!directory.is_open()) return refuse(m.id, current_->path, cancelled());
  observer_.file_begun(current_->path);
  auto partial = PartialFile::create(directory.get(), is_root ? target_.name : m.name, target_.force);
  if (!partial) return refuse(m.id, current_->path, partial.error());
  current_->partial.emplace(std::move(*partial));
  return {};
}

Result<void> StreamReceiver::take_chunk(const message::Chunk& m) {
  if (!current_) return sender_sent("a Chunk outside a file");
  if (m.length > current_->size - current_->got) return sender_sent("more than the file's size");
  current_->got += m.length;
  observer_.moved(m.length);
  if (!current_->partial) return {};
  // A sender that changes a slot it gave away changes its own file and fails its own digest.
  const auto bytes = staging_.bytes(m.slot, m.length);
  current_->digest.add(bytes);
  auto written = current_->partial->append(bytes);
  if (written) return {};
  current_->partial.reset();
  return refuse(current_->id, current_->path, written.error());
}

Result<void> StreamReceiver::end_file(const message::FileEnd& m) {
  if (!current_) return sender_sent("the end of no file");
  CurrentFile file = std::move(*current_);
  current_.reset();
  if (file.got != file.size) return sender_sent("less than the file's size");
  if (!file.partial) return {};
  const DigestBytes digest = file.digest.finish();
  if (digest != m.digest)
    return refuse(file.id, file.path,
                  Error(ErrorCode::CorruptData, "SHA-256 of what arrived is " + to_hex(digest) +
                                                    ", of what was sent " + to_hex(m.digest)));
  if (auto done = file.partial->commit(file.mode); !done) return refuse(file.id, file.path, done.error());
  ++totals_.files;
  totals_.bytes += file.size;
  observer_.file_done(file.path, file.size, digest);
  return {};
}

Result<void> StreamReceiver::abort_file(const message::FileAbort& m) {
  if (!current_) return sender_sent("the end of no file");
  // Refused here first: counted already.
  if (current_->partial) {
    ++totals_.failures;
    observer_.failed(current_->path, m.text);
  }
  current_.reset();
  return {};
}

Result<void> StreamReceiver::skip(const message::Skipped& m) {
  if (++entries_ > kMaxEntries) return sender_sent("too many entries");
  if (m.name.empty() != levels_.empty() || (levels_.empty() && root_seen_)) return sender_sent("Skipped out of place");
  root_seen_ = true;
  const std::string path = path_of(m.name);
  if (!levels_.empty() && !levels_.back().directory.is_open()) return {};
  if (m.is_failure) {
    ++totals_.failures;
    observer_.failed(path, m.text);
  } else {
    ++totals_.skipped;
    observer_.skipped(path, m.text);
  }
  return {};
}

Result<void> StreamReceiver::end() {
  if (!root_seen_ || !levels_.empty()) return sender_sent("the end too soon");
  finished_ = true;
  return {};
}

Result<void> StreamReceiver::refuse(std::uint32_t id, const std::string& path, const Error& error) {
  if (error.code() != ErrorCode::Cancelled) {
    ++totals_.failures;
    observer_.failed(path, explain(error));
  }
  return channel_.send(message::Refused{id, error.code(), explain(error)});
}

}  // namespace verbena::tools
