// SPDX-License-Identifier: Apache-2.0
// Walks a file or a tree, depth first and in the order of names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/tree.h"

namespace verbena::tools {

struct WalkItem {
  enum class Kind : std::uint8_t {
    File,          // `fd` is open for reading
    Directory,     // its entries follow
    DirectoryEnd,
    Skipped,       // not to be sent: `error` says why
    Failed,        // should be sent, and cannot be: `error` says why
    End,
  };
  Kind kind = Kind::End;
  std::string name;  // empty for the root
  std::string path;  // from the root, for people
  EntryStatus status;
  UniqueFd fd;
  Error error{ErrorCode::Internal, ""};
};

class TreeWalk {
 public:
  explicit TreeWalk(OpenedEntry root) : root_(std::move(root)) {}

  WalkItem next();
  // Leaves out what is left of the directory `levels` above the one at hand, and everything in it: next() continues
  // with the ends of those directories.
  void abandon(std::size_t levels);
  // Directories begun and not ended.
  std::size_t depth() const { return levels_.size(); }

 private:
  struct Level {
    UniqueFd directory;
    std::vector<std::string> names;
    std::size_t next = 0;
    std::string path;
  };
  WalkItem first();
  WalkItem enter(WalkItem item, UniqueFd directory);
  WalkItem look_at(const Level& level, const std::string& name);

  OpenedEntry root_;
  bool begun_ = false;
  std::vector<Level> levels_;
};

struct TreeSize {
  std::uint64_t files = 0, bytes = 0;
};
// As many are counted before a transfer, so that the client can tell how long it will take. The peer must not wait.
inline constexpr std::size_t kMeasuredEntries = 20'000;
// What a walk would send, as far as can be seen without opening the files; zeros when there are more than `limit`
// entries.
TreeSize measure(const OpenedEntry& root, std::size_t limit);

}  // namespace verbena::tools
