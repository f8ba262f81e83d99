// SPDX-License-Identifier: Apache-2.0
// Who comes: accepted, turned away where there is no room, left outside for a while.
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/this_user.h"
#include "soft/driver/local/hub.h"

namespace verbena::soft::local {

namespace {

// Whether one was there. Errors: those of accept_one().
Result<bool> show_out_one(int listener) {
  const auto no_fork = holdings::no_fork();
  auto one = accept_one(listener);
  if (!one) return std::move(one).error();
  if (*one) static_cast<void>(PeerSocket::adopt(std::move(**one)));
  return one->has_value();
}

}  // namespace

// Of nothing, and by no path: a process may have left the folders it knew.
Descriptor Hub::spare_descriptor() { return Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

bool Hub::stand_in_folder() {
  if (!folder_) return true;
  const auto offered = folder_->offer({options_.address, options_.ids.value});
  if (offered) return watch(folder_->listener(), kFolderListener);
  not_in_folder_ = offered.error().to_string();
  return true;
}

// With the last descriptor taken: one who waits is turned away, who then goes by packets. A stranger's is not free yet.
void Hub::turn_away(int listener) {
  reserve_ = Descriptor();
  static_cast<void>(show_out_one(listener));
  reserve_ = spare_descriptor();
  if (reserve_) return;
  meet_nobody_yet();
  if (!hears_folder()) return;
  deaf_in_folder_ = true;
  unwatch(folder_->listener());
}

bool Hub::accept_all(Instant now) {
  const bool any = !deaf_ && accept_all(now, listener_.get(), false);
  return (hears_folder() && accept_all(now, folder_->listener(), true)) || any;
}

bool Hub::accept_all(Instant now, int listener, bool in_folder) {
  constexpr int kMost = 256;
  bool any = false;
  for (int i = 0; i < kMost; ++i) {
    if (!in_folder && closing::is_behind()) {
      meet_nobody_yet();
      return any;
    }
    auto no_fork = holdings::no_fork();
    auto socket = accept_one(listener);
    if (!socket) {
      no_fork.unlock();
      turn_away(listener);
      return any;
    }
    if (!*socket) return any;
    any = true;
    auto peer = PeerSocket::adopt(std::move(**socket));
    no_fork.unlock();
    if (!peer || !shares_with(peer->peer().uid)) continue;
    if (!is_this_user(peer->peer().uid)) make_room_for_another_user();
    const Id id = add(std::move(*peer), Role::Fresh, Qpn{}, Segment());
    sockets_.at(id).met_in_folder = in_folder;
    read_hello(now, id);
    drop_if_silent(now, id);
  }
  return any;
}

// What is lacking is for nobody who might say something one day. Who did is judged, and answered; from here on nobody
// can have said anything in vain.
void Hub::drop_if_silent(Instant now, Id id) {
  const auto is_silent = [this, id] {
    const auto found = sockets_.find(id);
    return found != sockets_.end() && found->second.role == Role::Fresh;
  };
  if (!is_silent() || lack_of(sockets_.at(id)) == nullptr) return;
  ::shutdown(sockets_.at(id).peer.descriptor(), SHUT_RD);
  read_hello(now, id);
  if (is_silent()) drop(id);
}

// Whoever comes waits outside. With no descriptor left to be told by, the next event is when this looks again.
void Hub::meet_nobody_yet() {
  if (deaf_) return;
  deaf_ = true;
  unwatch(listener_.get());
  caught_up_ = OwnDescriptor(Descriptor(closing::caught_up()));
  if (caught_up_ && !watch(caught_up_.get(), kCaughtUp)) caught_up_ = OwnDescriptor();
}

void Hub::meet_again() {
  if (closing::is_behind()) return;
  if (caught_up_) unwatch(caught_up_.get());
  caught_up_ = OwnDescriptor();
  if (!reserve_) reserve_ = spare_descriptor();
  if (!reserve_) return;
  if (deaf_in_folder_) deaf_in_folder_ = !watch(folder_->listener(), kFolderListener);
  if (deaf_) deaf_ = !watch(listener_.get(), kListener);
}

// The closing of the listener would close all who wait there, and wait for it.
void Hub::show_out_all() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  Result<bool> shown = true;
  while (shown && *shown && !closing::is_behind()) shown = show_out_one(listener_.get());
  if (!shown || closing::is_behind()) listener_.give_to_strangers();
}

bool Hub::shares_with(uid_t user) const {
  if (is_this_user(user)) return true;
  return std::find(options_.users.begin(), options_.users.end(), user) != options_.users.end() && is_one_user(user);
}

// Their oldest goes, and never one of this user.
void Hub::make_room_for_another_user() {
  std::vector<Id> others;
  for (const Id id : waiting_)
    if (!is_this_user(sockets_.at(id).peer.peer().uid)) others.push_back(id);
  if (others.size() >= kMostOfOtherUsers) drop(others.front());
}

}  // namespace verbena::soft::local
