// SPDX-License-Identifier: Apache-2.0
#include "tools/digest.h"

#include <openssl/evp.h>

#include <cstdlib>

namespace verbena::tools {

namespace {

// SHA-256 is in every build of the library; it fails only without memory.
void must(int status) {
  if (status != 1) std::abort();
}

}  // namespace

struct Digest::Context {
  EVP_MD_CTX* evp = EVP_MD_CTX_new();
  Context() {
    must(evp != nullptr ? 1 : 0);
    must(EVP_DigestInit_ex(evp, EVP_sha256(), nullptr));
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(evp); }
};

Digest::Digest() : context_(std::make_unique<Context>()) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::add(std::span<const std::byte> bytes) {
  must(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()));
}

DigestBytes Digest::finish() {
  DigestBytes out{};
  unsigned length = 0;
  must(EVP_DigestFinal_ex(context_->evp, out.data(), &length));
  must(EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr));
  return out;
}

std::string to_hex(const DigestBytes& digest) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const std::uint8_t byte : digest) {
    out += kHex[byte >> 4];
    out += kHex[byte & 0xf];
  }
  return out;
}

}  // namespace verbena::tools
