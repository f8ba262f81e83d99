// SPDX-License-Identifier: Apache-2.0
#include "soft/driver/udp/shared_address.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "base/assert.h"
#include "base/holdings.h"
#include "soft/driver/udp/bound_socket.h"
#include "soft/driver/udp/crypto_random.h"
#include "soft/driver/udp/port_owner.h"
#include "soft/driver/udp/rendezvous.h"
#include "soft/driver/udp/socket_address.h"
#include "soft/driver/udp/socket_group.h"

namespace verbena::soft::udp {
namespace {

constexpr int kTries = 200;  // to meet members that come and go
constexpr int kTriesForPort = 100;
constexpr std::chrono::milliseconds kPause{5};
constexpr std::size_t kMostRoutes = 512;  // in the filter; the lobby knows them all
constexpr int kMostDrained = 1 << 16;
constexpr unsigned kBefore = 2;  // of what is passed on: the meeting place and the table
constexpr int kPauseMs = 100;  // when no descriptor is left to meet a guest with
constexpr const char* kNotWhole = "what a member passed on is not what it should be";
constexpr unsigned kCost = kSlots + 2;  // descriptors: the others' sockets, one to read them by, the mailbox

bool set(int fd, int level, int name, int value) {
  return ::setsockopt(fd, level, name, &value, sizeof value) == 0;
}

Error with_context(const std::string& what, const Error& error) {
  return {error.code(), what + error.context(), error.native(), error.domain()};
}

Error not_shared(const Gid& address) {
  const std::string who = bind_error(address, wire::kRocePort, EADDRINUSE).context();
  return {ErrorCode::AddressInUse,
          who + "; processes of one user can share an address, and of users who all name each other (address_users, "
                "VERBENA_ADDRESS_USERS): this one is not shared so, use another address",
          EADDRINUSE, ErrorDomain::Errno};
}

// 127.0.0.1, .2 … .254, 127.0.1.1 …: no address that looks like a network or a broadcast address.
Gid loopback_candidate(unsigned index) {
  const unsigned host = index % 254 + 1;
  const unsigned net = index / 254;
  return Gid::from_ipv4(127, static_cast<std::uint8_t>(net >> 8), static_cast<std::uint8_t>(net),
                        static_cast<std::uint8_t>(host));
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

// The devices of this process at an address. One comes at a time.
class SharedAddress::Site {
 public:
  static std::shared_ptr<Site> at(const std::string& place);
  explicit Site(std::uint64_t stay) : stay_(stay) {}
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;
  ~Site() { holdings::leave(stay_); }

  std::mutex mutex;  // of what follows
  std::vector<SharedAddress*> devices;
  unsigned holdings = 0;  // of devices, those on their way out included
  AddressUsers users;     // changes while there is no device
  std::condition_variable left;

 private:
  const std::uint64_t stay_;
};

// In a forked child there is none: what it inherited is its parent's.
std::shared_ptr<SharedAddress::Site> SharedAddress::Site::at(const std::string& place) {
  const auto no_fork = holdings::no_fork();
  static std::mutex registry;
  static std::map<std::string, std::weak_ptr<Site>> sites;
  const std::lock_guard guard(registry);
  std::erase_if(sites, [](const auto& entry) { return entry.second.expired(); });
  for (;;) {
    if (const std::uint64_t stay = holdings::enter(place); stay != 0) {
      auto site = std::make_shared<Site>(stay);
      sites[place] = site;
      return site;
    }
    const auto found = sites.find(place);
    if (auto site = found == sites.end() ? nullptr : found->second.lock()) return site;
    std::this_thread::yield();  // its last device is on its way out
  }
}

// A device at a site, and what it holds there.
struct SharedAddress::Holding {
  const std::shared_ptr<Site> site;
  bool is_there = false;                  // one that was opened; before that, whoever opens lets nobody fork
  std::unique_lock<std::mutex> closing;  // no child is forked
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
  explicit Holding(std::shared_ptr<Site> at) : site(std::move(at)) {}
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;
  ~Holding() {
    if (!is_there) return;
    closing.unlock();  // everything is closed
    const std::lock_guard guard(site->mutex);
    --site->holdings;
    site->left.notify_all();
  }
};

Result<std::unique_ptr<SharedAddress>> SharedAddress::open(const Gid& address, const AddressUsers& users) {
  auto local = find_local_address(address);
  if (!local) return std::move(local).error();
  return open(*local, users, false);
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::open_free_loopback(const AddressUsers& users,
                                                                         unsigned candidates) {
  for (unsigned i = 0; i < candidates; ++i) {
    auto local = find_local_address(loopback_candidate(i));
    if (!local) return std::move(local).error();
    auto opened = open(*local, users, true);
    if (opened || opened.error().code() != ErrorCode::AddressInUse) return opened;
  }
  return Error(ErrorCode::AddressInUse,
               "take a free loopback address: all of " + std::to_string(candidates) +
                   " from 127.0.0.1 on are taken; " + describe_port_owner(loopback_candidate(0), wire::kRocePort),
               EADDRINUSE, ErrorDomain::Errno);
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::open(const LocalAddress& local, const AddressUsers& users,
                                                           bool alone) {
  const std::string what = "share " + to_string(local.gid, wire::kRocePort) + ": ";
  const auto place = rendezvous::place_name(rendezvous::name_of(local, users));
  if (!place) return with_context(what, place.error());
  const std::shared_ptr<Site> site = Site::at(*place);
  auto holding = std::make_unique<Holding>(site);
  std::unique_lock guard(site->mutex);
  // Who goes last closes the table, and with it all locks of the process.
  site->left.wait(guard, [&] { return !site->devices.empty() || site->holdings == 0; });
  if (alone && !site->devices.empty())
    return Error(ErrorCode::AddressInUse, what + "this process does", EADDRINUSE, ErrorDomain::Errno);
  if (site->devices.empty()) site->users = users;
  if (site->users != users)
    return Error(ErrorCode::AddressInUse, what + "another device of this process shares it with processes of " +
                                              site->users.to_string() + ", this one would with those of " +
                                              users.to_string());
  auto opened = site->devices.empty() ? meet(local, std::move(holding), alone)
                                      : site->devices.front()->invite_another(std::move(holding));
  if (!opened) return opened;
  (*opened)->holding_->is_there = true;
  site->devices.push_back(opened->get());
  ++site->holdings;
  return opened;
}

// Members come and go meanwhile: what turns out not to be there any more is asked for again.
Result<std::unique_ptr<SharedAddress>> SharedAddress::meet(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                           bool alone) {
  const std::string what = "share " + to_string(local.gid, wire::kRocePort) + ": ";
  const AddressUsers& users = holding->site->users;
  const std::string name = rendezvous::name_of(local, users);
  for (int i = 0; i < kTries; ++i) {
    auto no_fork = holdings::no_fork();  // until what we get is in our holding
    auto found = rendezvous::found(name);
    if (!found) return with_context(what, found.error());
    if (*found) {
      auto socket = bind_alone(local);
      if (socket) return create(local, std::move(holding), std::move(**found), std::move(*socket));
      found->reset();  // no child may have it
      no_fork.unlock();
      if (socket.error().code() != ErrorCode::AddressInUse) return std::move(socket).error();
      // Perhaps a process that is ending lost the name before the port.
      if (alone || i >= kTriesForPort) return not_shared(local.gid);
      std::this_thread::sleep_for(kPause);
      continue;
    }
    if (alone) return Error(ErrorCode::AddressInUse, what + "other processes do", EADDRINUSE, ErrorDomain::Errno);
    no_fork.unlock();
    auto descriptors = rendezvous::ask(name, users, no_fork);
    if (!descriptors) return with_context(what, descriptors.error());
    if (*descriptors) {
      std::vector<Descriptor>& all = **descriptors;
      if (all.size() < kBefore) return Error(ErrorCode::InvalidArgument, what + kNotWhole);
      auto table = AddressTable::adopt(std::move(all[1]));
      if (!table) return with_context(what, table.error());
      all.erase(all.begin() + 1);
      return join(local, std::move(holding), std::move(*table), std::move(all), no_fork);
    }
    no_fork = {};
    std::this_thread::sleep_for(kPause);
  }
  return Error(ErrorCode::AddressInUse, what + "the processes at @" + name + " come and go, none lets this one in");
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::create(const LocalAddress& local,
                                                             std::unique_ptr<Holding> holding,
                                                             Descriptor meeting_place, Descriptor socket) {
  auto table = AddressTable::create();
  if (!table) return std::move(table).error();
  auto slot = table->claim_slot(0);  // the index of the first of a group
  if (!slot) return std::move(slot).error();
  VERBENA_ASSERT(*slot == 0u);
  CryptoRandom random;
  std::unique_ptr<SharedAddress> made(new SharedAddress(local, std::move(holding), std::move(meeting_place),
                                                        std::move(*table), std::move(socket), 0,
                                                        random.next_u64() | 1));
  SharedAddress& here = *made;
  if (auto opened = here.peer_.open(here.socket_.get(), local); !opened) return std::move(opened).error();
  if (here.peer_fd() >= 0) here.holding_->add(here.peer_fd());
  if (auto started = here.start(); !started) return std::move(started).error();
  return made;
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::join(const LocalAddress& local, std::unique_ptr<Holding> holding,
                                                           AddressTable table, std::vector<Descriptor> descriptors,
                                                           std::unique_lock<std::mutex>& no_fork) {
  const std::string what = "share " + to_string(local.gid, wire::kRocePort) + ": ";
  const AddressUsers& users = holding->site->users;
  const bool whole = descriptors.size() == 1 + kSlots + 1 &&
                     rendezvous::is_meeting_place(descriptors[0].get(), rendezvous::name_of(local, users)) &&
                     std::all_of(descriptors.begin() + 1, descriptors.end(),
                                 [&](const Descriptor& fd) { return is_bound_to(fd.get(), local, wire::kRocePort); });
  if (!whole) return Error(ErrorCode::InvalidArgument, what + kNotWhole);
  CryptoRandom random;
  auto slot = table.claim_slot(static_cast<unsigned>(random.below(kSlots)));
  if (!slot) return with_context(what, slot.error());
  if (!*slot)
    return Error(ErrorCode::ResourceExhausted, what + "all " + std::to_string(kSlots) +
                                                   " places are taken by devices; end one, or use another address");
  const std::uint64_t incarnation = random.next_u64() | 1;
  auto mailbox = Mailbox::open(incarnation, local.gid, users);
  if (!mailbox) return with_context(what, mailbox.error());
  Descriptor meeting_place = std::move(descriptors[0]);
  descriptors.erase(descriptors.begin());
  Descriptor socket = std::move(descriptors[**slot]);
  descriptors.erase(descriptors.begin() + static_cast<std::ptrdiff_t>(**slot));
  drain(socket.get());
  std::unique_ptr<SharedAddress> made(new SharedAddress(local, std::move(holding), std::move(meeting_place),
                                                        std::move(table), std::move(socket), **slot, incarnation));
  made->keep_company(std::move(*mailbox), std::move(descriptors));
  no_fork.unlock();  // all is held; who holds the table up holds up no fork
  made->watch_companions();
  auto ready = made->steer();
  if (ready) {
    made->is_steered_ = true;
    ready = made->start();
    if (ready) return made;
  }
  no_fork.lock();
  return with_context(what, ready.error());
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
      called_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      events_(::epoll_create1(EPOLL_CLOEXEC)),
      in_the_way_(called_ && events_ && inbox_.fd() >= 0 ? 0 : errno),
      companions_(events_.get()) {
  for (const int fd : {meeting_place_.get(), table_.fd(), socket_.get()}) holding_->add(fd);
  watch(events_.get(), called_.get(), EPOLLIN);
  watch(events_.get(), meeting_place_.get(), EPOLLIN);  // all are woken: who is stopped lets nobody in
}

SharedAddress::~SharedAddress() { let_go(); }

const AddressUsers& SharedAddress::users() const { return holding_->site->users; }

void SharedAddress::let_go() {
  if (attendant_.is_inherited()) holding_->is_there = false;  // the address is the parent's
  if (holding_->closing.owns_lock() || attendant_.is_inherited()) return;
  if (holding_->is_there) {
    std::vector<SharedAddress*>& devices = holding_->site->devices;
    const std::lock_guard guard(holding_->site->mutex);
    std::erase(devices, this);
    if (!devices.empty()) devices.front()->call();  // perhaps this one alone watched somebody
  }
  if (attendant_.joinable()) {
    is_over_.store(true);
    call();
    attendant_.join();
  }
  set(socket_.get(), SOL_SOCKET, SO_RCVBUF, 0);
  if (table_.withdraw_all()) [[maybe_unused]] const auto steered = steer();
  if (holding_->is_there) holding_->closing = holdings::no_fork();
  holding_->release();
}

void SharedAddress::call() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(called_.get(), &one, sizeof one);
}

Result<void> SharedAddress::start() {
  if (in_the_way_ != 0)
    return Error::from_errno(in_the_way_,
                             "share " + to_string(local_.gid, wire::kRocePort) + ": make its eventfd and epoll set");
  table_.publish(incarnation_);
  return attendant_.start([this] { attend(); }, "a shared address");
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
    auto mailbox = Mailbox::open(incarnation_, local_.gid, users());
    if (!mailbox) return std::move(mailbox).error();
    const auto keep_it = [this](const ReceivedTrain& train) { keep(train.path, train.bytes, train.segment_bytes); };
    if (auto closed = peer_.close(keep_it); !closed) return closed;
    auto others = join_others(socket_.get(), local_, keep_it);
    if (!others) return std::move(others).error();
    keep_company(std::move(*mailbox), std::move(*others));
  }
  auto steered = steer();
  is_steered_ = steered.has_value();
  return steered;
}

Result<void> SharedAddress::share() {
  const std::lock_guard guard(sharing_);
  return is_steered_ ? Result<void>{} : become_shared();
}

Result<std::unique_ptr<SharedAddress>> SharedAddress::invite_another(std::unique_ptr<Holding> holding) {
  if (auto shared = share(); !shared) return std::move(shared).error();
  auto no_fork = holdings::no_fork();
  std::vector<Descriptor> all;
  for (const int fd : company()->passed_on) {
    if (fd == table_.fd()) continue;
    all.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!all.back())
      return Error::from_errno(errno, "let another device of this process share the address, for which it takes " +
                                          std::to_string(kCost) + " descriptors (RLIMIT_NOFILE)");
  }
  return join(local_, std::move(holding), table_.for_another(), std::move(all), no_fork);
}

Result<Descriptor> SharedAddress::receiving_socket() const {
  const auto no_fork = holdings::no_fork();
  Descriptor socket = duplicate(socket_);
  if (!socket) return Error::from_errno(errno, "duplicate the receiving socket");
  holding_->add(socket.get());
  return socket;
}

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

// In a forked child the table is still its parent's, who goes on listening.
Result<void> SharedAddress::announce(std::uint32_t service) {
  if (attendant_.is_inherited())
    return Error(ErrorCode::WrongState, "listen on a device that was inherited through fork(): open one here");
  if (auto announced = table_.announce(service); !announced) return announced;
  auto steered = steer();
  if (!steered) [[maybe_unused]] const auto withdrawn = table_.withdraw(service);
  return steered;
}

Result<void> SharedAddress::withdraw(std::uint32_t service) {
  return attendant_.is_inherited() ? Result<void>() : table_.withdraw(service);
}

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
      if (fd == called_.get()) {
        std::uint64_t times;
        [[maybe_unused]] const ssize_t n = ::read(fd, &times, sizeof times);
        if (is_over_.load()) return;  // asked after: what was read may have been that call
        look_around();
        continue;
      }
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
// so that who was watched by the dead alone is watched again; and steers after that, past those who ended too early to
// be watched.
void SharedAddress::watch_companions() {
  for (unsigned slot = 0; slot < kSlots; ++slot) companions_.watch(table_.holder_of(slot));
}

void SharedAddress::bury(int descriptor) {
  if (companions_.take_end(descriptor)) look_around();
}

void SharedAddress::look_around() {
  watch_companions();
  // Who holds the table up stops this, too: then it stays as it was until the next who steers.
  [[maybe_unused]] const auto steered = steer();
}

void SharedAddress::meet_guest() {
  const auto guest = rendezvous::meet(meeting_place_.get(), users());
  if (!guest) {
    pollfd stop{called_.get(), POLLIN, 0};
    ::poll(&stop, 1, kPauseMs);
    return;
  }
  if (!*guest) return;
  const Descriptor& at = **guest;
  // By a descriptor of its own it would take and drop locks of the table that are this device's.
  if (rendezvous::process_at(at.get()) == ::getpid()) return rendezvous::refuse(at.get(), kCost, EDEADLK);
  const auto shared = share();
  if (shared) {
    companions_.watch(rendezvous::process_at(at.get()));
    return rendezvous::let_in(at.get(), users(), company()->passed_on);
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
  if (!company()->mailbox.take(stray)) return;
  if (stray) ++taken_over_;
  if (!stray || !inbox_.put(std::move(*stray))) ++lost_;
}

std::string SharedAddress::explain() const {
  const unsigned own = table_.own_slots(), others = table_.other_processes();
  const std::string place = "place " + std::to_string(slot_ + 1) + " of " + std::to_string(kSlots);
  if (own + others <= 1)
    return "alone at this address, at " + place + "; other processes of " + users().to_string() + " may come";
  std::string with;
  if (others != 0)
    with = std::to_string(others) + " other " + (others == 1 ? "process" : "processes") + " of " + users().to_string();
  if (own > 1)
    with += (with.empty() ? "" : " and ") + std::to_string(own - 1) + " other " + (own == 2 ? "device" : "devices") +
            " of this process";
  return "shares this address with " + with + ", at " + place;
}

std::vector<NamedCounter> SharedAddress::counters() const {
  return {{"shared_handed_over", handed_over_.load()},
          {"shared_taken_over", taken_over_.load()},
          {"shared_lost", lost_.load()}};
}

}  // namespace verbena::soft::udp
