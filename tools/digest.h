// SPDX-License-Identifier: Apache-2.0
// SHA-256 of what streams by.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tools/file_protocol.h"

namespace verbena::tools {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void add(std::span<const std::byte> bytes);
  // Of all that was added; begins anew.
  DigestBytes finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// 64 lower-case hexadecimal digits, as sha256sum prints them.
std::string to_hex(const DigestBytes& digest);

}  // namespace verbena::tools
