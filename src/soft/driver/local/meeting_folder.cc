// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/meeting_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>
#include <vector>

#include "base/this_user.h"

namespace verbena::soft::local {

namespace {

constexpr std::string_view kPrefix = "verbena-";
// Who holds the lock needs microseconds, unless it is stopped.
constexpr std::chrono::seconds kPatience{2};
constexpr int kMostSwept = 4096;

std::string name_of(const MeetingPoint& point) {
  std::string name(kPrefix);
  for (const char letter : point.name().substr(std::string_view("@verbena/").size()))
    name += letter == '/' ? '-' : letter;
  return name;
}

// Of name_of(). Whoever may write to the folder gives names as they like.
bool is_ours(std::string_view name) {
  constexpr std::size_t kDigits = 2 * sizeof(Gid), kMostIndexDigits = 10;
  const auto is_of = [](std::string_view text, std::string_view letters) {
    return text.find_first_not_of(letters) == std::string_view::npos;
  };
  if (!name.starts_with(kPrefix)) return false;
  name.remove_prefix(kPrefix.size());
  if (name.size() < kDigits + 2 || name.size() > kDigits + 1 + kMostIndexDigits || name[kDigits] != '-') return false;
  return is_of(name.substr(0, kDigits), "0123456789abcdef") && is_of(name.substr(kDigits + 1), "0123456789");
}

// Nobody forks while it is held: a child would hold it, too.
class FolderLock {
 public:
  static Result<FolderLock> take(int folder) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      auto no_fork = holdings::no_fork();
      if (::flock(folder, LOCK_EX | LOCK_NB) == 0) return FolderLock(folder, std::move(no_fork));
      if (errno != EWOULDBLOCK && errno != EINTR) return Error::from_errno(errno, "flock");
      no_fork.unlock();
      if (std::chrono::steady_clock::now() > end)
        return Error{ErrorCode::Busy, "another process holds the lock of the folder, and is stopped perhaps"};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  FolderLock(FolderLock&& other) noexcept
      : folder_(std::exchange(other.folder_, -1)), no_fork_(std::move(other.no_fork_)) {}
  ~FolderLock() {
    if (folder_ >= 0) ::flock(folder_, LOCK_UN);
  }

 private:
  FolderLock(int folder, std::unique_lock<std::mutex> no_fork)
      : folder_(folder), no_fork_(std::move(no_fork)) {}

  int folder_;
  std::unique_lock<std::mutex> no_fork_;
};

Result<Descriptor> open_folder(const std::string& path, const std::string& what) {
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder) return folder;
  const int number = errno;
  if (number == ENOENT)
    return Error{ErrorCode::InvalidArgument,
                 what + " is not there: make it (mkdir -m 700), the same one for all that shall meet in it",
                 number, ErrorDomain::Errno};
  if (number == ENOTDIR)
    return Error{ErrorCode::InvalidArgument, what + " is no folder: name one", number, ErrorDomain::Errno};
  return Error::from_errno(number,
                           what + " cannot be opened: this user must be allowed to read and write it");
}

}  // namespace

Result<MeetingFolder> MeetingFolder::open(const std::string& path) {
  const std::string what = "local_dir (VERBENA_LOCAL_DIR) " + path;
  auto folder = open_folder(path, what);
  if (!folder) return std::move(folder).error();
  struct stat is {};
  if (::fstat(folder->get(), &is) != 0) return Error::from_errno(errno, what);
  if (::faccessat(folder->get(), ".", W_OK | X_OK, AT_EACCESS) != 0)
    return Error::from_errno(
        errno, what + " is not to be written to by this user: chmod or chown it, or choose another");
  const bool anyone_removes = (is.st_mode & S_IWOTH) != 0 && (is.st_mode & S_ISVTX) == 0;
  if (anyone_removes && !is_this_user(is.st_uid))
    return Error{ErrorCode::PermissionDenied,
                 what +
                     " belongs to another user, and anyone may remove what stands in it: set its sticky bit "
                     "(chmod +t), take the others' right to write, or choose another"};
  MeetingFolder opened(path, OwnDescriptor(std::move(*folder)));
  struct stat seen {};
  if (::stat(opened.place_of(".").c_str(), &seen) != 0 || seen.st_ino != is.st_ino ||
      seen.st_dev != is.st_dev)
    return Error{ErrorCode::NotSupported, what + " cannot be used without /proc: mount it here"};
  return opened;
}

MeetingFolder::~MeetingFolder() { withdraw(); }

// However long the folder's own path is, this fits into the address of a socket.
std::string MeetingFolder::place_of(const std::string& name) const {
  return "/proc/self/fd/" + std::to_string(folder_.get()) + "/" + name;
}

bool MeetingFolder::takes(const Gid& address) { return !address.is_loopback(); }

Result<void> MeetingFolder::offer(const MeetingPoint& point) {
  if (!takes(point.gid))
    return Error{ErrorCode::NotSupported, "each network has loopback addresses of its own"};
  auto lock = FolderLock::take(folder_.get());
  if (!lock) return std::move(lock).error();
  sweep();
  return stand(name_of(point));
}

// Under the lock.
Result<void> MeetingFolder::stand(const std::string& name) {
  struct stat is {};
  if (is_abandoned(name.c_str())) ::unlinkat(folder_.get(), name.c_str(), 0);
  if (::fstatat(folder_.get(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0)
    return Error{ErrorCode::AddressInUse,
                 name +
                     " stands there already, of a process whose network has the same address, "
                     "or of somebody whose files this user may not remove"};
  if (errno != ENOENT) return Error::from_errno(errno, "look for " + name);
  auto listener = offer_at(place_of(name), name);
  if (!listener) return std::move(listener).error();
  if (::fstatat(folder_.get(), name.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0)
    return Error::from_errno(errno, "look for " + name);
  listener_ = std::move(*listener);
  name_ = name;
  file_ = is.st_ino;
  return {};
}

// A socket that nobody listens at, and nobody ever will. One that is not found where it stands says nothing of who
// listens: a process may have left /proc behind. Under the lock.
bool MeetingFolder::is_abandoned(const char* name) const {
  struct stat is {};
  if (::fstatat(folder_.get(), name, &is, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISSOCK(is.st_mode)) return false;
  const auto reached = reach_at(place_of(name), name);
  return reached && !*reached;
}

void MeetingFolder::sweep() const {
  // A descriptor of its own, since it is closed with what is read.
  DIR* const folder = ::fdopendir(::openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder == nullptr) return;
  std::vector<std::string> abandoned;
  int looked_at = 0;
  while (const dirent* const entry = ::readdir(folder)) {
    if (!is_ours(entry->d_name)) continue;
    if (++looked_at > kMostSwept) break;
    if (is_abandoned(entry->d_name)) abandoned.emplace_back(entry->d_name);
  }
  ::closedir(folder);
  for (const std::string& name : abandoned) ::unlinkat(folder_.get(), name.c_str(), 0);
}

// A file of that name may be another's by now if somebody removed ours; the number is ours as long as we
// listen.
void MeetingFolder::withdraw() {
  int listens = 0;
  socklen_t size = sizeof listens;
  // In a forked child it is a descriptor of nothing.
  if (!listener_ || ::getsockopt(listener_.get(), SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0) return;
  const auto lock = FolderLock::take(folder_.get());
  if (!lock) return;  // whoever comes next takes it away
  struct stat is {};
  if (::fstatat(folder_.get(), name_.c_str(), &is, AT_SYMLINK_NOFOLLOW) == 0 && is.st_ino == file_)
    ::unlinkat(folder_.get(), name_.c_str(), 0);
  sweep();
}

Result<std::optional<PeerSocket>> MeetingFolder::reach(const MeetingPoint& point) const {
  if (!takes(point.gid)) return std::optional<PeerSocket>();
  const auto no_fork = holdings::no_fork();
  const std::string name = name_of(point);
  auto reached = reach_at(place_of(name), name + " in " + path_);
  if (!reached && reached.error().native() == ENOENT) return std::optional<PeerSocket>();
  if (!reached && reached.error().code() == ErrorCode::PermissionDenied)
    return Error{ErrorCode::PermissionDenied, name + " in " + path_ + " is of another user",
                 reached.error().native(), ErrorDomain::Errno};
  return reached;
}

}  // namespace verbena::soft::local
