// SPDX-License-Identifier: Apache-2.0
#include "tools/message_receiving.h"

namespace verbena::tools {

namespace {

// Messages taken at once, at least.
constexpr std::size_t kTaken = 16;

}  // namespace

Result<void> ReceivingEnd::run() {
  auto outcome = work();
  answers_.reset();
  receiver_.reset();
  for_senders_.reset();
  for_receiver_.reset();
  engine_.reset();
  return outcome;
}

Result<void> ReceivingEnd::work() {
  if (auto open = open_engine(device_); !open) return open;
  if (auto listening = listen(); !listening) return listening;
  crew_.report_ready();
  if (auto met = meet(); !met) return met;
  memory_bytes_ = receiver_->memory_bytes();
  if (test_.is_latency()) return answer_each();
  if (auto taken = take_all(); !taken) return taken;
  return wait_end();
}

Result<void> ReceivingEnd::listen() {
  auto receiver = messaging::Receiver::create(*engine_, message_options(test_));
  if (!receiver) return std::move(receiver).error();
  receiver_.emplace(std::move(*receiver));
  receiver_->on_peer_end([this](messaging::PeerId, const Result<void>& how) {
    if (!how && !error_) error_ = how.error();
  });
  for (auto* listener : {&for_senders_, &for_receiver_}) {
    auto made = Listener::create(*engine_);
    if (!made) return std::move(made).error();
    listener->emplace(std::move(*made));
  }
  addresses_ = {for_senders_->address().to_string(), for_receiver_->address().to_string()};
  return {};
}

// True when somebody came.
bool ReceivingEnd::accept() {
  if (auto request = for_senders_->poll_request()) {
    auto peer = receiver_->accept(std::move(*request));
    if (!peer) error_ = peer.error();
    return true;
  }
  auto request = for_receiver_->poll_request();
  if (!request) return false;
  auto sender = messaging::Sender::accept(*engine_, std::move(*request), answer_options(test_));
  if (!sender) {
    error_ = sender.error();
    return true;
  }
  const std::uint32_t bytes = test_.is_latency() ? test_.size : kAnswerBytes;
  auto source = MessageSource::create(device_, std::move(*sender), bytes, 1);
  if (source) answers_.emplace(std::move(*source));
  else error_ = source.error();
  return true;
}

Result<void> ReceivingEnd::meet() {
  return until([this] {
    while (accept()) note_progress();
    const bool all_here = receiver_->peers() == test_.senders && answers_;
    if (!all_here) engine_->run_once();
    return all_here;
  });
}

Result<void> ReceivingEnd::answer_each() {
  for (;;) {
    if (auto on = go_on(); !on) return on;
    std::optional<messaging::Message> message;
    const auto due = [&] { return (message = receiver_->try_receive()).has_value() || crew_.may_proceed(); };
    if (auto waited = until(due); !waited) return waited;
    if (!message) return {};
    if (auto right = check_size(*message, test_.size); !right) return right;
    message->give_back();
    if (auto sent = send_one(*answers_); !sent) return sent;
  }
}

// Until the last of every sender.
Result<void> ReceivingEnd::take_all() {
  std::vector<messaging::Message> taken(std::max<std::size_t>(test_.batch, kTaken));
  for (std::uint32_t ended = 0; ended < test_.senders;) {
    if (auto on = go_on(); !on) return on;
    std::size_t count = 0;
    if (auto waited = until([&] { return (count = receiver_->try_receive(taken)) != 0; }); !waited) return waited;
    for (std::size_t i = 0; i < count; ++i) {
      if (auto right = check_size(taken[i], test_.size); !right) return right;
      if (taken[i].bytes().front() == kLastMessage) ++ended;
      taken[i].give_back();
    }
  }
  return send_one(*answers_);
}

// The senders close.
Result<void> ReceivingEnd::wait_end() {
  return until(
      [this] {
        engine_->run_once();
        return crew_.may_proceed();
      },
      true);
}

}  // namespace verbena::tools
