// SPDX-License-Identifier: Apache-2.0
// Connections that are made by descriptions, without connection management.
#include <algorithm>

#include "async/describe.h"
#include "connection/connection_state.h"
#include "device/wire_bytes.h"

namespace verbena {

std::string ConnectionState::peer_name() const {
  if (peer_.host.empty()) return "no peer yet";
  if (!described_) return peer_.to_string();
  return peer_.host + " queue pair " + describe::qpn(parameters_.remote_qpn);
}

Result<ConnectionDescription> ConnectionState::describe(std::span<const std::byte> user_data) {
  if (phase_ != ConnectionPhase::Prepared && !(described_ && phase_ == ConnectionPhase::Established))
    return Error(ErrorCode::WrongState, "describe a connection: it is " + std::string(to_string(phase_)) +
                                            "; prepare one, and describe that");
  if (!told_psn_) told_psn_ = Psn{static_cast<std::uint32_t>(context().random() >> 40)};
  ConnectionDescription own;
  if (auto ok = own.set_user_data(user_data); !ok) return ok.error();
  own.address = {device_.info().address, channel_->qpn(), *told_psn_, device_.info().active_mtu};
  if (options_.path_mtu != 0) own.address.mtu = std::min(own.address.mtu, options_.path_mtu);
  own.max_rd_atomic = options_.reliability.max_rd_atomic;
  own.max_dest_rd_atomic = options_.reliability.max_dest_rd_atomic;
  return own;
}

Result<void> ConnectionState::connect_to(const ConnectionDescription& peer) {
  if (ending_) return destroyed();
  const std::string host = peer.address.gid.to_string();
  const std::string what = "connect to " + host + " by its description: ";
  if (phase_ != ConnectionPhase::Prepared)
    return Error(ErrorCode::WrongState, what + "this connection was used already");
  const std::string wrong = peer.address.mtu != 0 ? wire_bytes::impossible_field(peer.address) : "MTU is 0";
  if (!wrong.empty()) return Error(ErrorCode::InvalidArgument, what + "its " + wrong);
  auto own = describe({});
  if (!own) return own.error();
  if (peer.address.gid == own->address.gid && peer.address.qpn == own->address.qpn)
    return Error(ErrorCode::InvalidArgument, what + "it is the description of this side; give it to the peer");
  peer_.host = host;
  if (auto ok = check_reachable(peer.address.gid); !ok) return ok;
  remote_ = peer.address.gid;
  described_ = true;
  parameters_.remote = remote_;
  parameters_.local_qpn = own->address.qpn;
  parameters_.local_psn = peer.address.psn;
  parameters_.remote_qpn = peer.address.qpn;
  parameters_.remote_psn = own->address.psn;
  parameters_.path_mtu = std::min(own->address.mtu, peer.address.mtu);
  parameters_.initiator_depth = peer.max_dest_rd_atomic;
  parameters_.responder_resources = options_.reliability.max_dest_rd_atomic;
  parameters_.traffic_class = options_.traffic_class;
  parameters_.flow_label = options_.flow_label;
  private_data_.assign(peer.user_data().begin(), peer.user_data().end());
  if (auto ok = bring_up(peer.address.psn, *told_psn_); !ok) {
    give_up(ok.error());
    return ok;
  }
  phase_ = ConnectionPhase::Established;
  was_established_ = true;
  channel_->set_connected(options_.connect_timeout);
  return {};
}

}  // namespace verbena
