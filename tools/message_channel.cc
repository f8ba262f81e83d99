// SPDX-License-Identifier: Apache-2.0
#include "tools/message_channel.h"

#include <algorithm>
#include <cstring>

namespace verbena::tools {

namespace {

// A peer that is stopped is given up after a good two seconds; a busy machine may be slow for a while.
ConnectionOptions connection_options() {
  ConnectionOptions options;
  options.queues.max_send_requests = 128;
  options.queues.max_receive_requests = 64;
  options.reliability.timeout = 16;  // 268 ms a period, eight periods
  return options;
}

// Short messages are padded with zeros: Wireshark takes shorter SENDs for RPC over RDMA and calls them malformed.
constexpr std::size_t kShortestSend = 32;

std::span<const std::byte> unpadded(std::span<const std::byte> sent) {
  if (sent.size() != kShortestSend) return sent;
  std::uint32_t body = 0;
  std::memcpy(&body, sent.data() + 4, sizeof body);
  if (body > kShortestSend - 8) return sent;
  const auto rest = sent.subspan(8 + body);
  const bool zero = std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
  return zero ? sent.first(8 + body) : sent;
}

}  // namespace

Result<Staging> Staging::allocate(Device& device, std::uint16_t slots, std::uint32_t slot_bytes, Access access) {
  Staging staging;
  auto region = device.allocate_memory(std::size_t{slots} * slot_bytes, access);
  if (!region) return std::move(region).error();
  staging.region = std::move(*region);
  staging.slots = slots;
  staging.slot_bytes = slot_bytes;
  return staging;
}

Result<std::unique_ptr<MessageChannel>> MessageChannel::create(ProgressEngine& engine, Device& device) {
  std::unique_ptr<MessageChannel> channel(new MessageChannel);
  auto buffers = device.allocate_memory((kReceives + kSends) * kMaxMessageBytes, Access::LocalWrite);
  if (!buffers) return std::move(buffers).error();
  channel->buffers_ = std::move(*buffers);
  auto connection = Connection::prepare(engine, connection_options());
  if (!connection) return std::move(connection).error();
  channel->connection_.emplace(std::move(*connection));
  MessageChannel* self = channel.get();
  for (std::size_t i = 0; i < kReceives; ++i) {
    self->receives_[i].on_done([self, i](Operation&) { self->inbox_.push_back(i); });
    self->connection_->receive(self->receives_[i], self->receive_buffer(i));
  }
  for (std::size_t i = 0; i < kSends; ++i) {
    self->sends_[i].on_done([self, i](Operation&) { self->free_.push_back(i); });
    self->free_.push_back(i);
  }
  return channel;
}

MessageChannel::~MessageChannel() = default;

ScatterGather MessageChannel::receive_buffer(std::size_t index) const {
  return buffers_.local(index * kMaxMessageBytes, kMaxMessageBytes);
}

ScatterGather MessageChannel::send_buffer(std::size_t index, std::size_t bytes) const {
  return buffers_.local((kReceives + index) * kMaxMessageBytes, static_cast<std::uint32_t>(bytes));
}

Result<void> MessageChannel::connect(std::string_view address) {
  const auto greeting = file_greeting();
  if (auto done = connection_->connect_to(address, greeting); !done) return done;
  return check_file_greeting(connection_->private_data());
}

Result<void> MessageChannel::accept(ConnectionRequest& request) {
  const auto greeting = file_greeting();
  auto accepted = request.accept(std::move(*connection_), greeting);
  if (!accepted) return std::move(accepted).error();
  connection_.emplace(std::move(*accepted));
  return {};
}

Result<void> MessageChannel::send(const Message& message) {
  if (waiting_.size() >= kMaxWaiting) return Error(ErrorCode::ProtocolError, "the peer takes no messages");
  std::array<std::byte, kMaxMessageBytes> bytes;
  const std::size_t length = emit_message(message, bytes);
  waiting_.emplace_back(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
  waiting_.back().resize(std::max(length, kShortestSend));
  transmit();
  return {};
}

void MessageChannel::transmit() {
  while (!waiting_.empty() && !free_.empty()) {
    const std::size_t index = free_.back();
    free_.pop_back();
    const std::vector<std::byte>& message = waiting_.front();
    std::byte* buffer = buffers_.data() + (kReceives + index) * kMaxMessageBytes;
    std::copy(message.begin(), message.end(), buffer);
    connection_->send(sends_[index], send_buffer(index, message.size()));
    waiting_.pop_front();
  }
}

Result<std::optional<Message>> MessageChannel::receive() {
  transmit();
  while (!inbox_.empty()) {
    const std::size_t index = inbox_.front();
    inbox_.pop_front();
    const auto outcome = receives_[index].result();
    if (!outcome) continue;  // flushed: the connection's status says why
    auto message = parse_message(unpadded(buffers_.bytes().subspan(index * kMaxMessageBytes, outcome->bytes)));
    if (!message) return std::move(message).error();
    connection_->receive(receives_[index], receive_buffer(index));
    return std::optional<Message>(std::move(*message));
  }
  return std::optional<Message>();
}

}  // namespace verbena::tools
