// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/shared_address.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <mutex>

#include "base/assert.h"
#include "base/holdings.h"
#include "base/quiet_thread.h"
#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/crypto_random.h"
#include "soft/driver/udp/port_owner.h"
#include "soft/driver/udp/rendezvous.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/driver/udp/socket_group.h"

namespace verbena::soft::udp {
namespace {

constexpr int kTries = 200;  // to meet members that come and go
constexpr std::chrono::milliseconds kPause{5};
constexpr std::size_t kMostRoutes = 512;  // in the filter; the lobby knows them all
constexpr int kMostDrained = 1 << 16;
constexpr unsigned kBefore = 2;  // of what is passed on: the meeting place and the table
constexpr int kPauseMs = 100;  // when no descriptor is left to meet a guest with
constexpr unsigned kCost = kSlots + 2;  // descriptors: the others' sockets, one to read them by, the mailbox

bool set(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

Error with_context(const std::string& what, const Error& error) {
  return {error.code(), what + error.context(), error.native(), error.domain()};
}

// 127.0.0.1, .2 … .254, 127.0.1.1 …: no address that looks like a network or a broadcast address.
Gid loopback_candidate(unsigned index) {
  const unsigned host = index % 254 + 1;
  const unsigned net = index / 254;
  return Gid::from_ipv4(127, static_cast<std::uint8_t>(net >> 8), static_cast<std::uint8_t>(net),
                        static_cast<std::uint8_t>(host));
}

// The network namespace of the calling thread and the address, for what this process holds.
std::string place_name(const std::string& meeting_place) {
  struct stat network {};
  if (::stat("/proc/thread-self/ns/net", &network) != 0) return meeting_place;
  return std::to_string(network.st_ino) + " " + meeting_place;
}

bool is_bound(int fd, const LocalAddress& local) {
  SocketAddress at;
  at.size = sizeof at.v6;
  int type = 0;
  socklen_t type_size = sizeof type;
  return ::getsockname(fd, &at.any, &at.size) == 0 && at.gid() == local.gid && at.port() == wire::kRocePort &&
         ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) == 0 && type == SOCK_DGRAM;
}

void watch(int events, int fd, std::uint32_t kinds) {
  epoll_event event{kinds, {}};
  event.data.fd = fd;
  ::epoll_ctl(events, EPOLL_CTL_ADD, fd, &event);
}

// What the slot's last owner did not read.
void drain(int fd) {
  std::byte byte;
  for (int i = 0; i < kMostDrained && ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_TRUNC) >= 0; ++i) continue;
}

// ThreadSanitizer knows that sockets order what threads do, and takes what dup3 makes for one, not what fcntl makes.
Descriptor duplicate(const Descriptor& from) {
  Descriptor to(::fcntl(from.get(), F_DUPFD_CLOEXEC, 0));
  if (to) ::dup3(from.get(), to.get(), O_CLOEXEC);
  return to;
}

}  // namespace

// This process at the address, and what it holds there.
struct SharedAddress::Holding {
  std::uint64_t stay = 0;
  std::mutex mutex;
  std::vector<int> descriptors;

  void add(int fd) {
    const std::lock_guard guard(mutex);
    holdings::keep_from_children(fd);
    descriptors.push_back(fd);
  }
  void release() {
    const std::lock_guard guard(mutex);
    for (const int fd : descriptors) holdings::forget(fd);
    descriptors.clear();
  }
  Holding() = default;
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() { holdings::leave(stay); }
};

Result<std::unique_ptr<SharedAddress>> SharedAddress::open(const Gid& address) {
  auto local = find_local_address(address);
  if (!local) return std::move(local).error();
  return open(*local, false);
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::open_free_loopback(unsigned candidates) {
  for (unsigned i = 0; i < candidates; ++i) {
    auto local = find_local_address(loopback_candidate(i));
    if (!local) return std::move(local).error();
    auto opened = open(*local, true);
    if (opened || opened.error().code() != ErrorCode::AddressInUse) return opened;
  }
  return Error(ErrorCode::AddressInUse,
               "take a free loopback address: all of " + std::to_string(candidates) +
                   " from 127.0.0.1 on are taken; " + describe_port_owner(loopback_candidate(0), wire::kRocePort),
               EADDRINUSE, ErrorDomain::Errno);
}

// Members come and go meanwhile: what turns out not to be there any more is asked for again.
Result<std::unique_ptr<SharedAddress>> SharedAddress::open(const LocalAddress& local, bool alone) {
  const std::string what = "share " + to_string(local.gid, wire::kRocePort) + ": ";
  const std::string name = rendezvous::name_of(local);
  auto holding = std::make_unique<Holding>();
  holding->stay = holdings::enter(place_name(name));
  if (holding->stay == 0)
    return Error(ErrorCode::AddressInUse,
                 what + "a device of this process has it (processes share an address, devices of one do not); " +
                     describe_port_owner(local.gid, wire::kRocePort),
                 EADDRINUSE, ErrorDomain::Errno);
  for (int i = 0; i < kTries; ++i) {
    auto found = rendezvous::found(name);
    if (!found) return with_context(what, found.error());
    if (*found) return create(local, std::move(holding), std::move(**found));
    if (alone) return Error(ErrorCode::AddressInUse, what + "other processes do", EADDRINUSE, ErrorDomain::Errno);
    auto descriptors = rendezvous::ask(name);
    if (!descriptors) return with_context(what, descriptors.error());
    if (*descriptors) return join(local, std::move(holding), std::move(**descriptors));
    std::this_thread::sleep_for(kPause);
  }
  return Error(ErrorCode::AddressInUse, what + "the processes at @" + name + " come and go, none lets this one in");
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::create(const LocalAddress& local,
                                                             std::unique_ptr<Holding> holding,
                                                             Descriptor meeting_place) {
  auto socket = bind_alone(local);
  if (!socket && socket.error().code() == ErrorCode::AddressInUse)
    return Error(ErrorCode::AddressInUse,
                 socket.error().context() + "; processes of one user can share an address, this one is not shared",
                 EADDRINUSE, ErrorDomain::Errno);
  if (!socket) return std::move(socket).error();
  auto table = AddressTable::create();
  if (!table) return std::move(table).error();
  auto slot = table->claim_slot(0);  // the index of the first of a group
  if (!slot) return std::move(slot).error();
  VERBENA_ASSERT(*slot == 0u);
  CryptoRandom random;
  std::unique_ptr<SharedAddress> made(new SharedAddress(local, std::move(holding), std::move(meeting_place),
                                                        std::move(*table), std::move(*socket), 0,
                                                        random.next_u64() | 1));
  if (auto started = made->start(); !started) return std::move(started).error();
  return made;
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::join(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                           std::vector<Descriptor> descriptors) {
  const std::string what = "share " + to_string(local.gid, wire::kRocePort) + ": ";
  const bool whole = descriptors.size() == kBefore + kSlots + 1 &&
                     rendezvous::is_meeting_place(descriptors[0].get(), rendezvous::name_of(local)) &&
                     std::all_of(descriptors.begin() + kBefore, descriptors.end(),
                                 [&](const Descriptor& fd) { return is_bound(fd.get(), local); });
  if (!whole) return Error(ErrorCode::InvalidArgument, what + "what a member passed on is not what it should be");
  auto table = AddressTable::adopt(std::move(descriptors[1]));
  if (!table) return with_context(what, table.error());
  CryptoRandom random;
  auto slot = table->claim_slot(static_cast<unsigned>(random.below(kSlots)));
  if (!slot) return with_context(what, slot.error());
  if (!*slot)
    return Error(ErrorCode::ResourceExhausted, what + "all " + std::to_string(kSlots) +
                                                   " places are taken by processes; end one, or use another address");
  const std::uint64_t incarnation = random.next_u64() | 1;
  auto mailbox = Mailbox::open(incarnation, local.gid);
  if (!mailbox) return with_context(what, mailbox.error());
  Descriptor meeting_place = std::move(descriptors[0]);
  descriptors.erase(descriptors.begin(), descriptors.begin() + kBefore);
  Descriptor socket = std::move(descriptors[**slot]);
  descriptors.erase(descriptors.begin() + static_cast<std::ptrdiff_t>(**slot));
  drain(socket.get());
  std::unique_ptr<SharedAddress> made(new SharedAddress(local, std::move(holding), std::move(meeting_place),
                                                        std::move(*table), std::move(socket), **slot, incarnation));
  made->keep_company(std::move(*mailbox), std::move(descriptors));
  if (auto steered = made->steer(); !steered) return with_context(what, steered.error());
  made->is_steered_ = true;
  made->watch_companions();
  if (auto started = made->start(); !started) return std::move(started).error();
  return made;
}

SharedAddress::SharedAddress(LocalAddress local, std::unique_ptr<Holding> holding, Descriptor meeting_place,
                             AddressTable table, Descriptor socket, unsigned slot, std::uint64_t incarnation)
    : local_(std::move(local)),
      holding_(std::move(holding)),
      meeting_place_(std::move(meeting_place)),
      table_(std::move(table)),
      socket_(std::move(socket)),
      slot_(slot),
      incarnation_(incarnation),
      stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      companions_(events_.get()) {
  for (const int fd : {meeting_place_.get(), table_.fd(), socket_.get()}) holding_->add(fd);
  watch(events_.get(), stop_.get(), EPOLLIN);
  watch(events_.get(), meeting_place_.get(), EPOLLIN);  // all are woken: who is stopped lets nobody in
}

SharedAddress::~SharedAddress() {
  if (attendant_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(stop_.get(), &one, sizeof one);
    attendant_.join();
  }
  set(socket_.get(), SOL_SOCKET, SO_RCVBUF, 0);
  if (table_.withdraw_all()) [[maybe_unused]] const auto steered = steer();
  let_go();
}

Result<void> SharedAddress::start() {
  if (!stop_ || !events_ || inbox_.fd() < 0)
    return Error(ErrorCode::ResourceExhausted,
                 "share " + to_string(local_.gid, wire::kRocePort) + ": no descriptor is left: raise RLIMIT_NOFILE",
                 EMFILE, ErrorDomain::Errno);
  table_.publish(incarnation_);
  attendant_ = start_quiet_thread([this] { attend(); });
  return {};
}

// `others`: of the slots but ours, then the lobby's.
void SharedAddress::keep_company(Mailbox mailbox, std::vector<Descriptor> others) {
  Descriptor lobby = std::move(others.back());
  others.pop_back();
  std::vector<int> passed_on{meeting_place_.get(), table_.fd()};
  for (const Descriptor& other : others) passed_on.push_back(other.get());
  passed_on.insert(passed_on.begin() + kBefore + slot_, socket_.get());
  passed_on.push_back(lobby.get());
  for (const Descriptor& other : others) holding_->add(other.get());
  for (const int fd : {lobby.get(), mailbox.fd()}) holding_->add(fd);
  watch(events_.get(), lobby.get(), EPOLLIN | EPOLLEXCLUSIVE);
  watch(events_.get(), mailbox.fd(), EPOLLIN);
  owned_company_.reset(new Company{std::move(mailbox), std::move(others),
                                   Receiver(std::move(lobby), local_.gid, wire::kRocePort, 1), std::move(passed_on)});
  company_.store(owned_company_.get(), std::memory_order_release);
}

// From the company on, who announces a service steers; those announced before are steered here.
Result<void> SharedAddress::become_shared() {
  if (company() == nullptr) {
    const auto no_fork = holdings::no_fork();
    auto mailbox = Mailbox::open(incarnation_, local_.gid);
    if (!mailbox) return std::move(mailbox).error();
    auto others = join_others(socket_.get(), local_, [this](const ReceivedTrain& stray) {
      keep(stray.path, stray.bytes, stray.segment_bytes);
    });
    if (!others) return std::move(others).error();
    keep_company(std::move(*mailbox), std::move(*others));
  }
  auto steered = steer();
  is_steered_ = steered.has_value();
  return steered;
}

Result<Descriptor> SharedAddress::receiving_socket() const {
  Descriptor socket = duplicate(socket_);
  if (!socket) return Error::from_errno(errno, "duplicate the receiving socket");
  holding_->add(socket.get());
  return socket;
}

void SharedAddress::let_go() { holding_->release(); }

// A kernel that takes no filter of that length takes a shorter one: the lobby knows all services.
Result<void> SharedAddress::steer() {
  if (company() == nullptr) return {};
  int error = 0;
  auto done = table_.with_routes(kMostRoutes, [&](std::vector<ServiceRoute> routes) {
    for (;;) {
      error = attach_filter(socket_.get(), steering_filter(routes));
      if (error == 0 || routes.empty()) return;
      routes.resize(routes.size() / 2);
    }
  });
  if (done && error != 0) return Error::from_errno(error, "attach the filter that shares the address");
  return done;
}

Result<void> SharedAddress::announce(std::uint32_t service) {
  if (auto announced = table_.announce(service); !announced) return announced;
  auto steered = steer();
  if (!steered) [[maybe_unused]] const auto withdrawn = table_.withdraw(service);
  return steered;
}

Result<void> SharedAddress::withdraw(std::uint32_t service) { return table_.withdraw(service); }

bool SharedAddress::is_ours(const ReceivedTrain& train) const {
  std::span<const std::byte> rest = train.bytes;
  if (rest.size() <= train.segment_bytes || company() == nullptr) return true;  // the kernel chose us
  while (!rest.empty()) {
    const auto datagram = rest.first(std::min(train.segment_bytes, rest.size()));
    if (place_of(datagram) != slot_) return false;
    rest = rest.subspan(datagram.size());
  }
  return true;
}

void SharedAddress::sort(const ReceivedTrain& train) {
  std::span<const std::byte> rest = train.bytes;
  while (!rest.empty()) {
    const auto first = rest.first(std::min(train.segment_bytes, rest.size()));
    const unsigned place = place_of(first);
    std::size_t run = first.size();
    while (place != kLobby && run < rest.size()) {
      const auto next = rest.subspan(run, std::min(train.segment_bytes, rest.size() - run));
      if (place_of(next) != place) break;
      run += next.size();
    }
    route(train.path, rest.first(run), train.segment_bytes);
    rest = rest.subspan(run);
  }
}

// All of `bytes` has one place; what has none comes singly.
void SharedAddress::route(const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes) {
  const auto first = bytes.first(std::min(segment_bytes, bytes.size()));
  const unsigned place = place_of(first);
  if (place != kLobby) return hand_to(place, path, bytes, segment_bytes);
  if (is_for_everybody(first)) {
    for (unsigned slot = 0; slot < kSlots; ++slot)
      if (slot == slot_ || table_.is_taken(slot)) hand_to(slot, path, bytes, segment_bytes);
    return;
  }
  // What nobody listens for is refused by whoever reads it.
  const auto service = service_of(first);
  hand_to(service ? table_.slot_of(*service).value_or(slot_) : slot_, path, bytes, segment_bytes);
}

void SharedAddress::hand_to(unsigned slot, const wire::Path& path, std::span<const std::byte> bytes,
                            std::size_t segment_bytes) {
  if (slot == slot_) return keep(path, bytes, segment_bytes);
  const std::uint64_t incarnation = table_.incarnation_of(slot);
  const bool sent = incarnation != 0 && company()->mailbox.send(incarnation, path, bytes, segment_bytes);
  ++(sent ? handed_over_ : lost_);
}

void SharedAddress::keep(const wire::Path& path, std::span<const std::byte> bytes, std::size_t segment_bytes) {
  if (!inbox_.put({path, {bytes.begin(), bytes.end()}, segment_bytes})) ++lost_;
}

void SharedAddress::attend() {
  std::array<epoll_event, 4> ready;
  for (;;) {
    const int count = ::epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), -1);
    for (int i = 0; i < count; ++i) {
      const int fd = ready[static_cast<std::size_t>(i)].data.fd;
      if (fd == stop_.get()) return;
      if (fd == meeting_place_.get()) {
        meet_guest();
      } else if (company() != nullptr && fd == company()->mailbox.fd()) {
        read_mail();
      } else if (company() != nullptr && fd == company()->lobby.fd()) {
        read_lobby();
      } else {
        bury(fd);
      }
    }
  }
}

// Everybody is watched by who let him in and by all who came after him. Whoever sees an end watches all that are left,
// so that who was watched by the dead alone is watched again.
void SharedAddress::watch_companions() {
  for (unsigned slot = 0; slot < kSlots; ++slot) companions_.watch(table_.holder_of(slot));
}

void SharedAddress::bury(int descriptor) {
  if (!companions_.take_end(descriptor)) return;
  // Who holds the table up stops this, too: then it stays as it was until the next who steers.
  [[maybe_unused]] const auto steered = steer();
  watch_companions();
}

void SharedAddress::meet_guest() {
  const auto guest = rendezvous::meet(meeting_place_.get());
  if (!guest) {
    pollfd stop{stop_.get(), POLLIN, 0};
    ::poll(&stop, 1, kPauseMs);
    return;
  }
  if (!*guest) return;
  const Descriptor& at = **guest;
  const auto shared = is_steered_ ? Result<void>{} : become_shared();
  if (shared) {
    companions_.watch(rendezvous::process_at(at.get()));
    return rendezvous::let_in(at.get(), company()->passed_on);
  }
  const int error = shared.error().native();
  rendezvous::refuse(at.get(), kCost, error != 0 ? error : EBUSY);
}

void SharedAddress::read_lobby() {
  SocketCounters uncounted;
  for (const ReceivedTrain& train : company()->lobby.receive(uncounted)) sort(train);
}

void SharedAddress::read_mail() {
  std::optional<Stray> stray;
  if (!company()->mailbox.take(stray) || !stray) return;
  ++taken_over_;
  if (!inbox_.put(std::move(*stray))) ++lost_;
}

std::string SharedAddress::explain() const {
  const unsigned taken = table_.taken_slots();
  const std::string place = "place " + std::to_string(slot_ + 1) + " of " + std::to_string(kSlots);
  if (taken <= 1) return "alone at this address, at " + place + "; other processes of this user may come";
  return "shares this address with " + std::to_string(taken - 1) + " other " +
         (taken == 2 ? "process" : "processes") + " of this user, at " + place;
}

std::vector<NamedCounter> SharedAddress::counters() const {
  return {{"shared_handed_over", handed_over_.load()},
          {"shared_taken_over", taken_over_.load()},
          {"shared_lost", lost_.load()}};
}

}  // namespace verbena::soft::udp
