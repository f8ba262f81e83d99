// SPDX-License-Identifier: Apache-2.0
#include "soft/local/match.h"

#include "base/assert.h"

namespace verbena::local {

void Match::enter(const Endpoint& self, const Endpoint& peer) {
  self_ = self;
  peer_ = peer;
  // A queue pair that is its own peer would read its own ring from both ends.
  stage_ = self == peer ? Stage::Roce : Stage::Entered;
}

Path Match::path() const {
  switch (stage_) {
    case Stage::Outside:
      return Path::None;
    case Stage::Entered:
    case Stage::Asking:
    case Stage::Awaiting:
      return Path::Undecided;
    case Stage::Local:
      return Path::Local;
    case Stage::Roce:
      return Path::Roce;
  }
  return Path::None;
}

void Match::handle_asked() {
  VERBENA_ASSERT(stage_ == Stage::Entered);
  stage_ = Stage::Asking;
}

std::optional<Answer> Match::handle_ask(const Endpoint& from) {
  if (stage_ == Stage::Outside) return std::nullopt;
  if (from != peer_) return Answer::Unknown;
  switch (stage_) {
    case Stage::Asking:
      if (self_ < peer_) return Answer::Crossed;
      break;
    case Stage::Local:  // the peer begins anew, and we shall
      return std::nullopt;
    case Stage::Roce:
      return Answer::Roce;
    case Stage::Outside:
    case Stage::Entered:
    case Stage::Awaiting:
      break;
  }
  stage_ = Stage::Local;
  return Answer::Accept;
}

void Match::handle_answer(Answer answer) {
  VERBENA_ASSERT(stage_ == Stage::Asking);
  if (answer == Answer::Accept)
    stage_ = Stage::Local;
  else
    stage_ = answer == Answer::Crossed && peer_ < self_ ? Stage::Awaiting : Stage::Roce;
}

void Match::give_up() {
  VERBENA_ASSERT(stage_ != Stage::Outside);
  stage_ = Stage::Roce;
}

}  // namespace verbena::local
