// SPDX-License-Identifier: Apache-2.0
#include "tools/tree_walk.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tools/safe_path.h"
#include "tools/test_folder.h"

namespace verbena::tools {
namespace {

namespace fs = std::filesystem;

// "D path", "F path", "E path", "S path", "X path", one after the other.
std::string describe(const WalkItem& item) {
  constexpr char kLetters[] = "FDESX";
  return std::string{kLetters[static_cast<std::size_t>(item.kind)], ' '} + item.path;
}

std::vector<std::string> walk(const std::string& path) {
  TreeWalk walk(std::move(*open_as_named(path)));
  std::vector<std::string> seen;
  for (WalkItem item = walk.next(); item.kind != WalkItem::Kind::End; item = walk.next())
    seen.push_back(describe(item));
  return seen;
}

using Seen = std::vector<std::string>;

TEST(TreeWalk, goes_depth_first_in_the_order_of_names) {
  const TestFolder folder;
  folder.write("b/y", "1");
  folder.write("b/x", "22");
  folder.write("a", "333");
  fs::create_directory(folder / "empty");
  EXPECT_EQ(walk(folder.str()), (Seen{"D ", "F a", "D b", "F b/x", "F b/y", "E b", "D empty", "E empty", "E "}));
  EXPECT_EQ(measure(*open_as_named(folder.str()), 100).files, 3u);
  EXPECT_EQ(measure(*open_as_named(folder.str()), 100).bytes, 6u);
  EXPECT_EQ(measure(*open_as_named(folder.str()), 3).files, 0u);
}

TEST(TreeWalk, of_a_file_is_that_file) {
  const TestFolder folder;
  folder.write("file", "12345");
  EXPECT_EQ(walk((folder / "file").string()), Seen{"F "});
  EXPECT_EQ(measure(*open_as_named((folder / "file").string()), 1).bytes, 5u);
}

TEST(TreeWalk, tells_what_it_leaves_out) {
  const TestFolder folder;
  folder.write("file", "");
  fs::create_symlink("file", folder / "link");
  fs::create_symlink(folder.str(), folder / "loop");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_EQ(walk(folder.str()), (Seen{"D ", "S fifo", "F file", "S link", "S loop", "E "}));
}

TEST(TreeWalk, stops_at_the_greatest_depth) {
  const TestFolder folder;
  std::string path = "d";
  for (std::size_t i = 0; i < kMaxDepth; ++i) path += "/d";
  fs::create_directories(folder / path);
  const auto seen = walk(folder.str());
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](const auto& s) { return s[0] == 'D'; }),
            static_cast<std::ptrdiff_t>(kMaxDepth));
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](const auto& s) { return s[0] == 'X'; }), 1);
}

TEST(TreeWalk, abandons_directories_from_the_inside) {
  const TestFolder folder;
  for (const char* name : {"a/b/1", "a/b/2", "a/c", "d"}) folder.write(name, "");
  TreeWalk tree(std::move(*open_as_named(folder.str())));
  for (const char* expected : {"D ", "D a", "D a/b", "F a/b/1"}) EXPECT_EQ(describe(tree.next()), expected);
  tree.abandon(1);
  for (const char* expected : {"E a/b", "E a", "F d", "E "}) EXPECT_EQ(describe(tree.next()), expected);
  EXPECT_EQ(tree.next().kind, WalkItem::Kind::End);
}

}  // namespace
}  // namespace verbena::tools
