// SPDX-License-Identifier: Apache-2.0
// Which path the requests of one queue pair take, agreed with its peer: shared memory, or packets.
//
// Whoever enters RTR asks the other, unless an ask of the other's has come already. An ask is accepted by a queue pair
// in RTR that is connected to who asks; before that it is held. Asks that cross: that of the lower (GID, QPN) counts.
// Whoever cannot ask, is refused, or gets a packet of the peer's, goes by packets, and says so to every later ask. What
// is decided stays until the queue pair leaves.
//
// No input or output: the driver asks, answers and closes as it is told here.
#pragma once

#include <cstdint>
#include <optional>

#include "soft/local/hello.h"

namespace verbena::local {

enum class Path : std::uint8_t { None, Undecided, Local, Roce };

// One thread at a time.
class Match {
 public:
  // The queue pair entered RTR. Asks of its peer that were held are handled next; then, when must_ask(), ask.
  void enter(const Endpoint& self, const Endpoint& peer);
  // Reset, in ERR or gone.
  void leave() { *this = Match(); }

  Path path() const;
  bool must_ask() const { return stage_ == Stage::Entered; }
  // The ask is on its way. An accepted ask of the peer's makes it void.
  void handle_asked();
  bool asks() const { return stage_ == Stage::Asking; }

  // An ask came. Nothing: it is held, until the queue pair enters or is gone.
  std::optional<Answer> handle_ask(const Endpoint& from);
  // To the ask that is on its way.
  void handle_answer(Answer answer);
  // No path through memory: nobody to ask, the ask was lost, memory is missing.
  void give_up();
  // A packet of the peer's, which thus goes by packets.
  void handle_packet() { give_up(); }

  bool operator==(const Match&) const = default;

 private:
  enum class Stage : std::uint8_t {
    Outside,
    Entered,
    Asking,
    Awaiting,  // our ask crossed with the one that counts, which must come
    Local,
    Roce,
  };

  Stage stage_ = Stage::Outside;
  Endpoint self_;
  Endpoint peer_;
};

}  // namespace verbena::local
