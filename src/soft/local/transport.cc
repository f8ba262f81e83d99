// SPDX-License-Identifier: Apache-2.0
#include "soft/local/transport.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/assert.h"
#include "base/fault_guard.h"
#include "soft/local/short_send.h"

namespace verbena::local {

Transport::Transport(core::QueuePair& qp, const Config& config, core::MemoryTable& memory, core::Counters& counters,
                     RandomSource& random)
    : link_{qp, config, memory, counters, random},
      requester_(link_, send_, answers_),
      completer_(link_, send_),
      responder_(link_, answers_) {}

// In ERR: why.
bool Transport::writes() const {
  return reads() || (attached() && !broken_ && !link_.peer_gone && link_.qp.state() == QueuePairState::Error);
}

void Transport::handle_state(QueuePairState before) {
  const QueuePairState state = link_.qp.state();
  if (state == before) return;
  if (state == QueuePairState::Rtr) {
    established_said_ = first_request_awaited_ = false;
    responder_.start();
  }
  if (state == QueuePairState::Rts && before == QueuePairState::Rtr) completer_.start();
  if (state == QueuePairState::Reset || state == QueuePairState::Error) {
    responder_.stop();
    send_ = SendState{};
  }
  if (state == QueuePairState::Reset) {
    detach();
    broken_ = peer_ended_ = false;
    answers_first_ = true;
  }
  settle();
}

void Transport::follow_attributes(Instant now, AttributeMask changed) {
  send_.retries.follow(link_.qp.attributes(), changed);
  if (any(changed & AttributeMask::Timeout) && attached() && !send_.rnr_waiting) completer_.begin_period(now);
  responder_.follow_limits();
}

void Transport::attach(Instant, const Channel& channel) {
  VERBENA_ASSERT(!attached() && !peer_ended_);
  VERBENA_ASSERT(channel.out.capacity() >= kMinRingCapacity && channel.in.capacity() >= kMinRingCapacity);
  link_.channel.emplace(channel);
  const std::uint32_t capacity = channel.out.capacity();
  link_.max_record_bytes = std::min({max_payload_bytes(capacity), capacity / 4, link_.config.max_record_bytes});
  room_told_ = channel.in.released();
  recalled_ = false;
  link_.qp.set_recall(this);
}

// A pull of the peer's may be under way; it looks at this when it is done.
void Transport::recall() {
  if (std::exchange(recalled_, true)) return;
  if (link_.channel->peer_memory != nullptr) link_.channel->peer_memory->refuse();
  if (link_.channel->regions != nullptr) link_.channel->regions->take_back_all();
}

void Transport::take_back_named() {
  const QueuePairState before = link_.qp.state();
  completer_.fail_oldest(CompletionStatus::LocalProtectionError);
  fall_silent_after(before);
}

std::optional<Grant> Transport::grant(const core::MemoryRegion& region, bool mapped) {
  if (!reads() || peer_ended_ || !link_.channel->granter) return std::nullopt;
  if (!mapped && !link_.peer_pulls) return std::nullopt;
  constexpr Access kMapped = Access::RemoteRead | Access::RemoteWrite | Access::RemoteAtomic;
  Access access = region.access & link_.qp.attributes().access & (mapped ? kMapped : Access::RemoteRead);
  if (link_.qp.attributes().max_dest_rd_atomic == 0) access = access & Access::RemoteWrite;
  if (region.pd != link_.pd() || access == Access::None || includes(region.access, Access::NoDirect))
    return std::nullopt;
  std::optional<std::uint32_t> slot;
  if (!fault_guard::run([&] { slot = link_.channel->granter->try_grant(region.rkey); }) || !slot)
    return std::nullopt;
  return Grant{*slot,
               region.iova,
               region.length,
               access,
               reinterpret_cast<std::uintptr_t>(region.base),
               mapped ? region.file : -1};
}

std::optional<std::uint32_t> Transport::revoke(RKey rkey) {
  if (!attached() || !link_.channel->granter) return std::nullopt;
  Granter& granter = *link_.channel->granter;
  const auto slot = granter.slot_of(rkey);
  if (slot) granter.revoke(*slot);
  return slot;
}

std::optional<RKey> Transport::any_granted() const {
  if (!attached() || !link_.channel->granter) return std::nullopt;
  return link_.channel->granter->any_granted();
}

bool Transport::handle_region(const PeerRegion& region, bool open) {
  if (!attached() || link_.peer_regions == nullptr || !link_.peer_regions->is_asked(region.rkey))
    return false;
  link_.peer_regions->handle_answer(region, open);
  return open;
}

void Transport::detach() {
  taken_.reset();
  link_.peer_regions.reset();
  link_.qp.set_recall(nullptr);
  link_.channel.reset();
  link_.peer_pulls = link_.peer_gone = link_.peer_leaves = false;
  send_.period_end = Instant::never();
}

void Transport::break_off() {
  broken_ = true;
  link_.qp.enter_error(AsyncEventType::QpFatal);
  responder_.stop();
}

void Transport::fall_silent_after(QueuePairState before) {
  if (before != QueuePairState::Error && link_.qp.state() == QueuePairState::Error) responder_.stop();
}

void Transport::settle() {
  const QueuePairState before = link_.qp.state();
  completer_.settle(peer_ended_);
  fall_silent_after(before);
  check_drained();
}

// Memory that cannot be touched breaks the connection like a rule that is broken: a peer can take its pages away.
bool Transport::handle_records(Instant now) {
  catch_up(now);
  if (!reads()) return false;
  bool anything = false;
  const bool whole = fault_guard::run([this, now, &anything] { anything = read_turn(now); });
  if (!whole || link_.channel->in.state() == RingState::Corrupt) broken_ = true;
  if (broken_) break_off();
  if (!anything) responder_.handle_pause();
  return anything;
}

bool Transport::looks_empty() const {
  return attached() && link_.channel->in.looks_empty();
}

bool Transport::take_short(Instant now) {
  catch_up(now);
  if (!attached() || broken_ || link_.peer_gone || link_.qp.state() != QueuePairState::Rts) return false;
  if (first_request_awaited_ && !established_said_) return false;
  std::array<std::uint64_t, ShortSend::kWords> words;
  RingConsumer& in = link_.channel->in;
  const Record* const record = in.peek_short(static_cast<std::uint16_t>(RecordKind::Send), words);
  if (record == nullptr || record->payload_bytes < ShortSend::kHeadBytes) return false;
  const auto send = ShortSend::of(words[0], words[1], record->payload_bytes);
  const std::span<const std::byte> bytes{reinterpret_cast<const std::byte*>(words.data()), record->payload_bytes};
  if (!send || (send->acknowledges && !completer_.is_outstanding(send->acknowledged))) return false;
  if (!responder_.store_short(send->number, bytes.subspan(ShortSend::kHeadBytes))) return false;
  in.pop();
  in.pass_padding();  // the next look is where the next record would be
  taken_ = *send;
  const bool waits =
      !send->acknowledges || (link_.qp.send_queue().has_one() && !link_.qp.is_oldest_send_signaled());
  if (!waits) catch_up(now);
  if (waits || reads()) responder_.finish_short(now, send->length);
  return true;
}

void Transport::catch_up(Instant now) {
  if (!taken_) return;
  const ShortSend send = *std::exchange(taken_, std::nullopt);
  give_room();
  if (!broken_ && sends() && send.acknowledges) acknowledge_short(now, send.acknowledged);
}

// The peer sees by it, too, that we read: its timers ask.
void Transport::give_room() {
  if (link_.channel->in.try_release()) return;
  broken_ = true;
  break_off();
}

// handle_answer() of that.
void Transport::acknowledge_short(Instant now, std::uint16_t acknowledged) {
  if (!completer_.handle_acknowledged(now, acknowledged)) broken_ = true;
  if (send_.failed || peer_ended_ || link_.qp.state() != QueuePairState::Rts) settle();
  if (link_.qp.state() == QueuePairState::Error) responder_.stop();
  if (broken_) break_off();
}

bool Transport::read_turn(Instant now) {
  RingConsumer& in = link_.channel->in;
  const std::uint32_t most_bytes = in.capacity() / 4;
  std::uint32_t records = 0;
  link_.look_whether_peer_pulls();
  requester_.look_for_revocations();
  responder_.begin_turn();
  for (std::uint32_t bytes = 0; bytes < most_bytes && records < link_.config.max_turn_records && reads(); ++records) {
    if (responder_.has_pulled_enough()) break;
    const Record* record = in.peek();
    if (record == nullptr) break;
    handle_record(now, *record);
    bytes += record->payload_bytes;
    in.pop();
    if (awaited_ && in.pass_padding()) {  // the next would have to come from the peer's cache
      ++records;
      break;
    }
  }
  in.release();
  awaited_ = records == 0;
  return records != 0;
}

// A peer without room for its next record has more than a quarter of the ring unread, whatever the padding: it is
// looked after at the latest when that is read, and again if the room was too little.
bool Transport::gave_room() {
  if (!attached()) return false;
  const RingConsumer& in = link_.channel->in;
  if (in.released() - room_told_ < in.capacity() / 4) return false;
  room_told_ = in.released();
  return true;
}

void Transport::handle_record(Instant now, const Record& record) {
  const std::span<const std::byte> bytes{link_.channel->in.memory().data() + record.offset, record.payload_bytes};
  bool honest = false;
  switch (class_of(record.kind)) {
    case RecordClass::Unknown:
      break;
    case RecordClass::Request:
      honest = handle_request(now, record.kind, bytes);
      break;
    case RecordClass::Continuation:
      honest = responder_.handle_continuation(now, bytes);
      break;
    case RecordClass::Response:
      honest = handle_response(now, record.kind, bytes);
      break;
  }
  if (!honest) broken_ = true;
}

bool Transport::handle_request(Instant now, std::uint16_t kind, std::span<const std::byte> record) {
  const QueuePairState state = link_.qp.state();
  const bool told = state == QueuePairState::Rtr ||
                    (state == QueuePairState::Rts && first_request_awaited_);
  if (told && !established_said_) {
    established_said_ = true;
    link_.qp.raise(AsyncEventType::CommEstablished);
  }
  const RequestHead* const request = responder_.read(kind, record);
  if (request == nullptr) return false;
  if (request->acknowledges) {
    if (!handle_answer([&] { return completer_.handle_acknowledged(now, request->acknowledged); })) return false;
    if (!reads()) return true;
  }
  return responder_.handle(now, record);
}

bool Transport::handle_response(Instant now, std::uint16_t kind, std::span<const std::byte> record) {
  return handle_answer([&] {
    Response response;
    return parse(kind, record, response) &&
           completer_.handle(now, response, record.subspan(response.payload_offset, response.payload_bytes));
  });
}

template <class F>
bool Transport::handle_answer(F&& handle) {
  if (!sends()) return false;  // nothing was asked
  const QueuePairState before = link_.qp.state();
  const bool honest = handle();
  fall_silent_after(before);
  settle();
  return honest;
}

void Transport::handle_hang_up(Instant now, bool gone) {
  if (!attached()) return;
  // Whoever still writes there gets no more than one ring read.
  for (std::uint32_t lines = link_.channel->in.capacity() / kLineBytes; lines != 0 && handle_records(now); --lines) {
  }
  peer_ended_ = true;
  settle();
  if (gone && serves()) link_.qp.raise(AsyncEventType::PeerEnded);
}

void Transport::fail(AsyncEventType event) {
  link_.qp.enter_error(event);
  responder_.stop();
}

void Transport::handle_timeout(Instant now) {
  catch_up(now);
  // The responder may have put the queue pair into ERR, and nothing is outstanding any more.
  if (!sends() || !attached()) return;
  const QueuePairState before = link_.qp.state();
  const bool whole = fault_guard::run([this, now] { completer_.handle_timeout(now); });
  fall_silent_after(before);
  if (!whole || link_.channel->out.state() == RingState::Corrupt) break_off();
  check_drained();
}

void Transport::handle_doorbell() {
  if (link_.qp.state() == QueuePairState::Error) link_.qp.flush();
  if (peer_ended_) settle();
}

// in SQD everything that was started has ended.
void Transport::check_drained() {
  if (!link_.qp.drains()) return;
  core::SendQueue& queue = link_.qp.send_queue();
  if (queue.retired() != queue.posted() && queue.at(queue.retired()).started) return;
  link_.qp.say_drained();
}

bool Transport::ready(Instant now) {
  if (requester_.is_idle() && !responder_.owes_answer()) return false;  // mostly
  if (!writes() || peer_ended_) return false;
  const bool data = sends() && requester_.ready();
  const bool answers = responder_.ready(now, data);
  if (!data && !answers) return false;
  RingProducer& out = link_.channel->out;
  const std::uint32_t bytes = answers && (answers_before(data) || !data) ? responder_.next_record_bytes()
                                                                         : requester_.next_record_bytes();
  if (out.fits(bytes)) return true;
  const bool whole = fault_guard::run([&out] { out.refresh(); });
  if (!whole || out.state() == RingState::Corrupt || out.fits(bytes)) return true;
  if (data) requester_.await_peer(now);
  return false;
}

bool Transport::emit(Instant now) {
  if (!writes() || peer_ended_) return false;
  bool published = false;
  const bool whole = fault_guard::run([this, now, &published] { published = write_turn(now); });
  if (!whole || link_.channel->out.state() == RingState::Corrupt) break_off();
  settle();
  return published;
}

bool Transport::emit_short() {
  if (link_.qp.state() != QueuePairState::Rts || !reads() || peer_ended_) return false;
  if (!answers_.empty() && !answers_.is_only_owed()) return false;
  bool written = false;
  const bool whole = fault_guard::run([this, &written] {
    written = requester_.write_short();
    // What it would have carried.
    if (written && send_.failed) responder_.write(Instant{}, true, link_.channel->out.capacity() / 4);
    link_.channel->out.publish();
  });
  if (!whole || link_.channel->out.state() == RingState::Corrupt) break_off();
  return written || broken_;
}

bool Transport::put_short(const SendRequest& request) {
  if (request.opcode != SendOpcode::Send || has_flag(request.flags, SendFlags::Solicited)) return false;
  if (request.local.size() != 1 || !attached() || broken_ || link_.peer_gone || peer_ended_) return false;
  if (link_.qp.state() != QueuePairState::Rts || (!answers_.empty() && !answers_.is_only_owed())) return false;
  const bool put = requester_.put_short(request);
  if (!put && link_.channel->out.state() == RingState::Corrupt) break_off();
  return put;
}

void Transport::follow_short(Instant now) {
  if (!send_.failed && !broken_) requester_.await_peer(now);
  settle();
}

template <class Short>
bool Transport::do_now(const Short& request) {
  const bool ready = attached() && !broken_ && !link_.peer_gone && !peer_ended_;
  return ready && link_.qp.state() == QueuePairState::Rts && requester_.do_now(request);
}
template bool Transport::do_now(const ShortWrite& request);
template bool Transport::do_now(const ShortRead& request);

// A request carries an acknowledgement that is all there is to say.
bool Transport::answers_before(bool data) const { return answers_first_ && !(data && answers_.is_only_owed()); }

// Requests and answers share the room. Whoever finds too little of it keeps it free, and comes first when it is given
// back: neither can starve the other.
bool Transport::write_turn(Instant now) {
  RingProducer& out = link_.channel->out;
  const std::uint32_t limit = out.capacity() / 4;
  const bool data = sends() && requester_.ready();
  bool answers = answers_before(data);
  for (int turn = 0; turn < 2; ++turn, answers = !answers) {
    Written written;
    if (answers)
      written = responder_.write(now, data, limit);
    else if (sends())
      written = requester_.write(now, limit);
    if (!written.blocked) continue;
    answers_first_ = written.anything ? !answers : answers;
    break;
  }
  const bool anything = out.anything_reserved();
  out.publish();
  return anything;
}

Instant Transport::deadline() const {
  if (!reads()) return Instant::never();
  return sends() ? std::min(completer_.deadline(), responder_.deadline()) : responder_.deadline();
}

bool Transport::finished() const {
  return link_.qp.state() == QueuePairState::Error &&
         (!attached() || broken_ || peer_ended_ || !responder_.owes_answer());
}

void Transport::check_invariants() const {
  core::SendQueue& queue = link_.qp.send_queue();
  const std::uint32_t live = queue.posted() - queue.retired();
  if (link_.qp.state() != QueuePairState::Rts && link_.qp.state() != QueuePairState::Sqd) return;
  VERBENA_ASSERT(send_.current - queue.retired() <= live);
  VERBENA_ASSERT(send_.reads_out <= send_.current - queue.retired());
  VERBENA_ASSERT(!send_.began || send_.current != queue.posted());
}

}  // namespace verbena::local
