// SPDX-License-Identifier: Apache-2.0
#include "device/environment.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/holdings.h"
#include "base/quiet_thread.h"
#include "verbena/device/environment.h"

namespace verbena {

namespace {

constexpr std::chrono::milliseconds kInterval{250};
// Of one process; devices never share a file.
std::atomic<unsigned> files_given{0};

}  // namespace

std::optional<std::string> environment_value(const char* name) {
  const char* text = ::secure_getenv(name);
  if (text == nullptr || *text == '\0') return std::nullopt;
  return text;
}

std::vector<EnvironmentVariable> environment() {
  std::vector<EnvironmentVariable> all{
      {"VERBENA_COUNTERS", "folder where each open device keeps a file of what it counted (device-PID-NUMBER)",
       "none", {}},
      {"VERBENA_PCAP",
       "capture file of every device opened without one; -PID-NUMBER goes before its extension",
       "none", {}},
      {"VERBENA_PATH",
       "what connections go by, for every device opened without a choice: auto, roce (packets), local (shared memory)",
       "auto", {}},
      {"VERBENA_LOCAL_COPY",
       "how payload crosses shared memory: auto (one copy, where it is possible), staged (two copies)",
       "auto", {}},
      {"VERBENA_LOCAL_DIR",
       "folder in which processes of this host meet that have a network of their own, to share memory all the same",
       "none", {}},
      {"VERBENA_LOCAL_USERS",
       "numbers of other users, commas between, with whom memory is shared, by two copies, where they name this one",
       "none", {}},
      {"VERBENA_ADDRESS_USERS",
       "numbers of the users, commas between, who share addresses; all name the same, and trust each other with all "
       "packets",
       "none", {}},
  };
  for (EnvironmentVariable& one : all) one.value = environment_value(one.name.c_str());
  return all;
}

std::optional<std::vector<std::uint32_t>> parse_users(std::string_view text) {
  std::vector<std::uint32_t> users;
  for (const char* at = text.data(), *const end = at + text.size();; ++at) {
    const auto [next, error] = std::from_chars(at, end, users.emplace_back());
    if (error != std::errc() || (next != end && *next != ',')) return std::nullopt;
    if (next == end) return users;
    at = next;
  }
}

namespace {

// NotFound is said of devices alone.
Error no_file(int number, std::string what) {
  Error error = Error::from_errno(number, std::move(what));
  if (error.code() == ErrorCode::NotFound) error = {ErrorCode::IoError, error.context(), number, ErrorDomain::Errno};
  return error;
}

}  // namespace

Result<std::string> file_of_own(const std::string& name) {
  const std::string own = "-" + std::to_string(::getpid()) + "-";
  const std::size_t slash = name.rfind('/');
  std::size_t dot = name.rfind('.');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash + 2) || dot == 0) dot = name.size();
  for (;;) {
    std::string candidate = name.substr(0, dot) + own + std::to_string(++files_given) + name.substr(dot);
    const int fd = ::open(candidate.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
      ::close(fd);
      return candidate;
    }
    // An earlier process of this number, or one of another container, may have its files there.
    if (errno == EEXIST) continue;
    return no_file(errno, "make the file " + candidate);
  }
}

namespace {

// One word: values in the file are.
std::string program_name() {
  std::string name = program_invocation_short_name;
  std::ranges::replace_if(name, [](unsigned char c) { return std::isspace(c) != 0; }, '_');
  return name;
}

}  // namespace

class CounterFile::Writer {
 public:
  Writer(std::string path, provider::Context& context) : path_(std::move(path)), context_(context) {}
  ~Writer() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    (void)write(false);
  }

  Result<void> start() {
    return thread_.start([this] { run(); }, "VERBENA_COUNTERS");
  }

  bool is_inherited() const { return thread_.is_inherited(); }

  Result<void> write(bool open) {
    const DeviceInfo& info = context_.info();
    std::string text = "program " + program_name() + "\ndevice " + info.name + "\naddress " +
                       info.address.to_string() + "\nopen " + (open ? "yes\n" : "no\n");
    for (const NamedCounter& one : context_.counters()) text += one.name + " " + std::to_string(one.value) + "\n";
    if (text == written_) return {};
    const std::string draft = path_ + ".new";
    // Whatever stands there, a pipe or somebody's file, is not written to.
    if (::unlink(draft.c_str()) != 0 && errno != ENOENT) return Error::from_errno(errno, "remove " + draft);
    const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return Error::from_errno(errno, "write counters to " + draft);
    const ssize_t put = ::write(fd, text.data(), text.size());
    const bool complete = put == static_cast<ssize_t>(text.size());
    const int number = put < 0 ? errno : ENOSPC;
    ::close(fd);
    if (complete && ::rename(draft.c_str(), path_.c_str()) == 0) {
      written_ = std::move(text);
      return {};
    }
    Error error = Error::from_errno(complete ? errno : number, "write counters to " + path_);
    ::unlink(draft.c_str());
    return error;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kInterval, [this] { return stop_; })) (void)write(true);
  }

  const std::string path_;
  provider::Context& context_;
  std::string written_;  // of the thread, while it runs
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  QuietThread thread_;
};

CounterFile::CounterFile(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
// In a forked child the file is its parent's, and so is the thread that waits for its end.
CounterFile::~CounterFile() {
  if (writer_ && writer_->is_inherited()) holdings::abandon(std::shared_ptr<Writer>(std::move(writer_)));
}

Result<std::unique_ptr<CounterFile>> CounterFile::create(const std::string& folder, provider::Context& context) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST)
    return no_file(errno, "make the folder of VERBENA_COUNTERS, " + folder);
  // The program may go to another folder while the file is written.
  std::error_code wrong;
  const std::filesystem::path place = std::filesystem::absolute(folder, wrong);
  if (wrong) return no_file(wrong.value(), "find the folder of VERBENA_COUNTERS, " + folder);
  auto file = file_of_own((place / "device").string());
  if (!file) return std::move(file).error();
  const std::string path = *file;
  auto writer = std::make_unique<Writer>(std::move(*file), context);
  auto ready = writer->write(true);
  if (ready) ready = writer->start();
  if (!ready) {
    writer.reset();
    ::unlink(path.c_str());  // of a device that nobody has
    return std::move(ready).error();
  }
  return std::unique_ptr<CounterFile>(new CounterFile(std::move(writer)));
}

}  // namespace verbena
