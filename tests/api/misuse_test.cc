// SPDX-License-Identifier: Apache-2.0
// Wrong use that the types forbid: each line says what does not compile, and beside it stands the right use that does.
// What only a whole program can show to be refused, a diagnosed discard or a failed static_assert, is in misuse/.
#include <gtest/gtest.h>

#include <coroutine>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "verbena/verbena.h"

namespace verbena {
namespace {

// ---- Owners: one of each at a time, which may move.

template <class... T>
constexpr bool kMoveOnly = ((std::is_nothrow_move_constructible_v<T> && std::is_move_assignable_v<T> &&
                             !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>) &&
                            ...);
template <class... T>
constexpr bool kFixed = ((!std::is_move_constructible_v<T> && !std::is_move_assignable_v<T> &&
                          !std::is_copy_constructible_v<T> && !std::is_copy_assignable_v<T>) &&
                         ...);

static_assert(kMoveOnly<Device, ProtectionDomain, MemoryRegion, CompletionQueue, SharedReceiveQueue, QueuePair>);
static_assert(kMoveOnly<BufferPool, Buffer, RegistrationCache, Registration>);
static_assert(kMoveOnly<ProgressEngine, ReceivePool, Listener, ConnectionRequest, Connection>);
static_assert(kMoveOnly<messaging::Sender, messaging::Reservation, messaging::Receiver, messaging::Message>);
static_assert(kMoveOnly<Task<>, Task<Result<Connection>>>);
// The device or the engine knows these by their place.
static_assert(kFixed<Operation, Operation::Awaiter, ProgressEngine::Gathered, Reconnector>);
static_assert(kFixed<messaging::Sending, messaging::Freeing, messaging::Receiving>);

// What it takes a factory to make: a failure is told, and no object is half alive.
template <class... T>
constexpr bool kHasNoEmptyState = (!std::is_default_constructible_v<T> && ...);
static_assert(kHasNoEmptyState<Device, ProtectionDomain, CompletionQueue, SharedReceiveQueue, QueuePair, BufferPool>);
static_assert(kHasNoEmptyState<ProgressEngine, ReceivePool, Listener, ConnectionRequest, Connection>);
static_assert(kHasNoEmptyState<messaging::Sender, messaging::Receiver>);

// ---- Numbers of one kind are not those of another, nor plain ones.

template <class From, class To>
constexpr bool kBecomes = std::is_convertible_v<From, To> && std::is_assignable_v<To&, From>;

static_assert(!kBecomes<std::uint32_t, Qpn> && !kBecomes<Qpn, std::uint32_t>);
static_assert(!kBecomes<std::uint32_t, Psn> && !kBecomes<Psn, std::uint32_t> && !kBecomes<Psn, Qpn>);
static_assert(!kBecomes<std::uint32_t, LKey> && !kBecomes<LKey, std::uint32_t> && !kBecomes<Qpn, LKey>);
static_assert(!kBecomes<std::uint32_t, RKey> && !kBecomes<RKey, std::uint32_t> && !kBecomes<Qpn, RKey>);
static_assert(!kBecomes<LKey, RKey> && !kBecomes<RKey, LKey>);
static_assert(!kBecomes<std::int64_t, Duration> && !kBecomes<std::int64_t, Instant>);
static_assert(!kBecomes<Duration, Instant> && !kBecomes<Instant, Duration>);
static_assert(!kBecomes<int, Access> && !kBecomes<SendFlags, Access> && !kBecomes<Access, int>);

template <class A, class B>
concept Compares = requires(const A& a, const B& b) { a == b; };
static_assert(Compares<Qpn, Qpn> && !Compares<Qpn, std::uint32_t> && !Compares<Qpn, Psn>);
static_assert(!Compares<LKey, std::uint32_t> && !Compares<RKey, std::uint32_t> && !Compares<LKey, RKey> &&
              !Compares<Duration, Instant>);
template <class T>
concept IsOrdered = requires(const T& a, const T& b) { a < b; };
static_assert(IsOrdered<Qpn> && !IsOrdered<Psn>);  // it wraps: is_before() and distance() order it
template <class A, class B>
concept Adds = requires(const A& a, const B& b) { a + b; };
static_assert(Adds<Instant, Duration> && !Adds<Instant, Instant> && !Adds<Duration, int>);

template <class O, class... A>
concept Waits = requires(O& operation, A... a) { operation.wait(a...); };
static_assert(Waits<Operation> && Waits<Operation, Duration> && !Waits<Operation, int> && !Waits<Operation, Instant>);
template <class E, class T>
concept RunsUntil = requires(E& engine, bool (*done)(), T end) { engine.run_until(done, end); };
static_assert(RunsUntil<ProgressEngine, Duration> && RunsUntil<ProgressEngine, Instant>);
static_assert(!RunsUntil<ProgressEngine, int> && !RunsUntil<ProgressEngine, double>);

// ---- Which memory: what may change is registered, and stays where it is.

template <class D, class M>
concept Registers = requires(D& domain, M&& memory) { domain.register_memory(std::forward<M>(memory)); };
template <class D>
constexpr bool kRegistersWhatMayChange =
    Registers<D, std::vector<std::byte>&> && Registers<D, std::array<int, 4>&> && Registers<D, long (&)[8]> &&
    Registers<D, std::span<std::byte>> && !Registers<D, const std::vector<std::byte>&> &&
    !Registers<D, std::span<const std::byte>> && !Registers<D, const std::string&> && !Registers<D, const char (&)[6]>;
template <class D>
constexpr bool kRegistersNothingThatGoes = !Registers<D, std::vector<std::byte>> && !Registers<D, std::vector<int>> &&
                                           !Registers<D, std::array<std::byte, 4>> && !Registers<D, std::string>;
template <class D>
constexpr bool kRegistersPlainValues = !Registers<D, std::vector<std::string>&> && !Registers<D, std::vector<bool>&> &&
                                       !Registers<D, std::vector<std::unique_ptr<int>>&>;
static_assert(kRegistersWhatMayChange<Device> && kRegistersWhatMayChange<ProtectionDomain>);
static_assert(kRegistersNothingThatGoes<Device> && kRegistersNothingThatGoes<ProtectionDomain>);
static_assert(kRegistersPlainValues<Device> && kRegistersPlainValues<ProtectionDomain>);

template <class C, class M>
concept Acquires = requires(C& cache, M&& memory) { cache.acquire(std::forward<M>(memory)); };
static_assert(Acquires<RegistrationCache, std::vector<std::byte>&>);
static_assert(!Acquires<RegistrationCache, std::vector<std::byte>>);
static_assert(!Acquires<RegistrationCache, const std::vector<std::byte>&>);

// ---- Which end: local pieces here, the peer's memory there, bytes that nobody registered in neither place.

template <class C, class Local, class Remote>
concept Writes = requires(C& connection, Operation& o, const Local& local, const Remote& remote) {
  connection.write(local, remote);
  connection.write(o, local, remote);
};
template <class C, class Local, class Remote>
concept Reads = requires(C& connection, const Local& local, const Remote& remote) { connection.read(local, remote); };
static_assert(Writes<Connection, ScatterGather, RemoteMemory> && Reads<Connection, ScatterGather, RemoteMemory>);
static_assert(Writes<Connection, std::vector<ScatterGather>, RemoteMemory>);
static_assert(!Writes<Connection, RemoteMemory, ScatterGather> && !Reads<Connection, RemoteMemory, ScatterGather>);
static_assert(!Writes<Connection, RemoteMemory, RemoteMemory> && !Writes<Connection, ScatterGather, ScatterGather>);
static_assert(!Writes<Connection, std::span<const std::byte>, RemoteMemory>);
static_assert(!Reads<Connection, std::span<const std::byte>, RemoteMemory>);
static_assert(!Writes<Connection, std::string, RemoteMemory> && !Writes<Connection, MemoryRegion, RemoteMemory>);
static_assert(!Writes<Connection, ScatterGather, MemoryRegion>);

template <class C, class Local, class... More>
concept Sends = requires(C& connection, const Local& local, More... more) { connection.send(local, more...); };
static_assert(Sends<Connection, ScatterGather> && Sends<Connection, ScatterGather, SendFlags>);
static_assert(!Sends<Connection, std::vector<std::byte>> && !Sends<Connection, RemoteMemory>);
static_assert(!Sends<Connection, ScatterGather, Access> && !Sends<Connection, ScatterGather, int>);

template <class Q, class Request>
concept PostsSend = requires(Q& queue, const Request& request) { queue.post_send(request); };
template <class Q, class Request>
concept PostsReceive = requires(Q& queue, const Request& request) { queue.post_receive(request); };
static_assert(PostsSend<QueuePair, SendRequest> && !PostsSend<QueuePair, ReceiveRequest>);
static_assert(PostsReceive<QueuePair, ReceiveRequest> && !PostsReceive<QueuePair, SendRequest>);

// ---- What must outlive the call is no temporary.

template <class T>
concept TakesEngine = requires { T::create(std::declval<ProgressEngine&>()); } &&
    !requires { T::create(std::declval<ProgressEngine>()); };
static_assert(TakesEngine<Listener> && TakesEngine<ReceivePool> && TakesEngine<messaging::Receiver>);
template <class E, class D>
concept Drives = requires(E& engine, D&& device) {
  E::create(std::forward<D>(device));
  engine.add(std::forward<D>(device));
};
static_assert(Drives<ProgressEngine, Device&> && !Drives<ProgressEngine, Device>);
template <class C, class E>
concept Connects = requires(E&& engine) { C::connect(std::forward<E>(engine), "127.0.0.1:7471"); };
static_assert(Connects<Connection, ProgressEngine&> && !Connects<Connection, ProgressEngine>);
static_assert(Connects<messaging::Sender, ProgressEngine&> && !Connects<messaging::Sender, ProgressEngine>);
static_assert(std::is_constructible_v<Reconnector, ProgressEngine&, const char*>);
static_assert(!std::is_constructible_v<Reconnector, ProgressEngine, const char*>);

template <class D, class P>
concept Shares = requires(D& device, P&& domain) { device.create_shared_receive_queue(std::forward<P>(domain)); };
static_assert(Shares<Device, ProtectionDomain&> && Shares<Device, const ProtectionDomain&>);
static_assert(!Shares<Device, ProtectionDomain> && Shares<Device, SharedReceiveQueueOptions>);
template <class D, class P, class Q>
concept Pairs = requires(D& device, P&& domain, Q&& queue) {
  device.create_queue_pair(std::forward<P>(domain), std::forward<Q>(queue), std::forward<Q>(queue));
};
static_assert(Pairs<Device, ProtectionDomain&, CompletionQueue&>);
static_assert(!Pairs<Device, ProtectionDomain, CompletionQueue&> && !Pairs<Device, ProtectionDomain&, CompletionQueue>);

template <class P, class D>
concept Pools = requires(D&& domain) { P::create(std::forward<D>(domain)); };
static_assert(Pools<BufferPool, ProtectionDomain&> && !Pools<BufferPool, ProtectionDomain>);
static_assert(std::is_constructible_v<RegistrationCache, ProtectionDomain&>);
static_assert(!std::is_constructible_v<RegistrationCache, ProtectionDomain>);

template <class L, class R>
concept Lends = requires(R&& region) { L::of(std::forward<R>(region), 0, 8); };
static_assert(Lends<messaging::LentMemory, MemoryRegion&> && Lends<messaging::LentMemory, const MemoryRegion&>);
static_assert(!Lends<messaging::LentMemory, MemoryRegion>);

template <class C, class O>
concept Starts = requires(C& connection, O&& operation, const ScatterGather& local) {
  connection.send(std::forward<O>(operation), local);
  connection.receive(std::forward<O>(operation), local);
};
static_assert(Starts<Connection, Operation&> && !Starts<Connection, Operation>);

// ---- What is handed over is handed over visibly.

template <class R, class C>
concept Accepts = requires(R& request, C&& prepared) { request.accept(std::forward<C>(prepared)); };
static_assert(Accepts<ConnectionRequest, Connection> && !Accepts<ConnectionRequest, Connection&>);
static_assert(Accepts<messaging::Receiver, ConnectionRequest> && !Accepts<messaging::Receiver, ConnectionRequest&>);
template <class E, class T>
concept Runs = requires(E& engine, T&& task) { engine.run(std::forward<T>(task)); };
static_assert(Runs<ProgressEngine, Task<int>> && !Runs<ProgressEngine, Task<int>&>);
template <class E, class T>
concept Spawns = requires(E& engine, T&& task) { engine.spawn(std::forward<T>(task)); };
static_assert(Spawns<ProgressEngine, Task<>> && !Spawns<ProgressEngine, Task<>&> && !Spawns<ProgressEngine, Task<int>>);

// ---- Outcomes.

static_assert(!std::is_convertible_v<Result<int>, int> && !std::is_convertible_v<Result<bool>, bool>);
static_assert(!std::is_convertible_v<Result<void>, bool> && !std::is_convertible_v<PostResult, bool>);
static_assert(!std::is_convertible_v<messaging::SendResult, bool>);
static_assert(std::is_convertible_v<Qpn, Result<Qpn>> && std::is_convertible_v<const char*, Result<std::string>>);
static_assert(!std::is_convertible_v<ErrorCode, Result<int>> && !std::is_constructible_v<Error, ErrorCode>);

// ---- Names are names.

template <class D, class T>
concept Opens = requires(T name) { D::open(name); };
static_assert(Opens<Device, const char*> && Opens<Device, OpenOptions>);
static_assert(!Opens<Device, std::nullptr_t> && !Opens<Device, int>);

// ---- A task is awaited by a task: another coroutine has no engine to go on in.

template <class Promise>
concept AwaitsTask = requires(Task<> task, std::coroutine_handle<Promise> who) {
  task.operator co_await().await_suspend(who);
};
static_assert(AwaitsTask<Task<int>::promise_type> && !AwaitsTask<std::noop_coroutine_promise>);

TEST(Misuse, is_refused_by_the_compiler) { SUCCEED() << "the assertions above held when this was compiled"; }

}  // namespace
}  // namespace verbena
