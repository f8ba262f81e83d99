// SPDX-License-Identifier: Apache-2.0
// What stands behind a public object, as long as it was not moved from.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

namespace verbena::detail {

// Ends the program, and says what it did.
[[noreturn]] void abort_on_moved_from(const char* name);

template <std::size_t N>
struct ObjectName {
  constexpr ObjectName(const char (&name)[N]) {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < N; ++i) text[i] = name[i];
  }
  std::array<char, N> text{};
};

// A pointer, plain or one that owns, null once it was moved from. Who follows it then is told the name of the public
// object: this is the one place where that is checked, and costs a branch on a pointer that is needed anyway.
template <class Pointer, ObjectName kName>
class Inner {
 public:
  Inner() = default;
  Inner(Pointer pointer) : pointer_(std::move(pointer)) {}  // NOLINT(google-explicit-constructor)
  Inner(Inner&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Inner& operator=(Inner&& other) noexcept {
    if (this != &other) pointer_ = std::exchange(other.pointer_, nullptr);
    return *this;
  }
  ~Inner() = default;

  const Pointer& pointer() const {
    if (pointer_ == nullptr) [[unlikely]]
      abort_on_moved_from(kName.text.data());
    return pointer_;
  }
  auto& operator*() const { return *pointer(); }
  auto* operator->() const { return &*pointer(); }
  // Unchecked.
  template <class Other>
  bool operator==(const Other& other) const {
    return pointer_ == other;
  }

 private:
  Pointer pointer_{};
};

}  // namespace verbena::detail
