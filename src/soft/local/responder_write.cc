// SPDX-License-Identifier: Apache-2.0
// The responder's records.
#include "soft/core/dma.h"
#include "soft/local/responder.h"

namespace verbena::local {

bool Responder::is_due(Instant now, bool with_data) const {
  if (answers_.says_no()) return true;
  return answers_.owed() != 0 && (answers_.due() || with_data || now >= deadline());
}

bool Responder::ready(Instant now, bool with_data) const { return answers_.any_fetch() || is_due(now, with_data); }

Instant Responder::deadline() const {
  return answers_.owed() == 0 ? Instant::never() : answers_.since() + link_.config.max_owed_time;
}

std::uint32_t Responder::next_record_bytes() const {
  Response response;
  if (!answers_.any_fetch()) return head_bytes(response);
  const Fetch& fetch = answers_.fetch();
  response.kind = fetch.atomic ? RecordKind::AtomicResult : RecordKind::ReadData;
  const std::uint32_t head = head_bytes(response);
  return head + (fetch.atomic ? 0 : std::min(fetch.length, link_.max_record_bytes - head));
}

Written Responder::write(Instant now, bool with_data, std::uint32_t limit) {
  Written written;
  for (std::uint32_t bytes = 0; bytes < limit && ready(now, with_data); written.anything = true) {
    const std::uint32_t length = next_record_bytes();
    if (!answers_.any_fetch()) {
      written.blocked = !write_response(answers_.last());
      if (written.blocked) break;
      answers_.settle();
      answers_.said_no();
      continue;
    }
    written.blocked = !write_fetch(length);
    if (written.blocked) break;
    bytes += length;
  }
  return written;
}

bool Responder::write_response(const Response& response) {
  std::byte* to = link_.reserve(response.kind, head_bytes(response));
  if (to == nullptr) return false;
  emit(response, to);
  return true;
}

// False: there is no room.
bool Responder::write_fetch(std::uint32_t bytes) {
  Fetch& fetch = answers_.fetch();
  Response response;
  response.number = fetch.number;
  if (fetch.atomic) {
    response.kind = RecordKind::AtomicResult;
    response.value = fetch.value;
    if (!write_response(response)) return false;
    answers_.pop_fetch();
    return true;
  }
  response.kind = RecordKind::ReadData;
  const std::uint32_t head = head_bytes(response), payload = bytes - head;
  std::byte* to = link_.reserve(response.kind, bytes);
  if (to == nullptr) return false;
  emit(response, to);
  const std::byte* from = nullptr;
  if (!includes(link_.qp.attributes().access, Access::RemoteRead)) {  // taken away while it was being read
    link_.discard(to, bytes);
    ++link_.counters.invalid_requests;
    break_off_read(Refusal::InvalidRequest, AsyncEventType::QpRequestError);
    return true;
  }
  if (payload != 0) {
    from = link_.memory.find_remote(fetch.rkey, link_.pd(), fetch.address, payload, Access::RemoteRead);
    if (from == nullptr) {  // deregistered while it was being read
      link_.discard(to, bytes);
      ++link_.counters.access_violations;
      break_off_read(Refusal::RemoteAccess, AsyncEventType::QpAccessError);
      return true;
    }
    if (!core::dma_read(to + head, {from, payload})) {  // unmapped while it is registered
      link_.discard(to, bytes);
      ++link_.counters.memory_faults;
      break_off_read(Refusal::RemoteOperation, AsyncEventType::QpFatal);
      return true;
    }
  }
  fetch.address += payload;
  fetch.length -= payload;
  if (fetch.length == 0) answers_.pop_fetch();
  return true;
}

void Responder::break_off_read(Refusal refusal, AsyncEventType event) {
  const std::uint32_t number = answers_.fetch().number;
  answers_.clear();
  answers_.say_no(RecordKind::Refuse, static_cast<std::uint8_t>(refusal), number);
  link_.qp.enter_error(event);
}

}  // namespace verbena::local
