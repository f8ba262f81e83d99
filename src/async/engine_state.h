// SPDX-License-Identifier: Apache-2.0
// What a progress engine drives, and how outcomes find their way: events by object id, completions by a table index in
// their id, so that dispatch neither searches nor allocates.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "async/keep_alive_window.h"
#include "async/operation_list.h"
#include "async/resumptions.h"
#include "base/fifo.h"
#include "base/holdings.h"
#include "device/device_state.h"
#include "verbena/async/progress_engine.h"
#include "verbena/async/task.h"

namespace verbena {

class OperationQueue;

// Something that a device's events speak of.
class EventHandler {
 public:
  virtual ~EventHandler() = default;
  // The handler may destroy itself in here.
  virtual void handle_event(const provider::Event& event) = 0;
};

// A completion queue shared by several channels, never promised more completions than it holds.
struct CompletionShard {
  provider::CqId id{};
  provider::CompletionQueueOps* ops = nullptr;
  std::uint32_t capacity = 0;
  std::uint32_t promised = 0;
  bool broken = false;  // it overran: what is in it is all that it will ever have
};

// A device as one engine sees it.
class AttachedDevice {
 public:
  explicit AttachedDevice(Device& attached);
  ~AttachedDevice();
  AttachedDevice(const AttachedDevice&) = delete;
  AttachedDevice& operator=(const AttachedDevice&) = delete;

  Device& device() { return *state_.owner; }
  DeviceState& state() { return state_; }
  provider::Context& context() const { return state_.context(); }
  const DeviceInfo& info() const { return context().info(); }

  // Room for that many completions; give it back with release().
  Result<CompletionShard*> reserve(std::uint32_t completions);
  static void release(CompletionShard& shard, std::uint32_t completions) { shard.promised -= completions; }
  std::vector<std::unique_ptr<CompletionShard>>& shards() { return shards_; }

  std::unordered_map<std::uint64_t, EventHandler*> connections;  // by provider::ConnectionId
  std::unordered_map<std::uint64_t, EventHandler*> listeners;    // by provider::ListenerId
  std::unordered_map<std::uint32_t, EventHandler*> queue_pairs;  // by QPN
  std::unordered_map<std::uint32_t, EventHandler*> receive_pools;  // by provider::SrqId

 private:
  friend class EngineState;
  DeviceState& state_;
  std::vector<std::unique_ptr<CompletionShard>> shards_;
};

class EngineState {
 public:
  explicit EngineState(const EngineOptions& options)
      : options_(options), round_fork_(holdings::do_round_fork({.in_child = [this] { inherited_ = true; }})) {}
  ~EngineState();
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  Result<void> open_descriptors();
  Result<void> add(Device& device);
  AttachedDevice& first() { return *devices_.front(); }
  // The one for `device`, or the first for nullptr; null when it is not attached.
  AttachedDevice* find(Device* device);

  bool run_once();
  // The same for who may stand in a handler of a loop that waits for fd().
  bool run_for_program();
  // Of all devices; see provider::Context.
  void gather_posts(bool on) {
    for (const auto& device : devices_) device->context().gather_posts(on);
  }
  void wait(Instant until);
  void wake();
  int fd() const { return has_unserved_ ? -1 : epoll_fd_; }
  bool prepare_wait();
  Instant now() { return first().context().now(); }

  // ---- For channels and pools of receives. A key is the upper half of the ids of a channel's requests.
  std::uint32_t add_channel(OperationQueue& channel);
  void remove_channel(std::uint32_t key);
  // Null when it is gone.
  OperationQueue* channel_of(std::uint32_t key);
  void note_activity() { active_ = true; }
  // For requests on their way to a device; of whoever posts, until then.
  std::vector<SendRequest>& send_list() { return send_list_; }
  std::vector<ReceiveRequest>& receive_list() { return receive_list_; }
  // This run left completions where they are; whoever sends more holds nothing up for longer than that many runs.
  bool left_completions() const { return more_waits_; }
  std::uint32_t runs_to_hand_out() const;
  std::uint64_t runs_drained() const { return runs_drained_; }
  // Callbacks run inside a destructor.
  bool is_draining() const { return draining_; }
  // That channel wants Channel::tend() in this run or one after it, behind the completions that are there.
  void tend_soon(std::uint32_t key) {
    tend_soon_.push_back({key, runs_drained_});
    leave_wait();
  }
  // It wants Channel::keep_alive() at another time than it said, and says so again in it; never() is not at all.
  // From time to time it allocates nothing.
  void move_keep_alive(Instant from, Instant to, std::uint32_t key);
  KeepAliveWindow& keep_alive_window() { return keep_alive_window_; }

  // ---- For what calls its user, who may run the engine, which then calls inside. Of more than that many inside each
  // other none begins: a stack is finite. `tick` goes on when one of them has returned.
  bool may_call(detail::Resumption& tick) {
    constexpr int kMost = 1024;
    if (calls_ < kMost) return true;
    held_.push_back(tick);
    return false;
  }
  void begin_call() { ++calls_; }
  void end_call() {
    for (--calls_; !held_.empty();) held_.first().make_ready();
  }
  // In a forked child: all that was made with it is its parent's.
  bool is_inherited() const { return inherited_; }
  static Error inherited_error(const std::string& what) {
    return Error(ErrorCode::WrongState, "this process was forked off, and the " + what + " is its parent's");
  }
  // The program's, wherever it was moved to.
  ProgressEngine& owner() { return *owner_; }
  void set_owner(ProgressEngine& owner) { owner_ = &owner; }

  // ---- For operations.
  void fail_later(Operation& operation);      // told by the next run_once()
  void watch_deadline(Operation& operation);  // in flight, and has a deadline
  void forget(Operation& operation);          // takes it out of the lists

  // With `looks`, done() may hold without any event, and is asked that often.
  template <class Predicate>
  bool run_until(Predicate&& done, Instant deadline = Instant::never(), std::optional<Duration> looks = {}) {
    const KeepWaited kept(*this);
    while (!done())
      if (!run_or_wait(deadline, looks)) return done();
    return true;
  }
  // run_once(), and wait() where it finds nothing. False when the deadline has come.
  bool run_or_wait(Instant deadline, std::optional<Duration> looks = {});
  // For destructors: no coroutine resumes meanwhile.
  template <class Predicate>
  void drain_until(Predicate&& done) {
    const Holding held(draining_, true);
    run_until(std::forward<Predicate>(done));
  }

  // ---- For coroutines.
  void resume_soon(detail::Resumption& r) {
    resumptions_.add_ready(r);
    leave_wait();
  }
  void resume_at(detail::Resumption& r, Instant at) {
    resumptions_.add_timer(r, at);
    leave_wait();
  }
  void forget_timer(detail::Resumption& r) { resumptions_.remove_timer(r); }
  void spawn(Task<void> task);
  template <class T>
  T run(Task<T> task) {
    detail::Join end(1);
    drive(task.child(), end);
    return task.take();
  }
  // Starts it and runs until it is finished.
  void drive(const detail::Child& task, detail::Join& end);

 private:
  // A task without an awaiter.
  class Spawned final : public detail::Join {
   public:
    explicit Spawned(Task<void> its_task) : Join(1), task(std::move(its_task)) {}
    Task<void> task;
    std::list<Spawned>::iterator place;
  };
  // A value for a while.
  class Holding {
   public:
    Holding(bool& held, bool value) : held_(held), before_(std::exchange(held, value)) {}
    ~Holding() { held_ = before_; }
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;

   private:
    bool& held_;
    const bool before_;
  };
  // Whether somebody outside of this library waits for fd(), or was woken there and has not run the engine since.
  enum class Outside { Elsewhere, Waits, Woken };
  // Inside a loop that waits for fd(): what this run began to look for, and did not find, is that loop's again; and so
  // is the wake-up that was on its way there.
  class KeepWaited {
   public:
    explicit KeepWaited(EngineState& engine) : engine_(engine), before_(engine.outside_) {}
    ~KeepWaited() {
      if (before_ == Outside::Elsewhere || engine_.outside_ == before_) return;
      engine_.outside_ = Outside::Woken;
      engine_.wake();
    }
    // It took nothing away.
    void give_back() { engine_.outside_ = before_; }
    KeepWaited(const KeepWaited&) = delete;
    KeepWaited& operator=(const KeepWaited&) = delete;

   private:
    EngineState& engine_;
    const Outside before_;
  };
  static void begin(detail::Resumption& spawned);
  static void finish(detail::Resumption& spawned);
  struct Entry {
    OperationQueue* channel = nullptr;
    std::uint32_t generation = 0;
  };
  static constexpr std::uint32_t kIndexBits = 20;  // of a key; the rest is the generation

  bool run_device(AttachedDevice& device);
  bool drain(CompletionShard& shard);
  void break_shard(AttachedDevice& device, provider::CqId cq);
  void dispatch(const Completion& completion);
  void dispatch(AttachedDevice& device, const provider::Event& event);
  bool tell_failures();
  bool expire_deadlines();
  bool tend_wanted();
  bool keep_alive_due();
  Instant next_keep_alive() const {
    return keep_alives_.empty() ? Instant::never()
                                : std::max(keep_alives_.begin()->first, keep_alive_window_.opens_at());
  }
  Instant next_due() const {
    return std::min({next_deadline_, next_keep_alive(), resumptions_.next_due()});
  }
  bool is_virtual() { return epoll_fd_ < 0; }
  bool resume_due();
  bool has_ready() const { return !draining_ && resumptions_.has_ready(); }
  // Work that begins while somebody waits for fd() outside of this library makes that readable.
  void leave_wait() {
    if (outside_ != Outside::Waits) return;
    outside_ = Outside::Woken;
    wake();
  }
  bool look_ahead();
  void sleep(Instant until);
  void sleep_in_child(Instant until);
  void arm_timer(Instant until);

  const EngineOptions options_;
  std::vector<std::unique_ptr<AttachedDevice>> devices_;
  std::vector<Entry> channels_;
  std::vector<std::uint32_t> free_channels_;
  struct Tend {
    std::uint32_t key = 0;
    std::uint64_t asked_in = 0;  // runs drained by then
  };
  Fifo<Tend> tend_soon_;
  std::set<std::pair<Instant, std::uint32_t>> keep_alives_;  // when, and the channel's key
  KeepAliveWindow keep_alive_window_;
  // Completions taken from a queue and not yet dispatched. A nested run goes on where the outer one stands.
  std::array<Completion, 64> batch_;
  std::size_t batch_next_ = 0, batch_end_ = 0;
  bool more_waits_ = false;          // the last look at a queue ended before it was empty
  std::uint64_t runs_drained_ = 0;   // that handed out all they may; nested ones, too
  OperationList failing_;
  OperationList timed_;
  Instant next_deadline_ = Instant::never();
  std::vector<SendRequest> send_list_;
  std::vector<ReceiveRequest> receive_list_;
  bool active_ = true;  // something happened since the last look at the clock
  std::uint32_t runs_ = 0;
  Instant last_activity_;
  detail::Resumptions resumptions_;
  detail::ResumptionList held_;
  int calls_ = 0;
  ProgressEngine* owner_ = nullptr;
  std::list<Spawned> spawned_;
  const std::uint64_t round_fork_;
  bool inherited_ = false;
  bool draining_ = false;  // a destructor waits
  Outside outside_ = Outside::Elsewhere;
  std::atomic<bool> woken_{false};
  std::atomic<bool> sleeps_in_device_{false};
  bool waited_in_device_ = false;  // for which fd() tells of no event; nothing was run since
  bool has_unserved_ = false;  // a device that tells its descriptor nothing while nobody drives it
  provider::Context* first_context_ = nullptr;  // once it is there; any thread
  int epoll_fd_ = -1, wake_fd_ = -1, timer_fd_ = -1;
  std::uint64_t generation_ = 0;  // holdings::generation() when they were made
};

}  // namespace verbena
