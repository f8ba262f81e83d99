// SPDX-License-Identifier: Apache-2.0
#include "tools/pingpong.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace verbena::tools {

namespace {

// ibv_rc_pingpong -c looks at the first byte of every page alone, and wants 0 there.
constexpr std::size_t kCheckedStride = 4096;

// A busy machine may be slow for a while; a dead peer is given up after a good two seconds.
ReliabilityOptions reliability() {
  ReliabilityOptions options;
  options.timeout = 16;  // 268 ms a period, eight periods
  options.max_rd_atomic = 1;
  options.max_dest_rd_atomic = 1;
  options.access = Access::None;
  return options;
}

// Bytes that differ from message to message, but for those that the other side checks.
std::byte pattern(std::size_t at, std::uint32_t iteration) {
  return at % kCheckedStride == 0 ? std::byte{0} : static_cast<std::byte>(at * 7 + iteration * 131 + 1);
}

}  // namespace

Result<std::unique_ptr<Pingpong>> Pingpong::create(ProgressEngine& engine, Device& device,
                                                   const PingpongSettings& settings, StopQuestion stopped) {
  std::unique_ptr<Pingpong> made(new Pingpong(engine, settings, std::move(stopped)));
  if (auto ready = made->prepare(device); !ready) return std::move(ready).error();
  return made;
}

Result<void> Pingpong::prepare(Device& device) {
  auto memory = device.allocate_memory(std::max<std::size_t>(2 * std::size_t{settings_.size}, 1), Access::LocalWrite);
  if (!memory) return std::move(memory).error();
  memory_ = std::move(*memory);
  auto completions = device.create_completion_queue(settings_.rx_depth + 1);
  if (!completions) return std::move(completions).error();
  completions_.emplace(std::move(*completions));
  QueuePairOptions options;
  options.capabilities.max_send_requests = 1;
  options.capabilities.max_receive_requests = settings_.rx_depth;
  auto pair = device.create_queue_pair(*completions_, options);
  if (!pair) return std::move(pair).error();
  pair_.emplace(std::move(*pair));
  if (auto done = pair_->to_init(Access::None); !done) return done;
  return post_receives();
}

Result<PingpongAddress> Pingpong::exchange(TcpLink& link) {
  const auto ours = local().to_wire();
  std::array<char, PingpongAddress::kWireBytes> theirs{};
  std::array<char, kPingpongDone.size()> done{};
  if (settings_.client)
    if (auto sent = link.write(ours); !sent) return std::move(sent).error();
  if (auto got = link.read(theirs, settings_.timeout, stopped_); !got) return std::move(got).error();
  auto peer = PingpongAddress::from_wire({theirs.data(), theirs.size()});
  if (!peer) return std::move(peer).error();
  // Before the peer knows that it may send.
  if (auto connected = connect(*peer); !connected) return std::move(connected).error();
  if (settings_.client) {
    if (auto sent = link.write(kPingpongDone); !sent) return std::move(sent).error();
    return peer;
  }
  if (auto sent = link.write(ours); !sent) return std::move(sent).error();
  if (auto got = link.read(done, settings_.timeout, stopped_); !got) return std::move(got).error();
  if (done != kPingpongDone) return Error(ErrorCode::ProtocolError, "the client's last word is not \"done\"");
  return peer;
}

Result<void> Pingpong::connect(const PingpongAddress& peer) {
  peer_ = peer;
  const Gid own = pair_->address().gid;
  if (peer.gid.is_zero())
    return Error(ErrorCode::ProtocolError,
                 "the peer sent no GID: start ibv_rc_pingpong with -g and the index of its RoCE v2 address");
  if (peer.gid.is_ipv4() != own.is_ipv4())
    return Error(ErrorCode::Unreachable, fmt::format("the peer has the GID {}, and the device here {}, which is of "
                                                     "another IP version: choose another -g there or -d here",
                                                     peer.gid.to_string(), own.to_string()));
  const QueuePairAddress address{peer.gid, peer.qpn, peer.psn, settings_.mtu};
  return pair_->to_rtr(address, reliability()).and_then([&] { return pair_->to_rts(reliability()); });
}

Result<void> Pingpong::post_receives() {
  const ScatterGather piece = memory_.local(0, settings_.size);
  ReceiveRequest request;
  request.id = kReceiveId;
  if (settings_.size != 0) request.local = {&piece, 1};
  for (; posted_receives_ < settings_.rx_depth; ++posted_receives_)
    if (const PostResult posted = pair_->post_receive(request); !posted)
      return Error(ErrorCode::ResourceExhausted,
                   fmt::format("receive {} of -r {}: {}", posted_receives_ + 1, settings_.rx_depth,
                               to_string(posted.status)));
  return {};
}

Result<void> Pingpong::post_send() {
  if (settings_.client) fill_message();
  const ScatterGather piece = memory_.local(settings_.client ? settings_.size : 0, settings_.size);
  SendRequest request;
  request.id = kSendId;
  if (settings_.size != 0) request.local = {&piece, 1};
  if (const PostResult posted = pair_->post_send(request); !posted)
    return Error(ErrorCode::Internal, fmt::format("send {}: {}", sends_posted_ + 1, to_string(posted.status)));
  ++sends_posted_;
  return {};
}

Result<Duration> Pingpong::run() {
  const Instant begun = engine_.now();
  if (settings_.client)
    if (auto posted = post_send(); !posted) return std::move(posted).error();
  while (received_ < settings_.iterations || sent_ < settings_.iterations)
    if (auto moved = wait_for_completions(); !moved) return std::move(moved).error();
  return engine_.now() - begun;
}

Result<void> Pingpong::wait_for_completions() {
  std::array<Completion, 8> batch;
  const Instant deadline = engine_.now() + settings_.timeout;
  std::size_t count = 0;
  while ((count = completions_->poll(batch)) == 0) {
    if (stopped_()) return Error(ErrorCode::Cancelled, "interrupted");
    if (engine_.run_once()) continue;
    if (engine_.now() >= deadline)
      return Error(ErrorCode::TimedOut, fmt::format("nothing from {} after {} of {} messages", peer_.gid.to_string(),
                                                    received_, settings_.iterations));
    if (settings_.events) {
      completions_->arm();
      if ((count = completions_->poll(batch)) != 0) break;
    }
    engine_.wait(deadline);
  }
  for (std::size_t i = 0; i < count; ++i)
    if (auto done = handle(batch[i]); !done) return done;
  return {};
}

Result<void> Pingpong::handle(const Completion& completion) {
  const bool is_receive = completion.id == kReceiveId;
  if (completion.status != CompletionStatus::Success)
    return Error(to_error_code(completion.status),
                 fmt::format("{} {} of {} with {}: {}", is_receive ? "receive" : "send",
                             (is_receive ? received_ : sent_) + 1, settings_.iterations, peer_.gid.to_string(),
                             to_string(completion.status)),
                 static_cast<int>(completion.status), ErrorDomain::WorkCompletion);
  if (is_receive) {
    ++received_;
    --posted_receives_;
    if (completion.byte_count != settings_.size)
      return Error(ErrorCode::ProtocolError,
                   fmt::format("message {} has {} bytes, and -s {} says how many there must be", received_,
                               completion.byte_count, settings_.size));
    if (settings_.check)
      if (auto right = check_message(); !right) return right;
    if (posted_receives_ <= 1)
      if (auto posted = post_receives(); !posted) return posted;
  } else {
    ++sent_;
  }
  // The next message goes when the one before has arrived and was answered.
  const std::uint32_t answered = settings_.client ? received_ : received_ - 1;
  const bool our_turn = received_ != 0 && sends_posted_ == sent_ && sends_posted_ == answered;
  if (our_turn && sends_posted_ < settings_.iterations) return post_send();
  return {};
}

void Pingpong::fill_message() {
  const auto out = outgoing();
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = pattern(i, sends_posted_);
}

// A server cannot know more of what a client sends than the bytes ibv_rc_pingpong checks; a client has its own message
// back.
Result<void> Pingpong::check_message() const {
  const auto in = incoming(), out = outgoing();
  const std::size_t stride = settings_.client ? 1 : kCheckedStride;
  for (std::size_t i = 0; i < in.size(); i += stride) {
    const std::byte wanted = settings_.client ? out[i] : std::byte{0};
    if (in[i] != wanted)
      return Error(ErrorCode::CorruptData,
                   fmt::format("message {}: byte {} of {} is {:#04x}, and must be {:#04x}", received_, i, in.size(),
                               std::to_integer<unsigned>(in[i]), std::to_integer<unsigned>(wanted)));
  }
  return {};
}

void Pingpong::linger() {
  constexpr auto kLinger = Duration::milliseconds(200);  // three of the peer's timeouts
  engine_.run_until([&] { return stopped_(); }, kLinger);
}

}  // namespace verbena::tools
