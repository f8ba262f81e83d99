// SPDX-License-Identifier: Apache-2.0
// Driving and dispatch. Waiting stands in engine_wait.cc.
#include "async/engine_state.h"

#include <algorithm>

#include "async/operation_queue.h"
#include "base/assert.h"
#include "base/holdings.h"

namespace verbena {

namespace {

constexpr std::uint32_t kShardEntries = 4096;
constexpr int kBatchesPerQueue = 8;  // one busy queue does not starve the others
constexpr std::uint32_t kLeastPerTurn = 7 * 64;  // completions of a queue that has as many

// So often all that is in a queue now was handed out.
std::uint32_t turns_to_empty(const CompletionShard& shard) { return shard.capacity / kLeastPerTurn + 1; }

class GatheredPosts {
 public:
  GatheredPosts(EngineState& engine, bool on) : engine_(engine), on_(on) {
    if (on_) engine_.gather_posts(true);
  }
  ~GatheredPosts() {
    if (on_) engine_.gather_posts(false);
  }
  GatheredPosts(const GatheredPosts&) = delete;
  GatheredPosts& operator=(const GatheredPosts&) = delete;

 private:
  EngineState& engine_;
  const bool on_;
};

}  // namespace

AttachedDevice::AttachedDevice(Device& attached) : state_(attached.state()) {}

AttachedDevice::~AttachedDevice() {
  for (const auto& shard : shards_) static_cast<void>(context().destroy_cq(shard->id));
  state_.has_engine.store(false);
}

Result<CompletionShard*> AttachedDevice::reserve(std::uint32_t completions) {
  for (const auto& shard : shards_) {
    if (shard->broken || shard->capacity - shard->promised < completions) continue;
    shard->promised += completions;
    return shard.get();
  }
  const std::uint32_t most = context().info().max_completion_entries;
  const std::uint32_t capacity = std::max(std::min(kShardEntries, most), completions);
  auto id = context().create_cq({capacity, true});
  if (!id) return id.error();
  auto shard = std::make_unique<CompletionShard>();
  shard->id = *id;
  shard->ops = context().cq(*id);
  shard->capacity = capacity;
  shard->promised = completions;
  shards_.push_back(std::move(shard));
  return shards_.back().get();
}

// What tasks hold still finds the engine at work.
EngineState::~EngineState() {
  holdings::forget_round_fork(round_fork_);
  draining_ = true;
  while (!spawned_.empty()) {
    const Task<void> task = std::move(spawned_.front().task);
    spawned_.pop_front();
  }
  const auto has_channel = [](const Entry& entry) { return entry.channel != nullptr; };
  VERBENA_REQUIRE(std::none_of(channels_.begin(), channels_.end(), has_channel),
                  "destroys a ProgressEngine before a Connection or ReceivePool, or what has one, made with it");
  for (const auto& device : devices_)
    VERBENA_REQUIRE(device->listeners.empty(), "destroys a ProgressEngine before a Listener that was made with it");
  devices_.clear();
  for (const int fd : {epoll_fd_, wake_fd_, timer_fd_})
    if (fd >= 0) holdings::close(fd);
}

AttachedDevice* EngineState::find(Device* device) {
  if (device == nullptr) return devices_.front().get();
  for (const auto& attached : devices_)
    if (&attached->state() == &device->state()) return attached.get();
  return nullptr;
}

std::uint32_t EngineState::add_channel(OperationQueue& channel) {
  if (free_channels_.empty()) {
    free_channels_.push_back(static_cast<std::uint32_t>(channels_.size()));
    channels_.push_back({});
    VERBENA_ASSERT(channels_.size() <= 1u << kIndexBits);
  }
  const std::uint32_t index = free_channels_.back();
  free_channels_.pop_back();
  channels_[index].channel = &channel;
  leave_wait();  // its completion queue may be a new one, which nobody has armed
  return channels_[index].generation << kIndexBits | index;
}

// Completions that are still under way carry the old generation and find nobody.
void EngineState::remove_channel(std::uint32_t key) {
  const std::uint32_t index = key & ((1u << kIndexBits) - 1);
  channels_[index].channel = nullptr;
  channels_[index].generation = (channels_[index].generation + 1) & ((1u << (32 - kIndexBits)) - 1);
  free_channels_.push_back(index);
}

void EngineState::dispatch(const Completion& completion) {
  OperationQueue* const channel = channel_of(static_cast<std::uint32_t>(completion.id >> 32));
  if (channel != nullptr) channel->handle_completion(completion);
}

OperationQueue* EngineState::channel_of(std::uint32_t key) {
  const Entry& entry = channels_[key & ((1u << kIndexBits) - 1)];
  return entry.generation == key >> kIndexBits ? entry.channel : nullptr;
}

void EngineState::dispatch(AttachedDevice& device, const provider::Event& event) {
  using Kind = provider::Event::Kind;
  const auto call = [&](auto& handlers, auto key) {
    const auto found = handlers.find(key);
    if (found == handlers.end()) return false;
    found->second->handle_event(event);
    return true;
  };
  switch (event.kind) {
    case Kind::Completion:
      break;  // completions are looked for anyway
    case Kind::Async:
      if (event.async == AsyncEventType::CqError) return break_shard(device, event.cq);
      if (event.async == AsyncEventType::SrqLimitReached)
        call(device.receive_pools, static_cast<std::uint32_t>(event.srq));
      else
        call(device.queue_pairs, event.qpn.value());
      break;
    case Kind::ConnectRequest:
      if (call(device.listeners, static_cast<std::uint64_t>(event.listener))) break;
      // The listener is gone, as it is told.
      static_cast<void>(device.context().destroy_connection(event.connection));
      break;
    default:
      call(device.connections, static_cast<std::uint64_t>(event.connection));
      break;
  }
}

void EngineState::break_shard(AttachedDevice& device, provider::CqId cq) {
  for (const auto& shard : device.shards()) {
    if (shard->id != cq) continue;
    shard->broken = true;
    for (std::uint32_t i = 0; i < channels_.size(); ++i)
      if (channels_[i].channel != nullptr && channels_[i].channel->completes_in(*shard))
        tend_soon(channels_[i].generation << kIndexBits | i);
  }
}

// One that is broken is emptied: its channels take for lost what is not in it.
bool EngineState::drain(CompletionShard& shard) {
  bool any = false;
  for (int batches = 0; shard.broken || batches < kBatchesPerQueue; ++batches) {
    if (batch_next_ < batch_end_) {
      // What several callbacks, or tasks, post leaves together. Two are likely a SEND's and its answer's.
      const GatheredPosts gathered(*this, batch_end_ - batch_next_ > 2);
      while (batch_next_ < batch_end_) {
        any = true;
        const Completion completion = batch_[batch_next_++];
        dispatch(completion);
      }
    }
    batch_next_ = 0;
    batch_end_ = shard.ops->poll(batch_);
    if (batch_end_ == 0) return any;
  }
  more_waits_ = true;
  return any;
}

std::uint32_t EngineState::runs_to_hand_out() const {
  std::uint32_t most = 0;
  for (const auto& device : devices_)
    for (const auto& shard : device->shards()) most = std::max(most, turns_to_empty(*shard));
  return most;
}

// Events first: they say why completions end as they do.
bool EngineState::run_device(AttachedDevice& device) {
  bool any = device.context().progress();
  while (auto event = device.context().poll_event()) {
    dispatch(device, *event);
    any = true;
  }
  for (std::size_t i = 0; i < device.shards().size(); ++i)
    if (drain(*device.shards()[i])) any = true;
  return any;
}

bool EngineState::run_once() {
  bool any = false;
  outside_ = Outside::Elsewhere;
  more_waits_ = false;
  for (std::size_t i = 0; i < devices_.size(); ++i)
    if (run_device(*devices_[i])) any = true;
  ++runs_drained_;
  waited_in_device_ = false;
  if (!failing_.empty() && tell_failures()) any = true;
  if (!next_deadline_.is_never() && expire_deadlines()) any = true;
  if (!tend_soon_.empty() && tend_wanted()) any = true;
  if (!keep_alives_.empty() && keep_alive_due()) any = true;
  if (resume_due()) any = true;
  active_ = active_ || any;
  return any;
}

bool EngineState::run_for_program() {
  KeepWaited kept(*this);
  const bool any = run_once();
  if (!any) kept.give_back();
  return any;
}

// ---- Coroutines.

bool EngineState::resume_due() {
  const bool expired = !resumptions_.next_due().is_never() && resumptions_.expire(now());
  if (!has_ready()) return expired;
  const GatheredPosts gathered(*this, resumptions_.has_several_ready());
  return resumptions_.run() || expired;
}

void EngineState::spawn(Task<void> task) {
  static_cast<void>(task.child());  // not empty
  Spawned& spawned = spawned_.emplace_back(std::move(task));
  spawned.place = std::prev(spawned_.end());
  spawned.bind(*this, &EngineState::begin);
  spawned.make_ready();
}

// A task that is waited for resumes even where a callback does so while a destructor drains.
void EngineState::drive(const detail::Child& task, detail::Join& end) {
  const Holding held(draining_, false);
  task.promise->start(*this, 0, end, task.handle);
  run_until([&] { return end.complete(); });
}

void EngineState::begin(detail::Resumption& resumption) {
  auto& spawned = static_cast<Spawned&>(resumption);
  EngineState& engine = spawned.engine();
  spawned.bind(engine, &EngineState::finish);
  const detail::Child child = spawned.task.child();
  child.promise->start(engine, 0, spawned, child.handle);
}

// What escaped the task goes to whoever drives the engine.
void EngineState::finish(detail::Resumption& resumption) {
  auto& spawned = static_cast<Spawned&>(resumption);
  Task<void> task = std::move(spawned.task);
  spawned.engine().spawned_.erase(spawned.place);
  task.take();
}

// ---- Operations.

void EngineState::fail_later(Operation& operation) {
  leave_wait();
  VERBENA_ASSERT(!operation.listed_);
  failing_.push_back(operation);
  operation.listed_ = true;
}

// Those that callbacks start anew, and that are refused again, wait for the next run.
bool EngineState::tell_failures() {
  for (std::size_t left = failing_.size(); left > 0 && !failing_.empty(); --left) {
    Operation& operation = *failing_.first();
    failing_.remove(operation);
    operation.listed_ = false;
    operation.queue_->told(operation);
  }
  return true;
}

void EngineState::watch_deadline(Operation& operation) {
  leave_wait();
  if (!operation.listed_) {
    timed_.push_back(operation);
    operation.listed_ = true;
  }
  next_deadline_ = std::min(next_deadline_, operation.deadline_);
}

void EngineState::forget(Operation& operation) {
  if (!operation.listed_) return;
  OperationList* list = &timed_;
  if (operation.state_ == Operation::State::Failing) list = &failing_;
  list->remove(operation);
  operation.listed_ = false;
}

bool EngineState::expire_deadlines() {
  const Instant current = now();
  if (current < next_deadline_) return false;
  next_deadline_ = Instant::never();
  bool any = false;
  for (Operation *o = timed_.first(), *next = nullptr; o != nullptr; o = next) {
    next = OperationList::next(*o);  // one that ends alone leaves the list
    if (o->ending_ != Operation::Ending::Natural) continue;
    if (o->deadline_ > current) {
      next_deadline_ = std::min(next_deadline_, o->deadline_);
      continue;
    }
    o->queue_->abort(*o, Operation::Ending::Expired);
    any = true;
  }
  return any;
}

bool EngineState::tend_wanted() {
  bool any = false;
  for (std::size_t left = tend_soon_.size(); left > 0 && !tend_soon_.empty(); --left, any = true) {
    if (more_waits_ && runs_drained_ - tend_soon_.front().asked_in < runs_to_hand_out()) break;
    if (OperationQueue* const channel = channel_of(tend_soon_.take_front().key)) channel->tend();
  }
  return any;
}

void EngineState::move_keep_alive(Instant from, Instant to, std::uint32_t key) {
  auto entry = keep_alives_.extract({from, key});
  if (to.is_never()) return;
  if (entry.empty()) {
    keep_alives_.emplace(to, key);
  } else {
    entry.value().first = to;
    keep_alives_.insert(std::move(entry));
  }
  leave_wait();
}

bool EngineState::keep_alive_due() {
  const Instant current = now();
  bool any = false;
  for (; next_keep_alive() <= current; any = true) channel_of(keep_alives_.begin()->second)->keep_alive(current);
  return any;
}

}  // namespace verbena
