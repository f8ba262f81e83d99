// SPDX-License-Identifier: Apache-2.0
// One RDMA device as a state machine. Commands and inputs go in, datagrams and events come out; no thread,
// clock, socket or random source inside. The same inputs, in the same order, give the same outputs, byte for
// byte.
//
// One thread at a time owns the device: every method is the owner's, except posting and polling at the queues
// (core::QueuePair::post_*, core::CompletionQueue::poll), which is for any thread, or for one at a time where they were
// made so, and ring_doorbell().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/random.h"
#include "soft/cm/manager.h"
#include "soft/core/queue_pair.h"
#include "soft/counters.h"
#include "soft/nic_config.h"
#include "soft/paths.h"
#include "soft/roce/train.h"
#include "soft/wire/icrc.h"

namespace verbena::soft {

class Nic final {
 public:
  // `random` must outlive the device. For production it is cryptographic: keys, QPNs and PSNs come from it.
  Nic(const NicConfig& config, RandomSource& random);
  ~Nic();
  Nic(const Nic&) = delete;
  Nic& operator=(const Nic&) = delete;

  const NicConfig& config() const { return config_; }

  // ---- Commands. Errors carry what verbs would say as errno in Error::native (EINVAL, ENOMEM, EBUSY, ...).
  Result<core::PdId> create_pd();
  Result<void> destroy_pd(core::PdId pd);  // Busy while regions or queue pairs refer to it
  Result<core::MemoryRegion> register_memory(core::PdId pd, void* base, std::uint64_t length,
                                             std::uint64_t iova, Access access, int file = -1);
  // After return no byte of it is touched, by peers that were granted it neither.
  Result<void> deregister_memory(LKey lkey);
  // Before that: where a request of ours is not done, and its peer could still copy from it, the queue pair fails now,
  // by its oldest request.
  void take_back_named(Instant now, LKey lkey);
  // As a request of that domain would. False: it may not, or the memory is not there any more.
  bool read_local(core::PdId pd, const ScatterGather& from, std::byte* to) const;
  Result<core::CqId> create_cq(std::uint32_t capacity,
                               core::CompletionQueue::Pollers pollers = core::CompletionQueue::Pollers::AnyThread);
  Result<void> destroy_cq(core::CqId cq);  // Busy while queue pairs refer to it
  core::CompletionQueue* cq(core::CqId id);
  Result<core::SrqId> create_srq(core::PdId pd, std::uint32_t max_requests, std::uint32_t max_segments,
                                 core::Posters posters = core::Posters::AnyThread);
  // Fewer requests than `limit`, now or later, raise SrqLimitReached once; 0 takes that back.
  Result<void> modify_srq(core::SrqId srq, std::uint32_t limit);
  Result<SharedReceiveQueueAttributes> query_srq(core::SrqId srq) const;
  Result<void> destroy_srq(core::SrqId srq);  // Busy while queue pairs refer to it
  core::SharedReceiveQueue* srq(core::SrqId id) const;
  struct QpInit {
    QueuePairType type = QueuePairType::ReliableConnected;
    core::PdId pd;
    core::CqId send_cq, receive_cq;
    std::optional<core::SrqId> srq;  // then its own receive queue holds nothing
    QueuePairCapabilities capabilities;
    bool signal_all = false;
    core::Posters posters = core::Posters::AnyThread;
    std::optional<Qpn> qpn;  // tests and the simulator may ask for a number; otherwise random
  };
  // capabilities in the result hold what was made.
  struct CreatedQp {
    Qpn qpn;
    core::QueuePair* queues;  // lives until destroy_qp
    QueuePairCapabilities capabilities;
  };
  Result<CreatedQp> create_qp(const QpInit& init);
  Result<void> modify_qp(Instant now, Qpn qpn, const QueuePairAttributes& values, AttributeMask mask);
  Result<QueuePairAttributes> query_qp(Qpn qpn) const;
  Result<void> destroy_qp(Qpn qpn);
  core::QueuePair* qp(Qpn qpn);
  // CommEstablished tells of its first request, though it is in RTS already.
  void await_first_request(Qpn qpn);

  // ---- Paths through memory. `paths` outlives the device, or nullptr is set before it goes.
  void set_paths(Paths* paths) { paths_ = paths; }
  // What was decided for a queue pair that Paths::enter() was told of: packets; these rings; nothing that it may take.
  void use_roce(Instant now, Qpn qpn);
  void use_local(Instant now, Qpn qpn, const LocalLink& link);
  void refuse_path(Qpn qpn);
  // The peer of a queue pair on rings asks for a region of ours, to reach it by itself. Nothing: it may not.
  std::optional<verbena::local::Grant> grant(Qpn qpn, RKey rkey);
  // It was not told of it.
  void take_back(Qpn qpn, RKey rkey);
  void take_back_all(Qpn qpn);
  // What came of asking the peer for one. False: it is not used.
  bool handle_region(Qpn qpn, const verbena::local::PeerRegion& region, bool open);
  // The peer of a queue pair on rings is gone. By connection management it may say farewell until `at`.
  void handle_hang_up(Instant now, Qpn qpn, Instant at);
  // One bounded turn over what peers wrote into rings, but for quiet ones. True when there was anything.
  bool handle_records(Instant now);
  // Of many rings, those without use for a while are quiet: nobody looks at them, and they stay announced. A peer that
  // writes there signals, whoever polls. handle_signal() follows each signal that was taken, before the next turn.
  static constexpr std::size_t kMostWatched = 8;  // without any quiet one
  static constexpr Duration kUsedLately = Duration::milliseconds(2);
  static constexpr std::size_t kFewRings = 2;
  bool is_quiet(Qpn qpn) const;
  // Instead of that, where somebody waits for one: takes a short message that came, if any. What else there is to do
  // waits for catch_up() or handle_records().
  bool take_short(Instant now);
  void catch_up(Instant now);
  // A short look at those that are watched: true when handle_records() would find nothing.
  bool rings_look_empty() const;
  // `others_sleep`: on this ring, too, until a signal comes.
  void handle_signal(Instant now, Qpn qpn, bool others_sleep);
  // Writes what is due to rings, and wakes peers. True when there was anything. Repeat while transmit_waits().
  bool emit_records(Instant now);
  // Carries out a ShortWrite or ShortRead in memory of this host that would be the next to be executed. False: post it.
  template <class Short>
  bool do_now(core::QueuePair& queues, const Short& request);
  // Who goes to sleep announces it, looks once more by handle_records(), and withdraws it on waking up; not for quiet
  // rings.
  void announce_sleep();
  void withdraw_sleep();
  // Whether all that can come soon comes by rings.
  bool only_rings() const { return attached_ != 0 && attached_ == qps_.size() && cm_->next_deadline().is_never(); }

  bool has_rings() const { return attached_ != 0; }
  // Some that nobody looks at.
  bool has_quiet_rings() const { return attached_ > lists_[kWatched].count; }
  // Whether a turn over them takes no time to speak of.
  bool has_few_rings() const { return attached_ != 0 && lists_[kWatched].count <= kFewRings; }

  // Connection management of this device. Its datagrams and deadlines are part of this device's.
  cm::Manager& cm() { return *cm_; }

  // ---- Doorbell. Any thread, after a post on that queue pair.
  void ring_doorbell(core::QueuePair& queues);
  // Any thread: whether its requests go by rings now.
  static bool is_on_rings(const core::QueuePair& queues);
  // Any thread: whether do_now() may do something.
  static bool reaches_peer(const core::QueuePair& queues);

  // ---- Inputs.
  // One UDP payload that arrived at port 4791. `identification` of its IPv4 header, where it can be seen.
  void handle_datagram(Instant now, const wire::Path& path, std::optional<std::uint16_t> identification,
                       std::span<const std::byte> datagram) {
    handle_datagrams(now, path, identification, datagram, datagram.size());
  }
  // Several of one path, back to back, each `segment_bytes` long but for a shorter last.
  void handle_datagrams(Instant now, const wire::Path& path, std::optional<std::uint16_t> identification,
                        std::span<const std::byte> bytes, std::size_t segment_bytes);
  // Looks at queue pairs whose doorbell rang.
  void handle_doorbells(Instant now);
  // The same for one queue pair, whose doorbell need not ring.
  void handle_post(Instant now, core::QueuePair& queues);
  // Instead of that and emit_records(), where it is the short way: it has left, before the clock is read, and
  // follow_post() is due. False: nothing happened.
  bool emit_post(core::QueuePair& queues);
  // The same with a request that is not posted yet, and is then.
  bool put_post(core::QueuePair& queues, const SendRequest& request);
  void follow_post(Instant now, core::QueuePair& queues);
  // Of one that goes by packets: its packet is in the train, which leaves at once, before the clock is read, and then
  // follow_packet() is due.
  bool put_packet(core::QueuePair& queues, const SendRequest& request, roce::Train& train);
  void follow_packet(Instant now, core::QueuePair& queues, const roce::Train& train);
  // A thread that asks this just after it let go of the device, by an OwnerLock, misses no bell but those whose ringer
  // finds the device free.
  bool doorbell_rang() const { return doorbells_.load() != nullptr; }
  // Lets everything happen whose time has come.
  void handle_timeout(Instant now);

  // ---- Outputs. Repeat until false.
  // Owed: only acknowledgements that must not wait leave. Idle: those that are owed leave, after the data, but not
  // those of a conversation that goes on. Flush: all.
  enum class Acks { Owed, Idle, Flush };
  bool poll_transmit(Instant now, Acks acks, roce::Train& train);
  // Whether poll_transmit() was not asked until it had nothing more that must leave.
  bool transmit_waits() const {
    return lists_[kReady].first != nullptr || lists_[kLocalReady].first != nullptr || cm_->transmit_waits();
  }
  // Whether poll_transmit() could have anything at all.
  bool packets_wait() const {
    return lists_[kReady].first != nullptr || lists_[kOwing].first != nullptr || cm_->transmit_waits();
  }
  bool records_wait() const { return lists_[kLocalReady].first != nullptr; }
  // handle_timeout() is due then. Never: nothing is pending. Includes owed acknowledgements.
  Instant next_deadline() const;
  // The same, without those that were met meanwhile.
  Instant settle_deadlines();
  std::optional<core::Event> poll_event() { return events_.poll(); }
  // Whether this device or its connection management has an event.
  bool event_waits() const { return !events_.empty() || cm_->event_waits(); }

  const Counters& counters() const { return counters_; }
  std::size_t queue_pairs() const { return qps_.size(); }

  // Aborts when an internal promise is broken. Cheap enough for tests and simulations, not for production
  // loops.
  void check_invariants() const;

  struct Qp;  // a queue pair with its transport

 private:
  // ingress.cc
  struct Arrival;
  Qp* handle_one(Instant now, Arrival& arrival, Qp* likely, wire::Packet& packet);
  std::uint32_t handle_run(Instant now, Arrival& arrival, Qp& qp, wire::Packet& packet,
                           std::span<const std::byte> bytes);
  std::uint32_t handle_middles(Instant now, Arrival& arrival, Qp& qp, const wire::Packet& packet,
                               std::span<const std::byte> bytes);
  std::uint32_t handle_sends(Instant now, Arrival& arrival, Qp& qp, wire::Packet& packet,
                             std::span<const std::byte> bytes);
  // Of a peer's port: the identification that its next datagram likely has, 0 where none is counted, and what the
  // ICRCs of its last path have in common.
  struct Expected {
    Gid source;
    std::uint16_t port = 0;
    std::uint16_t identification = 0;
    wire::IcrcVerifier icrc;
  };
  Expected& expected_of(const wire::Path& path);
  bool passes_icrc(Arrival& arrival);
  wire::DropReason admit(const Qp& qp, const wire::Path& path, const wire::Packet& packet) const;
  wire::DropReason admit_management(const wire::Packet& packet) const;
  void drop(wire::DropReason reason) { ++counters_.dropped[static_cast<std::size_t>(reason)]; }
  // scheduling.cc
  void schedule(Instant now, Qp& qp);
  void look_at_queues(Instant now, Qp& qp);
  void look_again(Qp& qp, Instant at);
  Instant deadline_of(const Qp& qp) const;
  void unlink(Qp& qp);
  void forget_doorbell(Qp& qp);
  void settle_broken_queues(Instant now) {
    if (events_.any_broken()) fail_users_of_broken(now);
  }
  [[gnu::cold]] void fail_users_of_broken(Instant now);
  bool emit_management(Instant now, roce::Train& train);
  // nic_local.cc
  Result<void> follow_state(Instant now, Qp& qp, QueuePairState before);
  [[gnu::cold]] void fail(Qp& qp, AsyncEventType event);
  void leave_undecided(Qp& qp);
  void leave_path(Qp& qp, bool destroyed);
  void say_owed(Instant now, Qp& qp);
  void let_go(Qp& qp);
  // What was granted to the peer of `qp`, in that slot, and is taken back.
  struct Ending {
    Qp* qp;
    RKey rkey;
    std::uint32_t slot;
  };
  void revoke(Qp& qp, RKey rkey, std::vector<Ending>& endings);
  void end_copies(std::vector<Ending>& endings);
  bool ends(const Ending& ending);
  bool still_copies(const Ending& ending);
  void take_back(std::vector<Ending> endings);
  void take_back(Qp& qp, RKey rkey);
  void take_back_all(Qp& qp);
  void take_back_of_all(RKey rkey);
  template <class F>
  void touch_words(Qp& qp, F&& touch);
  void wake_peers();
  void wake_peer(Qp& qp);
  void schedule_local(Instant now, Qp& qp);
  bool read_ring(Instant now, Qp& qp);
  void follow_ring(Instant now, Qp& qp, bool anything);
  static bool may_leave_at_once(const Qp& qp);
  void watch(Instant now, Qp& qp);
  bool quieten(Instant now, Qp& qp);
  void handle_local_timeout(Instant now, Qp& qp);
  // nic.cc
  Qp* find(Qpn qpn) const;
  wire::Path path_of(const Qp& qp, std::uint32_t* source_index) const;
  Result<Qpn> fresh_qpn(std::optional<Qpn> wanted);
  Result<void> check(const QpInit& init) const;

  // A time at which a queue pair wants to be looked at. Stale entries are recognised by Qp::timer_at.
  struct Timer {
    Instant at;
    Qpn qpn;
    auto operator<=>(const Timer&) const = default;
  };
  // Queue pairs in the order in which they asked; one list per reason.
  struct List {
    Qp* first = nullptr;
    Qp* last = nullptr;
    std::size_t count = 0;
  };
  enum ListKind : std::size_t { kReady, kOwing, kWatched, kLocalReady, kToWake, kListCount };
  void append(ListKind kind, Qp& qp);
  void prepend(ListKind kind, Qp& qp);
  void remove(ListKind kind, Qp& qp);
  void note_reply(Instant now, const Qp& by);

  const NicConfig config_;
  RandomSource& random_;
  core::EventQueue events_;
  core::MemoryTable memory_;
  Counters counters_;
  std::array<Expected, 64> expected_;
  std::unique_ptr<cm::Manager> cm_;
  Paths* paths_ = nullptr;
  std::size_t attached_ = 0;  // queue pairs on rings
  std::map<std::uint32_t, std::unique_ptr<core::CompletionQueue>> cqs_;
  std::map<std::uint32_t, std::unique_ptr<core::SharedReceiveQueue>> srqs_;
  std::map<std::uint32_t, std::uint32_t> pds_;  // id -> queue pairs and shared receive queues in it
  std::uint32_t next_id_ = 1;
  std::map<std::uint32_t, std::unique_ptr<Qp>> qps_;
  std::unordered_map<std::uint32_t, Qp*> qp_by_number_;  // looked up only
  std::deque<Qpn> retired_qpns_;                         // not given out again for a while
  std::unordered_set<std::uint32_t> retired_qpn_set_;
  std::array<List, kListCount> lists_;
  std::vector<Timer> timers_;  // binary heap, earliest first
  std::atomic<Qp*> doorbells_{nullptr};
  Qp* put_off_ = nullptr;  // take_short() took something there
  Psn management_psn_;
};

}  // namespace verbena::soft
