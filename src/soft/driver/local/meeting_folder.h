// SPDX-License-Identifier: Apache-2.0
// A folder in which processes of one host meet that have a network of their own, and so do not see each
// other's abstract names: a Unix socket for each meeting point, under a name made of it.
//
// Nothing in the folder is made, replaced or removed but by whoever holds the lock (flock) of the folder
// itself, which is no file and which the kernel takes back from who ends. A socket gets its name and listens
// under one lock. So one that refuses a connection, seen under the lock, is of a process that ended or died
// between the two, and stays so.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "soft/driver/local/meeting_point.h"

namespace verbena::soft::local {

// One thread at a time. Paths lead through the folder that was opened, also when another gets its name.
class MeetingFolder {
 public:
  // Errors, each with what to do: InvalidArgument (missing, no folder), PermissionDenied (not to be written
  // to, or others may remove what stands there), NotSupported (no /proc), ResourceExhausted.
  static Result<MeetingFolder> open(const std::string& path);
  MeetingFolder(MeetingFolder&&) noexcept = default;
  // Takes out of the folder what it offered, and what ended processes left there. In a forked child nothing.
  ~MeetingFolder();

  const std::string& path() const { return path_; }
  // Whether an address is this host's in each of its networks: not loopback.
  static bool takes(const Gid& address);
  // Stands in the folder from now on; called once. Takes away what ended processes left there. Errors, after
  // which it does not stand there: NotSupported (an address it does not take), AddressInUse (somebody else
  // does by that name), Busy (somebody holds the lock for long), those of the system.
  Result<void> offer(const MeetingPoint& point);
  // Listens where offer() put it; -1 before.
  int listener() const { return listener_.get(); }
  // A connection to whoever stands there. Nothing: nobody does. Errors: ResourceExhausted, PermissionDenied
  // (another user does), those of the system.
  Result<std::optional<PeerSocket>> reach(const MeetingPoint& point) const;

 private:
  MeetingFolder(std::string path, OwnDescriptor folder) : path_(std::move(path)), folder_(std::move(folder)) {}
  std::string place_of(const std::string& name) const;
  Result<void> stand(const std::string& name);
  bool is_abandoned(const char* name) const;
  void sweep() const;
  void withdraw();

  std::string path_;
  OwnDescriptor folder_;  // a child that had it would keep the lock of who is killed
  OwnDescriptor listener_;
  std::string name_;  // of its file there
  ino_t file_ = 0;
};

}  // namespace verbena::soft::local
