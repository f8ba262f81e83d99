// SPDX-License-Identifier: Apache-2.0
// The search of `verbena tune`: which protocol, with which window, batch and ring, does best what is wanted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/message_runs.h"

namespace verbena::tools {

struct TuneSettings {
  MessageMeasure goal = MessageMeasure::Latency;
  std::uint32_t size = 64;  // bytes
  std::uint32_t senders = 1;
  bool sleeping = false;  // the receiver sleeps until a message comes
  std::uint32_t most_inline = 1024;  // bytes the sender's device takes in a request
  PathChoice path = PathChoice::Auto;
};

// The kinds that can do it at all.
std::vector<messaging::Kind> kinds_to_tune(const TuneSettings& settings);
// Where the search begins, for a kind.
MessageTest first_test(const TuneSettings& settings, const messaging::Kind& kind);

struct TuneStep {
  MessageTest test{};
  std::optional<MessageRow> row{};  // nothing: it failed. Of one that ran again: the one in the middle of those runs
  std::string why{};                // then; printable
  bool repeated() const { return row && is_repeated(*row); }
};
struct TuneOutcome {
  // Why there is nothing to recommend: NotFound (no kind fits, or none came to its end; the text says why the first did
  // not), or what ended `run`. Only the steps count then.
  std::optional<Error> error{};
  MessageRow best{};
  MessageRow usual{};  // what the defaults of the kind that is best do
  std::vector<TuneStep> steps{};    // all that was measured, in order
  std::vector<MessageRow> alike{};  // others than the best that the runs do not tell from it
};

// One that did far better in its one run than the best in several: the machine was slower by then, and what was left
// behind is not known to be worse. Null: there is none.
const TuneStep* doubt_about(const TuneOutcome& outcome);

// Searches one coordinate after the other, from the best so far: protocol, window, batch, inline or not, ring and how
// it is mapped; and again, until a round changes nothing or two are done. Better is what is kWorthwhile times as good,
// or better at all with no more memory: less is noise. The best by then, the kBestRepeated that did most, and
// the defaults of their kinds run kRepeats times more, in turn: what is in the middle of each of these decides, and of
// those that are alike then it is what messaging::recommend() names, or came first; its defaults, if they do as much.
// `run` measures; `over`: it will not any more.
inline constexpr double kWorthwhile = 1.05;
inline constexpr std::size_t kBestRepeated = 3, kRepeats = 3;
using TuneRun = std::function<Result<MessageRow>(const MessageTest&)>;
TuneOutcome tune(const TuneSettings& settings, const TuneRun& run, const std::function<bool()>& over);

// "messaging::Options options{...};" for both ends, and how to hand messages over when there is a batch.
std::string options_code(const MessageTest& test);
// "window 64, batches of 16, ring of 1024 KiB", as far as the protocol has them.
std::string settings_text(const MessageTest& test);
// "12.3 µs one way", "1.2 million messages/s", "3.4 GB/s"
std::string result_text(const MessageRow& row);

}  // namespace verbena::tools
