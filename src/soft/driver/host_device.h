// SPDX-License-Identifier: Apache-2.0
// A device in the real world: one Nic pumped over one Port, by whoever polls, and by a service thread while
// nobody does.
//
// Queue pairs that share memory with their peer come by the hub instead. What comes by either wakes who sleeps.
//
// One owner at a time holds the device: owner_. A poller drives it inline and renews the lease, a time until
// which it is expected back. A thread in wait_event() sleeps on the port itself and drives when it wakes. The
// service thread sleeps on the port only while no lease runs and nobody waits. It moves packets and
// completions and never runs user code.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/fifo.h"
#include "base/owner_lock.h"
#include "base/quiet_thread.h"
#include "soft/driver/capture.h"
#include "soft/driver/local/hub.h"
#include "soft/driver/port.h"
#include "soft/driver/recent_clock.h"
#include "soft/driver/virtual_time.h"
#include "soft/nic.h"

namespace verbena::soft {

// Those of connection management are rare, and long.
using DeviceEvent = std::variant<core::Event, std::unique_ptr<cm::Event>>;

class HostDevice final : private DatagramSink {
 public:
  struct Options {
    bool service_thread = true;  // but where single_threaded
    bool single_threaded = false;  // see OpenOptions
    std::unique_ptr<Capture> capture;  // may be empty
    std::unique_ptr<local::Hub> hub;   // may be empty: all queue pairs go by packets
    std::string path_reason;           // without a hub: why, for people; may be empty
    VirtualTime* time = nullptr;       // outlives the device; nullptr: the machine's. No service thread with it
  };
  // Errors: what the system says where it gives no descriptors.
  static Result<std::unique_ptr<HostDevice>> open(const NicConfig& config, std::unique_ptr<RandomSource> random,
                                                  std::unique_ptr<Port> port, Options options);
  // The same for those that have enough: without them it does nothing by itself.
  HostDevice(const NicConfig& config, std::unique_ptr<RandomSource> random, std::unique_ptr<Port> port,
             Options options);
  ~HostDevice() override;
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  // ---- Any thread.

  // Runs f(Nic&, Instant now) as the owner, then sends what that made due.
  template <class F>
  auto with_nic(F&& f) {
    struct Finish {
      HostDevice& device;
      ~Finish() { device.finish_command(); }
    };
    drive_while_rung();  // what was posted before leaves before
    take();
    const Finish finish{*this};
    return std::forward<F>(f)(nic_, begin_turn());
  }
  // After a post of so many: they leave inline, unless somebody else owns the device, who then sends them, or many are
  // under way, and who polls sends them with what follows.
  void kick(core::QueuePair& queues, std::size_t requests = 1);
  // Instead of a post and its kick, where nothing else waits: the request leaves, and is posted behind that. False:
  // nothing happened.
  bool post_short(core::QueuePair& queues, const SendRequest& request);
  // The next completion there, or the next solicited or failed one, raises an event.
  void arm(core::CompletionQueue& queue, bool solicited_only);
  // Instead of a post, a ShortWrite or ShortRead; see QueuePairOps::write_now(). False too while somebody else owns the
  // device.
  template <class Short>
  bool do_now(core::QueuePair& queues, const Short& request);
  // While on, the kicks of this thread only ring; off sends what they rang for, in as few trains as it fits.
  void gather_kicks(bool on);
  // Drives the device once: receive, timers, transmit. True when anything happened.
  bool progress();
  // Oldest event, if any.
  std::optional<DeviceEvent> poll_event();
  // The requests of that listener among what poll_event() would have said.
  std::vector<cm::ConnectionId> take_back_requests(cm::ListenerId listener);
  // Readable while poll_event() has something that no wait_event() returned for. -1 in virtual time.
  int event_fd() const { return time_ == nullptr ? event_fd_ : -1; }
  bool serves_itself() const { return service_.joinable(); }
  bool is_single_threaded() const { return single_threaded_; }
  // Blocks, driving the device, until an event waits or `until` has come.
  void wait_event(Instant until);
  // Makes the present wait_event() return, or the next unless poll_event() finds nothing before. Safe in signal
  // handlers.
  void wake();
  Instant now() const { return time_ == nullptr ? monotonic_now() : time_->now(); }
  // From the device's random source.
  std::uint64_t random();

  // See Port.
  Result<void> announce(std::uint32_t service) { return port_->announce(service); }
  Result<void> withdraw(std::uint32_t service) { return port_->withdraw(service); }

  // Whether peers of this host may be granted memory that stands in files.
  bool shares_memory() const { return hub_ != nullptr && hub_->grants_memory(); }
  const NicConfig& config() const { return nic_.config(); }
  std::vector<NamedCounter> counters();
  std::vector<std::string> explain();
  // How that queue pair's messages go, and why.
  std::string explain(Qpn qpn);
  std::string hint_about(const Gid& peer);
  // Empty, or why the capture is incomplete.
  std::string capture_failure();
  // Ends the capture, if there is one. Errors: Capture::failure().
  Result<void> close_capture();

 private:
  void on_datagrams(const wire::Path& path, std::optional<std::uint16_t> identification,
                    std::span<const std::byte> bytes, std::size_t segment_bytes) override;
  enum class When { Polling, Serving };
  // Runs f() as the owner; f makes nothing due.
  template <class F>
  auto look(F&& f) {
    struct Finish {
      HostDevice& device;
      ~Finish() {
        device.owner_.unlock();
        device.drive_while_rung();
      }
    };
    take();
    const Finish finish{*this};
    return std::forward<F>(f)();
  }
  Result<void> open_descriptors();
  // The rest is the owner's.
  Instant begin_turn() { return turn_ = time_ == nullptr ? clock_.now() : time_->now(); }
  // AsNeeded: several times where something is expected. ForOne: a short message that came alone is enough.
  enum class Look { Later, Once, AsNeeded, ForOne, Everywhere };
  bool drive(When when, Look look);  // behind begin_turn()
  bool finish_turn(bool received, When when);
  bool defer(core::QueuePair& queues, std::size_t requests);
  bool receive(Look look);
  bool read_port(bool again, bool everywhere);
  bool read_rings(Look look);
  bool await_record();
  bool take_record();
  bool transmit(bool found_nothing, When when);
  bool transmit_and_release(bool behind_data = false);
  bool put_record(core::QueuePair& queues, const SendRequest& request);
  bool put_packet(core::QueuePair& queues, const SendRequest& request);
  void send_batch(std::size_t count);
  void collect_events();
  void finish_command();
  // Of a command: those who drive step aside for it.
  void take() {
    waiters_.fetch_add(1);
    owner_.lock();
    waiters_.fetch_sub(1);
  }
  void step_aside();
  void release();  // gives the device up, and looks again for doorbells rung meanwhile
  bool drive_while_rung() { return nic_.doorbell_rang() && answer_bells(); }
  [[gnu::cold]] bool answer_bells();
  bool anyone_sleeps() const { return waiter_.until.load() != 0 || service_sleeper_.until.load() != 0; }
  [[gnu::cold]] void wake_sleeper_for(Instant deadline);
  void serve();
  // Sleeps on the port until something may be due; the device is not owned.
  struct Sleeper;
  struct Awakening {
    bool slept = false, signalled = false;
    bool packets = false;  // or it is not known that there are none
  };
  Awakening sleep_on_port(Instant until, Sleeper& sleeper);
  Awakening sleep_in_child(Sleeper& sleeper, std::optional<Duration> wait) const;
  Instant look_before_sleep(Instant until, Sleeper& sleeper);
  bool leave_to_alarm(Instant wake_at);
  void give_alarm_back(bool taken, bool rang);
  bool watch_port(Sleeper& sleeper);
  void unwatch_port();
  void look_after_sleep(const Awakening& awakening);
  void wake_others(const Sleeper& mine);
  bool drive_waiting(const Awakening& awakening);
  void wait_virtually(Instant until);
  void park_service();
  void pause_service();
  [[gnu::cold]] void put_off_service();
  bool has_event();
  void signal_event_fd();
  void quiet_event_fd();  // under event_mutex_, with no event pending
  void stop_service();
  void stand_still();
  void go_on();
  void go_on_in_child();

  static constexpr Duration kLease = Duration::microseconds(200);

  VirtualTime* const time_;
  const bool single_threaded_;
  const std::unique_ptr<RandomSource> random_;
  Nic nic_;
  const std::unique_ptr<local::Hub> hub_;
  const std::string path_reason_;
  const std::unique_ptr<Port> port_;
  std::unique_ptr<Capture> capture_;
  std::vector<std::unique_ptr<roce::Train>> trains_;
  std::vector<const roce::Train*> batch_;
  std::uint32_t train_datagrams_;  // what the port said last
  RecentClock clock_;
  Instant turn_;  // the clock, read once per turn
  bool waiter_drives_ = false;   // the owner is in wait_event(), which returns for what it finds
  Look next_look_ = Look::AsNeeded;  // of who polls
  unsigned turns_ = 0;
  Instant looked_at_;
  unsigned arrival_turn_ = 0;  // when something last came by the port
  unsigned finds_since_sleep_ = 0;  // batches that looks found there since a thread last went to sleep
  unsigned record_turn_ = 0;   // or by a ring
  // A short message came by a ring, and is likely answered at once: what else belongs to its turn comes first in the
  // next, of whoever drives.
  bool rest_waits_ = false;
  bool took_at_once_ = false;
  bool long_train_came_ = false;  // in this turn, by the port

  // In a forked child the device is its parent's, with whom it shares sockets: there no packet comes and none goes, and
  // what is ended there ends there alone.
  bool inherited_ = false;
  std::uint64_t round_fork_ = 0;
  Result<void> opened_;  // its descriptors
  OwnerLock owner_{single_threaded_ ? OwnerLock::Takers::OneThread : OwnerLock::Takers::AnyThread};
  std::atomic<std::thread::id> gatherer_{};  // the thread whose kicks only ring
  int gather_depth_ = 0;                     // that thread's
  std::size_t gathered_records_ = 0;         // likewise
  std::atomic<std::uint32_t> deferred_{0};    // requests that only rang, about
  std::atomic<int> waiters_{0};  // commands that want the device: pollers step aside
  std::atomic<std::int64_t> lease_until_{0};
  // Who sleeps on the port: the threads in wait_event(), and the service thread. Each side empties its own descriptor
  // only: one that took the other's wake-up and went to park would leave the other asleep.
  struct Sleeper {
    int wake_fd = -1;
    int set_fd = -1;  // that, the port, the hub: what it sleeps on
    std::atomic<bool> watches_port{false};  // it is in the set; written by the owner
    std::atomic<std::int64_t> until{0};  // when it looks again by itself; 0: not asleep
  };
  Sleeper waiter_;
  int alarm_fd_ = -1;  // in the waiter's set
  std::atomic<std::int64_t> alarm_at_{Instant::never().ns};
  std::atomic<bool> alarm_taken_{false};  // one sleeps by it, or looks after it
  Sleeper service_sleeper_;
  std::atomic<int> waiting_{0};  // threads in wait_event(): they drive, the service thread parks
  std::atomic<bool> service_parked_{false};
  static constexpr std::int64_t kNotPaused = Instant::never().ns;
  std::atomic<std::int64_t> put_off_at_{kNotPaused};  // when who polls prolongs the service thread's pause
  std::atomic<std::int64_t> pause_ns_{1};             // for how long it was put off last; 0 would be for ever

  std::mutex event_mutex_;
  Fifo<DeviceEvent> pending_events_;
  std::atomic<bool> event_pending_{false};  // pending_events_ is not empty; written under event_mutex_
  bool events_signalled_ = false;           // event_fd_ tells of them; under event_mutex_
  std::atomic<bool> event_fd_signalled_{false};  // there may be something to empty
  int event_fd_ = -1;
  int park_fd_ = -1;  // a timer that ends the service thread's pauses
  std::array<int, 7> own_fds() const {
    return {event_fd_, alarm_fd_, park_fd_, waiter_.wake_fd, waiter_.set_fd,
            service_sleeper_.wake_fd, service_sleeper_.set_fd};
  }
  std::atomic<bool> woken_{false};
  std::atomic<bool> stopping_{false};
  QuietThread service_;
};

}  // namespace verbena::soft
