// SPDX-License-Identifier: Apache-2.0
// Several tasks at a time.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "verbena/async/task.h"

namespace verbena {

namespace detail {

// What a task brings, as a value.
template <class T>
using ValueOf = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

template <class T>
ValueOf<T> take(Task<T>& task) {
  if constexpr (std::is_void_v<T>) {
    task.take();
    return {};
  } else {
    return task.take();
  }
}

// Starts them in order, until `wanted` of them are finished; then waits for as many.
class [[nodiscard]] Start {
 public:
  Start(std::span<const Child> children, std::size_t wanted) : children_(children), join_(wanted) {}
  // Destroyed before the children are: one that finishes while another drains finds nobody to resume.
  ~Start() {
    for (const Child& child : children_) child.promise->forget_join();
  }
  Start(const Start&) = delete;
  Start& operator=(const Start&) = delete;
  bool await_ready() const noexcept { return false; }
  template <TaskPromiseType P>
  bool await_suspend(std::coroutine_handle<P> parent) {
    const P& promise = parent.promise();
    for (const Child& child : children_) {
      if (join_.complete()) return false;
      child.promise->start(promise.engine(), promise.depth() + 1, join_, child.handle);
    }
    return join_.suspend(promise.engine(), parent);
  }
  // The first that was finished.
  std::size_t await_resume() const {
    const auto is_first = [this](const Child& child) { return child.promise == join_.first(); };
    return static_cast<std::size_t>(std::find_if(children_.begin(), children_.end(), is_first) - children_.begin());
  }

 private:
  const std::span<const Child> children_;
  Join join_;
};

template <class... T>
std::variant<ValueOf<T>...> take_one(std::tuple<Task<T>...>& tasks, std::size_t which) {
  using Outcome = std::variant<ValueOf<T>...>;
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    using Taker = Outcome (*)(std::tuple<Task<T>...>&);
    constexpr std::array<Taker, sizeof...(T)> kTakers{
        [](std::tuple<Task<T>...>& all) { return Outcome(std::in_place_index<I>, take(std::get<I>(all))); }...};
    return kTakers[which](tasks);
  }(std::index_sequence_for<T...>{});
}

}  // namespace detail

// All of them, side by side: the tuple of what they return, with std::monostate for void. It waits for all even when
// one throws; then the first of those in the order of arguments passes on its exception.
//
//   auto [sent, got] = co_await when_all(send_all(a), receive_all(b));
template <class... T>
Task<std::tuple<detail::ValueOf<T>...>> when_all(Task<T>... tasks) {
  const std::array<detail::Child, sizeof...(T)> children{tasks.child()...};
  co_await detail::Start(children, children.size());
  co_return std::tuple<detail::ValueOf<T>...>{detail::take(tasks)...};
}

template <class T>
Task<std::vector<T>> when_all(std::vector<Task<T>> tasks) {
  std::vector<detail::Child> children;
  children.reserve(tasks.size());
  for (const Task<T>& task : tasks) children.push_back(task.child());
  co_await detail::Start(children, children.size());
  std::vector<T> values;
  values.reserve(tasks.size());
  for (Task<T>& task : tasks) values.push_back(task.take());
  co_return values;
}

inline Task<void> when_all(std::vector<Task<void>> tasks) {
  std::vector<detail::Child> children;
  children.reserve(tasks.size());
  for (const Task<void>& task : tasks) children.push_back(task.child());
  co_await detail::Start(children, children.size());
  for (Task<void>& task : tasks) task.take();
}

// The first that is finished: index() of the variant says which. The others are destroyed before this returns, those
// further right perhaps without having begun. Destroying one that awaits an operation of its own cancels that, which
// takes its connection out of service (see Operation): to give up waiting alone, and keep the connection, let the
// operation live outside and the task await it by reference. An exception of the first passes on; what others would
// have thrown is never known. Nor is what they brought: of several that are finished in one turn of the engine, one is
// the first. So a message, which comes once, may be lost beside a timer: give its wait a timeout instead.
// A task in here awaits, and blocks never (Operation::wait(), ProgressEngine::run(), close() of a connection, ...): one
// that drives the engine itself could be destroyed while it stands on the stack.
//
//   auto first = co_await when_any(answer(connection), timeout(engine));
template <class... T>
Task<std::variant<detail::ValueOf<T>...>> when_any(Task<T>... tasks) {
  static_assert(sizeof...(T) != 0, "the first of none would never come");
  std::tuple<Task<T>...> all{std::move(tasks)...};
  std::array<detail::Child, sizeof...(T)> children{};
  std::apply([&](const Task<T>&... task) { children = {task.child()...}; }, all);
  const std::size_t which = co_await detail::Start(children, 1);
  co_return detail::take_one(all, which);
}

template <class T>
struct FirstOf {
  std::size_t index = 0;
  T value;
};

// `tasks` is not empty: of none it ends the program.
template <class T>
Task<FirstOf<detail::ValueOf<T>>> when_any(std::vector<Task<T>> tasks) {
  if (tasks.empty()) detail::abort_on_bad_task_use("awaits when_any() of no tasks: the first of none never comes");
  std::vector<Task<T>> all = std::move(tasks);  // arguments would live as long as what is returned
  std::vector<detail::Child> children;
  children.reserve(all.size());
  for (const Task<T>& task : all) children.push_back(task.child());
  const std::size_t which = co_await detail::Start(children, 1);
  co_return FirstOf<detail::ValueOf<T>>{which, detail::take(all[which])};
}

}  // namespace verbena
