// SPDX-License-Identifier: Apache-2.0
#include "tools/tree_walk.h"

#include "tools/safe_path.h"

namespace verbena::tools {

namespace {

WalkItem unsent(WalkItem::Kind kind, std::string name, std::string path, Error error) {
  WalkItem item;
  item.kind = kind;
  item.name = std::move(name);
  item.path = std::move(path);
  item.error = std::move(error);
  return item;
}

// False when `left` entries were not enough.
bool measure_below(const UniqueFd& directory, std::size_t depth, std::size_t& left, TreeSize& size) {
  if (depth == kMaxDepth) return true;
  auto names = list_names(directory.get(), left);
  if (!names) return names.error().code() != ErrorCode::ResourceExhausted;
  left -= names->size();
  for (const std::string& name : *names) {
    const auto status = status_at(directory.get(), name);
    if (!status) continue;
    if (status->kind == EntryKind::File) {
      ++size.files;
      size.bytes += status->size;
    } else if (status->kind == EntryKind::Directory) {
      const auto below = open_directory(directory.get(), name);
      if (below && !measure_below(*below, depth + 1, left, size)) return false;
    }
  }
  return true;
}

}  // namespace

WalkItem TreeWalk::next() {
  if (!begun_) return first();
  if (levels_.empty()) return {};
  Level& level = levels_.back();
  if (level.next < level.names.size()) {
    const std::string name = level.names[level.next++];
    return look_at(level, name);
  }
  WalkItem item;
  item.kind = WalkItem::Kind::DirectoryEnd;
  item.path = level.path;
  levels_.pop_back();
  return item;
}

WalkItem TreeWalk::first() {
  begun_ = true;
  WalkItem item;
  item.status = root_.status;
  if (root_.status.kind == EntryKind::Directory) return enter(std::move(item), std::move(root_.fd));
  item.kind = WalkItem::Kind::File;
  item.fd = std::move(root_.fd);
  return item;
}

WalkItem TreeWalk::look_at(const Level& level, const std::string& name) {
  std::string path = level.path.empty() ? name : level.path + "/" + name;
  const auto status = status_at(level.directory.get(), name);
  if (status && status->kind == EntryKind::SymbolicLink)
    return unsent(WalkItem::Kind::Skipped, name, path, Error(ErrorCode::NotSupported, "a symbolic link"));
  if (status && status->kind == EntryKind::Other)
    return unsent(WalkItem::Kind::Skipped, name, path,
                  Error(ErrorCode::NotSupported, "neither a file nor a directory"));
  auto entry = open_entry(level.directory.get(), name);
  if (!entry) return unsent(WalkItem::Kind::Failed, name, path, std::move(entry).error());
  WalkItem item;
  item.name = name;
  item.path = std::move(path);
  item.status = entry->status;
  if (entry->status.kind == EntryKind::Directory) return enter(std::move(item), std::move(entry->fd));
  item.kind = WalkItem::Kind::File;
  item.fd = std::move(entry->fd);
  return item;
}

WalkItem TreeWalk::enter(WalkItem item, UniqueFd directory) {
  if (levels_.size() == kMaxDepth)
    return unsent(WalkItem::Kind::Failed, item.name, item.path,
                  Error(ErrorCode::ResourceExhausted, "more than " + std::to_string(kMaxDepth) + " levels deep"));
  auto names = list_names(directory.get());
  if (!names) return unsent(WalkItem::Kind::Failed, item.name, item.path, std::move(names).error());
  item.kind = WalkItem::Kind::Directory;
  levels_.push_back({std::move(directory), std::move(*names), 0, item.path});
  return item;
}

void TreeWalk::abandon(std::size_t levels) {
  for (std::size_t i = 0; i <= levels && i < levels_.size(); ++i) {
    Level& level = levels_[levels_.size() - 1 - i];
    level.next = level.names.size();
  }
}

TreeSize measure(const OpenedEntry& root, std::size_t limit) {
  if (root.status.kind == EntryKind::File) return {1, root.status.size};
  TreeSize size;
  return measure_below(root.fd, 0, limit, size) ? size : TreeSize{};
}

}  // namespace verbena::tools
