// SPDX-License-Identifier: Apache-2.0
#include "soft/wire/cm_message.h"

#include <algorithm>

#include "soft/wire/text.h"

namespace verbena::wire {
namespace {

CmMessage parse_message(CmAttribute attribute, std::span<const std::byte, kCmBytes> from) {
  switch (attribute) {
    case CmAttribute::Req:
      return parse_cm_req(from);
    case CmAttribute::Mra:
      return parse_cm_mra(from);
    case CmAttribute::Rej:
      return parse_cm_rej(from);
    case CmAttribute::Rep:
      return parse_cm_rep(from);
    case CmAttribute::Rtu:
      return parse_cm_rtu(from);
    case CmAttribute::Dreq:
      return parse_cm_dreq(from);
    case CmAttribute::Drep:
      return parse_cm_drep(from);
    case CmAttribute::SidrReq:
      return parse_cm_sidr_req(from);
    case CmAttribute::SidrRep:
      return parse_cm_sidr_rep(from);
    case CmAttribute::Lap:
    case CmAttribute::Apr:
      break;
  }
  return CmUnknown{};
}

std::string_view port_space_name(std::uint64_t id) {
  if (service_id_is_in(id, PortSpace::Tcp)) return "tcp";
  if (service_id_is_in(id, PortSpace::Udp)) return "udp";
  if (service_id_is_in(id, PortSpace::IpOverIb)) return "ipoib";
  return service_id_is_in(id, PortSpace::Ib) ? "ib" : "";
}

void add_service(Line& line, std::uint64_t id) {
  line.add(" service ").hex(id);
  const std::string_view space = port_space_name(id);
  if (!space.empty()) line.add(" (").add(space).add(" ").decimal(service_id_port(id)).add(")");
}

void add_cma(Line& line, std::span<const std::byte, kCmaHeaderBytes> bytes) {
  CmaHeader header;
  if (!parse_cma_header(bytes, header)) return;
  line.add(" ").add(header.source.to_string()).add(" port ").decimal(header.source_port);
  line.add(" -> ").add(header.destination.to_string());
}

void add_ids(Line& line, std::uint32_t local, std::uint32_t remote) {
  line.add(" id ").hex(local, 8).add(" peer ").hex(remote, 8);
}

std::string_view kind_name(CmMessageKind kind, std::string_view other) {
  switch (kind) {
    case CmMessageKind::Req:
      return "REQ";
    case CmMessageKind::Rep:
      return "REP";
    case CmMessageKind::Other:
      return other;
    case CmMessageKind::Reserved:
      break;
  }
  return "reserved message";
}

// What to say after name and transaction, one overload per message.
struct Describe {
  Line& line;

  void operator()(const CmUnknown&) const {}
  void operator()(const CmReq& m) const {
    line.add(" id ").hex(m.local_comm_id, 8);
    add_service(line, m.service_id);
    add_cma(line, cma_part(m.private_data));
    line.add(" qpn ").hex(m.local_qpn.value(), 6).add(" psn ").hex(m.starting_psn.value(), 6);
    line.add(" mtu code ").decimal(m.path_mtu);
    line.add(" resources ").decimal(m.responder_resources).add(" depth ").decimal(m.initiator_depth);
    line.add(" retry ").decimal(m.retry_count).add(" rnr retry ").decimal(m.rnr_retry_count);
    line.add(" ack timeout ").decimal(m.primary.ack_timeout);
  }
  void operator()(const CmRep& m) const {
    add_ids(line, m.local_comm_id, m.remote_comm_id);
    line.add(" qpn ").hex(m.local_qpn.value(), 6).add(" psn ").hex(m.starting_psn.value(), 6);
    line.add(" resources ").decimal(m.responder_resources).add(" depth ").decimal(m.initiator_depth);
    line.add(" rnr retry ").decimal(m.rnr_retry_count);
  }
  void operator()(const CmRtu& m) const { add_ids(line, m.local_comm_id, m.remote_comm_id); }
  void operator()(const CmDrep& m) const { add_ids(line, m.local_comm_id, m.remote_comm_id); }
  void operator()(const CmDreq& m) const {
    add_ids(line, m.local_comm_id, m.remote_comm_id);
    line.add(" qpn ").hex(m.remote_qpn.value(), 6);
  }
  void operator()(const CmRej& m) const {
    add_ids(line, m.local_comm_id, m.remote_comm_id);
    line.add(" of ").add(kind_name(m.rejected, "other"));
    line.add(" reason ")
        .decimal(static_cast<std::uint16_t>(m.reason))
        .add(" (")
        .add(to_string(m.reason))
        .add(")");
  }
  void operator()(const CmMra& m) const {
    add_ids(line, m.local_comm_id, m.remote_comm_id);
    line.add(" of ").add(kind_name(m.acknowledged, "LAP")).add(" timeout ").decimal(m.service_timeout);
  }
  void operator()(const CmSidrReq& m) const {
    line.add(" request ").hex(m.request_id, 8);
    add_service(line, m.service_id);
    add_cma(line, cma_part(m.private_data));
  }
  void operator()(const CmSidrRep& m) const {
    line.add(" request ").hex(m.request_id, 8).add(" status ").decimal(static_cast<std::uint8_t>(m.status));
    line.add(" qpn ").hex(m.qpn.value(), 6).add(" qkey ").hex(m.qkey, 8);
    add_service(line, m.service_id);
  }
};

struct Emit {
  std::span<std::byte, kCmBytes> to;

  void operator()(const CmUnknown&) const { std::fill(to.begin(), to.end(), std::byte{0}); }
  template <class Message>
  void operator()(const Message& message) const {
    emit(message, to);
  }
};

}  // namespace

DropReason parse_cm(std::span<const std::byte> payload, MadHeader& header, CmMessage& message) {
  const DropReason reason = parse_mad(payload, header);
  if (reason == DropReason::None) message = parse_message(header.attribute, cm_part(payload));
  return reason;
}

void emit_mad(const MadHeader& header, const CmMessage& message, std::span<std::byte, kMadBytes> to) {
  emit_mad_header(header, to.first<kMadHeaderBytes>());
  std::visit(Emit{cm_part(to)}, message);
}

std::string to_string(const MadHeader& header, const CmMessage& message) {
  Line line{to_string(header.attribute)};
  if (std::holds_alternative<CmUnknown>(message))
    line.add(" ").hex(static_cast<std::uint16_t>(header.attribute));
  line.add(" tid ").hex(header.transaction_id);
  std::visit(Describe{line}, message);
  return line.take();
}

}  // namespace verbena::wire
