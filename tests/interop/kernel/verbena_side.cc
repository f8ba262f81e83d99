// SPDX-License-Identifier: Apache-2.0
#include "verbena_side.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

namespace verbena::interop {

using Mask = AttributeMask;

RegionHandle VerbenaSide::make_region(std::uint64_t bytes, Access access) {
  auto region = std::make_unique<Region>(bytes);
  auto registered = device_.register_memory(region->bytes.bytes(), access);
  if (!done(registered)) return {};
  region->memory = std::move(*registered);
  region->lkey = region->memory.lkey();
  region->address = region->memory.remote().address;
  const std::uint64_t id = next_id_++;
  const RegionHandle handle{id, region->address, region->memory.rkey()};
  regions_.emplace(id, std::move(region));
  return handle;
}

void VerbenaSide::fill(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes, std::uint64_t seed) {
  const auto all = regions_.at(region)->bytes.bytes();
  std::fill(all.begin(), all.end(), kUntouched);
  fill_pattern(all.subspan(offset, bytes), seed);
}

Digest VerbenaSide::digest(std::uint64_t region, std::uint64_t offset, std::uint64_t bytes) {
  return regions_.at(region)->bytes.digest(offset, bytes);
}

void VerbenaSide::store(std::uint64_t region, std::uint64_t offset, std::uint64_t value) {
  std::memcpy(regions_.at(region)->bytes.bytes().data() + offset, &value, sizeof value);
}

std::uint64_t VerbenaSide::load(std::uint64_t region, std::uint64_t offset) {
  std::uint64_t value = 0;
  std::memcpy(&value, regions_.at(region)->bytes.bytes().data() + offset, sizeof value);
  return value;
}

void VerbenaSide::deregister(std::uint64_t region) { regions_.at(region)->memory = MemoryRegion{}; }

std::uint64_t VerbenaSide::make_pair(const PairOptions& options) {
  const QueuePairCapabilities capabilities{128, 128, 8, 8, 256};
  auto send_queue = device_.create_completion_queue(256);
  auto receive_queue = device_.create_completion_queue(256);
  if (!done(send_queue) || !done(receive_queue)) return 0;
  auto made = device_.create_queue_pair(device_.protection_domain(), *send_queue, *receive_queue,
                                        {.capabilities = capabilities});
  if (!done(made) || !done(made->to_init(options.access))) return 0;
  const std::uint64_t id = next_id_++;
  pairs_.emplace(id, Pair{options, std::move(*send_queue), std::move(*receive_queue), std::move(*made)});
  return id;
}

Qpn VerbenaSide::qpn(std::uint64_t pair) { return pairs_.at(pair).queue_pair.qpn(); }

void VerbenaSide::connect(std::uint64_t pair, const PairAddress& peer) {
  Pair& p = pairs_.at(pair);
  QueuePairAttributes a;
  a.state = QueuePairState::Rtr;
  a.address.destination = peer.gid;
  a.path_mtu = p.options.mtu;
  a.destination = peer.qpn;
  a.rq_psn = peer.first;
  a.max_dest_rd_atomic = p.options.max_dest_rd_atomic;
  a.min_rnr_timer = p.options.min_rnr_timer;
  if (!done(p.queue_pair.modify(a, Mask::State | Mask::Address | Mask::PathMtu | Mask::DestinationQpn |
                                       Mask::RqPsn | Mask::MaxDestRdAtomic | Mask::MinRnrTimer)))
    return;
  a.state = QueuePairState::Rts;
  a.sq_psn = p.options.first;
  a.timeout = p.options.timeout;
  a.retry_count = p.options.retry_count;
  a.rnr_retry = p.options.rnr_retry;
  a.max_rd_atomic = p.options.max_rd_atomic;
  (void)done(p.queue_pair.modify(
      a, Mask::State | Mask::SqPsn | Mask::Timeout | Mask::RetryCount | Mask::RnrRetry | Mask::MaxRdAtomic));
}

std::vector<ScatterGather> VerbenaSide::segments(const std::vector<Piece>& pieces) const {
  std::vector<ScatterGather> made;
  for (const Piece& piece : pieces) {
    const Region& region = *regions_.at(piece.region);
    made.push_back({region.address + piece.offset, piece.bytes, region.lkey});
  }
  return made;
}

void VerbenaSide::post_receive(std::uint64_t pair, std::uint64_t id, const std::vector<Piece>& pieces) {
  const auto local = segments(pieces);
  const PostResult result = pairs_.at(pair).queue_pair.post_receive({id, local});
  if (!result) report_.fail("verbena: post_receive: " + std::string{to_string(result.status)});
}

void VerbenaSide::post_send(std::uint64_t pair, std::span<const Request> requests) {
  std::vector<std::vector<ScatterGather>> locals;
  std::vector<SendRequest> posted;
  locals.reserve(requests.size());
  for (const Request& r : requests) {
    const std::vector<ScatterGather>& local = locals.emplace_back(segments(r.local));
    SendRequest request{r.id,   r.opcode, r.flags,   local,        r.remote_address,
                        r.rkey, {},       r.compare, r.swap_or_add};
    for (unsigned i = 0; i < 4; ++i)
      request.immediate[i] = static_cast<std::byte>(r.immediate >> (24 - 8 * i));
    posted.push_back(request);
  }
  const PostResult result = pairs_.at(pair).queue_pair.post_send(posted);
  if (!result) report_.fail("verbena: post_send: " + std::string{to_string(result.status)});
}

std::vector<Outcome> VerbenaSide::poll(std::uint64_t pair, Queue queue, std::size_t count,
                                       std::uint32_t wait_ms) {
  Pair& p = pairs_.at(pair);
  CompletionQueue& polled = queue == Queue::Send ? p.send_queue : p.receive_queue;
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(wait_ms);
  std::vector<Outcome> outcomes;
  while (outcomes.size() < count) {
    const auto c = polled.poll_one();
    if (!c) {
      if (std::chrono::steady_clock::now() >= until) break;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      continue;
    }
    Outcome outcome{c->id, c->status, c->opcode, c->byte_count, {}};
    if (c->with_immediate) {
      outcome.immediate = 0;
      for (const std::byte byte : c->immediate)
        outcome.immediate = *outcome.immediate << 8 | std::to_integer<std::uint32_t>(byte);
    }
    outcomes.push_back(outcome);
  }
  return outcomes;
}

QueuePairState VerbenaSide::state(std::uint64_t pair) { return pairs_.at(pair).queue_pair.state(); }

void VerbenaSide::modify(std::uint64_t pair, QueuePairState state) {
  QueuePairAttributes a;
  a.state = state;
  (void)done(pairs_.at(pair).queue_pair.modify(a, Mask::State));
}

void VerbenaSide::destroy(std::uint64_t pair) { pairs_.erase(pair); }

std::vector<PairEvent> VerbenaSide::events() {
  std::vector<PairEvent> found;
  while (const auto event = device_.poll_event())
    if (event->kind == DeviceEvent::Kind::Async) found.push_back({event->async, event->qpn});
  return found;
}

void VerbenaSide::release() {
  pairs_.clear();
  regions_.clear();
  events();
}

}  // namespace verbena::interop
