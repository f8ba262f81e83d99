// SPDX-License-Identifier: Apache-2.0
// Whole programs in virtual time: hosts with a device and an engine each, in one thread, and between them a network
// that delays, reorders, doubles, damages and loses. Hours pass in moments, and one seed repeats a run.
//
// Beside GoogleTest, whose namespace has the same last name, write verbena::testing and ::testing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include "verbena/async/progress_engine.h"
#include "verbena/async/task.h"
#include "verbena/base/gid.h"
#include "verbena/base/inner.h"
#include "verbena/base/result.h"
#include "verbena/base/time.h"
#include "verbena/device/device.h"
#include "verbena/testing/network_faults.h"

namespace verbena::testing {

class HostState;
class NetworkState;

namespace detail {

// What running a Task<T> gives: a task whose result may be an error has room for another one.
template <class T>
struct RunResult {
  using Type = Result<T>;
};
template <class T>
struct RunResult<Result<T>> {
  using Type = Result<T>;
};

}  // namespace detail

// One host of a VirtualNetwork: a name for it, which may be copied.
//
// Lifetime: the network owns the host, its device and its engine; what was made on them goes before the network does.
// Threads: the network's.
class VirtualHost {
 public:
  // It takes no part in shared memory: all connections go by packets, those of a host to itself among them. Variables
  // of the environment say nothing to it.
  Device& device() const;
  ProgressEngine& engine() const;
  // 10.0.0.1 of the first host, 10.0.0.2 of the second, and so on: a listener is reached at "10.0.0.1:7471".
  Gid address() const;

  // The host does nothing until it goes on, its timers among it; what comes waits, 64 datagrams at most, and what is
  // due happens then. A call that drives its engine from outside of the network, such as engine().run(), goes on.
  void pause();
  void resume();
  // The host does nothing any more, and nobody hears of it: what its objects say at their end goes nowhere. For good.
  void crash();

  // For the library.
  HostState& state() const { return *state_; }

 private:
  friend class VirtualNetwork;
  explicit VirtualHost(HostState& state) : state_(&state) {}
  HostState* state_;
};

struct NetworkOptions {
  std::uint32_t path_mtu = 1024;  // payload bytes per packet: 256, 512, 1024, 2048 or 4096
};

// Hosts, a network between them, and the clock of all. Time passes only while every host has nothing to do, and then at
// once up to what happens next.
//
//   auto network = *testing::VirtualNetwork::create(seed, {.loss = 0.05});
//   testing::VirtualHost server = *network.add_host(), client = *network.add_host();
//   server.engine().spawn(serve(server.engine()));
//   Result<int> answers = network.run(client, call(client.engine(), "10.0.0.1:7471"));
//
// Two runs of one program with the same seed are the same, datagram by datagram, as long as the program itself depends
// on nothing else, such as the machine's clock or where its memory lies.
//
// Programs wait as ever: by co_await, by callbacks, or in calls that block. A call that blocks (Operation::wait(),
// Connection::connect(), engine.run() ...) runs the whole network meanwhile, with no limit but its own: where nothing
// will ever happen again, or time stands still, it ends the process and says so, as there is nobody to return an error
// to. A program that polls in a loop and never waits stops the time of all.
//
// Lifetime: outlives its hosts and all that is made on them. At its end all hosts have crashed: their coroutines are
// destroyed, and none resumes. Threads: one at a time, for the network, its hosts and all that is made on them.
class VirtualNetwork {
 public:
  // A network without hosts; its clock stands at 1 s. Errors: InvalidArgument (a probability that is not 0 to 1, a time
  // that is negative or over a day, a path MTU there is not).
  static Result<VirtualNetwork> create(std::uint64_t seed, const NetworkFaults& faults = {},
                                       const NetworkOptions& options = {});
  VirtualNetwork(VirtualNetwork&& other) noexcept;
  VirtualNetwork& operator=(VirtualNetwork&& other) noexcept;
  ~VirtualNetwork();

  // One more host. Errors: ResourceExhausted (there are 250).
  Result<VirtualHost> add_host();
  Instant now() const;
  std::uint64_t seed() const;

  // ---- Running. Tasks that hosts were given by spawn() run in these calls, and so do callbacks. What one of them
  // throws leaves through the call. Not from within a host's own callbacks and coroutines.
  //
  // Errors, each with the seed in its text: DeadlineExceeded (the limit came first), TimedOut (before it, or without
  // one, nothing would have happened any more on any host that is not paused), ResourceExhausted (hosts found something
  // to do 100,000 times in a row at one moment, and time stands still).

  // Runs all hosts until done() holds, which is asked after each turn of theirs, for `limit` of virtual time at most;
  // what happens just then still happens.
  Result<void> run_until(const std::function<bool()>& done, Duration limit = Duration::seconds(3600));
  // Runs all hosts for that long. Errors: ResourceExhausted.
  Result<void> run_for(Duration duration);
  // Begins the task on that host at once, and runs all hosts until it is finished. Its value, or the exception that
  // left it; of a Task<Result<T>> that Result. After an error of run_until() the task has been destroyed.
  template <class T>
  typename detail::RunResult<T>::Type run(VirtualHost on, Task<T> task, Duration limit = Duration::seconds(3600));

  // ---- What goes wrong. At any time, also from callbacks and coroutines of hosts.

  // The network is another from now on; what is on its way stays so. Errors: as create(), and then nothing has changed.
  Result<void> change_faults(const NetworkFaults& faults);
  // Runs f() when so much time has gone by, between the turns of the hosts. With a negative delay as without one.
  void after(Duration delay, std::function<void()> f);
  // Nothing that is sent from the one to the other arrives any more, until mend(). The way back is another.
  void cut(VirtualHost from, VirtualHost to);
  // All ways that were cut lead on. What was lost on them stays lost.
  void mend();

  // ---- What happened.
  NetworkCounters counters() const;
  // Of every datagram that was on its way: when it came, how long it was, the 12 bytes of its base header. The same for
  // two runs that were the same.
  std::uint64_t hash() const;

  // For the library.
  NetworkState& state() { return *state_; }

 private:
  explicit VirtualNetwork(std::unique_ptr<NetworkState> state);
  // Ends the program where it is another network's, as the calls above do that take one.
  void require_own(VirtualHost host) const;
  verbena::detail::Inner<std::unique_ptr<NetworkState>, "VirtualNetwork"> state_;
};

template <class T>
typename detail::RunResult<T>::Type VirtualNetwork::run(VirtualHost on, Task<T> task, Duration limit) {
  require_own(on);
  verbena::detail::Join end(1);
  Task<T> running = std::move(task);  // goes before what it arrives at
  const verbena::detail::Child child = running.child();
  child.promise->start(on.engine().state(), 0, end, child.handle);
  if (auto over = run_until([&end] { return end.complete(); }, limit); !over) return over.error();
  if constexpr (std::is_void_v<T>) {
    running.take();
    return {};
  } else {
    return running.take();
  }
}

}  // namespace verbena::testing
