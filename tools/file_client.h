// SPDX-License-Identifier: Apache-2.0
// Fetches files from a server of the file protocol and brings files to it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tools/message_channel.h"
#include "tools/transfer.h"
#include "tools/tree.h"

namespace verbena::tools {

class FileClient {
 public:
  // `interrupted` is asked now and then; `on_total` is told what is to come, when the server has counted it.
  FileClient(ProgressEngine& engine, Device& device, TransferObserver& observer)
      : engine_(engine), device_(device), observer_(observer) {}
  std::function<bool()> interrupted = [] { return false; };
  std::function<void(std::uint64_t bytes)> on_total = [](std::uint64_t) {};

  // Errors: those of connecting; what the server says (its own code); Cancelled; ProtocolError; RetryExceeded and the
  // like when the connection breaks; TimedOut when nothing moves. Failures of single files are in the totals.
  // Nothing unfinished stays under its name.
  Result<void> connect(const Endpoint& server);
  // `remote` and `local` as in FileServer: a file goes into a directory that has the name asked for.
  Result<void> get(const std::string& remote, const std::string& local, bool force);
  // `root` is what stands at `local`. With `into`, `remote` must be a directory.
  Result<void> put(OpenedEntry root, const std::string& local, const std::string& remote, bool into, bool force);
  // Of the last of them, after an error too.
  const TransferTotals& totals() const { return totals_; }
  // What the user can do about the last error, where more is known than its code tells; else empty.
  std::string_view advice() const { return advice_; }
  // Says goodbye.
  void close();

 private:
  template <class Party>
  Result<void> run(Party& party);
  template <class Party>
  Result<void> move(Party& party);
  Result<message::Begin> await_begin();
  void wait();
  Result<void> check(double active_at);

  ProgressEngine& engine_;
  Device& device_;
  TransferObserver& observer_;
  Staging staging_;
  TransferTotals totals_;
  std::unique_ptr<MessageChannel> channel_;
  std::string advice_;
};

}  // namespace verbena::tools
