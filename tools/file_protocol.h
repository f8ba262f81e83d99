// SPDX-License-Identifier: Apache-2.0
// The messages by which `verbena serve`, `get` and `put` agree on a transfer. Bytes of files are not in them: those
// move by RDMA READ and WRITE between staging slots.
//
//     0      1      2         3      4              8
//     | 'V'  | 'F'  | version | type | body length  | body          little-endian, length exact
//
// A transfer is a stream: the sender walks a tree depth first and sends File, Chunk ..., FileEnd, Directory ...,
// DirectoryEnd, End. At most kStreamWindow of these are unacknowledged; the receiver takes them in order and answers
// with Ack (a running count), Refused (about one entry) and, after End, Done. A slot named by a Chunk belongs to the
// receiver until that Chunk is acknowledged.
//
//     get: Get >  < Begin  < stream  Ack >    the client READs each Chunk from the server's slot
//     put: Put >  < Begin  stream >  < Ack    the client WRITEs into the server's slot, then sends the Chunk
//
// Names of entries are single components, so that no path can lead out of the tree; the root's is empty.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "verbena/base/error.h"
#include "verbena/base/result.h"

namespace verbena::tools {

inline constexpr std::uint8_t kFileProtocolVersion = 1;
inline constexpr std::size_t kMaxMessageBytes = 4096;
inline constexpr std::size_t kMaxPathBytes = 3072;  // of a request
inline constexpr std::size_t kMaxTextBytes = 512;
inline constexpr std::uint32_t kStreamWindow = 24;  // stream messages not yet acknowledged
inline constexpr std::uint64_t kMaxFileBytes = std::uint64_t{1} << 50;
inline constexpr std::uint64_t kMaxEntries = 10'000'000;  // of one transfer
inline constexpr std::uint32_t kMinSlotBytes = 4096;
inline constexpr std::uint32_t kMaxSlotBytes = 4u << 20;
inline constexpr std::uint16_t kMaxSlots = 64;
inline constexpr std::size_t kRemoteMemoryBytes = 24;  // RemoteMemory::to_bytes()
inline constexpr std::size_t kDigestBytes = 32;        // SHA-256

using DigestBytes = std::array<std::uint8_t, kDigestBytes>;

enum class RootKind : std::uint8_t { File = 1, Directory = 2 };

namespace message {

struct Get {
  std::string path;  // below the served directory, components with '/' between; empty: all of it
  bool operator==(const Get&) const = default;
};
struct Put {
  bool force = false;  // existing files may be replaced
  bool into = false;   // `path` must be a directory, and the file goes into it as `name`
  RootKind kind = RootKind::File;
  std::string path;
  std::string name;  // of a file as it is called at the client; empty for directories
  bool operator==(const Put&) const = default;
};
struct Begin {
  RootKind kind = RootKind::File;
  std::uint16_t slots = 0;
  std::uint32_t slot_bytes = 0;
  std::array<std::byte, kRemoteMemoryBytes> memory{};  // all slots, one after the other
  std::uint64_t total_files = 0, total_bytes = 0;      // get: what is to come; 0 when nobody counted
  bool operator==(const Begin&) const = default;
};
// The transfer as a whole cannot be.
struct Failed {
  ErrorCode code = ErrorCode::Internal;
  std::string text;
  bool operator==(const Failed&) const = default;
};
struct File {
  std::uint32_t id = 0;
  std::uint16_t mode = 0;
  std::uint64_t size = 0;
  std::string name;
  bool operator==(const File&) const = default;
};
struct Chunk {
  std::uint16_t slot = 0;
  std::uint32_t length = 0;
  bool operator==(const Chunk&) const = default;
};
struct FileEnd {
  DigestBytes digest{};
  bool operator==(const FileEnd&) const = default;
};
// The sender cannot go on with this file, or was told that the receiver does not want it.
struct FileAbort {
  ErrorCode code = ErrorCode::Internal;
  std::string text;
  bool operator==(const FileAbort&) const = default;
};
struct Directory {
  std::uint32_t id = 0;
  std::uint16_t mode = 0;
  std::string name;
  bool operator==(const Directory&) const = default;
};
struct DirectoryEnd {
  bool operator==(const DirectoryEnd&) const = default;
};
// An entry that is not sent.
struct Skipped {
  bool is_failure = false;  // false: as meant, for instance a symbolic link
  ErrorCode code = ErrorCode::Internal;
  std::string name;
  std::string text;
  bool operator==(const Skipped&) const = default;
};
struct End {
  bool operator==(const End&) const = default;
};
struct Ack {
  std::uint32_t processed = 0;  // stream messages since the beginning
  bool operator==(const Ack&) const = default;
};
// The receiver does not take the entry. Cancelled: because it does not take the directory around it.
struct Refused {
  std::uint32_t id = 0;
  ErrorCode code = ErrorCode::Internal;
  std::string text;
  bool operator==(const Refused&) const = default;
};
struct Done {
  std::uint64_t files = 0, bytes = 0, failures = 0;
  bool operator==(const Done&) const = default;
};

}  // namespace message

// In the order of their type numbers, from 1.
using Message = std::variant<message::Get, message::Put, message::Begin, message::Failed, message::File, message::Chunk,
                             message::FileEnd, message::FileAbort, message::Directory, message::DirectoryEnd,
                             message::Skipped, message::End, message::Ack, message::Refused, message::Done>;

// "Chunk": for errors.
std::string_view name_of(const Message& message);
// Belongs to the stream and is counted by Ack.
bool is_stream(const Message& message);

// Errors: ProtocolError; the text says what is wrong.
Result<Message> parse_message(std::span<const std::byte> bytes);
// Writes at most kMaxMessageBytes; texts are cut at kMaxTextBytes. What is written can be parsed.
std::size_t emit_message(const Message& message, std::span<std::byte, kMaxMessageBytes> out);

// What a client says when it connects, and a server when it accepts: "VBFT", version, zeros.
std::array<std::byte, 8> file_greeting();
// ProtocolError says how the peer differs.
Result<void> check_file_greeting(std::span<const std::byte> private_data);

}  // namespace verbena::tools
