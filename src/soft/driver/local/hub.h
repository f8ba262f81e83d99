// SPDX-License-Identifier: Apache-2.0
// The paths of a device through memory shared with other processes of this host: offers and asks, segments, the socket
// of each connection, signals to those that sleep.
//
// Everything a peer can make it hold is bounded: kMostWaiting sockets that are not decided yet, of which the oldest
// goes. A quarter of the descriptors is left to the program: where the others are taken, connections go by packets, and
// nobody who asks or says nothing is kept waiting with one of them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/holdings.h"
#include "base/id_slot.h"
#include "soft/driver/counter.h"
#include "soft/driver/descriptor.h"
#include "soft/driver/local/meeting_folder.h"
#include "soft/driver/local/meeting_point.h"
#include "soft/driver/local/peer_socket.h"
#include "soft/driver/local/process_memory.h"
#include "soft/driver/local/region_file.h"
#include "soft/driver/local/segment.h"
#include "soft/local/match.h"
#include "soft/nic.h"

namespace verbena::soft::local {

// Why there is no shared memory: what the error says, without its code.
std::string reason_of(const Error& error);

// The device's owner alone calls it, but for fd().
class Hub final : public Paths {
 public:
  static constexpr std::uint32_t kRingCapacity = 32 * 1024;
  static constexpr std::size_t kMostWaiting = 1024;
  static constexpr std::size_t kMostOfOtherUsers = 64;  // of these

  struct Options {
    Gid address;
    IdSlot ids{};  // queue pair numbers are of it, which tells who of an address is asked; all offer alike
    bool required = false;  // queue pairs that find no memory to share get no path at all
    bool pull = true;  // one copy where it is possible: of large messages, and to and from regions that peers grant
    // Of other users whose processes share memory with this one, by two copies. It refuses all others.
    std::vector<uid_t> users{};
    Duration farewell{};  // after a hang-up what connection management says of it comes first, for that long
    std::uint32_t ring_capacity = kRingCapacity;
  };
  // Offers from now on. Errors: AddressInUse (somebody else offers for that slot of the address), those of the system.
  // `folder`: stands there, too, and looks for peers there; explain() says what is in the way of standing there.
  static Result<std::unique_ptr<Hub>> open(const Options& options, std::optional<MeetingFolder> folder = std::nullopt);
  ~Hub() override;

  // Before anything else; `nic` outlives the hub.
  void serve(Nic& nic);
  // Readable when handle_events() would find something, or a peer signalled and rang no bell.
  int fd() const { return epoll_.get(); }
  // Who sleeps does so on one of these epoll sets, which hold fd(). A peer that wakes them again and again may do so by
  // a bell: an event in each, with that data, and nothing to be taken. Before anything is met.
  void ring_in(std::vector<int> sets, std::uint32_t data) {
    sets_ = std::move(sets);
    bell_data_ = data;
  }
  // Takes what came: asks, answers, hang-ups. True when there was anything. All signals are taken by who woke up from a
  // sleep on fd(), or while nobody sleeps there: others would take them from who does. Those of quiet rings always are.
  bool handle_events(Instant now, bool take_signals);
  // handle_events() has something to do that fd() does not show.
  bool has_chores() const { return deaf_ || deaf_in_folder_ || !in_vain_.empty(); }
  bool any_undecided() const { return undecided_ != 0; }
  // A queue pair whose peer has gone is told at the next call; look first for what the peer sent by the network before.
  bool any_hung_up() const { return !hung_up_.empty(); }
  void handle_hang_ups(Instant now);
  std::vector<std::string> explain() const;
  // How that queue pair's messages go, and why.
  std::string explain(Qpn qpn) const;
  bool grants_memory() const { return options_.pull; }
  std::vector<NamedCounter> counters() const;

  Result<void> enter(Instant now, const verbena::local::Endpoint& self, const verbena::local::Endpoint& peer) override;
  void handle_packet(Instant now, Qpn qpn) override;
  void leave(Qpn qpn, bool destroyed) override;
  bool is_peer_gone(Qpn qpn) override;
  bool wait_for_copy(Qpn qpn, const std::function<bool()>& copies) override;
  bool renew_pages(const core::MemoryRegion& region, int file) override;
  void wake_peer(Qpn qpn, bool unwatched) override;

 private:
  using Id = std::uint64_t;
  static constexpr Id kListener = 0;
  static constexpr Id kFolderListener = ~Id{0};
  static constexpr Id kCaughtUp = kFolderListener - 1;
  static constexpr Id kNone = 0;
  static constexpr unsigned kQpnBits = 24;

  enum class Role { Fresh, Held, Asked, Attached, Wanting };
  // Those of one peer that one of our queue pairs reaches by itself.
  struct Regions final : verbena::local::RegionSource {
    Regions(Hub& its_hub, Qpn its_qpn) : hub(its_hub), qpn(its_qpn) {}
    void ask(RKey rkey) override { hub.ask_for_region(*this, rkey); }
    void drop(RKey rkey) override {
      mapped.erase(rkey.value());
      known.erase(rkey.value());
    }
    void note(RKey rkey, const char* how) {
      if (known.size() < kMostExplained || known.contains(rkey.value())) known[rkey.value()] = how;
    }
    static constexpr std::size_t kMostExplained = 32;
    void take_back_all() override { hub.nic_->take_back_all(qpn); }

    Hub& hub;
    const Qpn qpn;
    std::unordered_map<std::uint32_t, RegionMapping> mapped;  // by R_Key
    std::map<std::uint32_t, const char*> known;               // likewise: how its bytes go
    std::vector<Id> wanting;                                  // sockets on which an answer is awaited
  };
  struct Socket {
    PeerSocket peer;
    Role role = Role::Fresh;
    Qpn qpn{};  // ours, but of a fresh one
    Segment segment{};
    verbena::local::Hello hello{};  // held
    Descriptor offered{};           // held: the peer's segment
    std::unique_ptr<ProcessMemory> memory{};  // attached: unless all is copied twice
    std::unique_ptr<Regions> regions{};       // likewise
    RKey wanted{};                             // wanting
    Descriptor bell{};                         // attached, and woken often: what the peer may ring
    unsigned signals = 0;                      // until then
    bool met_in_folder = false;
    bool watched = true;                       // otherwise nobody would hear of its end: it is not kept
  };
  // A queue pair of ours in RTR or later.
  struct Entry {
    verbena::local::Match match{};
    verbena::local::Endpoint peer{};
    Id socket = kNone;     // of our ask, or of the shared memory
    std::string reason{};  // of its path
  };

  // Who was reached where.
  struct Reached {
    PeerSocket peer;
    bool in_folder = false;
  };

  Hub(const Options& options, OwnDescriptor listener, OwnDescriptor epoll, std::optional<MeetingFolder> folder);
  // In a forked child the hub is its parent's: it asks nobody, and nobody is met.
  bool is_inherited() const { return holdings::generation() != generation_; }
  bool watch(int descriptor, Id id);  // false: the system watches no more for this user, as errno says
  void unwatch(int descriptor);
  Id add(PeerSocket peer, Role role, Qpn qpn, Segment segment);
  void drop(Id id);
  bool handle(Instant now, Id id, std::uint32_t events, bool take_signals);
  bool read_hello(Instant now, Id id);
  void judge_held(Instant now, Qpn qpn);
  void judge(Instant now, Id id);
  bool map_offered(Socket& socket);
  const char* lack_of(const Socket& socket) const;
  void ask(Instant now, Entry& entry, const verbena::local::Endpoint& self);
  Result<Id> try_ask(const Entry& entry, const verbena::local::Endpoint& self);
  Result<std::optional<Reached>> find(const verbena::local::Endpoint& peer) const;
  bool hear_answer(Instant now, Id id);
  void attach(Instant now, Qpn qpn, Entry& entry, Id id, std::uint32_t ring_capacity, bool opener);
  void meet_memory(Socket& socket, std::uint32_t ring_capacity, bool opener);
  // hub_listeners.cc
  static Descriptor spare_descriptor();
  bool stand_in_folder();
  bool hears_folder() const { return folder_ && folder_->listener() >= 0 && !deaf_in_folder_; }
  bool accept_all(Instant now);
  bool accept_all(Instant now, int listener, bool in_folder);
  void drop_if_silent(Instant now, Id id);
  void turn_away(int listener);
  void meet_nobody_yet();
  void meet_again();
  void show_out_all();
  bool shares_with(uid_t user) const;
  void make_room_for_another_user();
  // hub_bells.cc
  void hear_signal(Instant now, Id id, bool take);
  void give_bell(Socket& socket);
  void silence(const Descriptor& bell);
  // hub_regions.cc
  void judge_want(Id id, const verbena::local::Want& want);
  Id try_want(Qpn qpn, RKey rkey);
  void ask_for_region(Regions& regions, RKey rkey);
  bool hear_loan(Id id);
  bool use_loan(Socket& attached, RKey wanted, Loan loan);
  void refuse_wanted();
  void note(Qpn qpn, RKey rkey, const char* how);
  void forget_wanted(Id attached);
  void meet_regions(verbena::local::Channel& channel, Socket& socket, std::uint32_t ring_capacity,
                    bool opener);
  std::string copies_of(Id attached) const;
  void go_by_packets(Instant now, Qpn qpn, Entry& entry, std::string reason);
  static bool exceeds(int descriptor, double part);  // of those that this process may have
  bool is_scarce(int descriptor) const;
  std::string explain_folder() const;
  std::string explain(const Entry& entry) const;

  const Options options_;
  const Cookie cookie_;  // for the peers of this process
  OwnDescriptor listener_;
  std::optional<MeetingFolder> folder_;
  std::string not_in_folder_;  // why it does not stand there
  const OwnDescriptor epoll_;  // a child that had it would let its parent hear of the child's sockets
  const std::uint64_t generation_ = holdings::generation();
  std::vector<int> sets_;
  std::uint32_t bell_data_ = 0;
  Descriptor reserve_;  // given up to turn a peer away when no descriptor is left
  bool deaf_ = false;   // nobody new is met: strangers come faster than they can be shown out, or no descriptor is left
  bool deaf_in_folder_ = false;  // likewise, but strangers do not come there
  OwnDescriptor caught_up_;  // readable when that is over
  Nic* nic_ = nullptr;
  std::optional<Qpn> entering_;  // its refusal is an error of enter()
  std::map<Id, Socket> sockets_;
  std::set<Id> waiting_;  // fresh and held ones, oldest first
  std::unordered_map<std::uint32_t, Entry> entries_;
  std::vector<Id> hung_up_;
  std::vector<std::pair<Qpn, RKey>> in_vain_;  // regions that could not be asked for
  std::size_t undecided_ = 0;
  std::uint64_t attached_ = 0;   // so far
  std::uint64_t fallbacks_ = 0;  // packets although the peer offered memory, or might have
  Id next_id_ = 1;
};

}  // namespace verbena::soft::local
