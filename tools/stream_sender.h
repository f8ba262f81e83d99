// SPDX-License-Identifier: Apache-2.0
// The sender's end of a transfer: reads a tree into staging slots and tells of it. See file_protocol.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/digest.h"
#include "tools/message_channel.h"
#include "tools/transfer.h"
#include "tools/tree_walk.h"

namespace verbena::tools {

// Channel, staging and observer outlive it.
class StreamSender {
 public:
  // With `remote`, each chunk is written to the same slot there before it is announced; without, the peer reads it.
  StreamSender(MessageChannel& channel, Staging& staging, std::optional<RemoteMemory> remote, OpenedEntry root,
               TransferObserver& observer);

  // Ack, Refused or Done. ProtocolError for everything else, and for what cannot be true.
  Result<void> handle(const Message& message);
  // Reads and sends as far as window and slots allow, some chunks at a time. True when it got further.
  Result<bool> pump();
  // The receiver has told that it has everything.
  bool finished() const { return finished_; }
  const TransferTotals& totals() const { return totals_; }

 private:
  // A stream message that is not acknowledged.
  struct Outstanding {
    std::optional<std::uint16_t> slot{};
    std::uint32_t length = 0;           // with a slot
    std::optional<std::uint32_t> ends{};  // the entry whose last message this is
    bool is_directory_end = false;
    bool is_file_end = false;           // complete, with `digest`
    std::uint64_t size = 0;
    DigestBytes digest{};
  };
  struct CurrentFile {
    std::uint32_t id = 0;
    UniqueFd fd;
    std::uint64_t size = 0, left = 0;
    Digest digest;
  };

  Result<bool> step();
  static void check_empty(WalkItem& item);
  Result<void> begin_entry(WalkItem item);
  Result<bool> send_chunk();
  Result<void> end_file();
  Result<void> abort_file(const Error& error);
  Result<void> send(const Message& message, Outstanding outstanding);
  std::optional<std::uint16_t> free_slot();
  Result<void> acknowledged(std::uint32_t processed);
  void settle(const Outstanding& outstanding);
  Result<void> refused(const message::Refused& refusal);
  void count_failure(const std::string& path, const std::string& why);

  MessageChannel& channel_;
  Staging& staging_;
  const std::optional<RemoteMemory> remote_;
  TreeWalk walk_;
  TransferObserver& observer_;
  std::array<Operation, kMaxSlots> writes_;
  std::vector<bool> slot_taken_;
  std::optional<CurrentFile> current_;
  std::vector<std::uint32_t> open_directories_;     // ids, outermost first
  std::map<std::uint32_t, std::string> in_flight_;  // paths of entries not settled
  std::set<std::uint32_t> refused_;                 // of those
  std::set<std::uint32_t> aborted_;                 // of those, here: counted already
  std::deque<Outstanding> outstanding_;
  std::uint32_t next_id_ = 1;
  std::uint32_t processed_ = 0;  // by the receiver
  bool all_sent_ = false, finished_ = false;
  TransferTotals totals_;
};

}  // namespace verbena::tools
