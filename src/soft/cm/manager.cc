// SPDX-License-Identifier: Apache-2.0
#include "soft/cm/manager.h"

#include "base/assert.h"
#include "base/byte_order.h"

namespace verbena::cm {

Manager::Manager(const ManagerConfig& config, RandomSource& random) : config_(config), random_(random) {
  VERBENA_ASSERT(!config.local.is_zero());
  VERBENA_ASSERT(config.response_timeout_code <= 31 && config.packet_lifetime_code <= 30 &&
                 config.max_retries <= 15);
  VERBENA_ASSERT(config.target_ack_delay_code <= 31 && config.peer_timeout_code_limit <= 31);
  VERBENA_ASSERT(config.mra_service_code <= 31 && config.mra_service_code_limit <= 31);
}

void Manager::send(const Connection& c, const MadBytes& mad) {
  send(c.parameters.remote, c.parameters.traffic_class, mad);
}

// Every message of CM may be lost: one that finds the queue full is, and a timer or the peer asks again.
void Manager::send(const Gid& to, std::uint8_t traffic_class, const MadBytes& mad) {
  if (outgoing_.size() >= config_.outgoing_messages) {
    ++counters_.cm_drop_queue_full;
    return;
  }
  outgoing_.push_back(OutgoingMad{to, traffic_class, mad});
  count_sent(mad);
}

void Manager::count_sent(const MadBytes& mad) {
  constexpr std::size_t kAttributeAt = 16;
  switch (static_cast<wire::CmAttribute>(load_be16(&mad[kAttributeAt]))) {
    case wire::CmAttribute::Req:
      ++counters_.cm_req_sent;
      break;
    case wire::CmAttribute::Mra:
      ++counters_.cm_mra_sent;
      break;
    case wire::CmAttribute::Rej:
      ++counters_.cm_rej_sent;
      break;
    case wire::CmAttribute::Rep:
      ++counters_.cm_rep_sent;
      break;
    case wire::CmAttribute::Rtu:
      ++counters_.cm_rtu_sent;
      break;
    case wire::CmAttribute::Dreq:
      ++counters_.cm_dreq_sent;
      break;
    case wire::CmAttribute::Drep:
      ++counters_.cm_drep_sent;
      break;
    case wire::CmAttribute::SidrRep:
      ++counters_.cm_sidr_rep_sent;
      break;
    default:
      VERBENA_ASSERT(false);
  }
}

bool Manager::poll_transmit(Instant, OutgoingMad& out) {
  if (outgoing_.empty()) return false;
  out = outgoing_.front();
  outgoing_.pop_front();
  return true;
}

bool Manager::poll_event(Event& out) {
  if (events_.empty()) return false;
  Connection* c = table_.find(events_.front_connection());
  VERBENA_ASSERT(c != nullptr);
  const EventQueue::Entry entry = events_.pop(*c);
  out = Event{entry.type, c->id, {}, entry.reason, c->parameters, c->private_data};
  if (entry.type == EventType::ConnectRequest) {
    out.listener = c->listener;
    c->announced = true;
  }
  return true;
}

}  // namespace verbena::cm
