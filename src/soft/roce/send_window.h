// SPDX-License-Identifier: Apache-2.0
// How much may be outstanding and how long to wait for it: the congestion window and the retransmission time.
// Loss halves the window once per round; the time is SRTT + 4 RTTVAR (RFC 6298), doubled per expiry.
#pragma once

#include <algorithm>
#include <cstdint>

#include "soft/roce/config.h"
#include "verbena/base/ids.h"

namespace verbena::roce {

class SendWindow {
 public:
  // `spread`, 0..255, lengthens every wait by up to an eighth: queue pairs that lost together do not return
  // together.
  void reset(const Config& config, std::uint32_t mtu, std::uint32_t max_packets, std::uint32_t spread) {
    spread_ = spread;
    max_packets_ = max_packets;
    full_packets_ = std::max(config.max_window_bytes / mtu, 1u);
    packets_ = std::min(config.initial_window_packets, max_packets_);
    threshold_ = max_packets_;
    grown_ = 0;
    retransmission_ = config.initial_retransmission_time;
    minimum_ = config.min_retransmission_time;
    have_rtt_ = recovering_ = sampling_ = false;
    backoff_ = 0;
  }

  std::uint32_t packets() const { return packets_; }
  // So many of the longest fit.
  std::uint32_t full_packets() const { return std::min(packets_, full_packets_); }

  void on_acknowledged(std::uint32_t packets, Psn unacked) {
    backoff_ = 0;
    if (recovering_ && !unacked.is_before(recovery_end_)) recovering_ = false;
    if (packets_ < threshold_) {
      packets_ = std::min(packets_ + packets, threshold_);
      return;
    }
    grown_ += packets;
    if (grown_ < packets_) return;
    grown_ -= packets_;
    packets_ = std::min(packets_ + 1, max_packets_);
  }

  // Something sent was lost; `highest` is one past the last PSN sent.
  void on_loss(Psn highest) {
    stop_sample();
    if (recovering_) return;
    recovering_ = true;
    recovery_end_ = highest;
    packets_ = threshold_ = std::max(std::min(packets_, full_packets_) / 2, 1u);
    grown_ = 0;
  }

  void on_expiry() { backoff_ = std::min(backoff_ + 1, 16u); }

  // ---- Round-trip time: one sample at a time.
  void on_sent(Psn psn, Instant now) {
    if (sampling_) return;
    sampling_ = true;
    sample_psn_ = psn;
    sample_sent_ = now;
  }
  // It is sent again: a sample over that says nothing (Karn).
  void stop_sample() { sampling_ = false; }
  void on_answer(Psn unacked, Instant now) {
    if (!sampling_ || !unacked.is_after(sample_psn_)) return;
    sampling_ = false;
    const std::int64_t rtt = std::max<std::int64_t>((now - sample_sent_).ns, 0);
    if (!have_rtt_) {
      have_rtt_ = true;
      smoothed_ = rtt;
      variation_ = rtt / 2;
    } else {
      variation_ += (std::max(smoothed_ - rtt, rtt - smoothed_) - variation_) / 4;
      smoothed_ += (rtt - smoothed_) / 8;
    }
    retransmission_ = std::max(minimum_, Duration{smoothed_ + 4 * variation_});
  }
  Duration retransmission_time() const {
    return (retransmission_ + retransmission_ * spread_ / 2048) * (std::int64_t{1} << backoff_);
  }

 private:
  std::uint32_t full_packets_ = 1;  // of the longest, so many fit its bytes
  std::uint32_t packets_ = 1, max_packets_ = 1, threshold_ = 1, grown_ = 0;
  Psn recovery_end_, sample_psn_;
  Instant sample_sent_;
  bool recovering_ = false, sampling_ = false, have_rtt_ = false;
  std::uint32_t backoff_ = 0, spread_ = 0;
  std::int64_t smoothed_ = 0, variation_ = 0;
  Duration retransmission_, minimum_;
};

}  // namespace verbena::roce
