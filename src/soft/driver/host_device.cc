// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/host_device.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "base/assert.h"
#include "base/fault_guard.h"
#include "base/holdings.h"
#include "soft/driver/sleep.h"
#include "soft/local/short_send.h"
#include "verbena/base/spin.h"

namespace verbena::soft {

using namespace sleeping;

namespace {

constexpr std::size_t kTrainsPerBatch = 16;
constexpr int kMoreLongTrains = 3;  // that came; a turn takes so many
constexpr std::size_t kTrainsPerTurn = 64;  // then what arrived, and who waits for the device, has its turn
// Who polls and has rings only looks elsewhere so often, which takes microseconds; sooner where that is how rings tell
// which are not looked at; and in each turn so many after something came from there.
constexpr Duration kBetweenLooks = Duration::microseconds(100);
constexpr Duration kBetweenLooksForQuiet = Duration::microseconds(25);
constexpr unsigned kTurnsOfInterest = 128;
constexpr int kLooksPerTurn = 4;
constexpr int kLooksAtRings = fault_guard::kCopiesWords ? 16 : kLooksPerTurn;  // which are shorter
// Who found so many batches at the port without a sleep between will hardly sleep.
constexpr unsigned kFindsUntilUnwatched = 64;
// Of posts that are gathered: a train is the better the longer it is, but records are read while others are written.
constexpr std::size_t kMostGatheredRecords = 32;
// Of posts that are deferred to the next poll: behind so many requests, and so many; or a quarter of what is under way
// where that is more, as long as a train holds them.
constexpr std::uint32_t kManyInFlight = 8;
static_assert(roce::Config{}.max_held_acknowledgements < kManyInFlight);  // a conversation is no stream
constexpr std::uint32_t kManyDeferred = 32;

}  // namespace

HostDevice::HostDevice(const NicConfig& config, std::unique_ptr<RandomSource> random,
                       std::unique_ptr<Port> port, Options options)
    : time_(options.time),
      single_threaded_(options.single_threaded),
      random_(std::move(random)),
      nic_(config, *random_),
      hub_(std::move(options.hub)),
      path_reason_(std::move(options.path_reason)),
      port_(std::move(port)),
      capture_(std::move(options.capture)),
      train_datagrams_(port_->limits().max_datagrams),
      turn_(now()) {
  fault_guard::install();
  if (hub_) hub_->serve(nic_);
  for (std::size_t i = 0; i < kTrainsPerBatch; ++i)
    trains_.push_back(std::make_unique<roce::Train>(port_->limits()));
  batch_.reserve(kTrainsPerBatch);
  if (time_ == nullptr) opened_ = open_descriptors();  // in virtual time nobody sleeps
  round_fork_ = holdings::do_round_fork({[this] { stand_still(); }, [this] { go_on(); },
                                         [this] { go_on_in_child(); }});
  VERBENA_ASSERT(time_ == nullptr || !options.service_thread || single_threaded_);
  if (!opened_ || !options.service_thread || single_threaded_) return;
  opened_ = service_.start([this] { serve(); }, "a device");
}

Result<std::unique_ptr<HostDevice>> HostDevice::open(const NicConfig& config, std::unique_ptr<RandomSource> random,
                                                     std::unique_ptr<Port> port, Options options) {
  auto device = std::make_unique<HostDevice>(config, std::move(random), std::move(port), std::move(options));
  if (!device->opened_) return device->opened_.error();
  return device;
}

// A child is forked between two turns: it has nothing that is half changed, and no lock whose holder it lacks. Where
// one thread at a time uses the device, that thread forks, or none is in it.
void HostDevice::stand_still() {
  if (!single_threaded_) take();
  event_mutex_.lock();
}
void HostDevice::go_on() {
  event_mutex_.unlock();
  if (!single_threaded_) owner_.unlock();
}

// There nobody else waits, sleeps or gathers, and what a put-off turn would write to is not there.
void HostDevice::go_on_in_child() {
  inherited_ = true;
  rest_waits_ = false;
  for (std::atomic<int>* const count : {&waiting_, &waiters_}) count->store(0);
  for (Sleeper* const sleeper : {&waiter_, &service_sleeper_}) sleeper->until.store(0);
  alarm_taken_.store(false);
  service_parked_.store(false);
  if (gatherer_.load() != std::this_thread::get_id()) {
    gatherer_.store({});
    gather_depth_ = 0;
  }
  event_mutex_.unlock();
  owner_.let_go();
}

Result<void> HostDevice::open_descriptors() {
  event_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  for (Sleeper* sleeper : {&waiter_, &service_sleeper_}) {
    sleeper->wake_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sleeper->set_fd = ::epoll_create1(EPOLL_CLOEXEC);
  }
  park_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  alarm_fd_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
  for (const int fd : own_fds())
    if (fd < 0) return Error::from_errno(errno, "make the descriptors of a device");
  bool watched = try_watch(waiter_.set_fd, event_fd_, kEvent) && try_watch(waiter_.set_fd, alarm_fd_, kTimer, true);
  for (Sleeper* sleeper : {&waiter_, &service_sleeper_}) {
    watched = watched && try_watch(sleeper->set_fd, sleeper->wake_fd, kWake);
    watched = watched && (!hub_ || try_watch(sleeper->set_fd, hub_->fd(), kHub));
  }
  if (!watched) return Error::from_errno(errno, "watch the descriptors of a device");
  if (hub_) hub_->ring_in({waiter_.set_fd, service_sleeper_.set_fd}, kBell);
  for (const int fd : own_fds()) holdings::keep_from_children(fd);
  return {};
}

HostDevice::~HostDevice() {
  holdings::forget_round_fork(round_fork_);
  if (inherited_ && capture_) holdings::abandon(std::shared_ptr<Capture>(std::move(capture_)));
  stop_service();
  if (capture_) capture_->flush();
  for (const int fd : own_fds())
    if (fd >= 0) holdings::close(fd);
}

void HostDevice::stop_service() {
  stopping_.store(true);
  signal(service_sleeper_.wake_fd);
  fire_after(park_fd_, Duration{1});
  if (service_.joinable()) service_.join();
}

void HostDevice::on_datagrams(const wire::Path& path, std::optional<std::uint16_t> identification,
                              std::span<const std::byte> bytes, std::size_t segment_bytes) {
  long_train_came_ = long_train_came_ || bytes.size() >= kLongTrainBytes;
  nic_.handle_datagrams(turn_, path, identification, bytes, segment_bytes);
  if (capture_) [[unlikely]] capture_->received(turn_, path, identification, bytes, segment_bytes);
}

// Rings each time. The network, asks and hang-ups each time when any of that is to be expected.
bool HostDevice::receive(Look look) {
  if (inherited_) [[unlikely]] return false;
  if (look == Look::Later) [[unlikely]] return true;
  ++turns_;
  const Duration between = nic_.has_quiet_rings() ? kBetweenLooksForQuiet : kBetweenLooks;
  const bool all = look == Look::Everywhere || turn_ - looked_at_ >= between;
  if (all) looked_at_ = turn_;
  bool any = false;
  if (all || !nic_.only_rings() || turns_ - arrival_turn_ < kTurnsOfInterest)
    any = read_port(look == Look::AsNeeded, all);
  if (!hub_) return any;
  if (all || hub_->any_undecided()) any = hub_->handle_events(turn_, !anyone_sleeps()) || any;
  if (hub_->any_hung_up()) {
    // What the peer sent by the network before it went, as that it goes, comes first.
    constexpr int kMost = 64;
    for (int i = 0; i < kMost && port_->receive(*this, true); ++i) continue;
    hub_->handle_hang_ups(turn_);
  }
  return read_rings(any ? Look::Once : look) || any;
}

// Where packets come and nothing else does, who polls looks a few times before everything else has its turn.
bool HostDevice::read_port(bool again, bool everywhere) {
  const bool waits = again && !nic_.has_rings() && !nic_.transmit_waits();
  const bool expected = waits && turns_ - arrival_turn_ < kTurnsOfInterest;
  for (int looks = expected ? kLooksPerTurn : 1; !port_->receive(*this, everywhere); begin_turn())
    if (--looks == 0 || nic_.doorbell_rang()) return false;
  arrival_turn_ = turns_;
  if (++finds_since_sleep_ % kFindsUntilUnwatched == 0) unwatch_port();
  return true;
}

// Where records come, all the way round takes longer than the next one: who polls looks a few times. And who sleeps is
// mostly woken by one that is alone.
bool HostDevice::read_rings(Look look) {
  const bool expected = nic_.has_few_rings() && turns_ - record_turn_ < kTurnsOfInterest;
  bool any = false;
  if (expected && look == Look::AsNeeded) rest_waits_ = any = await_record();
  if (expected && look == Look::ForOne) rest_waits_ = (any = take_record()) && nic_.rings_look_empty();
  if (!rest_waits_) any = nic_.handle_records(turn_) || any;
  if (any) record_turn_ = turns_;
  return any;
}

// True when it took one, which is all of its turn: likely each side waits for the other. But where one is there at once
// again and again, many are on their way, and a whole turn takes what there is.
bool HostDevice::await_record() {
  int looks = kLooksAtRings;
  for (; nic_.rings_look_empty(); spin_pause())
    if (--looks == 0) return false;
  const bool at_once = looks == kLooksAtRings;
  took_at_once_ = at_once && !took_at_once_;
  return !(at_once && !took_at_once_) && take_record();
}

bool HostDevice::take_record() { return !anyone_sleeps() && nic_.take_short(turn_); }

// What is due waits until all that has come by then is heard, in a whole turn: it may be the answer.
bool HostDevice::drive(When when, Look look) {
  deferred_.store(0, std::memory_order_relaxed);
  long_train_came_ = false;
  bool sent_late = false;
  const bool rest = std::exchange(rest_waits_, false);
  if (rest) {
    nic_.catch_up(turn_);
    sent_late = finish_turn(true, when);
  }
  if ((look == Look::ForOne || (look == Look::AsNeeded && rest)) && nic_.next_deadline() <= turn_) look = Look::Once;
  if (look == Look::ForOne && (nic_.packets_wait() || nic_.records_wait())) look = Look::Once;
  const bool received = receive(look);
  if (rest_waits_) {
    collect_events();
    return true;
  }
  if (nic_.next_deadline() <= turn_) nic_.handle_timeout(turn_);
  const bool any = finish_turn(received, when) || received || sent_late;
  // Long trains are handed out singly, so that what each makes due leaves before the next is taken.
  for (int more = kMoreLongTrains; more != 0 && std::exchange(long_train_came_, false); --more) {
    begin_turn();
    if (receive(Look::Once)) finish_turn(true, when);
  }
  return any;
}

bool HostDevice::finish_turn(bool received, When when) {
  if (nic_.doorbell_rang()) nic_.handle_doorbells(turn_);
  const bool sent = transmit(!received || when == When::Serving, when);
  collect_events();
  if (!received && !sent && capture_) capture_->flush();
  return sent;
}

// A few batches at most, however much a peer reads: who let go of the device sees what is left.
// Data first; acknowledgements that are owed follow in the same call when data went or nothing came in (the
// reply they would have delayed is out, or there is none). Who polls comes back for those that may wait.
bool HostDevice::transmit(bool found_nothing, When when) {
  const Nic::Acks acks = when == When::Polling ? Nic::Acks::Idle : Nic::Acks::Flush;
  const bool wrote_any = nic_.emit_records(turn_);
  bool sent_any = false;
  bool more = found_nothing ? nic_.packets_wait() : nic_.transmit_waits();
  for (std::size_t trains = 0, count = 0; more && trains < kTrainsPerTurn; trains += count) {
    count = 0;
    bool alone = false;
    while (count < kTrainsPerBatch && !alone) {
      const bool flush = found_nothing || sent_any || count != 0;
      const bool due = nic_.poll_transmit(turn_, Nic::Acks::Owed, *trains_[count]);
      if (!due && !(flush && nic_.poll_transmit(turn_, acks, *trains_[count]))) break;
      const bool is_long = trains_[count++]->total_bytes() >= kLongTrainBytes;
      alone = is_long || (due && count == 1 && !nic_.transmit_waits());  // before what is owed is looked at
    }
    more = count == kTrainsPerBatch || (alone && nic_.packets_wait());
    sent_any = sent_any || count != 0;
    if (count != 0) send_batch(count);
  }
  return sent_any || wrote_any;
}

void HostDevice::send_batch(std::size_t count) {
  if (inherited_) [[unlikely]] return;
  batch_.clear();
  for (std::size_t i = 0; i < count; ++i) {
    batch_.push_back(trains_[i].get());
    if (capture_) [[unlikely]] capture_->sent(turn_, *trains_[i]);
  }
  port_->send(batch_);
  // The port may have learned that the network takes no segments: identifications must be what leaves.
  const std::uint32_t most = port_->limits().max_datagrams;
  if (most == train_datagrams_) [[likely]] return;
  train_datagrams_ = most;
  for (const auto& train : trains_) train->limit_datagrams(most);
}

void HostDevice::collect_events() {
  if (!nic_.event_waits()) return;
  const std::lock_guard guard(event_mutex_);
  while (const std::optional<core::Event> event = nic_.poll_event()) pending_events_.push_back(*event);
  while (nic_.cm().event_waits()) {
    auto event = std::make_unique<cm::Event>();
    static_cast<void>(nic_.cm().poll_event(*event));
    pending_events_.push_back(std::move(event));
  }
  event_pending_.store(!pending_events_.empty(), std::memory_order_release);
  if (waiter_drives_ || events_signalled_ || pending_events_.empty()) return;
  events_signalled_ = true;
  signal_event_fd();
}

std::optional<DeviceEvent> HostDevice::poll_event() {
  if (!event_pending_.load(std::memory_order_acquire) && !event_fd_signalled_.load(std::memory_order_relaxed))
    return std::nullopt;
  const std::lock_guard guard(event_mutex_);
  if (pending_events_.empty()) {
    // A wake() that came too late for a wait: nobody waits now, and an event loop would find it for ever.
    if (waiting_.load() == 0) {
      woken_.store(false);
      quiet_event_fd();
      if (waiting_.load() != 0) wake();  // it was meant for who waits since
    }
    return std::nullopt;
  }
  std::optional<DeviceEvent> event = pending_events_.take_front();
  event_pending_.store(!pending_events_.empty(), std::memory_order_release);
  if (pending_events_.empty()) quiet_event_fd();
  return event;
}

std::vector<cm::ConnectionId> HostDevice::take_back_requests(cm::ListenerId listener) {
  std::vector<cm::ConnectionId> requests;
  const std::lock_guard guard(event_mutex_);
  for (std::size_t left = pending_events_.size(); left > 0; --left) {
    DeviceEvent event = pending_events_.take_front();
    const auto* const told = std::get_if<std::unique_ptr<cm::Event>>(&event);
    if (told != nullptr && (*told)->type == cm::EventType::ConnectRequest && (*told)->listener == listener)
      requests.push_back((*told)->connection);
    else
      pending_events_.push_back(std::move(event));
  }
  event_pending_.store(!pending_events_.empty(), std::memory_order_release);
  return requests;
}

bool HostDevice::has_event() {
  if (event_pending_.load(std::memory_order_acquire)) return true;
  if (!event_fd_signalled_.load()) return false;
  const std::lock_guard guard(event_mutex_);
  if (!pending_events_.empty()) return true;
  // What a wake() wrote late, after the wait that it ended, would end every sleep.
  if (!woken_.load()) quiet_event_fd();
  return false;
}

// A thread that sleeps on the port must look again no later than the device's next deadline.
void HostDevice::wake_sleeper_for(Instant deadline) {
  for (const Sleeper* sleeper : {&waiter_, &service_sleeper_})
    if (deadline.ns < sleeper->until.load()) signal(sleeper->wake_fd);
}

void HostDevice::release() {
  if (!anyone_sleeps()) return owner_.unlock();
  const Instant deadline = nic_.transmit_waits() ? Instant{0} : nic_.next_deadline();
  owner_.unlock();
  wake_sleeper_for(deadline);
}

// Whoever posts or lets go of the device makes sure that a doorbell rung in between is heard: either it sees
// the bell here, or the ringer finds the device free. Where others ring faster than it answers, it leaves them to
// whoever sleeps, having its own to do; and its turns are whole ones, as the device has more to look after than bells.
bool HostDevice::answer_bells() {
  constexpr int kMostTurns = 4;
  bool any = false;
  for (int turns = 0; nic_.doorbell_rang(); ++turns) {
    if (turns == kMostTurns) {
      for (const Sleeper* sleeper : {&waiter_, &service_sleeper_}) signal(sleeper->wake_fd);
      return any;
    }
    if (!owner_.try_lock()) return any;
    if (turns == 0) {
      begin_turn();
      nic_.catch_up(turn_);
      nic_.handle_doorbells(turn_);
      any = transmit_and_release() || any;
    } else {
      begin_turn();
      any = drive(When::Polling, Look::AsNeeded) || any;
      release();
    }
  }
  return any;
}

// Behind data that has left, what is owed leaves, too.
bool HostDevice::transmit_and_release(bool behind_data) {
  const bool any = transmit(behind_data, When::Polling);
  collect_events();
  release();
  return any;
}

void HostDevice::finish_command() {
  begin_turn();
  if (nic_.next_deadline() <= turn_) nic_.handle_timeout(turn_);
  transmit_and_release();
  drive_while_rung();
}

// What is posted one by one behind many that are under way need not leave one by one: who polls sends it with what
// follows. Or else the service thread, when the lease has ended.
bool HostDevice::defer(core::QueuePair& queues, std::size_t requests) {
  const core::SendQueue& queue = queues.send_queue();
  const std::uint32_t in_flight = queue.posted() - queue.retired();
  if (in_flight < kManyInFlight + requests) return false;
  if (waiting_.load(std::memory_order_relaxed) != 0 || !service_.joinable()) return false;
  const auto count = deferred_.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(requests);
  const std::uint32_t quarter = Nic::is_on_rings(queues) ? 0 : std::min(in_flight / 4, train_datagrams_);
  const bool leased = lease_until_.load(std::memory_order_relaxed) > now().ns;
  if (count >= std::max(kManyDeferred, quarter) || !leased) return false;
  deferred_.store(count, std::memory_order_relaxed);
  return true;
}

// Who finds the device free needs no doorbell.
void HostDevice::kick(core::QueuePair& queues, std::size_t requests) {
  const std::thread::id gatherer = gatherer_.load(std::memory_order_relaxed);
  if (gatherer != std::thread::id{} && gatherer == std::this_thread::get_id()) {
    nic_.ring_doorbell(queues);
    if (!Nic::is_on_rings(queues) || (gathered_records_ += requests) < kMostGatheredRecords) return;
    gathered_records_ = 0;
    drive_while_rung();
    return;
  }
  if (defer(queues, requests)) {
    nic_.ring_doorbell(queues);
    // Who went to sleep before it rang would not hear it; who goes now looks for it once more.
    if (anyone_sleeps()) drive_while_rung();
    return;
  }
  deferred_.store(0, std::memory_order_relaxed);
  if (!owner_.try_lock()) {
    nic_.ring_doorbell(queues);
  } else {
    const bool left = nic_.emit_post(queues);
    begin_turn();
    if (!left) nic_.catch_up(turn_);  // what is done is not waited for
    left ? nic_.follow_post(turn_, queues) : nic_.handle_post(turn_, queues);
    transmit_and_release();
  }
  drive_while_rung();
}

bool HostDevice::post_short(core::QueuePair& queues, const SendRequest& request) {
  const bool on_rings = Nic::is_on_rings(queues);
  if (on_rings ? request.opcode != SendOpcode::Send : request.opcode >= SendOpcode::RdmaRead) return false;
  if (request.local.empty() || request.local.size() > (on_rings ? 1 : roce::kMostShortPieces)) return false;
  using verbena::local::ShortSend;
  const std::uint32_t length = request.local[0].length;
  if (length > (on_rings ? ShortSend::kMostBytes : roce::kMostShortBytes)) return false;
  if (gatherer_.load(std::memory_order_relaxed) != std::thread::id{}) return false;
  const core::SendQueue& queue = queues.send_queue();
  if (queue.posted() - queue.retired() >= kManyInFlight || !owner_.try_lock()) return false;
  const bool left = on_rings ? put_record(queues, request) : put_packet(queues, request);
  left ? static_cast<void>(transmit_and_release(!on_rings)) : release();
  drive_while_rung();
  return left;
}

bool HostDevice::put_record(core::QueuePair& queues, const SendRequest& request) {
  if (!nic_.put_post(queues, request)) return false;
  begin_turn();
  nic_.follow_post(turn_, queues);
  return true;
}

bool HostDevice::put_packet(core::QueuePair& queues, const SendRequest& request) {
  roce::Train& train = *trains_[0];
  if (!nic_.put_packet(queues, request, train)) return false;
  if (capture_) [[unlikely]] begin_turn();  // it says when
  send_batch(1);
  begin_turn();
  nic_.follow_packet(turn_, queues, train);
  return true;
}

// It makes nothing due: only what others rang for meanwhile is looked after. What catching up makes due has its turn
// with the rest, which still waits.
template <class Short>
bool HostDevice::do_now(core::QueuePair& queues, const Short& request) {
  if (!Nic::reaches_peer(queues) || !owner_.try_lock()) return false;
  if (rest_waits_) nic_.catch_up(begin_turn());  // what was posted before is perhaps done
  const bool done = nic_.do_now(queues, request);
  owner_.unlock();
  drive_while_rung();
  return done;
}
template bool HostDevice::do_now(core::QueuePair& queues, const ShortWrite& request);
template bool HostDevice::do_now(core::QueuePair& queues, const ShortRead& request);

void HostDevice::arm(core::CompletionQueue& queue, bool solicited_only) {
  if (!owner_.try_lock()) take();
  queue.arm(solicited_only);
  owner_.unlock();
  drive_while_rung();
}

void HostDevice::gather_kicks(bool on) {
  if (on) {
    if (gather_depth_++ == 0) gatherer_.store(std::this_thread::get_id(), std::memory_order_relaxed);
    return;
  }
  if (gather_depth_ == 0 || --gather_depth_ != 0) return;  // attached to its engine only since
  gatherer_.store({}, std::memory_order_relaxed);
  gathered_records_ = 0;
  drive_while_rung();
}

// Whoever drives again and again would have the device back before a command that waits for it is awake.
void HostDevice::step_aside() {
  constexpr int kPatience = 64;
  for (int i = 0; i < kPatience && waiters_.load(std::memory_order_relaxed) != 0; ++i) std::this_thread::yield();
}

bool HostDevice::progress() {
  step_aside();
  if (!owner_.try_lock()) {
    // Whoever drives, this thread is back: the service thread would go on in its place otherwise.
    lease_until_.store((now() + kLease).ns, std::memory_order_relaxed);
    return false;
  }
  // What a wait found is not answered yet: to find nothing now would acknowledge it ahead of the answer. And who waited
  // likely waits again: its look before a sleep is no long one.
  const Look next = next_look_ == Look::Later ? Look::Once : Look::AsNeeded;
  begin_turn();
  const bool still = turn_.ns <= lease_until_.load(std::memory_order_relaxed);
  lease_until_.store((turn_ + kLease).ns, std::memory_order_relaxed);
  if (still && turn_.ns > put_off_at_.load(std::memory_order_acquire)) [[unlikely]] put_off_service();
  const bool any = drive(When::Polling, std::exchange(next_look_, next));
  release();
  drive_while_rung();
  return any;
}

std::uint64_t HostDevice::random() {
  return look([this] { return random_->next_u64(); });
}

std::vector<NamedCounter> HostDevice::counters() {
  return look([this] {
    std::vector<NamedCounter> all;
    for (const Counters::Named& c : nic_.counters().list()) all.push_back({std::string(c.name), c.value});
    for (NamedCounter& c : port_->counters()) all.push_back(std::move(c));
    if (!hub_) return all;
    for (NamedCounter& c : hub_->counters()) all.push_back(std::move(c));
    return all;
  });
}

std::vector<std::string> HostDevice::explain() {
  return look([this] {
    std::vector<std::string> lines = port_->explain();
    if (hub_)
      for (std::string& line : hub_->explain()) lines.push_back(std::move(line));
    else if (!path_reason_.empty())
      lines.push_back("same host: all connections go by RoCE, because " + path_reason_);
    lines.push_back(fault_guard::is_installed()
                        ? "registered memory that is unmapped ends its connection, not the process"
                        : "another handler of SIGSEGV or SIGBUS was installed after ours: unless it passes faults on, "
                          "registered memory that is unmapped ends the process");
    return lines;
  });
}

std::string HostDevice::explain(Qpn qpn) {
  return look([&]() -> std::string {
    if (hub_) return hub_->explain(qpn);
    return path_reason_.empty() ? "RoCE" : "RoCE, because " + path_reason_;
  });
}

std::string HostDevice::hint_about(const Gid& peer) {
  return look([&] { return port_->hint_about(peer); });
}

std::string HostDevice::capture_failure() {
  return look([this] { return capture_ && capture_->failure() ? capture_->failure()->to_string() : std::string{}; });
}

Result<void> HostDevice::close_capture() {
  return look([this]() -> Result<void> {
    const std::unique_ptr<Capture> capture = std::move(capture_);
    if (capture) return capture->close();
    return {};
  });
}

}  // namespace verbena::soft
