// SPDX-License-Identifier: Apache-2.0
#include "tools/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace verbena::tools {

namespace {

constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY;
constexpr int kNameAttempts = 100;

Error failed(const char* what, const std::string& name) {
  return Error::from_errno(errno, std::string(what) + " " + (name.empty() ? "it" : name));
}

Error is_link(const std::string& name) {
  return Error(ErrorCode::PermissionDenied, name + " is a symbolic link, which is not followed");
}

EntryStatus to_status(const struct stat& info) {
  EntryStatus status;
  status.mode = static_cast<std::uint16_t>(info.st_mode & 0777);
  if (S_ISREG(info.st_mode)) {
    status.kind = EntryKind::File;
    status.size = static_cast<std::uint64_t>(info.st_size);
  } else if (S_ISDIR(info.st_mode)) {
    status.kind = EntryKind::Directory;
  } else {
    status.kind = S_ISLNK(info.st_mode) ? EntryKind::SymbolicLink : EntryKind::Other;
  }
  return status;
}

// Judges a descriptor that was just opened.
Result<OpenedEntry> opened(int fd, const std::string& name) {
  OpenedEntry entry;
  entry.fd.reset(fd);
  entry.status = status_of(fd);
  if (entry.status.kind != EntryKind::File && entry.status.kind != EntryKind::Directory)
    return Error(ErrorCode::InvalidArgument, name + " is neither a file nor a directory");
  return entry;
}

std::string random_name() {
  std::uint32_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) number = 0;
  char text[40];
  std::snprintf(text, sizeof text, ".verbena-%08x.part", number);
  return text;
}

std::string descriptor_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Result<UniqueFd> UniqueFd::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return failed("cannot duplicate a descriptor of", "");
  return UniqueFd(fd);
}

std::string explain(const Error& error) {
  if (error.domain() != ErrorDomain::Errno) return error.context();
  return error.context() + ": " + std::strerror(error.native());
}

Result<EntryStatus> status_at(int directory, const std::string& name) {
  struct stat info {};
  if (::fstatat(directory, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) return to_status(info);
  if (errno == ENOENT) return EntryStatus{};
  return failed("cannot look at", name);
}

EntryStatus status_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? to_status(info) : EntryStatus{};
}

Result<OpenedEntry> open_entry(int directory, const std::string& name) {
  // Looked at first: opening a device or a FIFO may do something.
  auto status = status_at(directory, name);
  if (!status) return std::move(status).error();
  if (status->kind == EntryKind::SymbolicLink) return is_link(name);
  if (status->kind == EntryKind::Other)
    return Error(ErrorCode::InvalidArgument, name + " is neither a file nor a directory");
  const int fd = ::openat(directory, name.c_str(), kReadFlags | O_NOFOLLOW);
  if (fd < 0 && errno == ELOOP) return is_link(name);
  if (fd < 0) return failed("cannot read", name);
  return opened(fd, name);
}

Result<UniqueFd> open_directory(int directory, const std::string& name) {
  const int fd = ::openat(directory, name.c_str(), kReadFlags | O_DIRECTORY | O_NOFOLLOW);
  if (fd >= 0) return UniqueFd(fd);
  // A link gives ENOTDIR here, as a file does.
  const int reason = errno;
  const auto status = status_at(directory, name);
  if (status && status->kind == EntryKind::SymbolicLink) return is_link(name);
  errno = reason;
  return failed("cannot open directory", name);
}

Result<OpenedEntry> open_below(int root, std::span<const std::string> components) {
  if (components.empty()) {
    const int fd = ::openat(root, ".", kReadFlags | O_DIRECTORY);
    if (fd < 0) return failed("cannot open", "the served directory");
    return opened(fd, ".");
  }
  auto parent = open_directory_below(root, components.first(components.size() - 1));
  if (!parent) return std::move(parent).error();
  return open_entry(parent->get(), components.back());
}

Result<UniqueFd> open_directory_below(int root, std::span<const std::string> components) {
  UniqueFd at(::openat(root, ".", kReadFlags | O_DIRECTORY));
  if (!at.is_open()) return failed("cannot open", "the served directory");
  for (const std::string& name : components) {
    auto next = open_directory(at.get(), name);
    if (!next) return std::move(next).error();
    at = std::move(*next);
  }
  return at;
}

Result<OpenedEntry> open_as_named(const std::string& path) {
  const int fd = ::open(path.c_str(), kReadFlags);
  if (fd < 0) return failed("cannot read", path);
  return opened(fd, path);
}

Result<std::vector<std::string>> list_names(int directory, std::size_t limit) {
  const int own = ::openat(directory, ".", kReadFlags | O_DIRECTORY);
  if (own < 0) return failed("cannot list", "the directory");
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own), &::closedir);
  if (!stream) {
    ::close(own);
    return failed("cannot list", "the directory");
  }
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (names.size() == limit)
      return Error(ErrorCode::ResourceExhausted, "more than " + std::to_string(limit) + " entries in one directory");
    names.push_back(std::move(name));
  }
  if (errno != 0) return failed("cannot list", "the directory");
  std::sort(names.begin(), names.end());
  return names;
}

Result<UniqueFd> make_directory(int parent, const std::string& name, std::uint16_t mode, bool& created) {
  created = ::mkdirat(parent, name.c_str(), mode | S_IRWXU) == 0;
  if (!created && errno != EEXIST) return failed("cannot create directory", name);
  auto fd = open_directory(parent, name);
  if (!fd && created) {
    ::unlinkat(parent, name.c_str(), AT_REMOVEDIR);
    created = false;
  }
  return fd;
}

Result<std::size_t> read_fully(int fd, std::span<std::byte> out) {
  std::size_t got = 0;
  while (got < out.size()) {
    const ssize_t n = ::read(fd, out.data() + got, out.size() - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot read", "");
    if (n == 0) break;
    got += static_cast<std::size_t>(n);
  }
  return got;
}

Result<PartialFile> PartialFile::create(int directory, const std::string& name, bool force) {
  auto there = status_at(directory, name);
  if (!there) return std::move(there).error();
  if (there->kind == EntryKind::Directory)
    return Error(ErrorCode::AlreadyExists, name + " is a directory there");
  if (there->kind == EntryKind::Other)
    return Error(ErrorCode::AlreadyExists, name + " is neither a file nor a directory there");
  if (there->kind != EntryKind::Missing && !force)
    return Error(ErrorCode::AlreadyExists, name + " exists; --force replaces it");
  PartialFile file;
  file.directory_ = directory;
  file.name_ = name;
  file.force_ = force;
  if (::access("/proc/self/fd", X_OK) == 0)
    file.fd_.reset(::openat(directory, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  for (int i = 0; i < kNameAttempts && !file.fd_.is_open(); ++i) {
    std::string temporary = random_name();
    file.fd_.reset(::openat(directory, temporary.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC, 0600));
    if (file.fd_.is_open()) file.temporary_ = std::move(temporary);
    else if (errno != EEXIST) break;
  }
  if (!file.fd_.is_open()) return failed("cannot create", name);
  return file;
}

PartialFile::PartialFile(PartialFile&& other) noexcept
    : fd_(std::move(other.fd_)), directory_(other.directory_), name_(std::move(other.name_)),
      temporary_(std::exchange(other.temporary_, {})), force_(other.force_), size_(other.size_) {}

PartialFile::~PartialFile() {
  if (!temporary_.empty()) ::unlinkat(directory_, temporary_.c_str(), 0);
}

Result<void> PartialFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot write", name_);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    size_ += static_cast<std::uint64_t>(n);
  }
  return {};
}

Result<void> PartialFile::commit(std::uint16_t mode) {
  if (::fchmod(fd_.get(), mode) != 0) return failed("cannot set the permissions of", name_);
  return publish();
}

Result<void> PartialFile::publish() {
  const std::string from = descriptor_path(fd_.get());
  if (temporary_.empty()) {
    if (::linkat(AT_FDCWD, from.c_str(), directory_, name_.c_str(), AT_SYMLINK_FOLLOW) == 0) return {};
    if (errno != EEXIST || !force_) return failed("cannot create", name_);
    // Only a rename replaces: for that it needs a name of its own first.
    for (int i = 0; i < kNameAttempts && temporary_.empty(); ++i) {
      std::string temporary = random_name();
      if (::linkat(AT_FDCWD, from.c_str(), directory_, temporary.c_str(), AT_SYMLINK_FOLLOW) == 0)
        temporary_ = std::move(temporary);
      else if (errno != EEXIST) break;
    }
    if (temporary_.empty()) return failed("cannot create", name_);
  }
  if (!force_) {
    // Unlike a rename, a link replaces nothing that came meanwhile.
    if (::linkat(directory_, temporary_.c_str(), directory_, name_.c_str(), 0) == 0) return {};
    if (errno == EEXIST) return failed("cannot create", name_);
  }
  if (::renameat(directory_, temporary_.c_str(), directory_, name_.c_str()) != 0) return failed("cannot create", name_);
  temporary_.clear();
  return {};
}

}  // namespace verbena::tools
