// SPDX-License-Identifier: Apache-2.0
#include "tools/file_protocol.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "tools/safe_path.h"

namespace verbena::tools {
namespace {

using namespace message;
using Bytes = std::vector<std::byte>;

Bytes emit(const Message& message) {
  std::array<std::byte, kMaxMessageBytes> out;
  const std::size_t size = emit_message(message, out);
  return {out.begin(), out.begin() + static_cast<std::ptrdiff_t>(size)};
}

// One of each type, every field away from its default.
std::vector<Message> samples() {
  Begin begin{RootKind::Directory, 8, 1u << 20, {}, 77, 88};
  begin.memory[3] = std::byte{9};
  FileEnd end;
  end.digest[31] = 5;
  return {Get{"a/b c/d"},
          Put{true, true, RootKind::Directory, "x/y", "z"},
          begin,
          Failed{ErrorCode::NotFound, "no"},
          File{7, 0644, 1ull << 40, "name"},
          Chunk{3, 4711},
          end,
          FileAbort{ErrorCode::IoError, "gone"},
          Directory{9, 0755, ""},
          DirectoryEnd{},
          Skipped{true, ErrorCode::PermissionDenied, "n", "why"},
          End{},
          Ack{123456},
          Refused{5, ErrorCode::AlreadyExists, "exists"},
          Done{1, 2, 3}};
}

// Body offsets of what the tests damage.
constexpr std::size_t kBody = 8;

Result<Message> parse_with(Bytes bytes, std::size_t at, std::initializer_list<int> values) {
  for (const int value : values) bytes.at(at++) = static_cast<std::byte>(value);
  return parse_message(bytes);
}

TEST(FileProtocol, reads_back_what_it_wrote) {
  const auto all = samples();
  ASSERT_EQ(all.size(), std::variant_size_v<Message>);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].index(), i);
    const auto back = parse_message(emit(all[i]));
    ASSERT_TRUE(back) << name_of(all[i]) << ": " << back.error().to_string();
    EXPECT_TRUE(*back == all[i]) << name_of(all[i]);
  }
}

TEST(FileProtocol, refuses_every_cut_and_every_addition) {
  for (const Message& message : samples()) {
    const Bytes whole = emit(message);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(parse_message(cut)) << name_of(message) << " of " << size;
      if (size < kBody) continue;
      const auto body = static_cast<std::uint8_t>(size - kBody);
      EXPECT_FALSE(parse_with(cut, 4, {body, 0, 0, 0})) << name_of(message) << " of " << size << ", length adjusted";
    }
    Bytes longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(parse_message(longer));
    const std::size_t body = longer.size() - kBody;
    EXPECT_FALSE(parse_with(longer, 4, {static_cast<int>(body & 0xff), static_cast<int>(body >> 8), 0, 0}));
  }
}

TEST(FileProtocol, refuses_a_wrong_header) {
  const Bytes good = emit(Ack{1});
  EXPECT_FALSE(parse_with(good, 0, {'W'}));
  EXPECT_FALSE(parse_with(good, 1, {'f'}));
  EXPECT_FALSE(parse_with(good, 2, {kFileProtocolVersion + 1}));
  EXPECT_FALSE(parse_with(good, 3, {0}));
  EXPECT_FALSE(parse_with(good, 3, {static_cast<int>(std::variant_size_v<Message>) + 1}));
  EXPECT_FALSE(parse_with(good, 4, {0xff, 0xff, 0xff, 0xff}));
  EXPECT_FALSE(parse_message(Bytes(kMaxMessageBytes + 1)));
  const auto error = parse_with(good, 2, {9}).error();
  EXPECT_EQ(error.code(), ErrorCode::ProtocolError);
  EXPECT_NE(error.context().find("version 9"), std::string::npos);
}

TEST(FileProtocol, refuses_names_that_are_paths) {
  const std::string dots = "..", current = ".", slash = "a/b", zero("a\0b", 3);
  for (const std::string& name : {dots, current, slash, zero, std::string("/")}) {
    EXPECT_FALSE(parse_message(emit(File{1, 0644, 1, name}))) << printable(name);
    EXPECT_FALSE(parse_message(emit(Directory{1, 0755, name}))) << printable(name);
    EXPECT_FALSE(parse_message(emit(Put{false, false, RootKind::File, "x", name}))) << printable(name);
    EXPECT_FALSE(parse_message(emit(Skipped{false, ErrorCode::NotFound, name, ""}))) << printable(name);
  }
  EXPECT_TRUE(parse_message(emit(File{1, 0644, 1, std::string(kMaxNameBytes, 'n')})));
}

TEST(FileProtocol, refuses_paths_that_lead_elsewhere) {
  for (const char* path : {"/etc/passwd", "../x", "a/../b", "a//b", "a/", "a/.", "."}) {
    EXPECT_FALSE(parse_message(emit(Get{path}))) << path;
    EXPECT_FALSE(parse_message(emit(Put{false, false, RootKind::File, path, "n"}))) << path;
  }
  EXPECT_TRUE(parse_message(emit(Get{""})));
  EXPECT_TRUE(parse_message(emit(Get{"..a/b..c"})));
}

TEST(FileProtocol, refuses_numbers_out_of_range) {
  EXPECT_FALSE(parse_message(emit(File{1, 01000, 1, "n"})));
  EXPECT_FALSE(parse_message(emit(File{1, 0644, kMaxFileBytes + 1, "n"})));
  EXPECT_TRUE(parse_message(emit(File{1, 0644, kMaxFileBytes, "n"})));
  EXPECT_FALSE(parse_message(emit(Chunk{kMaxSlots, 1})));
  EXPECT_FALSE(parse_message(emit(Chunk{0, 0})));
  EXPECT_FALSE(parse_message(emit(Chunk{0, kMaxSlotBytes + 1})));
  EXPECT_FALSE(parse_message(emit(Begin{RootKind::File, 0, 1u << 20, {}, 0, 0})));
  EXPECT_FALSE(parse_message(emit(Begin{RootKind::File, kMaxSlots + 1, 1u << 20, {}, 0, 0})));
  EXPECT_FALSE(parse_message(emit(Begin{RootKind::File, 1, kMinSlotBytes - 1, {}, 0, 0})));
  EXPECT_FALSE(parse_message(emit(Begin{RootKind::File, 1, kMaxSlotBytes + 1, {}, 0, 0})));
  EXPECT_FALSE(parse_with(emit(Begin{RootKind::File, 1, kMinSlotBytes, {}, 0, 0}), kBody, {3}));
  EXPECT_FALSE(parse_with(emit(Put{false, false, RootKind::File, "x", "n"}), kBody, {2}));
  EXPECT_FALSE(parse_with(emit(Failed{ErrorCode::NotFound, "x"}), kBody, {0, 0}));
  EXPECT_FALSE(parse_with(emit(Failed{ErrorCode::NotFound, "x"}), kBody, {0xff, 0xff}));
}

TEST(FileProtocol, cuts_long_texts_and_fits_the_longest_message) {
  const auto failed = parse_message(emit(Failed{ErrorCode::Internal, std::string(5000, 'x')}));
  ASSERT_TRUE(failed);
  EXPECT_EQ(std::get<Failed>(*failed).text.size(), kMaxTextBytes);
  std::string path(kMaxNameBytes, 'p');
  while (path.size() + 256 <= kMaxPathBytes) path += "/" + std::string(kMaxNameBytes, 'p');
  const Put longest{true, true, RootKind::File, path, std::string(kMaxNameBytes, 'n')};
  const auto put = parse_message(emit(longest));
  ASSERT_TRUE(put);
  EXPECT_EQ(std::get<Put>(*put), longest);
}

TEST(FileProtocol, greets_its_own_kind_only) {
  const auto greeting = file_greeting();
  EXPECT_TRUE(check_file_greeting(greeting));
  Bytes padded(greeting.begin(), greeting.end());
  padded.resize(56);
  EXPECT_TRUE(check_file_greeting(padded));
  padded[4] = std::byte{kFileProtocolVersion + 1};
  const auto other = check_file_greeting(padded);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().context().find("version 2"), std::string::npos);
  EXPECT_FALSE(check_file_greeting(std::span(greeting).first(7)));
  EXPECT_FALSE(check_file_greeting(Bytes(56)));
}

}  // namespace
}  // namespace verbena::tools
