// SPDX-License-Identifier: Apache-2.0
// From a kind to the protocol behind it.
#include <string>

#include "messaging/buffered_read.h"
#include "messaging/buffered_write.h"
#include "messaging/direct_read.h"
#include "messaging/direct_write.h"
#include "messaging/offer.h"
#include "messaging/receiver_end.h"
#include "messaging/send_receive.h"
#include "messaging/sender_end.h"
#include "messaging/shared_receive.h"
#include "messaging/shared_write.h"

namespace verbena::messaging {

namespace {

constexpr std::uint32_t kMaxDepth = 1u << 16;
constexpr std::uint32_t kMaxMessageBytes = 1u << 31;  // of a request

const DeviceInfo& device_of(ProgressEngine& engine, const Options& options) {
  Device* const device = options.connection.device;
  return (device != nullptr ? *device : engine.device()).info();
}

// What no protocol takes.
Result<void> check(ProgressEngine& engine, const Options& options) {
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::InvalidArgument, "messages by " + to_string(options.kind) + ": " + why);
  };
  const Kind& kind = options.kind;
  if (kind.commit > Commit::Reversed || kind.acknowledge > Acknowledge::Read || kind.ring > RingMemory::DoubleMapped)
    return refuse("a commit, acknowledge or ring that there is not");
  if (options.max_message_bytes == 0) return refuse("max_message_bytes is 0");
  if (options.max_message_bytes > kMaxMessageBytes)
    return refuse("max_message_bytes is " + std::to_string(options.max_message_bytes) +
                  ", and what a device sends at once is " + std::to_string(kMaxMessageBytes) + " bytes at most");
  if (options.depth == 0 || options.depth > kMaxDepth)
    return refuse("a depth of " + std::to_string(options.depth) + ", which is not 1 to " +
                  std::to_string(kMaxDepth));
  if (options.max_senders == 0) return refuse("max_senders is 0");
  constexpr std::uint8_t kForEver = 7;
  const std::uint8_t patience = options.connection.reliability.rnr_retry;
  if (kind.protocol == Protocol::SharedReceive && patience != kForEver)
    return refuse("an rnr_retry of " + std::to_string(patience) +
                  ", by which a sender that uses up the pool ends the others; leave it 7, they wait then");
  const DeviceInfo& info = device_of(engine, options);
  if (options.depth + 16 > info.max_requests)
    return refuse("a depth of " + std::to_string(options.depth) + ", and the device's queues hold " +
                  std::to_string(info.max_requests) + " requests");
  return {};
}

// A receiver's, as its memory is what is written: see settle().
Result<Kind> allowed_kind(const Options& options, const DeviceInfo& device) {
  if (device.order_in_write || !traits_of(options.kind).order_in_write) return options.kind;
  if (!options.exact_kind) return without_order_in_write(options.kind);
  return Error(ErrorCode::NotSupported, "messages by " + to_string(options.kind) + ": device " + device.name +
                                            " does not promise the order inside a WRITE that this needs; " +
                                            to_string(without_order_in_write(options.kind)) + " needs none");
}

template <class End>
Result<std::unique_ptr<End>> unknown(const Options& options) {
  return Error(ErrorCode::InvalidArgument, "there is no message protocol of number " +
                                               std::to_string(static_cast<int>(options.kind.protocol)));
}

}  // namespace

Result<std::unique_ptr<SenderEnd>> SenderEnd::create(ProgressEngine& engine, const Options& options) {
  if (auto ok = check(engine, options); !ok) return ok.error();
  std::unique_ptr<SenderEnd> end;
  switch (options.kind.protocol) {
    case Protocol::SendReceive:
    case Protocol::SharedReceive:
      end = std::make_unique<SendReceiveSender>(engine, options);
      break;
    case Protocol::BufferedWrite:
      end = std::make_unique<BufferedWriteSender>(engine, options);
      break;
    case Protocol::SharedWrite:
      end = std::make_unique<SharedWriteSender>(engine, options);
      break;
    case Protocol::DirectWrite:
      end = std::make_unique<DirectWriteSender>(engine, options);
      break;
    case Protocol::DirectRead:
      end = std::make_unique<DirectReadSender>(engine, options);
      break;
    case Protocol::BufferedRead:
      end = std::make_unique<BufferedReadSender>(engine, options);
      break;
    default:
      return unknown<SenderEnd>(options);
  }
  if (auto ok = end->open(); !ok) return ok.error();
  return end;
}

Result<std::unique_ptr<ReceiverEnd>> ReceiverEnd::create(ProgressEngine& engine, const Options& wanted) {
  if (auto ok = check(engine, wanted); !ok) return ok.error();
  auto kind = allowed_kind(wanted, device_of(engine, wanted));
  if (!kind) return kind.error();
  Options options = wanted;
  options.kind = *kind;
  std::unique_ptr<ReceiverEnd> end;
  switch (options.kind.protocol) {
    case Protocol::SendReceive:
      end = std::make_unique<SendReceiveReceiver>(engine, options);
      break;
    case Protocol::SharedReceive:
      end = std::make_unique<SharedReceiveReceiver>(engine, options);
      break;
    case Protocol::BufferedWrite:
      end = std::make_unique<BufferedWriteReceiver>(engine, options);
      break;
    case Protocol::SharedWrite:
      end = std::make_unique<SharedWriteReceiver>(engine, options);
      break;
    case Protocol::DirectWrite:
      end = std::make_unique<DirectWriteReceiver>(engine, options);
      break;
    case Protocol::DirectRead:
      end = std::make_unique<DirectReadReceiver>(engine, options);
      break;
    case Protocol::BufferedRead:
      end = std::make_unique<BufferedReadReceiver>(engine, options);
      break;
    default:
      return unknown<ReceiverEnd>(options);
  }
  end->wanted_ = wanted.kind;
  if (auto ok = end->check_queues(); !ok) return ok.error();
  if (auto ok = end->open(); !ok) return ok.error();
  return end;
}

}  // namespace verbena::messaging
