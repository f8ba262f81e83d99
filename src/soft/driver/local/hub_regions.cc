// SPDX-License-Identifier: Apache-2.0
// Regions that one side of a connection reaches by itself: asked for on a socket of its own, lent with a
// descriptor.
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "base/this_user.h"
#include "soft/driver/local/hub.h"

namespace verbena::soft::local {

using verbena::local::Claimer;
using verbena::local::Granter;
using verbena::local::GrantMemory;
using verbena::local::layout_of;
using verbena::local::Lend;
using verbena::local::Path;
using verbena::local::PeerRegion;
using verbena::local::SegmentLayout;
using verbena::local::Want;

namespace {

// A thread that copies a piece and is not stopped ends within this, also on a busy machine.
constexpr auto kLongestCopy = std::chrono::milliseconds(100);

std::string hex(std::uint32_t rkey) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "R_Key 0x%08x", rkey);
  return text.data();
}

}  // namespace

void Hub::meet_regions(verbena::local::Channel& channel, Socket& socket, std::uint32_t ring_capacity,
                       bool opener) {
  const SegmentLayout layout = layout_of(ring_capacity);
  std::byte* const base = socket.segment.memory().data();
  std::byte* const opener_grants = base + layout.opener_grants;
  std::byte* const acceptor_grants = base + layout.acceptor_grants;
  std::byte* const opener_claim = base + layout.opener_claim;
  std::byte* const acceptor_claim = base + layout.acceptor_claim;
  channel.granter.emplace(opener ? GrantMemory(opener_grants, acceptor_claim)
                                 : GrantMemory(acceptor_grants, opener_claim));
  channel.claimer.emplace(opener ? GrantMemory(acceptor_grants, opener_claim)
                                 : GrantMemory(opener_grants, acceptor_claim));
  socket.regions = std::make_unique<Regions>(*this, socket.qpn);
  channel.regions = socket.regions.get();
}

// ---- Regions of ours.

// The peer of a queue pair on rings asks, and nobody else for it.
void Hub::judge_want(Id id, const Want& want) {
  Socket& socket = sockets_.at(id);
  const auto found = entries_.find(want.to.qpn.value());
  // Of processes outside our PID namespace, which have no number here, the numbers of both queue pairs and the key
  // alone tell who asks.
  const bool known = is_this_user(socket.peer.peer().uid) && found != entries_.end() &&
                     want.to.gid == options_.address && found->second.match.path() == Path::Local &&
                     found->second.peer == want.from &&
                     sockets_.at(found->second.socket).peer.peer().pid == socket.peer.peer().pid;
  const auto grant = known ? nic_->grant(want.to.qpn, want.rkey) : std::nullopt;
  Lend lend;
  lend.rkey = want.rkey;
  Descriptor reader;
  int file = -1;
  if (grant) {
    lend = {want.rkey, grant->slot, grant->access, grant->iova, grant->length, grant->address};
    file = grant->file;
    if (file >= 0 && !core::lets_change(grant->access)) {
      reader = read_only(file);
      file = reader.get();
      if (!reader) lend.access = Access::None;
    }
  }
  const bool told = socket.peer.send(lend, lend.access == Access::None ? -1 : file).has_value();
  if (grant && (!told || lend.access == Access::None)) nic_->take_back(want.to.qpn, want.rkey);
}

bool Hub::wait_for_copy(Qpn qpn, const std::function<bool()>& copies) {
  const PeerSocket& peer = sockets_.at(entries_.at(qpn.value()).socket).peer;
  const auto end = std::chrono::steady_clock::now() + kLongestCopy;
  while (copies()) {
    if (peer.has_hung_up()) return true;
    if (std::chrono::steady_clock::now() > end) return !copies();
    ::sched_yield();
  }
  return true;
}

bool Hub::renew_pages(const core::MemoryRegion& region, int file) { return local::renew_pages(region.base, file); }

// ---- Regions of peers.

void Hub::ask_for_region(Regions& regions, RKey rkey) {
  const Id id = try_want(regions.qpn, rkey);
  if (id == kNone)
    in_vain_.emplace_back(regions.qpn, rkey);
  else
    regions.wanting.push_back(id);
}

Hub::Id Hub::try_want(Qpn qpn, RKey rkey) {
  const Entry& entry = entries_.at(qpn.value());
  auto reached = find(entry.peer);
  if (!reached || !*reached) return kNone;
  PeerSocket& peer = (**reached).peer;
  if (!is_this_user(peer.peer().uid) || is_scarce(peer.descriptor())) return kNone;
  const Id id = add(std::move(peer), Role::Wanting, qpn, Segment());
  Socket& socket = sockets_.at(id);
  socket.wanted = rkey;
  if (socket.watched && socket.peer.send(Want{{options_.address, qpn}, entry.peer, rkey})) return id;
  drop(id);
  return kNone;
}

void Hub::refuse_wanted() {
  for (const auto& [qpn, rkey] : std::exchange(in_vain_, {})) {
    note(qpn, rkey, "goes by the ring: its owner does not lend it");
    PeerRegion region;
    region.rkey = rkey;
    nic_->handle_region(qpn, region, false);
  }
}

void Hub::forget_wanted(Id attached) {
  const auto found = sockets_.find(attached);
  if (found == sockets_.end() || !found->second.regions) return;
  for (const Id id : found->second.regions->wanting) drop(id);
}

bool Hub::hear_loan(Id id) {
  Socket& socket = sockets_.at(id);
  auto loan = socket.peer.try_receive_loan();
  if (loan && !*loan) return false;
  const RKey wanted = socket.wanted;
  const Qpn qpn = socket.qpn;
  Socket& attached = sockets_.at(entries_.at(qpn.value()).socket);
  std::erase(attached.regions->wanting, id);
  drop(id);
  if (loan && use_loan(attached, wanted, std::move(**loan))) return true;
  in_vain_.emplace_back(qpn, wanted);
  refuse_wanted();
  return true;
}

bool Hub::use_loan(Socket& attached, RKey wanted, Loan loan) {
  const Lend& lend = loan.lend;
  if (lend.rkey != wanted || lend.access == Access::None) return false;
  PeerRegion region{wanted, lend.iova, lend.length, lend.access, lend.slot, nullptr, lend.address};
  if (!loan.file) {
    if (!attached.memory || !attached.memory->works()) return false;
    attached.regions->note(wanted, "is read by one copy (process_vm_readv) and written by its owner");
    return nic_->handle_region(attached.qpn, region, true);
  }
  auto mapping = RegionMapping::map(std::move(loan.file), lend.length, core::lets_change(lend.access));
  if (!mapping) return false;
  region.base = mapping->base();
  attached.regions->mapped.insert_or_assign(wanted.value(), std::move(*mapping));
  attached.regions->note(wanted, core::lets_change(lend.access) ? "is mapped here, for writing too"
                                                                : "is mapped here, for reading");
  if (nic_->handle_region(attached.qpn, region, true)) return true;
  attached.regions->mapped.erase(wanted.value());
  return false;
}

std::string Hub::copies_of(Id attached) const {
  const Socket& socket = sockets_.at(attached);
  if (!is_this_user(socket.peer.peer().uid)) return "every message takes two copies, since it is of another user";
  if (!socket.memory) return "every message takes two copies, as was asked for";
  const std::size_t count = socket.regions->mapped.size();
  std::string text = socket.memory->explain() + "; " + std::to_string(count) +
                     (count == 1 ? " region of the peer is mapped here" : " regions of the peer are mapped here");
  for (const auto& [rkey, how] : socket.regions->known)
    text += "; " + hex(rkey) + ' ' + how;
  return text;
}

void Hub::note(Qpn qpn, RKey rkey, const char* how) {
  const auto found = entries_.find(qpn.value());
  const auto attached = found == entries_.end() ? sockets_.end() : sockets_.find(found->second.socket);
  if (attached != sockets_.end() && attached->second.regions) attached->second.regions->note(rkey, how);
}

}  // namespace verbena::soft::local
