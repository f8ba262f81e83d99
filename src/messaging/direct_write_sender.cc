// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/byte_order.h"
#include "device/wire_bytes.h"
#include "messaging/direct_write.h"

namespace verbena::messaging {

namespace {

constexpr std::size_t kInboxBytes = std::size_t{Grant::kWireBytes} * Grant::kMostTogether;

}  // namespace

Result<void> DirectWriteSender::open() {
  if (auto ok = SendReceiveSender::open(); !ok) return ok;
  auto inbox = domain().allocate_memory(kInboxBytes * (options().depth + 1), Access::LocalWrite);
  if (!inbox) return inbox.error();
  inbox_ = std::move(*inbox);
  grants_.resize(options().depth);
  set_credits(0, options().depth);
  return {};
}

// One receive more than there are grants: Finished takes it.
QueuePairCapabilities DirectWriteSender::queues() const {
  QueuePairCapabilities queues = SendReceiveSender::queues();
  queues.max_receive_requests = options().depth + 1;
  return queues;
}

void DirectWriteSender::post_inbox(std::uint64_t id) {
  const auto slot = static_cast<std::uint32_t>(id);
  const ScatterGather piece = inbox_.local(slot * kInboxBytes, kInboxBytes);
  static_cast<void>(post_receive({kReceiveId | slot, {&piece, 1}}));
}

Result<void> DirectWriteSender::prepare(Connection&) {
  for (std::uint32_t slot = 0; slot <= options().depth; ++slot) post_inbox(slot);
  return {};
}

Result<void> DirectWriteSender::start(const Offer&) { return check_grants(); }

Result<void> DirectWriteSender::check_grants() const {
  if (shortest_ >= max_message_bytes()) return {};
  return Error(ErrorCode::ProtocolError, "the receiver granted " + std::to_string(shortest_) +
                                             " bytes for messages of " + std::to_string(max_message_bytes()));
}

void DirectWriteSender::aim(SendRequest& request, std::uint64_t number) const {
  const Grant& grant = grants_[number % grants_.size()];
  request.opcode = SendOpcode::RdmaWriteWithImmediate;
  request.remote_address = grant.address;
  request.rkey = grant.rkey;
  store_be32(request.immediate.data(), static_cast<std::uint32_t>(number));
}

Result<void> DirectWriteSender::handle_given_back(std::uint32_t) {
  return Error(ErrorCode::ProtocolError, "the receiver gave back what it was to grant");
}

Result<void> DirectWriteSender::handle_received(const Completion& completion) {
  const std::uint32_t bytes = completion.byte_count;
  if (completion.opcode != CompletionOpcode::Receive || bytes == 0 || bytes % Grant::kWireBytes != 0)
    return Error(ErrorCode::ProtocolError, "the receiver sent what are no grants");
  const std::byte* const inbox = inbox_.data() + static_cast<std::uint32_t>(completion.id) * kInboxBytes;
  const std::uint32_t count = bytes / Grant::kWireBytes;
  if (granted_ + count > sent() + grants_.size())
    return Error(ErrorCode::ProtocolError, "the receiver granted more than was agreed");
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::byte* const at = inbox + std::size_t{i} * Grant::kWireBytes;
    const Grant grant{wire_bytes::load_le64(at), RKey{wire_bytes::load_le32(at + 8)},
                      wire_bytes::load_le32(at + 12)};
    shortest_ = std::min(shortest_, grant.bytes);
    grants_[granted_++ % grants_.size()] = grant;
  }
  ++counters_.credit_messages;
  post_inbox(completion.id);
  if (auto ok = check_grants(); !ok) return ok;
  return add_credits(count);
}

}  // namespace verbena::messaging
