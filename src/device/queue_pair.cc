// SPDX-License-Identifier: Apache-2.0
#include "verbena/device/queue_pair.h"

#include <algorithm>
#include <string>
#include <utility>

#include "device/queue_pair_steps.h"
#include "device/wire_bytes.h"

namespace verbena {

std::array<std::byte, QueuePairAddress::kWireBytes> QueuePairAddress::to_bytes() const {
  std::array<std::byte, kWireBytes> out{};
  wire_bytes::store_address(out.data(), *this);
  wire_bytes::seal(out, 'Q');
  return out;
}

Result<QueuePairAddress> QueuePairAddress::from_bytes(std::span<const std::byte> bytes) {
  if (auto ok = wire_bytes::check_seal(bytes, kWireBytes, 'Q', "QueuePairAddress"); !ok) return ok.error();
  return wire_bytes::load_address(bytes.data(), "QueuePairAddress");
}

QueuePair::QueuePair(QueuePair&& other) noexcept { *this = std::move(other); }

QueuePair& QueuePair::operator=(QueuePair&& other) noexcept {
  if (this == &other) return *this;
  release();
  context_ = std::move(other.context_);
  ops_ = std::move(other.ops_);
  qpn_ = other.qpn_;
  type_ = other.type_;
  capabilities_ = other.capabilities_;
  address_ = other.address_;
  return *this;
}

QueuePair::~QueuePair() { release(); }

void QueuePair::release() {
  if (context_ != nullptr) static_cast<void>(context_->destroy_qp(qpn_));
  context_ = nullptr;
}

PostResult QueuePair::post_send(std::span<const SendRequest> requests) { return ops_->post_send(requests); }
PostResult QueuePair::post_receive(std::span<const ReceiveRequest> requests) {
  return ops_->post_receive(requests);
}
bool QueuePair::try_write_now(const ShortWrite& write) { return ops_->write_now(write); }
bool QueuePair::try_read_now(const ShortRead& read) { return ops_->read_now(read); }
QueuePairState QueuePair::state() const { return ops_->state(); }

Result<void> QueuePair::modify(const QueuePairAttributes& values, AttributeMask mask) {
  return context_->modify_qp(qpn_, values, mask);
}
Result<QueuePairAttributes> QueuePair::query() const { return context_->query_qp(qpn_); }

Result<void> QueuePair::to_init(Access access) {
  return queue_pair_steps::to_init(*context_, qpn_, type_, access);
}

Result<void> QueuePair::to_rtr(const QueuePairAddress& peer, const ReliabilityOptions& options,
                               const PacketMarks& marks) {
  constexpr std::uint32_t kMaxFlowLabel = 0xfffff;
  if (marks.flow_label > kMaxFlowLabel)
    return Error(ErrorCode::InvalidArgument, "connect a queue pair: flow label " + std::to_string(marks.flow_label) +
                                                 ", at most " + std::to_string(kMaxFlowLabel));
  if (const std::string wrong = wire_bytes::impossible_field(peer); !wrong.empty())
    return Error(ErrorCode::InvalidArgument, "connect a queue pair: " + wrong);
  const std::uint32_t mtu = peer.mtu == 0 ? address_.mtu : std::min(address_.mtu, peer.mtu);
  return queue_pair_steps::to_rtr(*context_, qpn_, type_,
                                  {peer.gid, peer.qpn, peer.psn, mtu, marks.traffic_class, marks.flow_label}, options);
}

Result<void> QueuePair::to_rts(const ReliabilityOptions& options) {
  return queue_pair_steps::to_rts(*context_, qpn_, type_, address_.psn, options);
}

Result<void> QueuePair::to_error() { return queue_pair_steps::to_error(*context_, qpn_); }

Result<void> QueuePair::connect(const QueuePairAddress& peer, const ReliabilityOptions& options,
                                const PacketMarks& marks) {
  return to_init(options.access).and_then([&] { return to_rtr(peer, options, marks); }).and_then([&] {
    return to_rts(options);
  });
}

}  // namespace verbena
