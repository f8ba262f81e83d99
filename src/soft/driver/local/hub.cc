// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/local/hub.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/assert.h"
#include "base/fault_guard.h"
#include "base/fence.h"
#include "base/this_user.h"

namespace verbena::soft::local {

using verbena::local::Answer;
using verbena::local::Endpoint;
using verbena::local::Hello;
using verbena::local::layout_of;
using verbena::local::Path;
using verbena::local::PullWords;
using verbena::local::RingConsumer;
using verbena::local::RingMemory;
using verbena::local::RingProducer;
using verbena::local::SegmentLayout;
using verbena::local::WakeMemory;

namespace {

constexpr std::size_t kLinesExplained = 32;

std::string text_of(const Endpoint& endpoint) {
  return endpoint.gid.to_string() + " queue pair " + std::to_string(endpoint.qpn.value());
}

const char* why(Answer answer) {
  return answer == Answer::Unknown ? "the peer knows of no connection with this queue pair"
                                   : "the peer goes by packets";
}

LocalLink link_of(std::span<std::byte> memory, std::uint32_t ring_capacity, bool opener) {
  const SegmentLayout layout = layout_of(ring_capacity);
  std::byte* const base = memory.data();
  const RingMemory ours(base + (opener ? layout.opener_ring : layout.acceptor_ring), ring_capacity);
  const RingMemory theirs(base + (opener ? layout.acceptor_ring : layout.opener_ring), ring_capacity);
  const WakeMemory our_word(base + (opener ? layout.opener_wake : layout.acceptor_wake));
  const WakeMemory their_word(base + (opener ? layout.acceptor_wake : layout.opener_wake));
  return {{RingProducer(ours), RingConsumer(theirs)},
          verbena::local::Sleeper(our_word),
          verbena::local::Waker(their_word)};
}

constexpr const char* kScarce = "file descriptors are scarce, and the last quarter is the program's: raise ulimit -n";
constexpr const char* kInherited = "this process inherited the device by a fork: it must open one of its own";
constexpr const char* kUnwatched = "no more sockets of this user can be watched: raise fs.epoll.max_user_watches";

// Who has the address and the place has the name. A process that had all three before loses them one after the other
// when it ends.
Result<OwnDescriptor> offer_when_free(const MeetingPoint& point) {
  constexpr int kTries = 400;
  for (int i = 0;; ++i) {
    auto offered = offer(point);
    if (offered || offered.error().code() != ErrorCode::AddressInUse || i == kTries) return offered;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

std::string reason_of(const Error& error) {
  const std::string all = error.to_string();
  return all.substr(std::min(all.size(), to_string(error.code()).size() + std::string_view(": ").size()));
}

Result<std::unique_ptr<Hub>> Hub::open(const Options& options, std::optional<MeetingFolder> folder) {
  // Asked for while few threads have to be waited for.
  for (const Reach reach : {Reach::ThisProcess, Reach::AllProcesses}) static_cast<void>(has_heavy_fences(reach));
  auto listener = offer_when_free({options.address, options.ids.value});
  if (!listener) return std::move(listener).error();
  auto no_fork = holdings::no_fork();
  OwnDescriptor epoll{Descriptor(::epoll_create1(EPOLL_CLOEXEC))};
  no_fork.unlock();
  if (!epoll) return Error::from_errno(errno, "epoll_create1");
  std::unique_ptr<Hub> hub(new Hub(options, std::move(*listener), std::move(epoll), std::move(folder)));
  if (!hub->watch(hub->listener_.get(), kListener) || !hub->stand_in_folder())
    return Error::from_errno(errno, kUnwatched);
  return hub;
}

Hub::Hub(const Options& options, OwnDescriptor listener, OwnDescriptor epoll, std::optional<MeetingFolder> folder)
    : options_(options),
      cookie_(Cookie::make()),
      listener_(std::move(listener)),
      folder_(std::move(folder)),
      epoll_(std::move(epoll)),
      reserve_(spare_descriptor()) {}

Hub::~Hub() {
  show_out_all();
  if (nic_ != nullptr) nic_->set_paths(nullptr);
}

void Hub::serve(Nic& nic) {
  nic_ = &nic;
  nic.set_paths(this);
}

bool Hub::watch(int descriptor, Id id) {
  if (is_inherited()) return false;
  epoll_event event{};
  event.events = EPOLLIN | EPOLLRDHUP;
  event.data.u64 = id;
  const int done = ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
  VERBENA_ASSERT(done == 0 || errno == ENOMEM || errno == ENOSPC);
  return done == 0;
}

void Hub::unwatch(int descriptor) { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr); }

Hub::Id Hub::add(PeerSocket peer, Role role, Qpn qpn, Segment segment) {
  const Id id = next_id_++;
  const bool watched = watch(peer.descriptor(), id);
  sockets_.emplace(id, Socket{std::move(peer), role, qpn, std::move(segment), {}, {}, {}, {}, {}, {}, {}, {}, watched});
  if (role != Role::Fresh) return id;
  waiting_.insert(id);
  if (waiting_.size() > kMostWaiting) drop(*waiting_.begin());
  return id;
}

void Hub::drop(Id id) {
  waiting_.erase(id);
  const auto found = sockets_.find(id);
  if (found == sockets_.end()) return;
  unwatch(found->second.peer.descriptor());  // it may stay open for a while
  if (found->second.bell) silence(found->second.bell);  // the peer has it, too
  sockets_.erase(found);
}

bool Hub::handle_events(Instant now, bool take_signals) {
  std::array<epoll_event, 64> events;
  constexpr int kMostRounds = 16;
  bool any = false;
  refuse_wanted();
  if (deaf_ || deaf_in_folder_) meet_again();
  for (int round = 0; round < kMostRounds; ++round) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      const bool asked = event.data.u64 == kListener || event.data.u64 == kFolderListener;
      if (asked ? accept_all(now) : handle(now, event.data.u64, event.events, take_signals)) any = true;
    }
    if (count < static_cast<int>(events.size())) break;
  }
  return any;
}

bool Hub::handle(Instant now, Id id, std::uint32_t events, bool take_signals) {
  const auto found = sockets_.find(id);
  if (found == sockets_.end()) return false;  // dropped by an event before it
  Socket& socket = found->second;
  switch (socket.role) {
    case Role::Fresh:
      return read_hello(now, id);
    case Role::Held:  // its peer has no more to say before it was answered
      drop(id);
      return true;
    case Role::Asked:
      return hear_answer(now, id);
    case Role::Wanting:
      return hear_loan(id);
    case Role::Attached:
      if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        unwatch(socket.peer.descriptor());
        hung_up_.push_back(id);
        return true;
      }
      hear_signal(now, id, take_signals);
      return false;
  }
  return false;
}

void Hub::handle_hang_ups(Instant now) {
  for (const Id id : std::exchange(hung_up_, {})) {
    const auto found = sockets_.find(id);
    if (found == sockets_.end()) continue;
    const Qpn qpn = found->second.qpn;
    entries_.at(qpn.value()).reason += ", which has ended or closed it";
    nic_->handle_hang_up(now, qpn, now + options_.farewell);
  }
}

// ---- Asks of others.

bool Hub::read_hello(Instant now, Id id) {
  Socket& socket = sockets_.at(id);
  auto opening = socket.peer.try_receive();
  if (opening && !*opening) return false;
  if (opening)
    if (const auto* const want = std::get_if<verbena::local::Want>(&**opening)) judge_want(id, *want);
  Offer* const offer = opening ? std::get_if<Offer>(&**opening) : nullptr;
  if (offer == nullptr || offer->hello.to.gid != options_.address) {
    drop(id);
    return true;
  }
  socket.hello = offer->hello;
  socket.offered = std::move(offer->segment);
  socket.qpn = socket.hello.to.qpn;
  judge(now, id);
  return true;
}

// What is asked of a queue pair of ours, in whatever state it is.
void Hub::judge(Instant now, Id id) {
  Socket& socket = sockets_.at(id);
  const Qpn qpn = socket.qpn;
  const auto found = entries_.find(qpn.value());
  std::optional<Answer> answer;
  if (found != entries_.end())
    answer = found->second.match.handle_ask(socket.hello.from);
  else if (nic_->qp(qpn) == nullptr)
    answer = Answer::Unknown;
  const char* const lack = lack_of(socket);
  if (!answer && lack != nullptr) answer = Answer::Roce;
  if (!answer) {
    socket.role = Role::Held;
    return;
  }
  if (*answer == Answer::Accept) {
    Entry& entry = found->second;
    drop(std::exchange(entry.socket, kNone));
    if (lack == nullptr && map_offered(socket)) return attach(now, qpn, entry, id, socket.hello.ring_capacity, false);
    entry.match.give_up();
    ++fallbacks_;
    go_by_packets(now, qpn, entry, lack != nullptr ? lack : "the peer's memory could not be mapped");
    answer = Answer::Roce;
  }
  static_cast<void>(socket.peer.send(*answer));  // one that is gone needs none
  drop(id);
}

// For which it cannot be kept; nullptr: nothing.
const char* Hub::lack_of(const Socket& socket) const {
  if (!socket.watched) return kUnwatched;
  return is_scarce(std::max(socket.offered.get(), socket.peer.descriptor())) ? kScarce : nullptr;
}

bool Hub::map_offered(Socket& socket) {
  auto segment = Segment::accept(std::move(socket.offered), layout_of(socket.hello.ring_capacity).bytes);
  if (!segment) return false;
  segment->close_descriptor();
  socket.segment = std::move(*segment);
  return true;
}

// Asks that wait for this queue pair: it is another now, or gone.
void Hub::judge_held(Instant now, Qpn qpn) {
  std::vector<Id> held;
  for (const Id id : waiting_)
    if (const Socket& socket = sockets_.at(id); socket.role == Role::Held && socket.qpn == qpn) held.push_back(id);
  for (const Id id : held) judge(now, id);
}

// ---- Queue pairs of ours.

Result<void> Hub::enter(Instant now, const Endpoint& self, const Endpoint& peer) {
  Entry& fresh = entries_[self.qpn.value()];
  fresh = Entry();
  fresh.peer = peer;
  fresh.match.enter(self, peer);
  ++undecided_;
  entering_ = self.qpn;
  if (is_inherited()) fresh.match.give_up();
  if (fresh.match.path() == Path::Roce)
    go_by_packets(now, self.qpn, fresh, is_inherited() ? kInherited : "it is its own peer");
  if (!is_inherited()) {
    accept_all(now);  // what was asked before counts before an ask of our own
    judge_held(now, self.qpn);
  }
  const auto found = entries_.find(self.qpn.value());
  if (found == entries_.end()) {  // attached, and failed at once
    entering_.reset();
    return {};
  }
  Entry& entry = found->second;
  if (entry.match.must_ask()) ask(now, entry, self);
  entering_.reset();
  if (!options_.required || entry.match.path() != Path::Roce) return {};
  return Error{ErrorCode::NotSupported, "no shared memory with " + text_of(peer) + ": " + entry.reason +
                                            ", and path=local was asked for"};
}

void Hub::ask(Instant now, Entry& entry, const Endpoint& self) {
  auto id = try_ask(entry, self);
  if (id) {
    entry.socket = *id;
    entry.match.handle_asked();
    entry.reason = "asked the peer for shared memory, which has not answered yet";
    return;
  }
  entry.match.give_up();
  if (id.error().code() != ErrorCode::NotFound) ++fallbacks_;
  go_by_packets(now, self.qpn, entry, reason_of(id.error()));
}

// The lowest number that is free is given out.
bool Hub::exceeds(int descriptor, double part) {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && descriptor >= part * static_cast<double>(limit.rlim_cur);
}

bool Hub::is_scarce(int descriptor) const {
  constexpr double kMostForConnections = 0.75;
  return !options_.required && exceeds(descriptor, kMostForConnections);
}

// In our network, and where others meet.
Result<std::optional<Hub::Reached>> Hub::find(const Endpoint& peer) const {
  if (is_inherited()) return Error{ErrorCode::WrongState, kInherited};
  // Whoever is there may be a stranger, who is to be shown out, too. That many do not come of those who just leave.
  if (closing::is_behind(4 * closing::kMost))
    return Error{ErrorCode::ResourceExhausted, "other users connect here faster than they can be shown out"};
  const MeetingPoint point{peer.gid, options_.ids.value_of(peer.qpn.value(), kQpnBits)};
  auto reached = reach(point, listener_.get());
  const bool elsewhere = !reached && reached.error().code() == ErrorCode::WrongState;  // a folder is everywhere
  const bool in_folder = folder_ && (elsewhere || (reached && !*reached));
  if (in_folder) {
    auto there = folder_->reach(point);
    if (!elsewhere || (there && *there)) reached = std::move(there);
  }
  if (!reached) return std::move(reached).error();
  if (!*reached) return std::optional<Reached>();
  return std::optional(Reached{std::move(**reached), in_folder});
}

Result<Hub::Id> Hub::try_ask(const Entry& entry, const Endpoint& self) {
  auto reached = find(entry.peer);
  if (!reached) return std::move(reached).error();
  if (!*reached)
    return Error{ErrorCode::NotFound, "nobody offers shared memory for that address " +
                                          (folder_ ? "in this network or in " + folder_->path() : "on this host")};
  PeerSocket& peer = (**reached).peer;
  if (!shares_with(peer.peer().uid))
    return Error{ErrorCode::PermissionDenied,
                 "the " + peer.name() + " is of another user, whom local_users does not name"};
  if (is_scarce(peer.descriptor())) return Error{ErrorCode::ResourceExhausted, kScarce};
  auto segment = Segment::create(layout_of(options_.ring_capacity).bytes);
  if (!segment) return std::move(segment).error();
  if (options_.pull && is_this_user(peer.peer().uid))
    PullWords(segment->memory().data() + layout_of(options_.ring_capacity).opener_pull).offer(cookie_.at());
  const Id id = add(std::move(peer), Role::Asked, self.qpn, std::move(*segment));
  Socket& socket = sockets_.at(id);
  socket.met_in_folder = (**reached).in_folder;
  const Hello hello{options_.ring_capacity, self, entry.peer};
  auto sent = socket.watched ? socket.peer.send(hello, socket.segment.descriptor())
                             : Result<void>(Error{ErrorCode::ResourceExhausted, kUnwatched});
  socket.segment.close_descriptor();
  if (sent) return id;
  drop(id);
  return std::move(sent).error();
}

bool Hub::hear_answer(Instant now, Id id) {
  Socket& socket = sockets_.at(id);
  const Qpn qpn = socket.qpn;
  Entry& entry = entries_.at(qpn.value());
  auto answer = socket.peer.try_receive_answer();
  if (answer && !*answer) return false;
  if (answer) {
    entry.match.handle_answer(**answer);
    if (entry.match.path() == Path::Local) {
      attach(now, qpn, entry, id, options_.ring_capacity, true);
      return true;
    }
  } else {
    entry.match.give_up();
  }
  entry.socket = kNone;
  drop(id);
  if (entry.match.path() != Path::Roce) return true;
  ++fallbacks_;
  go_by_packets(now, qpn, entry, answer ? why(**answer) : reason_of(answer.error()));
  return true;
}

void Hub::attach(Instant now, Qpn qpn, Entry& entry, Id id, std::uint32_t ring_capacity, bool opener) {
  Socket& socket = sockets_.at(id);
  socket.role = Role::Attached;
  waiting_.erase(id);
  entry.socket = id;
  entry.reason = "shared memory with " + socket.peer.name();
  if (socket.met_in_folder) entry.reason += ", met in " + folder_->path();
  --undecided_;
  ++attached_;
  LocalLink link = link_of(socket.segment.memory(), ring_capacity, opener);
  if (options_.pull && is_this_user(socket.peer.peer().uid)) {
    meet_memory(socket, ring_capacity, opener);
    meet_regions(link.channel, socket, ring_capacity, opener);
  }
  link.channel.peer_memory = socket.memory.get();
  nic_->use_local(now, qpn, link);
  // Where the peer's memory faults at once, the queue pair has failed and left.
  const auto still = sockets_.find(id);
  if (!opener && still != sockets_.end())
    static_cast<void>(still->second.peer.send(Answer::Accept));  // one that is gone hangs up
}

// Each says where its cookie is, and whether it could read the other's: the opener before its hello and after the
// answer, the acceptor between.
void Hub::meet_memory(Socket& socket, std::uint32_t ring_capacity, bool opener) {
  const SegmentLayout layout = layout_of(ring_capacity);
  std::byte* const base = socket.segment.memory().data();
  const PullWords ours(base + (opener ? layout.opener_pull : layout.acceptor_pull));
  const PullWords theirs(base + (opener ? layout.acceptor_pull : layout.opener_pull));
  if (!opener && !fault_guard::run([&] { ours.offer(cookie_.at()); })) return;
  socket.memory = std::make_unique<ProcessMemory>(socket.peer, ours, theirs);
}

// The match says so already.
void Hub::go_by_packets(Instant now, Qpn qpn, Entry& entry, std::string reason) {
  entry.reason = std::move(reason);
  --undecided_;
  if (!options_.required) return nic_->use_roce(now, qpn);
  if (entering_ != qpn) nic_->refuse_path(qpn);  // which leaves
}

void Hub::handle_packet(Instant now, Qpn qpn) {
  Entry& entry = entries_.at(qpn.value());
  drop(std::exchange(entry.socket, kNone));
  entry.match.handle_packet();
  go_by_packets(now, qpn, entry, "a packet of the peer's came first");
}

void Hub::leave(Qpn qpn, bool destroyed) {
  if (const auto found = entries_.find(qpn.value()); found != entries_.end()) {
    if (found->second.match.path() == Path::Undecided) --undecided_;
    forget_wanted(found->second.socket);
    drop(found->second.socket);
    entries_.erase(found);
  }
  if (!destroyed) return;
  for (auto next = waiting_.begin(); next != waiting_.end();) {
    const Id id = *next++;
    Socket& socket = sockets_.at(id);
    if (socket.role != Role::Held || socket.qpn != qpn) continue;
    static_cast<void>(socket.peer.send(Answer::Unknown));
    drop(id);
  }
}

// Nobody is at its meeting point, or somebody else.
bool Hub::is_peer_gone(Qpn qpn) {
  const Entry& entry = entries_.at(qpn.value());
  const auto reached = find(entry.peer);
  if (!reached) return false;
  return !*reached || (**reached).peer.peer().pid != sockets_.at(entry.socket).peer.peer().pid;
}

void Hub::wake_peer(Qpn qpn, bool unwatched) {
  PeerSocket& peer = sockets_.at(entries_.at(qpn.value()).socket).peer;
  unwatched ? peer.signal() : peer.ring();
}

std::vector<NamedCounter> Hub::counters() const {
  return {{"local_connections", attached_}, {"local_fallbacks", fallbacks_}};
}

std::string Hub::explain_folder() const {
  const std::string where = "offered to other networks in the folder " + folder_->path();
  if (not_in_folder_.empty()) return "same host: also " + where;
  const char* const verb = MeetingFolder::takes(options_.address) ? "cannot be " : "is not ";
  return "same host: shared memory " + (verb + where) + ": " + not_in_folder_;
}

std::vector<std::string> Hub::explain() const {
  std::string others;
  for (const uid_t user : options_.users)
    if (!is_this_user(user)) others += (others.empty() ? ", and by two copies of user " : ", ") + std::to_string(user);
  std::vector<std::string> lines{"same host: shares memory with processes of this user" + others + "; offers it as " +
                                 MeetingPoint{options_.address, options_.ids.value}.name()};
  if (folder_) lines.push_back(explain_folder());
  std::map<std::uint32_t, const Entry*> in_order;
  for (const auto& [qpn, entry] : entries_) in_order.emplace(qpn, &entry);
  std::map<Path, std::size_t> on;
  for (const auto& [qpn, entry] : entries_) ++on[entry.match.path()];
  lines.push_back("same host: connections that share memory: " + std::to_string(on[Path::Local]) +
                  ", by RoCE: " + std::to_string(on[Path::Roce]) +
                  ", undecided: " + std::to_string(on[Path::Undecided]));
  const std::size_t first = lines.size();
  for (const auto& [qpn, entry] : in_order) {
    if (lines.size() > kLinesExplained) {
      lines.push_back("... and " + std::to_string(entries_.size() + first - lines.size()) + " queue pairs more");
      break;
    }
    lines.push_back("queue pair " + std::to_string(qpn) + " to " + text_of(entry->peer) + ": " + explain(*entry));
  }
  return lines;
}

std::string Hub::explain(const Entry& entry) const {
  const Path path = entry.match.path();
  if (path == Path::Local) return entry.reason + "; " + copies_of(entry.socket);
  return path == Path::Roce ? "RoCE, because " + entry.reason : entry.reason;
}

std::string Hub::explain(Qpn qpn) const {
  const auto found = entries_.find(qpn.value());
  return found == entries_.end() ? "not chosen: it is not connected" : explain(found->second);
}

}  // namespace verbena::soft::local
