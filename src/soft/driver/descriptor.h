// SPDX-License-Identifier: Apache-2.0
// Owner of one file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

#include "base/closing.h"

namespace verbena::soft {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  // One that came from another user, or may have: whoever lets go of it does not wait for its closing.
  static Descriptor of_stranger(int fd) {
    Descriptor one(fd);
    one.is_of_stranger_ = true;
    return one;
  }
  Descriptor(Descriptor&& other) noexcept { *this = std::move(other); }
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(is_of_stranger_, other.is_of_stranger_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ < 0) return;
    if (is_of_stranger_)
      closing::elsewhere(fd_);
    else
      ::close(fd_);
  }

  int get() const { return fd_; }
  bool is_of_stranger() const { return is_of_stranger_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }  // the caller's from now on

 private:
  int fd_ = -1;
  bool is_of_stranger_ = false;
};

}  // namespace verbena::soft
