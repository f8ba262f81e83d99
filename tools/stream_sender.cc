// SPDX-License-Identifier: Apache-2.0
#include "tools/stream_sender.h"

#include <algorithm>

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

constexpr int kStepsPerPump = 4;

Error receiver_sent(std::string_view what) {
  return Error(ErrorCode::ProtocolError, "file protocol: the receiver sent " + std::string(what));
}

}  // namespace

StreamSender::StreamSender(MessageChannel& channel, Staging& staging, std::optional<RemoteMemory> remote,
                           OpenedEntry root, TransferObserver& observer)
    : channel_(channel), staging_(staging), remote_(remote), walk_(std::move(root)), observer_(observer),
      slot_taken_(staging.slots) {}

Result<void> StreamSender::handle(const Message& message) {
  if (const auto* ack = std::get_if<message::Ack>(&message)) return acknowledged(ack->processed);
  if (const auto* refusal = std::get_if<message::Refused>(&message)) return refused(*refusal);
  if (std::holds_alternative<message::Done>(message)) {
    if (!all_sent_ || !outstanding_.empty()) return receiver_sent("Done before the end");
    if (std::get<message::Done>(message).files != totals_.files) {
      totals_.files = totals_.bytes = 0;  // which of them are there is not known
      return receiver_sent("a Done of other files");
    }
    finished_ = true;
    return {};
  }
  return receiver_sent(name_of(message));
}

Result<bool> StreamSender::pump() {
  for (int steps = 0; steps < kStepsPerPump; ++steps) {
    auto went = step();
    if (!went) return went;
    if (!*went) return steps != 0;
  }
  return true;
}

// One message more. False when there is nothing to do before the receiver says something.
Result<bool> StreamSender::step() {
  if (all_sent_ || outstanding_.size() >= kStreamWindow) return false;
  if (current_) {
    if (refused_.count(current_->id) != 0) {
      auto done = abort_file(Error(ErrorCode::Cancelled, "not wanted"));
      if (!done) return std::move(done).error();
      return true;
    }
    if (current_->left != 0) return send_chunk();
    auto done = end_file();
    if (!done) return std::move(done).error();
    return true;
  }
  auto begun = begin_entry(walk_.next());
  if (!begun) return std::move(begun).error();
  return true;
}

// Some files, as those of /proc, do not say how long they are; another may have grown since it was looked at.
void StreamSender::check_empty(WalkItem& item) {
  item.status.size = status_of(item.fd.get()).size;
  if (item.status.size != 0) return;
  std::byte one;
  const auto got = read_fully(item.fd.get(), {&one, 1});
  if (got && *got == 0) return;
  item.kind = WalkItem::Kind::Failed;
  item.error = got ? Error(ErrorCode::NotSupported, "its size is not known before it is read") : got.error();
}

Result<void> StreamSender::begin_entry(WalkItem item) {
  const std::uint32_t id = next_id_;
  if (item.kind == WalkItem::Kind::File && item.status.size == 0) check_empty(item);
  if (item.kind == WalkItem::Kind::File && item.status.size > kMaxFileBytes) {
    item.kind = WalkItem::Kind::Failed;
    item.error = Error(ErrorCode::NotSupported, "the file is too large");
  }
  switch (item.kind) {
    case WalkItem::Kind::File:
      ++next_id_;
      in_flight_[id] = item.path;
      current_.emplace(CurrentFile{});
      current_->id = id;
      current_->fd = std::move(item.fd);
      current_->size = current_->left = item.status.size;
      observer_.file_begun(item.path);
      return send(message::File{id, item.status.mode, item.status.size, item.name}, {});
    case WalkItem::Kind::Directory:
      ++next_id_;
      in_flight_[id] = item.path;
      open_directories_.push_back(id);
      return send(message::Directory{id, item.status.mode, item.name}, {});
    case WalkItem::Kind::DirectoryEnd: {
      Outstanding last;
      last.ends = open_directories_.back();
      last.is_directory_end = true;
      open_directories_.pop_back();
      return send(message::DirectoryEnd{}, last);
    }
    case WalkItem::Kind::Skipped:
      ++totals_.skipped;
      observer_.skipped(item.path, explain(item.error));
      return send(message::Skipped{false, item.error.code(), item.name, explain(item.error)}, {});
    case WalkItem::Kind::Failed:
      count_failure(item.path, explain(item.error));
      return send(message::Skipped{true, item.error.code(), item.name, explain(item.error)}, {});
    case WalkItem::Kind::End:
      break;
  }
  all_sent_ = true;
  return send(message::End{}, {});
}

std::optional<std::uint16_t> StreamSender::free_slot() {
  for (std::uint16_t slot = 0; slot < staging_.slots; ++slot)
    if (!slot_taken_[slot] && !writes_[slot].in_flight()) return slot;
  return std::nullopt;
}

Result<bool> StreamSender::send_chunk() {
  const auto slot = free_slot();
  if (!slot) return false;
  const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(current_->left, staging_.slot_bytes));
  const auto bytes = staging_.bytes(*slot, length);
  const auto got = read_fully(current_->fd.get(), bytes);
  Result<void> done;
  if (!got) {
    done = abort_file(got.error());
  } else if (*got != length) {
    done = abort_file(Error(ErrorCode::CorruptData, "the file became shorter while it was read"));
  } else {
    current_->digest.add(bytes);
    current_->left -= length;
    if (remote_) {
      auto there = remote_->sub_range(std::uint64_t{*slot} * staging_.slot_bytes, length);
      if (!there) return std::move(there).error();
      channel_.connection().write(writes_[*slot], staging_.local(*slot, length), *there);
    }
    slot_taken_[*slot] = true;
    Outstanding chunk;
    chunk.slot = *slot;
    chunk.length = length;
    done = send(message::Chunk{*slot, length}, chunk);
  }
  if (!done) return std::move(done).error();
  return true;
}

Result<void> StreamSender::end_file() {
  Outstanding last;
  last.ends = current_->id;
  last.is_file_end = true;
  last.size = current_->size;
  last.digest = current_->digest.finish();
  current_.reset();
  return send(message::FileEnd{last.digest}, last);
}

// The receiver forgets the file. What the receiver refused is counted already.
Result<void> StreamSender::abort_file(const Error& error) {
  Outstanding last;
  last.ends = current_->id;
  if (refused_.count(current_->id) == 0) {
    count_failure(in_flight_[current_->id], explain(error));
    aborted_.insert(current_->id);
  }
  current_.reset();
  return send(message::FileAbort{error.code(), explain(error)}, last);
}

Result<void> StreamSender::send(const Message& message, Outstanding outstanding) {
  outstanding_.push_back(outstanding);
  return channel_.send(message);
}

Result<void> StreamSender::acknowledged(std::uint32_t processed) {
  const std::uint32_t more = processed - processed_;
  if (more > outstanding_.size()) return receiver_sent("an Ack for what was not sent");
  processed_ = processed;
  for (std::uint32_t i = 0; i < more; ++i) {
    settle(outstanding_.front());
    outstanding_.pop_front();
  }
  return {};
}

void StreamSender::settle(const Outstanding& outstanding) {
  if (outstanding.slot) {
    slot_taken_[*outstanding.slot] = false;
    observer_.moved(outstanding.length);
  }
  if (!outstanding.ends) return;
  const auto entry = in_flight_.find(*outstanding.ends);
  if (outstanding.is_file_end && refused_.count(*outstanding.ends) == 0) {
    ++totals_.files;
    totals_.bytes += outstanding.size;
    observer_.file_done(entry->second, outstanding.size, outstanding.digest);
  }
  if (outstanding.is_directory_end && refused_.count(*outstanding.ends) == 0) ++totals_.directories;
  refused_.erase(*outstanding.ends);
  aborted_.erase(*outstanding.ends);
  in_flight_.erase(entry);
}

Result<void> StreamSender::refused(const message::Refused& refusal) {
  const auto entry = in_flight_.find(refusal.id);
  if (entry == in_flight_.end()) return receiver_sent("Refused for what was not sent");
  if (!refused_.insert(refusal.id).second) return receiver_sent("Refused twice for one entry");
  const bool is_counted = refusal.code == ErrorCode::Cancelled || aborted_.count(refusal.id) != 0;
  if (!is_counted) count_failure(entry->second, refusal.text);
  const auto level = std::find(open_directories_.begin(), open_directories_.end(), refusal.id);
  if (level == open_directories_.end()) return {};
  // A directory that is not wanted: neither is anything in it.
  walk_.abandon(static_cast<std::size_t>(open_directories_.end() - level) - 1);
  return {};
}

void StreamSender::count_failure(const std::string& path, const std::string& why) {
  ++totals_.failures;
  observer_.failed(path, why);
}

}  // namespace verbena::tools
