// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or an Error, with std::expected's names. Wrong access aborts, in release too.
#pragma once

#include <cstdlib>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

#include "verbena/base/error.h"

namespace verbena {

// Prints the error and aborts: somebody took the value of a failed Result.
[[noreturn]] void abort_on_bad_result_access(const Error* error);

template <class T>
class Result;

namespace detail {
template <class T>
inline constexpr bool kIsResult = false;
template <class T>
inline constexpr bool kIsResult<Result<T>> = true;
}  // namespace detail

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;
  using error_type = Error;

  // Of what becomes a T by itself; never of another Result, which could be an error and is a bool all the same.
  template <class U = T>
  requires(std::is_convertible_v<U&&, T> && !detail::kIsResult<std::remove_cvref_t<U>> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error>) Result(U&& value)
      : inner_(std::forward<U>(value)) {}                          // NOLINT(google-explicit-constructor)
  Result(Error error) : inner_(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return inner_.has_value(); }
  explicit operator bool() const { return has_value(); }

  T& value() & { return check(), *inner_; }
  const T& value() const& { return check(), *inner_; }
  T&& value() && { return check(), std::move(*inner_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return check_error(), inner_.error(); }
  Error&& error() && { return check_error(), std::move(inner_.error()); }

  template <class U>
  T value_or(U&& other) && {
    return std::move(inner_).value_or(std::forward<U>(other));
  }
  template <class U>
  T value_or(U&& other) const& {
    return inner_.value_or(std::forward<U>(other));
  }

  // f(T) -> Result<U>; an error passes through.
  template <class F>
  auto and_then(F&& f) && -> std::invoke_result_t<F, T&&> {
    if (!has_value()) return std::move(inner_.error());
    return std::forward<F>(f)(std::move(*inner_));
  }

 private:
  void check() const {
    if (!inner_.has_value()) abort_on_bad_result_access(&inner_.error());
  }
  void check_error() const {
    if (inner_.has_value()) abort_on_bad_result_access(nullptr);
  }
  tl::expected<T, Error> inner_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;
  using error_type = Error;

  Result() = default;
  Result(Error error) : inner_(tl::unexpect, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return inner_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const {
    if (!inner_.has_value()) abort_on_bad_result_access(&inner_.error());
  }
  const Error& error() const& { return check_error(), inner_.error(); }
  Error&& error() && { return check_error(), std::move(inner_.error()); }

  template <class F>
  auto and_then(F&& f) && -> std::invoke_result_t<F> {
    if (!has_value()) return std::move(inner_.error());
    return std::forward<F>(f)();
  }

 private:
  void check_error() const {
    if (inner_.has_value()) abort_on_bad_result_access(nullptr);
  }
  tl::expected<void, Error> inner_;
};

}  // namespace verbena
