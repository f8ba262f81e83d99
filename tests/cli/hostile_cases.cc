// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/hostile_peer.h"
#include "tools/digest.h"

namespace verbena::tools {

namespace {

using namespace message;

constexpr RootKind kFile = RootKind::File;
constexpr RootKind kDirectory = RootKind::Directory;

DigestBytes digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.finish();
}

// A client that asks for one thing and listens.
HostileCase ask(std::string_view name, Message first) {
  return {name, [first = std::move(first)](HostilePeer& peer) {
            peer.send(first);
            peer.listen();
          }};
}

// A client that puts a tree, up to its root directory or not, and then sends these.
HostileCase put(std::string_view name, RootKind kind, std::vector<Message> stream) {
  return {name, [kind, stream = std::move(stream)](HostilePeer& peer) {
            peer.send(Put{false, false, kind, "up", kind == kFile ? "n" : ""});
            if (!peer.await_begin()) return;
            for (const Message& message : stream) peer.send(message);
            peer.listen();
          }};
}

HostileCase get(std::string_view name, std::vector<Message> answers) {
  return {name, [answers = std::move(answers)](HostilePeer& peer) {
            peer.send(Get{"file"});
            if (!peer.await_begin()) return;
            for (const Message& message : answers) peer.send(message);
            peer.listen();
          }};
}

// A server that answers the client's request with these.
HostileCase answer(std::string_view name, RootKind kind, std::vector<Message> stream) {
  return {name, [kind, stream = std::move(stream)](HostilePeer& peer) {
            peer.send(peer.own_begin(kind));
            for (const Message& message : stream) peer.send(message);
            peer.listen();
          }};
}

std::vector<Message> many_directories(std::size_t count) {
  std::vector<Message> all{Directory{1, 0755, ""}};
  for (std::uint32_t i = 0; i < count; ++i) all.emplace_back(Directory{i + 2, 0755, "d"});
  return all;
}

// A name that is too long is cut by emit, so the bytes are made by hand.
void send_long_name(HostilePeer& peer) {
  std::array<std::byte, kMaxMessageBytes> out;
  const std::size_t size = emit_message(File{1, 0644, 0, std::string(255, 'n')}, out);
  std::vector<std::byte> bytes(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size));
  bytes.resize(size + 1, std::byte{'n'});
  bytes[4] = static_cast<std::byte>((size + 1 - 8) & 0xff);
  bytes[5] = static_cast<std::byte>((size + 1 - 8) >> 8);
  bytes[8 + 14] = std::byte{0x00};
  bytes[8 + 15] = std::byte{0x01};
  peer.send_bytes(bytes);
}

void put_wrong_digest(HostilePeer& peer) {
  peer.send(Put{false, false, kFile, "up", "n"});
  if (!peer.await_begin()) return;
  peer.write(0, 10);
  peer.send(File{1, 0644, 10, ""});
  peer.send(Chunk{0, 10});
  peer.send(FileEnd{});
  peer.send(End{});
  peer.listen();
}

void put_and_vanish(HostilePeer& peer) {
  peer.send(Put{false, false, kFile, "up", "n"});
  if (!peer.await_begin()) return;
  peer.write(0, 10);
  peer.send(File{1, 0644, 100, ""});
  peer.send(Chunk{0, 10});
  peer.read(0, 0);
  std::_Exit(0);
}

void access_outside(HostilePeer& peer, const Message& first, bool is_write, std::uint64_t offset,
                    std::uint32_t length) {
  peer.send(first);
  if (!peer.await_begin()) return;
  if (is_write) peer.write(offset, length);
  else peer.read(offset, length);
  peer.listen();
}

std::vector<Message> flood() {
  std::vector<Message> all{Directory{1, 0755, ""}};
  for (int i = 0; i < 200; ++i) all.emplace_back(Skipped{false, ErrorCode::NotFound, "n", "x"});
  return all;
}

void send_garbage(HostilePeer& peer) {
  std::vector<std::byte> bytes(333);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37 + 11);
  peer.send_bytes(bytes);
  peer.listen();
}

void send_nothing(HostilePeer& peer) {
  peer.send_bytes({});
  peer.listen();
}

void serve_wrong_key(HostilePeer& peer, bool with_file) {
  Begin begin = peer.own_begin(kFile);
  RemoteMemory memory = *RemoteMemory::from_bytes(begin.memory);
  memory.rkey = RKey(memory.rkey.value() ^ 0x5a5a);
  begin.memory = memory.to_bytes();
  peer.send(begin);
  if (with_file) {
    peer.send(File{1, 0644, 10, ""});
    peer.send(Chunk{0, 10});
  }
  peer.listen();
}

void serve_short_memory(HostilePeer& peer) {
  Begin begin = peer.own_begin(kFile);
  RemoteMemory memory = *RemoteMemory::from_bytes(begin.memory);
  memory.length = 5;
  begin.memory = memory.to_bytes();
  peer.send(begin);
  peer.send(File{1, 0644, 10, ""});
  peer.send(Chunk{0, 10});
  peer.listen();
}

void serve_honest_file(HostilePeer& peer) {
  peer.send(peer.own_begin(kFile));
  peer.send(File{1, 0644, 10, ""});
  peer.send(Chunk{2, 10});
  peer.send(FileEnd{digest_of(peer.own_slots().subspan(2 * 64 * 1024, 10))});
  peer.send(End{});
  peer.listen();
}

// Says that it took all messages of a file of four slots, and no file.
void lose_a_file(HostilePeer& peer) {
  peer.send(peer.own_begin(kFile));
  peer.listen();
  peer.send(Ack{7});
  peer.send(Done{});
  peer.listen();
}

}  // namespace

std::vector<HostileCase> client_cases() {
  std::vector<HostileCase> all;
  all.push_back({"garbage", send_garbage});
  all.push_back({"nothing", send_nothing});
  all.push_back(ask("get-parent", Get{"../secret"}));
  all.push_back(ask("get-absolute", Get{"/etc/passwd"}));
  all.push_back(ask("get-nul", Get{std::string("file\0x", 6)}));
  all.push_back(ask("get-middle", Get{"a/../../secret"}));
  all.push_back(ask("put-parent", Put{true, false, kFile, "../evil", "n"}));
  all.push_back(ask("put-name", Put{true, true, kFile, "", "../evil"}));
  all.push_back(ask("put-no-name", Put{true, true, kFile, "", ""}));
  all.push_back(ask("ack-first", Ack{1}));
  all.push_back(put("file-parent", kDirectory, {Directory{1, 0755, ""}, File{2, 0644, 0, "../evil"}}));
  all.push_back(put("file-slash", kDirectory, {Directory{1, 0755, ""}, File{2, 0644, 0, "a/evil"}}));
  all.push_back(put("file-dots", kDirectory, {Directory{1, 0755, ""}, File{2, 0644, 0, ".."}}));
  all.push_back(put("directory-dots", kDirectory, {Directory{1, 0755, ""}, Directory{2, 0755, ".."}}));
  all.push_back(put("root-with-name", kDirectory, {Directory{1, 0755, "evil"}}));
  all.push_back(put("entry-without-name", kDirectory, {Directory{1, 0755, ""}, File{2, 0644, 0, ""}}));
  all.push_back(put("wrong-kind", kDirectory, {File{1, 0644, 0, ""}}));
  all.push_back(put("second-root", kFile, {File{1, 0644, 0, ""}, FileEnd{digest_of({})}, File{2, 0644, 0, ""}}));
  all.push_back(put("too-many-ends", kDirectory, {Directory{1, 0755, ""}, DirectoryEnd{}, DirectoryEnd{}}));
  all.push_back(put("end-too-soon", kDirectory, {Directory{1, 0755, ""}, End{}}));
  all.push_back(put("nothing-at-all", kDirectory, {End{}}));
  all.push_back(put("chunk-first", kFile, {Chunk{0, 10}}));
  all.push_back(put("chunk-slot", kFile, {File{1, 0644, 100, ""}, Chunk{63, 10}}));
  all.push_back(put("chunk-length", kFile, {File{1, 0644, 1u << 30, ""}, Chunk{0, kMaxSlotBytes}}));
  all.push_back(put("chunk-too-much", kFile, {File{1, 0644, 10, ""}, Chunk{0, 20}}));
  all.push_back(put("file-too-short", kFile, {File{1, 0644, 10, ""}, Chunk{0, 5}, FileEnd{}}));
  all.push_back(
      put("file-in-file", kDirectory, {Directory{1, 0755, ""}, File{2, 0644, 9, "a"}, File{3, 0644, 9, "b"}}));
  all.push_back(put("too-deep", kDirectory, many_directories(20)));
  all.push_back(put("flood", kDirectory, flood()));
  all.push_back(put("get-inside", kDirectory, {Get{"file"}}));
  all.push_back({"long-name", [](HostilePeer& peer) {
                   peer.send(Put{false, false, kFile, "up", "n"});
                   if (peer.await_begin()) send_long_name(peer), peer.listen();
                 }});
  all.push_back({"wrong-digest", put_wrong_digest});
  all.push_back({"vanish", put_and_vanish});
  const Message a_put = Put{false, false, kFile, "up", "n"}, a_get = Get{"file"};
  all.push_back({"write-outside", [=](HostilePeer& p) { access_outside(p, a_put, true, (8u << 20) - 5, 10); }});
  all.push_back({"write-before", [=](HostilePeer& p) { access_outside(p, a_put, true, 0 - std::uint64_t{16}, 8); }});
  all.push_back({"read-of-put", [=](HostilePeer& p) { access_outside(p, a_put, false, 0, 10); }});
  all.push_back({"write-of-get", [=](HostilePeer& p) { access_outside(p, a_get, true, 0, 10); }});
  all.push_back({"read-outside", [=](HostilePeer& p) { access_outside(p, a_get, false, 8u << 20, 1); }});
  all.push_back(get("ack-too-much", {Ack{1000}}));
  all.push_back(get("ack-backwards", {Ack{0xffffffff}}));
  all.push_back(get("done-early", {Done{}}));
  all.push_back(get("refused-unknown", {Refused{99, ErrorCode::IoError, "x"}}));
  all.push_back(get("refused-twice", {Refused{1, ErrorCode::IoError, "x"}, Refused{1, ErrorCode::IoError, "x"}}));
  all.push_back(get("file-to-sender", {File{1, 0644, 0, ""}}));
  all.push_back(get("get-again", {Get{"file"}}));
  return all;
}

std::vector<HostileCase> server_cases() {
  std::vector<HostileCase> all;
  all.push_back({"honest", serve_honest_file});
  all.push_back({"garbage", send_garbage});
  all.push_back({"nothing", send_nothing});
  all.push_back({"wrong-key", [](HostilePeer& peer) { serve_wrong_key(peer, true); }});
  all.push_back({"wrong-key-to-write", [](HostilePeer& peer) { serve_wrong_key(peer, false); }});
  all.push_back({"short-memory", serve_short_memory});
  all.push_back({"lose-file", lose_a_file});
  all.push_back(ask("failed-with-escapes", Failed{ErrorCode::NotFound, "\x1b[31mred\nline"}));
  all.push_back(ask("file-first", File{1, 0644, 0, ""}));
  all.push_back(ask("no-slots", Begin{}));
  all.push_back(answer("file-parent", kDirectory, {Directory{1, 0755, ""}, File{2, 0644, 0, "../evil"}}));
  all.push_back(answer("directory-dots", kDirectory, {Directory{1, 0755, ""}, Directory{2, 0755, ".."}}));
  all.push_back(answer("root-with-name", kFile, {File{1, 0644, 0, "evil"}}));
  all.push_back(answer("wrong-kind", kDirectory, {File{1, 0644, 0, ""}}));
  all.push_back(answer("chunk-too-much", kFile, {File{1, 0644, 10, ""}, Chunk{0, 20}}));
  all.push_back(answer("chunk-slot", kFile, {File{1, 0644, 10, ""}, Chunk{4, 10}}));
  all.push_back(answer("chunk-twice", kFile, {File{1, 0644, 1000000, ""}, Chunk{0, 60000}, Chunk{0, 60000}}));
  all.push_back(answer("wrong-digest", kFile, {File{1, 0644, 10, ""}, Chunk{0, 10}, FileEnd{}, End{}}));
  all.push_back(answer("file-too-short", kFile, {File{1, 0644, 10, ""}, Chunk{0, 5}, FileEnd{}}));
  all.push_back(answer("huge-file", kFile, {File{1, 0644, kMaxFileBytes, ""}, Chunk{0, 10}, FileEnd{}}));
  all.push_back(answer("too-deep", kDirectory, many_directories(20)));
  all.push_back(answer("ack-to-receiver", kFile, {Ack{1}}));
  all.push_back(answer("done-to-receiver", kFile, {Done{}}));
  all.push_back(answer("ack-too-much", kFile, {Ack{1000}}));
  all.push_back(answer("refuse-all", kFile, {Refused{1, ErrorCode::ResourceExhausted, "\x1b]0;no\x07"}, Ack{1}}));
  return all;
}

}  // namespace verbena::tools
