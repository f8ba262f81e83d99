// SPDX-License-Identifier: Apache-2.0
// Owner of one file descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace verbena::soft {

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release() { return std::exchange(fd_, -1); }  // the caller's from now on

 private:
  int fd_ = -1;
};

}  // namespace verbena::soft
