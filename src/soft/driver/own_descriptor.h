// SPDX-License-Identifier: Apache-2.0
// Owner of one file descriptor by whose end others learn that this process ended: a forked child does not keep it
// alive.
#pragma once

#include <sys/socket.h>

#include <utility>

#include "base/holdings.h"
#include "soft/driver/descriptor.h"

namespace verbena::soft {

// In the child it is a descriptor of nothing. Whoever makes one and takes it under holdings::no_fork() is sure of that.
class OwnDescriptor {
 public:
  OwnDescriptor() = default;
  explicit OwnDescriptor(Descriptor fd) : fd_(std::move(fd)) {
    if (fd_) holdings::keep_from_children(fd_.get());
  }
  OwnDescriptor(OwnDescriptor&&) noexcept = default;
  OwnDescriptor& operator=(OwnDescriptor&&) noexcept = default;
  ~OwnDescriptor() {
    if (fd_ && fd_.is_of_stranger())
      ::shutdown(fd_.get(), SHUT_RDWR);  // hung up at once, whenever it is closed
    else if (fd_)
      holdings::close(fd_.release());
  }

  int get() const { return fd_.get(); }
  // What came of a stranger's to it is closed with it.
  void give_to_strangers() { fd_ = Descriptor::of_stranger(fd_.release()); }
  explicit operator bool() const { return static_cast<bool>(fd_); }

 private:
  Descriptor fd_;
};

}  // namespace verbena::soft
