// SPDX-License-Identifier: Apache-2.0
#include "messaging/ring/geometry.h"

namespace verbena::ring {

std::string_view to_string(Fault fault) {
  switch (fault) {
    case Fault::None:
      return "no fault";
    case Fault::Head:
      return "the peer's head goes back, beyond what was written, or between frames";
    case Fault::Tail:
      return "the peer's tail goes back, over what was not released, or between frames";
    case Fault::Mark:
      return "the peer wrote a word that begins no message";
    case Fault::Length:
      return "the peer wrote a length that the ring does not hold";
    case Fault::Skip:
      return "the peer skips where nothing is to be skipped";
    case Fault::Overrun:
      return "the peer wrote over what was not released";
    case Fault::Place:
      return "the peer wrote to a place that it did not reserve";
    case Fault::Grant:
      return "the peer granted memory out of turn or of no use";
  }
  return "unknown fault";
}

}  // namespace verbena::ring
