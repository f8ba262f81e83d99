// SPDX-License-Identifier: Apache-2.0
#include "tools/safe_path.h"

#include <gtest/gtest.h>

namespace verbena::tools {
namespace {

using Parts = std::vector<std::string>;

TEST(SafePath, splits_a_relative_path) {
  EXPECT_EQ(*split_path(""), Parts{});
  EXPECT_EQ(*split_path("a"), Parts{"a"});
  EXPECT_EQ(*split_path("a b/...x/\n"), (Parts{"a b", "...x", "\n"}));
}

TEST(SafePath, refuses_what_could_lead_out) {
  for (const std::string& path : {std::string("/"), std::string("/a"), std::string("a//b"), std::string("a/"),
                                  std::string(".."), std::string("a/../b"), std::string("a/."), std::string("a\0b", 3),
                                  "a/" + std::string(kMaxNameBytes + 1, 'x')}) {
    const auto parts = split_path(path);
    ASSERT_FALSE(parts) << printable(path);
    EXPECT_EQ(parts.error().code(), ErrorCode::InvalidArgument);
  }
}

TEST(SafePath, limits_the_depth) {
  std::string path = "d";
  for (std::size_t i = 1; i < kMaxDepth; ++i) path += "/d";
  EXPECT_EQ(split_path(path)->size(), kMaxDepth);
  EXPECT_FALSE(split_path(path + "/d"));
}

TEST(SafePath, finds_the_last_component) {
  EXPECT_EQ(last_component(""), "");
  EXPECT_EQ(last_component("a"), "a");
  EXPECT_EQ(last_component("a/b"), "b");
  EXPECT_EQ(last_component("/a/b//"), "b");
  EXPECT_EQ(last_component("/"), "");
}

TEST(SafePath, shows_control_characters_and_broken_text) {
  EXPECT_EQ(printable("plain \xc3\xbc \xe2\x82\xac \xf0\x9f\x8c\xbf"), "plain \xc3\xbc \xe2\x82\xac \xf0\x9f\x8c\xbf");
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f"), "a\\nb\\x1b[31m\\x7f");
  EXPECT_EQ(printable("back\\slash"), "back\\\\slash");
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xc2\x9b" "31m"), "\\xc2\\x9b31m");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
}

}  // namespace
}  // namespace verbena::tools
