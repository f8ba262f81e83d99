// SPDX-License-Identifier: Apache-2.0
// Tunables of the packet transport. Defaults serve loopback and data-centre networks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "verbena/base/time.h"

namespace verbena::roce {

// Of a request that goes the short ways: less than the smallest path MTU, and copied rather than gathered.
constexpr std::uint32_t kMostShortBytes = 128;
// Of one that is posted alone: a header and what follows it. Those that wait have one.
constexpr std::size_t kMostShortPieces = 2;

struct Config {
  std::uint32_t initial_window_packets = 64;
  // Both fit the receive buffer every user gets: 212,992 bytes, of which the shortest packet takes a thousand.
  std::uint32_t max_window_packets = 192;
  std::uint32_t max_window_bytes = 192 * 1024;
  // A train that arrives as one takes a thousand bytes and what is in it. Where trains do, on loopback, so many packets
  // in so many trains fit as well.
  std::uint32_t max_window_packets_in_trains = 512;
  std::uint32_t max_window_trains = 32;
  std::uint32_t max_window_bytes_in_trains = 96 * 1024;
  // AckReq at least every so many packets, or a full train, or half a window.
  std::uint32_t ack_request_interval = 96;
  // One READ request asks for no more, and for fewer packets than two thirds of max_window_packets. Each answer begins
  // and ends with a longer packet, which costs a train; and the next is asked for while a third of the window is on its
  // way. 127 packets of 1 KiB are two full trains, one packet between them, and those two.
  std::uint32_t read_chunk_bytes = 128 * 1024;
  // Above what a peer that just stopped polling may take to answer: its service thread looks a millisecond later.
  Duration min_retransmission_time = Duration::milliseconds(2);
  Duration initial_retransmission_time = Duration::milliseconds(5);
  Duration max_owed_ack_time = Duration::microseconds(100);
  std::uint32_t max_owed_acknowledgements = 16;  // of so many requests one leaves while others arrive
  // In a conversation, where our data answers requests, one acknowledgement serves so many of them, unless the next
  // request takes twice as long as the one before, within these bounds.
  std::uint32_t max_held_acknowledgements = 6;
  Duration min_hold_time = Duration::microseconds(10);
  Duration max_hold_time = Duration::microseconds(40);
};

}  // namespace verbena::roce
