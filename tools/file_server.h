// SPDX-License-Identifier: Apache-2.0
// Serves one directory to clients of the file protocol, any number one after another, some at once.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/message_channel.h"
#include "tools/stream_receiver.h"
#include "tools/stream_sender.h"
#include "tools/transfer.h"
#include "tools/tree.h"

namespace verbena::tools {

// How a client's visit ended.
struct VisitReport {
  std::string peer;
  std::string request;          // "get a/b", "put a/b", or empty: it left before asking
  TransferTotals totals;
  double seconds = 0;
  std::optional<Error> error;   // of the visit as a whole
  bool ok() const { return !error && totals.failures == 0; }
};

struct FileServerOptions {
  bool writable = false;
  std::function<void(const std::string& peer, const std::string& line)> tell_failure;  // of single files
  std::function<void(const std::string& peer)> tell_arrival;
};

// One client: waits for its request, then sends or receives a tree.
class Visit final : private TransferObserver {
 public:
  Visit(Device& device, const UniqueFd& root, const FileServerOptions& options,
        std::unique_ptr<MessageChannel> channel, std::string peer);
  ~Visit() override;

  // Does what can be done. True when it got further.
  bool pump();
  bool over() const { return phase_ == Phase::Over; }
  const VisitReport& report() const { return report_; }

 private:
  enum class Phase { Asking, Sending, Receiving, Leaving, Over };

  Result<bool> step();
  Result<void> handle(Message message);
  Result<void> begin_get(const message::Get& m);
  Result<void> begin_put(const message::Put& m);
  Result<TransferTarget> target_of(const message::Put& m);
  Result<void> send_begin(RootKind kind, const TreeSize& size, Access access);
  void refuse(const Error& error);
  void leave(std::optional<Error> error);
  void end(std::optional<Error> error);

  TransferObserver& observer() { return *this; }
  void file_begun(const std::string&) override {}
  void moved(std::uint64_t) override {}
  void file_done(const std::string&, std::uint64_t, const DigestBytes&) override {}
  void failed(const std::string& path, const std::string& why) override;
  void skipped(const std::string&, const std::string&) override {}

  Device& device_;
  const UniqueFd& root_;
  const FileServerOptions& options_;
  Staging staging_;
  std::unique_ptr<MessageChannel> channel_;
  std::optional<StreamSender> sender_;
  std::optional<StreamReceiver> receiver_;
  Phase phase_ = Phase::Asking;
  double begun_at_, active_at_;
  VisitReport report_;
};

class FileServer {
 public:
  // `directory` is opened as named; port 0: a free one.
  static Result<std::unique_ptr<FileServer>> create(ProgressEngine& engine, Device& device,
                                                    const std::string& directory, std::uint16_t port,
                                                    FileServerOptions options);

  Endpoint address() const { return listener_->address(); }
  // Accepts, works, and tells of visits that ended. True when it got further.
  bool pump(const std::function<void(const VisitReport&)>& on_over);
  bool is_visited() const { return !visits_.empty(); }
  // By when pump() should run again though nothing happens.
  static Duration patience() { return Duration::milliseconds(500); }

 private:
  static constexpr std::size_t kMaxVisits = 16;

  FileServer(ProgressEngine& engine, Device& device, FileServerOptions options)
      : engine_(engine), device_(device), options_(std::move(options)) {}
  void welcome(ConnectionRequest request);

  ProgressEngine& engine_;
  Device& device_;
  FileServerOptions options_;
  UniqueFd root_;
  std::optional<Listener> listener_;
  std::vector<std::unique_ptr<Visit>> visits_;
};

}  // namespace verbena::tools
