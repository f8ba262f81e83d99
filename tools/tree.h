// SPDX-License-Identifier: Apache-2.0
// Trees of files by descriptors: every step opens one component and follows no symbolic link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "verbena/base/result.h"

namespace verbena::tools {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void reset(int fd = -1);
  // Another descriptor of the same file, with its own owner.
  Result<UniqueFd> duplicate() const;

 private:
  int fd_ = -1;
};

enum class EntryKind : std::uint8_t { File, Directory, SymbolicLink, Other, Missing };

struct EntryStatus {
  EntryKind kind = EntryKind::Missing;
  std::uint16_t mode = 0;   // permission bits
  std::uint64_t size = 0;   // bytes, of files
};

// A regular file or directory opened for reading.
struct OpenedEntry {
  UniqueFd fd;
  EntryStatus status;
};

// "No space left on device": the sentence behind an error of a file operation, "cannot create a/b: ..." included.
std::string explain(const Error& error);

// Does not follow a link at the end. Missing when there is nothing.
Result<EntryStatus> status_at(int directory, const std::string& name);
EntryStatus status_of(int fd);

// Neither follows a link at the end, nor waits for a writer of a FIFO. PermissionDenied: a symbolic link, or no right;
// InvalidArgument: neither file nor directory.
Result<OpenedEntry> open_entry(int directory, const std::string& name);
Result<UniqueFd> open_directory(int directory, const std::string& name);
// Component by component from `root`; `root` itself for none.
Result<OpenedEntry> open_below(int root, std::span<const std::string> components);
Result<UniqueFd> open_directory_below(int root, std::span<const std::string> components);
// What the user named: links are followed.
Result<OpenedEntry> open_as_named(const std::string& path);

// Sorted, without "." and "..". ResourceExhausted: more than `limit`.
Result<std::vector<std::string>> list_names(int directory, std::size_t limit = 1'000'000);

// Makes the directory, or takes the one that is there; `created` tells which. After an error nothing was made. A new
// one has `mode`, less the umask, and is its owner's to write to.
Result<UniqueFd> make_directory(int parent, const std::string& name, std::uint16_t mode, bool& created);

// Reads until `out` is full or the file ends.
Result<std::size_t> read_fully(int fd, std::span<std::byte> out);

// A file on its way to a name. Until commit() it has none, or, where the file system knows no nameless files, one like
// .verbena-1f2e3d4c.part; destroyed before that it is gone.
class PartialFile {
 public:
  // In `directory`, which outlives it. AlreadyExists: `name` is there and `force` is not given, or is a directory.
  static Result<PartialFile> create(int directory, const std::string& name, bool force);
  PartialFile(PartialFile&& other) noexcept;
  PartialFile& operator=(PartialFile&&) = delete;
  ~PartialFile();

  Result<void> append(std::span<const std::byte> bytes);
  std::uint64_t size() const { return size_; }
  // Gives it permissions and its name, at once.
  Result<void> commit(std::uint16_t mode);

 private:
  PartialFile() = default;
  Result<void> publish();

  UniqueFd fd_;
  int directory_ = -1;
  std::string name_;
  std::string temporary_;  // empty: nameless
  bool force_ = false;
  std::uint64_t size_ = 0;
};

}  // namespace verbena::tools
