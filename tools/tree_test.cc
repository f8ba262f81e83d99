// SPDX-License-Identifier: Apache-2.0
#include "tools/tree.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

#include "tools/safe_path.h"
#include "tools/test_folder.h"

namespace verbena::tools {
namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

UniqueFd open_folder(const TestFolder& folder) { return std::move(open_as_named(folder.str())->fd); }

TEST(Tree, opens_what_lies_below) {
  const TestFolder folder;
  folder.write("a/b/file", "text");
  const UniqueFd root = open_folder(folder);
  const auto file = open_below(root.get(), Names{"a", "b", "file"});
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->status.kind, EntryKind::File);
  EXPECT_EQ(file->status.size, 4u);
  EXPECT_EQ(open_below(root.get(), Names{})->status.kind, EntryKind::Directory);
  EXPECT_EQ(open_below(root.get(), Names{"a", "c"}).error().code(), ErrorCode::NotFound);
}

TEST(Tree, follows_no_link_at_any_place) {
  const TestFolder outside, folder;
  outside.write("secret", "x");
  folder.write("real/file", "y");
  fs::create_symlink(outside.str(), folder / "out");
  fs::create_symlink(outside / "secret", folder / "leak");
  fs::create_symlink("real", folder / "inside");
  const UniqueFd root = open_folder(folder);
  for (const Names& path : {Names{"out", "secret"}, Names{"leak"}, Names{"inside", "file"}, Names{"out"}}) {
    const auto entry = open_below(root.get(), path);
    ASSERT_FALSE(entry) << path.back();
    EXPECT_NE(entry.error().context().find("symbolic link"), std::string::npos) << entry.error().to_string();
  }
  EXPECT_FALSE(open_directory_below(root.get(), Names{"out"}));
  bool created = true;
  EXPECT_FALSE(make_directory(root.get(), "out", 0755, created));
  EXPECT_FALSE(created);
}

TEST(Tree, makes_no_directory_that_it_cannot_open) {
  const TestFolder folder;
  const UniqueFd root = open_folder(folder);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = root.duplicate()->get();  // closed again: the number the next one would have
  const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  bool created = false;
  const auto made = make_directory(root.get(), "d", 0755, created);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().native(), EMFILE);
  EXPECT_FALSE(created);
  EXPECT_EQ(folder.count(), 0u);
}

TEST(Tree, does_not_wait_for_a_fifo) {
  const TestFolder folder;
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  const UniqueFd root = open_folder(folder);
  EXPECT_EQ(open_entry(root.get(), "fifo").error().code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(open_as_named((folder / "fifo").string()).error().code(), ErrorCode::InvalidArgument);
}

TEST(Tree, lists_names_in_order_and_within_the_limit) {
  const TestFolder folder;
  for (const char* name : {"b", ".hidden", "a", "c"}) folder.write(name, "");
  const UniqueFd root = open_folder(folder);
  EXPECT_EQ(*list_names(root.get()), (Names{".hidden", "a", "b", "c"}));
  EXPECT_EQ(*list_names(root.get()), (Names{".hidden", "a", "b", "c"})) << "again, from the beginning";
  EXPECT_EQ(list_names(root.get(), 3).error().code(), ErrorCode::ResourceExhausted);
}

TEST(PartialFile, appears_at_once_and_whole) {
  const TestFolder folder;
  const UniqueFd root = open_folder(folder);
  auto file = PartialFile::create(root.get(), "name", false);
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_TRUE(file->append(bytes("hello ")));
  ASSERT_TRUE(file->append(bytes("world")));
  EXPECT_FALSE(fs::exists(folder / "name"));
  ASSERT_TRUE(file->commit(0640));
  EXPECT_EQ(folder.read("name"), "hello world");
  EXPECT_EQ(fs::status(folder / "name").permissions(), static_cast<fs::perms>(0640));
  EXPECT_EQ(folder.count(), 1u);
}

TEST(PartialFile, leaves_nothing_when_it_is_dropped) {
  const TestFolder folder;
  const UniqueFd root = open_folder(folder);
  {
    auto file = PartialFile::create(root.get(), "name", false);
    ASSERT_TRUE(file && file->append(bytes("half")));
    const PartialFile moved = std::move(*file);
  }
  EXPECT_EQ(folder.count(), 0u);
}

TEST(PartialFile, replaces_only_when_told_to) {
  const TestFolder folder;
  folder.write("name", "old");
  const UniqueFd root = open_folder(folder);
  EXPECT_EQ(PartialFile::create(root.get(), "name", false).error().code(), ErrorCode::AlreadyExists);
  auto file = PartialFile::create(root.get(), "name", true);
  ASSERT_TRUE(file && file->append(bytes("new")));
  EXPECT_EQ(folder.read("name"), "old");
  ASSERT_TRUE(file->commit(0600));
  EXPECT_EQ(folder.read("name"), "new");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(PartialFile, does_not_replace_what_came_meanwhile) {
  const TestFolder folder;
  const UniqueFd root = open_folder(folder);
  auto file = PartialFile::create(root.get(), "name", false);
  ASSERT_TRUE(file && file->append(bytes("ours")));
  folder.write("name", "theirs");
  EXPECT_EQ(file->commit(0600).error().code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(folder.read("name"), "theirs");
  EXPECT_EQ(folder.count(), 1u);
}

TEST(PartialFile, replaces_a_link_and_not_what_it_names) {
  const TestFolder folder, outside;
  outside.write("target", "kept");
  fs::create_symlink(outside / "target", folder / "name");
  const UniqueFd root = open_folder(folder);
  EXPECT_FALSE(PartialFile::create(root.get(), "name", false));
  auto file = PartialFile::create(root.get(), "name", true);
  ASSERT_TRUE(file && file->append(bytes("new")) && file->commit(0600));
  EXPECT_EQ(outside.read("target"), "kept");
  EXPECT_FALSE(fs::is_symlink(folder / "name"));
}

TEST(PartialFile, never_replaces_a_directory) {
  const TestFolder folder;
  folder.write("name/inside", "");
  const UniqueFd root = open_folder(folder);
  EXPECT_EQ(PartialFile::create(root.get(), "name", true).error().code(), ErrorCode::AlreadyExists);
}

}  // namespace
}  // namespace verbena::tools
