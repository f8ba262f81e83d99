// SPDX-License-Identifier: Apache-2.0
// The receiver's end of a transfer: makes files and directories of a stream. See file_protocol.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "tools/digest.h"
#include "tools/message_channel.h"
#include "tools/transfer.h"
#include "tools/tree.h"

namespace verbena::tools {

// Where the root of the tree will stand.
struct TransferTarget {
  RootKind kind = RootKind::File;
  UniqueFd parent;
  std::string name;   // in `parent`; empty: `parent` itself is the root
  std::string shown;  // the root, for people
  bool force = false;  // existing files may be replaced
};

// Channel, staging and observer outlive it.
class StreamReceiver {
 public:
  // With `remote`, each chunk is read from the same slot there first; without, the peer has written it.
  StreamReceiver(MessageChannel& channel, Staging& staging, std::optional<RemoteMemory> remote, TransferTarget target,
                 TransferObserver& observer);

  // A message of the stream. ProtocolError for everything else, and for what cannot follow.
  Result<void> handle(Message message);
  // Takes what is here, some chunks at a time. True when it got further. Errors: ProtocolError, and those of READ.
  Result<bool> pump();
  // Has told the sender that it has everything.
  bool finished() const { return finished_; }
  const TransferTotals& totals() const { return totals_; }

 private:
  struct Level {
    UniqueFd directory;  // not open: refused, with all that is in it
    std::uint32_t id = 0;
    std::uint16_t mode = 0;
    bool created = false;
    std::string path;
  };
  struct CurrentFile {
    std::uint32_t id = 0;
    std::uint16_t mode = 0;
    std::uint64_t size = 0, got = 0;
    std::string path;
    std::optional<PartialFile> partial;  // none: refused
    Digest digest;
  };

  Result<void> process(const Message& message);
  Result<void> begin_directory(const message::Directory& m);
  Result<void> end_directory();
  Result<void> begin_file(const message::File& m);
  Result<void> take_chunk(const message::Chunk& m);
  Result<void> end_file(const message::FileEnd& m);
  Result<void> abort_file(const message::FileAbort& m);
  Result<void> skip(const message::Skipped& m);
  Result<void> end();
  // Root or not, where an entry of this kind and name may stand now.
  Result<void> check_entry(RootKind kind, const std::string& name);
  std::string path_of(const std::string& name) const;
  Result<void> refuse(std::uint32_t id, const std::string& path, const Error& error);
  Result<void> acknowledge();

  MessageChannel& channel_;
  Staging& staging_;
  const std::optional<RemoteMemory> remote_;
  TransferTarget target_;
  TransferObserver& observer_;
  std::array<Operation, kMaxSlots> reads_;
  std::deque<Message> queue_;
  std::vector<Level> levels_;
  std::optional<CurrentFile> current_;
  bool root_seen_ = false, finished_ = false;
  std::uint64_t entries_ = 0;
  std::uint32_t processed_ = 0, acknowledged_ = 0;
  TransferTotals totals_;
};

}  // namespace verbena::tools
